"""What a leader takes for committed, and whom it takes for in sync.

A test with the ids `on` and `off` runs one history twice: with the rule nothing bad happens, and
without it the published bug does.
"""

from __future__ import annotations

import pytest
from machines import PARTITION, Replicas, led_by, seen, with_and_without, without

from lossless.core.in_sync import Phase, Proposal
from lossless.core.messages import DeleteRecords, Error, FetchPartition, InSyncReplica
from lossless.core.replica import ALL, Replica, ReplicaConfig
from lossless.log.log import Log
from lossless.log.memory import MemoryStore
from lossless.log.rules import Rules

LAG_MS = ReplicaConfig().lag_ms_max


# The high watermark


def test_committed_is_what_everybody_in_sync_has(three: Replicas) -> None:
    """R2."""
    three.append(1, b"a", b"b")
    assert three[1].high_watermark == 0
    three.fetch(2, 1, times=2)
    assert three[1].high_watermark == 0
    three.fetch(3, 1, times=2)
    assert three[1].high_watermark == 2


def test_a_follower_learns_of_what_is_committed_one_fetch_later(three: Replicas) -> None:
    three.append(1, b"a")
    three.fetch(2, 1)
    three.fetch(3, 1, times=2)
    assert (three[1].high_watermark, three[2].high_watermark) == (0, 0)
    three.fetch(2, 1)
    assert (three[1].high_watermark, three[2].high_watermark) == (1, 1)


def test_who_is_about_to_join_is_waited_for_while_another_change_is_under_way() -> None:
    """R12: 2 has everything, and 3 is being added."""
    three = Replicas()
    three.told(led_by(1, 1, isr=(1,)))
    three.append(1, b"a")
    three.fetch(3, 1, times=2)
    three.fetch(2, 1, times=2)
    assert three[1].in_sync.maximal == (1, 3)
    three.append(1, b"b")
    three.fetch(3, 1, times=2)
    assert three[1].high_watermark == 1
    three.fetch(2, 1, times=2)
    assert three[1].high_watermark == 2


def test_who_left_the_set_is_not_waited_for(three: Replicas) -> None:
    """R8."""
    three.append(1, b"a")
    three.fetch(2, 1, times=2)
    assert three[1].high_watermark == 0
    three.told(led_by(1, 1, isr=(1, 2), partition_epoch=2), 1)
    assert three[1].high_watermark == 1


def test_who_is_outside_and_lags_is_not_waited_for(outside: Replicas) -> None:
    """R8."""
    outside.fetch(2, 1)
    outside.append(1, b"c")
    assert outside[1].high_watermark == 3


def test_what_is_committed_stays_committed_in_an_epoch(three: Replicas) -> None:
    three.append(1, b"a", b"b")
    three.fetch(2, 1, times=2)
    three.fetch(3, 1, times=2)
    three.ask(2, 1, FetchPartition(PARTITION, 1, 1, 1))  # its disk has lost the second
    assert three[1].high_watermark == 2


@with_and_without("high_watermark_needs_min_isr")
def test_nothing_is_committed_while_the_set_is_too_small(rules: Rules, is_on: bool) -> None:
    """R2, since Kafka 3.7: else a record is committed that one disk has."""
    three = Replicas(rules=rules)
    three.told(led_by(1, 1, isr=(1,)), min_isr=2)
    three.append(1, b"a")
    assert three[1].high_watermark == (0 if is_on else 1)
    assert seen(three[1]) == ([] if is_on else [b"a"])
    three.told(led_by(1, 1, isr=(1,), partition_epoch=1), 1, min_isr=1)
    assert three[1].high_watermark == 1  # the setting was changed


@with_and_without("high_watermark_from_log_start")
def test_the_high_watermark_is_never_before_the_logs_start(rules: Rules, is_on: bool) -> None:
    """KAFKA-9491."""
    both = Replicas(1, 2, rules=rules)
    both.told(led_by(1, 1, isr=(1,), replicas=(1, 2)))
    both.append(1, b"a", b"b", b"c")
    both[1].on_delete_records(DeleteRecords(PARTITION, 3))
    both.fetch(2, 1)
    assert both[2].log.log_start_offset == 3
    assert both[2].high_watermark == (3 if is_on else 0)
    assert both.restart(1).high_watermark == (3 if is_on else 0)


def test_the_high_watermark_of_a_checkpoint_is_not_beyond_the_log() -> None:
    log = Log(MemoryStore())
    replica = Replica(PARTITION, 1, log, high_watermark=9, is_eligible=lambda *_: True)
    assert replica.high_watermark == 0


# The in-sync set


@pytest.fixture
def outside() -> Replicas:
    """1 leads and has two committed records; 2 is not in sync."""
    both = Replicas(1, 2)
    both.told(led_by(1, 1, isr=(1,), replicas=(1, 2)))
    both.append(1, b"a", b"b")
    return both


def test_a_follower_that_has_caught_up_is_to_join_as_the_process_that_fetched(
    outside: Replicas,
) -> None:
    outside.fetch(2, 1)
    assert outside[1].proposal is None
    outside.fetch(2, 1)
    assert outside[1].proposal == Proposal((InSyncReplica(1, -1), InSyncReplica(2, 1)), 1)
    assert outside[1].in_sync.maximal == (1, 2)


def test_who_is_to_join_is_waited_for_at_once(outside: Replicas) -> None:
    """R13."""
    outside.fetch(2, 1, times=2)
    outside.append(1, b"c")
    assert outside[1].high_watermark == 2
    outside.fetch(2, 1, times=2)
    assert outside[1].high_watermark == 3


def test_a_change_is_over_when_the_controller_has_written_it_down(outside: Replicas) -> None:
    outside.fetch(2, 1, times=2)
    outside[1].on_isr_changed((1, 2), 2, 0)
    assert (outside[1].in_sync.isr, outside[1].in_sync.phase) == ((1, 2), Phase.SETTLED)
    assert outside[1].partition_epoch == 2


def test_a_change_is_over_when_the_metadata_says_so(outside: Replicas) -> None:
    outside.fetch(2, 1, times=2)
    outside.told(led_by(1, 1, isr=(1, 2), replicas=(1, 2), partition_epoch=2), 1)
    assert (outside[1].in_sync.isr, outside[1].proposal) == ((1, 2), None)


def test_an_answer_that_comes_after_later_metadata_is_no_news(outside: Replicas) -> None:
    outside.told(led_by(1, 1, isr=(1,), replicas=(1, 2), partition_epoch=5), 1)
    outside[1].on_isr_changed((1, 2), 2, 0)
    assert (outside[1].in_sync.isr, outside[1].partition_epoch) == ((1,), 5)


def test_a_change_that_the_controller_has_made_before_is_over_too(outside: Replicas) -> None:
    """It answers with the epoch that it was asked to change, and with the set as it is."""
    outside.fetch(2, 1, times=2)
    outside[1].on_isr_changed((1, 2), 1, 0)
    assert outside[1].in_sync.phase is Phase.SETTLED


def test_what_was_proposed_in_an_epoch_ends_with_it(outside: Replicas) -> None:
    outside.fetch(2, 1, times=2)
    outside.told(led_by(1, 2, isr=(1,), replicas=(1, 2), partition_epoch=9), 1)
    assert (outside[1].proposal, outside[1].in_sync.maximal) == (None, (1,))
    assert outside[1].partition_epoch == outside[1].in_sync.partition_epoch == 9


def test_a_change_that_is_refused_is_taken_back_and_proposed_again(outside: Replicas) -> None:
    outside.fetch(2, 1, times=2)
    outside[1].proposal = None
    outside[1].on_isr_refused(0)  # of another proposal
    assert outside[1].in_sync.phase is Phase.EXPANDING
    outside[1].on_isr_refused(1)
    assert outside[1].in_sync.phase is Phase.SETTLED
    outside.fetch(2, 1)
    assert outside[1].proposal is not None


def test_a_replica_joins_only_with_the_start_of_the_leaders_epoch() -> None:
    """R10: the new leader's high watermark may be behind what is committed."""
    both = Replicas(1, 2)
    both.told(led_by(1, 1, isr=(1,), replicas=(1, 2)))
    both.append(1, b"a", b"b")
    both.restart(1)
    both.told(led_by(1, 2, isr=(1,), replicas=(1, 2)), min_isr=2)
    assert (both[1].high_watermark, both[1].epoch_start_offset) == (0, 2)
    both.ask(2, 1, FetchPartition(PARTITION, 1, 2, 1))
    assert both[1].proposal is None
    both.ask(2, 1, FetchPartition(PARTITION, 2, 2, 1))
    assert both[1].proposal is not None


@with_and_without("join_at_high_watermark")
def test_a_replica_joins_with_everything_that_is_committed(rules: Rules, is_on: bool) -> None:
    """R10: else it may lead without what was acknowledged."""
    both = Replicas(1, 2, rules=rules)
    both.told(led_by(1, 1, isr=(1,), replicas=(1, 2)))
    both.append(1, b"a", b"b")
    assert both[1].high_watermark == 2
    both.ask(2, 1)
    assert (both[1].proposal is None) is is_on


@with_and_without("fenced_stay_out")
def test_a_replica_that_is_fenced_or_stopping_does_not_join(rules: Rules, is_on: bool) -> None:
    """KIP-841."""
    both = Replicas(1, 2, rules=rules)
    both.ineligible = {2}
    both.told(led_by(1, 1, isr=(1,), replicas=(1, 2)))
    both.append(1, b"a")
    both.fetch(2, 1, times=2)
    assert (both[1].proposal is None) is is_on
    both.append(1, b"b")
    assert both[1].high_watermark == (2 if is_on else 1)  # and is not waited for


@with_and_without("check_and_act_at_once")
def test_no_append_comes_between_the_check_and_the_expansion(rules: Rules, is_on: bool) -> None:
    """R12: else a record is acknowledged that the new member does not have."""
    both = Replicas(1, 2, rules=rules)
    both.told(led_by(1, 1, isr=(1,), replicas=(1, 2)))
    both.append(1, b"a")
    both.fetch(2, 1, times=2)  # 2 has everything: the check succeeds
    assert both[1].is_unfinished is not is_on
    both.append(1, b"b")
    both[1].finish()
    assert not both[1].is_unfinished
    assert both[1].proposal is not None
    both[1].on_isr_changed((1, 2), 2, 0)
    has_all = both[2].log.log_end_offset >= both[1].high_watermark
    assert has_all is is_on  # StrongIsr


def test_who_is_about_to_join_is_forgotten_by_who_leads_no_more() -> None:
    both = Replicas(1, 2, rules=without("check_and_act_at_once"))
    both.told(led_by(1, 1, isr=(1,), replicas=(1, 2)))
    both.fetch(2, 1)
    both.told(led_by(2, 2, isr=(2,), replicas=(1, 2)))
    both[1].finish()
    both.told(led_by(1, 3, isr=(1,), replicas=(1, 2)))
    both[1].finish()
    assert both[1].proposal is None


def test_a_follower_that_lags_for_too_long_is_to_leave(three: Replicas) -> None:
    """R7."""
    three.append(1, b"a")
    three.now_ms = LAG_MS
    three.fetch(2, 1, times=2)
    three[1].on_tick(LAG_MS)
    assert three[1].proposal is None
    three[1].on_tick(LAG_MS + 1)
    assert three[1].proposal == Proposal((InSyncReplica(1, -1), InSyncReplica(2, 1)), 1)


@with_and_without("caught_up_to_previous_end")
def test_a_follower_that_only_fetches_is_to_leave(rules: Rules, is_on: bool) -> None:
    """R7, R8: else it holds up everybody for as long as it fetches."""
    both = Replicas(1, 2, rules=rules)
    both.told(led_by(1, 1, isr=(1, 2), replicas=(1, 2)))
    both.append(1, b"a")
    for both.now_ms in range(0, 3 * LAG_MS, LAG_MS // 2):
        both.ask(2, 1, FetchPartition(PARTITION, 0, 1))
        both[1].on_tick(both.now_ms)
    assert (both[1].proposal is not None) is is_on


@with_and_without("shrink_when_confirmed")
def test_who_is_to_leave_is_waited_for_until_it_has_left(rules: Rules, is_on: bool) -> None:
    """R13: else a refused change has acknowledged what only the leader has."""
    both = Replicas(1, 2, rules=rules)
    both.told(led_by(1, 1, isr=(1, 2), replicas=(1, 2)))
    both.append(1, b"a", acks=ALL)
    both[1].on_tick(LAG_MS + 1)
    assert both[1].in_sync.phase is Phase.SHRINKING
    assert both[1].acknowledged(1, 1) is (None if is_on else Error.NONE)
    both[1].on_isr_refused(1)
    has_all = both[2].log.log_end_offset >= both[1].high_watermark
    assert has_all is is_on  # StrongIsr
    assert both[1].in_sync.maximal == (1, 2)


def test_who_has_left_and_is_proposed_no_more_may_come_back(three: Replicas) -> None:
    three.append(1, b"a")
    three[1].on_tick(LAG_MS + 1)
    three[1].on_isr_changed((1,), 2, LAG_MS + 1)
    assert three[1].high_watermark == 1
    three[1].proposal = None
    three.fetch(2, 1, times=2)
    assert three[1].proposal == Proposal((InSyncReplica(1, -1), InSyncReplica(2, 1)), 2)
