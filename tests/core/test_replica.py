"""A replica as leader and as follower, and what each rule keeps from happening to it.

A test with the ids `on` and `off` runs one history twice: with the rule nothing bad happens, and
without it the published bug does.
"""

from __future__ import annotations

import pytest
from machines import PARTITION, Replicas, led_by, records, without

from lossless.core.in_sync import Phase, Proposal
from lossless.core.messages import (
    NO_LEADER,
    UNKNOWN_EPOCH,
    DeleteRecords,
    Error,
    Fetched,
    FetchPartition,
    InSyncReplica,
    ListOffsets,
    OffsetForLeaderEpoch,
    OffsetKind,
    Produced,
    WriteTxnMarker,
)
from lossless.core.replica import ALL, Replica, ReplicaConfig, Role
from lossless.log.batch import parse_all
from lossless.log.index import AbortedTransaction
from lossless.log.leader_epochs import EpochEnd
from lossless.log.log import Log, LogConfig
from lossless.log.memory import MemoryStore
from lossless.log.rules import RULES, Rules

LAG_MS = ReplicaConfig().lag_ms_max


def with_and_without(*rules: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("rules", "is_on"), [(RULES, True), (without(*rules), False)], ids=["on", "off"]
    )


@pytest.fixture
def three() -> Replicas:
    """1 leads in epoch 1, with 2 and 3 in sync."""
    replicas = Replicas()
    replicas.told(led_by(1, 1))
    return replicas


def read(
    replica: Replica, offset: int = 0, *, read_committed: bool = False, epoch: int = UNKNOWN_EPOCH
) -> Fetched:
    return replica.on_consumer_fetch(FetchPartition(PARTITION, offset, epoch), read_committed)


def seen(replica: Replica, offset: int = 0, *, read_committed: bool = False) -> list[bytes]:
    """What a consumer reads, markers left out."""
    fetched = read(replica, offset, read_committed=read_committed)
    assert fetched.error is Error.NONE
    return [
        record.value or b""
        for batch in parse_all(fetched.data)
        if not batch.is_control
        for record in batch.records()
    ]


def latest(replica: Replica, *, read_committed: bool = False) -> tuple[Error, int]:
    return replica.on_list_offsets(
        ListOffsets(PARTITION, UNKNOWN_EPOCH, OffsetKind.LATEST, read_committed)
    )[1:3]


def ended(
    replica: Replica, *, committed: bool, producer_id: int = 7, epoch: int = 0, coordinator: int = 0
) -> Error:
    marker = WriteTxnMarker(PARTITION, producer_id, epoch, coordinator, committed)
    return replica.append_marker(marker, 0).error


# Roles


def test_a_replica_serves_nobody_before_it_is_told_who_leads() -> None:
    replica = Replicas()[1]
    assert replica.role is Role.OFFLINE
    assert replica.append(records(), 1, 0).produced.error is Error.NOT_LEADER_OR_FOLLOWER
    assert read(replica).error is Error.NOT_LEADER_OR_FOLLOWER
    assert latest(replica) == (Error.NOT_LEADER_OR_FOLLOWER, -1)
    assert ended(replica, committed=True) is Error.NOT_LEADER_OR_FOLLOWER
    deleted = replica.on_delete_records(DeleteRecords(PARTITION, 0))
    assert deleted.error is Error.NOT_LEADER_OR_FOLLOWER


def test_a_new_leader_epoch_is_a_change_of_who_leads_and_a_new_partition_epoch_is_not() -> None:
    replica = Replicas()[1]
    assert replica.on_partition_state(led_by(1, 1), 1, 0)
    assert replica.role is Role.LEADER
    assert not replica.on_partition_state(led_by(1, 1, isr=(1,), partition_epoch=2), 1, 0)
    assert replica.in_sync.isr == (1,)
    assert replica.on_partition_state(led_by(2, 2, partition_epoch=3), 1, 0)
    assert (replica.role, replica.leader) == (Role.FOLLOWER, 2)
    assert replica.on_partition_state(led_by(NO_LEADER, 3, partition_epoch=4), 1, 0)
    assert replica.role is Role.OFFLINE


def test_what_the_controller_said_earlier_changes_nothing(three: Replicas) -> None:
    three.told(led_by(1, 1, isr=(1,), partition_epoch=5), 1)
    three.told(led_by(1, 1, isr=(1, 2), partition_epoch=4), 1)
    three.told(led_by(2, 0, partition_epoch=4), 1)
    assert (three[1].leader, three[1].in_sync.isr, three[1].partition_epoch) == (1, (1,), 5)


def test_a_follower_takes_note_of_a_new_partition_epoch(three: Replicas) -> None:
    three.told(led_by(1, 1, isr=(1,), partition_epoch=5), 2)
    assert three[2].partition_epoch == 5


def test_a_follower_answers_consumers_and_nobody_else(three: Replicas) -> None:
    """KIP-392."""
    assert read(three[2]).error is Error.NONE
    assert three.ask(3, 2).error is Error.NOT_LEADER_OR_FOLLOWER
    assert three[2].append(records(), 0, 0).produced.error is Error.NOT_LEADER_OR_FOLLOWER
    asked = OffsetForLeaderEpoch(PARTITION, 1, 1)
    assert three[2].on_offset_for_leader_epoch(asked).error is Error.NOT_LEADER_OR_FOLLOWER
    assert latest(three[2])[0] is Error.NOT_LEADER_OR_FOLLOWER


def test_a_follower_and_a_replica_that_nobody_leads_propose_nothing(three: Replicas) -> None:
    three[2].on_tick(10 * LAG_MS)
    three[2].on_isr_changed((2,), 9, 0)
    assert (three[2].proposal, three[2].in_sync.isr) == (None, ())


# Appending, and what the producer is told


def test_records_get_the_next_offsets_and_the_leaders_epoch(three: Replicas) -> None:
    one = three[1].append(records(b"a", b"b"), 1, 0)
    assert one == (Produced(PARTITION, Error.NONE, 0, 0), 2)
    two = three[1].append(records(b"c"), 1, 0)
    assert two == (Produced(PARTITION, Error.NONE, 2, 0), 3)
    assert three[1].log.latest_epoch == 1


@pytest.mark.parametrize("data", [b"", records(b"a") + records(b"b")])
def test_a_producer_sends_one_batch_at_a_time(three: Replicas, data: bytes) -> None:
    assert three[1].append(data, 1, 0).produced.error is Error.INVALID_RECORD
    assert three[1].log.log_end_offset == 0


@pytest.mark.parametrize("acks", [-2, 2, 3])
def test_a_producer_waits_for_nobody_the_leader_or_all(three: Replicas, acks: int) -> None:
    assert three[1].append(records(), acks, 0).produced.error is Error.INVALID_REQUIRED_ACKS
    assert three[1].log.log_end_offset == 0


def test_bytes_that_are_no_batch_are_refused(three: Replicas) -> None:
    damaged = bytearray(records(b"a"))
    damaged[-1] ^= 1
    assert three[1].append(bytes(damaged), 1, 0).produced.error is Error.CORRUPT_MESSAGE
    assert three[1].log.log_end_offset == 0


def test_a_producer_that_waits_for_all_waits_for_everybody_in_sync(three: Replicas) -> None:
    """R17: three of three, whatever min.insync.replicas says."""
    end_offset = three[1].append(records(), ALL, 0).end_offset
    assert three[1].acknowledged(end_offset, 1) is None
    three.fetch(2, 1, times=2)
    assert three[1].acknowledged(end_offset, 1) is None
    three.fetch(3, 1, times=2)
    assert three[1].acknowledged(end_offset, 1) is Error.NONE


def test_who_waits_for_a_leader_that_leads_no_more_is_told_so(three: Replicas) -> None:
    three.append(1, b"a")
    three.told(led_by(2, 2), 1)
    assert three[1].acknowledged(1, 1) is Error.NOT_LEADER_OR_FOLLOWER


def test_who_waits_for_an_earlier_epoch_of_the_same_leader_is_told_so(three: Replicas) -> None:
    three.append(1, b"a")
    three.told(led_by(1, 3), 1)
    assert three[1].acknowledged(1, 1) is Error.NOT_LEADER_OR_FOLLOWER


def test_too_few_in_sync_refuse_who_waits_for_all_and_take_from_others(three: Replicas) -> None:
    """B4."""
    three.told(led_by(1, 1, isr=(1,), partition_epoch=2), min_isr=2)
    assert three[1].append(records(), ALL, 0).produced.error is Error.NOT_ENOUGH_REPLICAS
    assert three[1].log.log_end_offset == 0
    assert three[1].append(records(), 1, 0).produced.error is Error.NONE
    assert three[1].append(records(), 0, 0).produced.error is Error.NONE


def test_who_was_appended_before_the_set_became_too_small_is_told_so(three: Replicas) -> None:
    end_offset = three[1].append(records(), ALL, 0).end_offset
    three.fetch(2, 1, times=2)
    three.fetch(3, 1, times=2)
    three.told(led_by(1, 1, isr=(1,), partition_epoch=2), min_isr=2)
    assert three[1].acknowledged(end_offset, 1) is Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_a_batch_that_is_sent_again_is_answered_with_its_first_offset(three: Replicas) -> None:
    """P4: and it is acknowledged when the first one is."""
    sent = records(b"a", b"b", producer_id=7, epoch=0, sequence=0)
    three.append(1, b"x")
    first = three[1].append(sent, ALL, 0)
    assert three[1].append(sent, ALL, 0) == first == (Produced(PARTITION, Error.NONE, 1, 0), 3)
    assert three[1].log.log_end_offset == 3


def test_a_new_leader_knows_what_was_sent_to_the_old_one(three: Replicas) -> None:
    sent = records(b"a", producer_id=7, epoch=0, sequence=0)
    first = three[1].append(sent, ALL, 0)
    three.fetch(2, 1)
    three.told(led_by(2, 2, isr=(2, 3)))
    assert three[2].append(sent, ALL, 0) == first


@pytest.mark.parametrize(
    ("epoch", "sequence", "error"),
    [
        (1, 5, Error.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (0, 1, Error.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_batch_out_of_turn_is_refused(
    three: Replicas, epoch: int, sequence: int, error: Error
) -> None:
    three[1].append(records(producer_id=7, epoch=1, sequence=0), 1, 0)
    sent = records(producer_id=7, epoch=epoch, sequence=sequence)
    assert three[1].append(sent, 1, 0).produced == Produced(PARTITION, error)


def test_a_batch_outside_its_producers_transaction_is_refused(three: Replicas) -> None:
    three[1].append(records(producer_id=7, epoch=0, sequence=0, transactional=True), 1, 0)
    sent = records(producer_id=7, epoch=0, sequence=1)
    assert three[1].append(sent, 1, 0).produced.error is Error.INVALID_TXN_STATE


@pytest.mark.parametrize("flushes", [False, True])
def test_what_is_acknowledged_survives_a_loss_of_power_if_it_is_flushed_first(
    flushes: bool,
) -> None:
    """R15: with Kafka's default all replicas may lose together what all have acknowledged."""
    both = Replicas(1, 2, config=ReplicaConfig(flush_before_ack=flushes))
    both.told(led_by(1, 1, isr=(1, 2), replicas=(1, 2)))
    both.append(1, b"a", acks=ALL)
    both.fetch(2, 1, times=2)
    assert both[1].acknowledged(1, 1) is Error.NONE
    for broker in (1, 2):
        both.stores[broker].lose_power(lambda _: 0)
        both.restart(broker)
        assert both.values(broker) == ([b"a"] if flushes else [])


def test_just_enough_in_sync_are_enough(three: Replicas) -> None:
    """B4."""
    three.told(led_by(1, 1, isr=(1, 2), partition_epoch=2), min_isr=2)
    produced, end_offset = three[1].append(records(), ALL, 0)
    assert produced.error is Error.NONE
    three.fetch(2, 1, times=2)
    assert three[1].acknowledged(end_offset, 1) is Error.NONE


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


# Followers' fetches, as the leader answers them


def test_a_fetch_brings_whole_batches_and_where_the_log_stands(three: Replicas) -> None:
    three.append(1, b"a", b"b")
    fetched = three.ask(2, 1)
    assert [one.base_offset for one in parse_all(fetched.data)] == [0, 1]
    assert (fetched.error, fetched.high_watermark, fetched.log_start_offset) == (Error.NONE, 0, 0)
    one = three.ask(2, 1, FetchPartition(PARTITION, 0, 1, bytes_max=1))
    assert [batch.base_offset for batch in parse_all(one.data)] == [0]


def test_somebody_without_a_replica_is_not_served(three: Replicas) -> None:
    fetched = three[1].on_follower_fetch(9, 1, FetchPartition(PARTITION, 0, 1), 0)
    assert fetched.error is Error.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(1, Error.FENCED_LEADER_EPOCH), (3, Error.UNKNOWN_LEADER_EPOCH), (2, Error.NONE)],
)
def test_a_fetch_in_another_epoch_is_refused(three: Replicas, epoch: int, error: Error) -> None:
    """KIP-320, followers and consumers alike."""
    three.told(led_by(1, 2), 1)
    assert three.ask(2, 1, FetchPartition(PARTITION, 0, epoch)).error is error
    assert read(three[1], epoch=epoch).error is error
    asked = ListOffsets(PARTITION, epoch, OffsetKind.LATEST)
    assert three[1].on_list_offsets(asked).error is error
    of_epoch = three[1].on_offset_for_leader_epoch(OffsetForLeaderEpoch(PARTITION, epoch, 1))
    assert of_epoch.error is error


@with_and_without("fetch_checks_epoch")
def test_a_follower_of_an_earlier_epoch_does_not_raise_the_high_watermark(
    rules: Rules, is_on: bool
) -> None:
    """KIP-320: it has something else at those offsets."""
    both = Replicas(1, 2, rules=rules)
    state = led_by(2, 1, isr=(1, 2), replicas=(1, 2))
    both.told(state)
    both.append(2, b"a")
    both.fetch(1, 2, times=2)
    both.append(2, b"z")
    both.told(led_by(1, 2, isr=(1, 2), replicas=(1, 2)), 1)
    both.append(1, b"b")
    # 2 lost the lead, has not heard which epoch it is by now, and asks as it did before.
    asked = both[2].next_fetch()._replace(leader_epoch=1)
    if not is_on:
        asked = asked._replace(last_fetched_epoch=UNKNOWN_EPOCH)
    error = both.ask(2, 1, asked).error
    assert error is (Error.FENCED_LEADER_EPOCH if is_on else Error.NONE)
    assert both[1].high_watermark == (1 if is_on else 2)


def test_a_follower_tells_with_every_fetch_which_epochs_it_knows(three: Replicas) -> None:
    three.append(1, b"a")
    three.fetch(2, 1, times=3)
    assert three[2].next_fetch()[1:4] == (1, 1, 1)


def test_without_checks_a_follower_compares_histories_only_with_the_first_fetch() -> None:
    both = Replicas(1, 2, rules=without("fetch_checks_epoch"))
    both.told(led_by(1, 1, isr=(1, 2), replicas=(1, 2)))
    both.append(1, b"a")
    both.fetch(2, 1)
    assert both[2].next_fetch()[2:4] == (1, UNKNOWN_EPOCH)
    both.told(led_by(1, 2, isr=(1, 2), replicas=(1, 2)))
    assert both[2].next_fetch()[2:4] == (2, 1)


def test_there_is_news_for_a_fetch_that_waits_when_records_or_commits_are(three: Replicas) -> None:
    """Else a follower would learn of what is committed only with the next record."""
    asked = three[2].next_fetch()
    three.ask(2, 1, asked)
    assert not three[1].has_news_for(2, asked)
    three.append(1, b"a")
    assert three[1].has_news_for(2, asked)
    three.fetch(2, 1)
    asked = three[2].next_fetch()
    three.ask(2, 1, asked)
    assert not three[1].has_news_for(2, asked)
    three.fetch(3, 1, times=2)
    assert three[1].high_watermark == 1
    assert three[1].has_news_for(2, asked)


def test_there_is_news_for_a_fetch_that_waits_when_who_leads_has_changed(three: Replicas) -> None:
    asked = three[2].next_fetch()
    three.ask(2, 1, asked)
    assert three[1].has_news_for(9, asked)  # somebody without a replica
    three.told(led_by(1, 2), 1)
    assert three[1].has_news_for(2, asked)
    three.told(led_by(3, 3), 1)
    assert three[1].has_news_for(2, asked)


# Divergence


def test_a_leader_says_where_the_histories_part(three: Replicas) -> None:
    """KIP-595 and KIP-320: the fetch is the question."""
    three.append(1, b"a", b"b")
    three.told(led_by(1, 3), 1)
    three.append(1, b"c")
    fetched = three.ask(2, 1, FetchPartition(PARTITION, 5, 3, 1))
    assert (fetched.error, fetched.diverging, fetched.data) == (Error.NONE, EpochEnd(1, 2), b"")
    assert read(three[1], 5).error is Error.OFFSET_OUT_OF_RANGE
    asked = FetchPartition(PARTITION, 5, UNKNOWN_EPOCH, 2)
    assert three[1].on_consumer_fetch(asked, False).diverging == EpochEnd(1, 2)


def test_a_fetch_that_diverges_says_nothing_of_how_far_the_follower_is(three: Replicas) -> None:
    three.append(1, b"a")
    three.ask(2, 1, FetchPartition(PARTITION, 1, 1, 1))
    three.ask(2, 1, FetchPartition(PARTITION, 5, 1, 1))
    assert three[1].progress[2].log_end_offset == 1


def test_an_epoch_ends_where_the_next_begins_and_the_last_with_the_log(three: Replicas) -> None:
    def end(epoch: int) -> EpochEnd | None:
        return three[1].on_offset_for_leader_epoch(OffsetForLeaderEpoch(PARTITION, 3, epoch)).end

    assert three[1].on_offset_for_leader_epoch(
        OffsetForLeaderEpoch(PARTITION, 1, 1)
    ).end == EpochEnd(UNKNOWN_EPOCH, 0)
    three.append(1, b"a", b"b")
    three.told(led_by(1, 3), 1)
    three.append(1, b"c")
    assert end(1) == EpochEnd(1, 2)
    assert end(2) == EpochEnd(1, 2)
    assert end(3) == EpochEnd(3, 3)
    assert end(4) == EpochEnd(3, 3)


@with_and_without("truncate_by_epoch")
def test_a_follower_keeps_what_it_acknowledged_when_it_starts_anew(
    rules: Rules, is_on: bool
) -> None:
    """KIP-101, first scenario: its high watermark is behind what is committed."""
    both = Replicas(1, 2, rules=rules)
    both.told(led_by(1, 1, isr=(1, 2), replicas=(1, 2)))
    both.append(1, b"a", acks=ALL)
    both.fetch(2, 1)
    both.ask(2, 1)  # the leader commits; the answer is lost with the follower
    assert both[1].acknowledged(1, 1) is Error.NONE
    both.restart(2, high_watermark=0)
    both.told(led_by(1, 1, isr=(1, 2), replicas=(1, 2)), 2)
    both.told(led_by(2, 2, isr=(2,), replicas=(1, 2)))
    assert both.values(2) == ([b"a"] if is_on else [])


@with_and_without("truncate_by_epoch")
def test_two_that_crash_together_have_one_history_afterwards(rules: Rules, is_on: bool) -> None:
    """KIP-101, second scenario: one comes back with more, the other leads and goes on."""
    both = Replicas(1, 2, rules=rules)
    both.told(led_by(1, 1, isr=(1, 2), replicas=(1, 2)))
    both.append(1, b"a")
    both.fetch(2, 1)
    both.append(1, b"z")
    both.restart(2, high_watermark=1)
    both.told(led_by(2, 2, isr=(2,), replicas=(1, 2)), 2)
    both.append(2, b"b", b"c")
    both.restart(1, high_watermark=2)
    both.told(led_by(2, 2, isr=(2,), replicas=(1, 2)), 1)
    both.fetch(1, 2, times=3)
    assert both.values(2) == [b"a", b"b", b"c"]
    assert both.values(1) == ([b"a", b"b", b"c"] if is_on else [b"a", b"z", b"c"])


@with_and_without("diverging_epoch_named")
def test_two_fast_failovers_leave_one_history(rules: Rules, is_on: bool) -> None:
    """KIP-279: the follower looks up in its own log the epoch that the leader names."""
    both = Replicas(1, 2, rules=rules)
    both.told(led_by(1, 1, replicas=(1, 2), isr=(1, 2)))
    both.append(1, b"a")
    both.fetch(2, 1)
    both.append(1, b"b")
    both.told(led_by(2, 2, replicas=(1, 2), isr=(2,)), 2)
    both.append(2, b"y", b"z")
    both.told(led_by(1, 3, replicas=(1, 2), isr=(1,)))
    both.append(1, b"c")
    both.fetch(2, 1, times=4)
    assert both.values(1) == [b"a", b"b", b"c"]
    assert both.values(2) == ([b"a", b"b", b"c"] if is_on else [b"a", b"y", b"c"])


def test_a_follower_goes_back_one_epoch_at_a_time() -> None:
    """KIP-279."""
    both = Replicas(1, 2)
    both.told(led_by(1, 1, replicas=(1, 2), isr=(1, 2)))
    both.append(1, b"a")
    both.fetch(2, 1)
    both.told(led_by(1, 2, replicas=(1, 2), isr=(1,)), 1)
    both.append(1, b"b")
    for epoch in (3, 5):
        both.told(led_by(2, epoch, replicas=(1, 2), isr=(2,)), 2)
        both.append(2, b"y", b"z")
    both.told(led_by(1, 4, replicas=(1, 2), isr=(1,)), 1)
    both.append(1, b"c")
    both.told(led_by(1, 6, replicas=(1, 2), isr=(1,)))
    ends = []
    while both[2].log.log_end_offset != 3 or both.values(2) != both.values(1):
        ends.append(both[2].log.log_end_offset)
        both.fetch(2, 1)
    assert ends == [5, 3, 1]


@with_and_without("truncate_before_high_watermark")
def test_a_follower_cuts_its_log_before_it_believes_the_high_watermark(
    rules: Rules, is_on: bool
) -> None:
    """KAFKA-14704: else consumers read from it what was never committed."""
    three = Replicas(rules=rules)
    three.told(led_by(1, 1))
    three.append(1, b"z")
    three.fetch(2, 1)
    three.told(led_by(3, 2, isr=(3,)))
    three.append(3, b"a")
    assert three[3].high_watermark == 1
    three.fetch(2, 3)
    assert seen(three[2]) == ([] if is_on else [b"z"])
    assert three[2].is_unfinished is not is_on
    three[2].finish()
    three.fetch(2, 3)
    assert seen(three[2]) == [b"a"]


@pytest.mark.parametrize("leader", [1, 2])
def test_what_was_to_be_cut_is_kept_when_another_leads_in_the_meantime(leader: int) -> None:
    three = Replicas(rules=without("truncate_before_high_watermark"))
    three.told(led_by(1, 1))
    three.append(1, b"z")
    three.fetch(2, 1)
    three.told(led_by(3, 2, isr=(3,)))
    three.fetch(2, 3)
    assert three[2].is_unfinished
    three.told(led_by(leader, 3, isr=(leader,)), 2)
    three[2].finish()
    assert three.values(2) == [b"z"]


@with_and_without("epoch_kept_after_empty_fetch")
def test_an_empty_fetch_does_not_hide_that_histories_part(rules: Rules, is_on: bool) -> None:
    """KAFKA-15510."""
    three = Replicas(rules=rules)
    three.told(led_by(1, 1))
    three.append(1, b"z")
    three.fetch(2, 1, times=2)  # the second brings nothing
    three.told(led_by(3, 2, isr=(2, 3)))
    three.append(3, b"a")
    three.fetch(2, 3, times=3)
    assert three.values(2) == ([b"a"] if is_on else [b"z"])
    assert three[3].high_watermark == 1
    three.append(3, b"b")
    three.fetch(2, 3)
    assert three[2].next_fetch().last_fetched_epoch == 2  # records bring it back


@with_and_without("empty_epochs_forgotten")
def test_a_follower_that_cut_an_epoch_off_does_not_go_on_telling_of_it(
    rules: Rules, is_on: bool
) -> None:
    """KAFKA-10706: else it cuts for ever, and never fetches."""
    both = Replicas(1, 2, rules=rules)
    both.told(led_by(1, 1, replicas=(1, 2), isr=(1, 2)))
    both.append(1, b"a")
    both.fetch(2, 1)
    both.told(led_by(2, 2, replicas=(1, 2), isr=(2,)), 2)
    both.append(2, b"z")
    both.told(led_by(1, 3, replicas=(1, 2), isr=(1,)))
    both.append(1, b"b")
    both.fetch(2, 1, times=5)
    assert both.values(2) == ([b"a", b"b"] if is_on else [b"a"])


def test_a_follower_whose_log_has_no_epoch_cuts_where_the_leader_says() -> None:
    both = Replicas(1, 2)
    both.told(led_by(1, 1, replicas=(1, 2), isr=(1, 2)))
    asked = both[2].next_fetch()
    assert both[2].on_fetched(
        asked, Fetched(PARTITION, Error.NONE, 0, 0, 0, diverging=EpochEnd(1, 0)), 0
    )
    assert both[2].log.log_end_offset == 0


# The log's start


def test_a_follower_deletes_what_the_leader_has_deleted(three: Replicas) -> None:
    three.append(1, b"a", b"b", b"c")
    three.fetch(2, 1, times=2)
    three.fetch(3, 1, times=2)
    answer = three[1].on_delete_records(DeleteRecords(PARTITION, 2))
    assert (answer.error, answer.log_start_offset) == (Error.NONE, 2)
    three.fetch(2, 1)
    assert three[2].log.log_start_offset == 2
    assert read(three[1], 1).error is Error.OFFSET_OUT_OF_RANGE
    assert seen(three[1], 2) == [b"c"]


def test_what_is_deleted_already_need_not_be_deleted(three: Replicas) -> None:
    three.append(1, b"a", b"b", b"c")
    three.fetch(2, 1, times=2)
    three.fetch(3, 1, times=2)
    three[1].on_delete_records(DeleteRecords(PARTITION, 2))
    answer = three[1].on_delete_records(DeleteRecords(PARTITION, 1))
    assert (answer.error, answer.log_start_offset) == (Error.NONE, 2)
    below = three[1].on_delete_records(DeleteRecords(PARTITION, -1))
    assert below.error is Error.OFFSET_OUT_OF_RANGE


def test_what_is_not_committed_is_not_deleted(three: Replicas) -> None:
    three.append(1, b"a")
    answer = three[1].on_delete_records(DeleteRecords(PARTITION, 1))
    assert answer.error is Error.OFFSET_OUT_OF_RANGE
    three[1].retain(1 << 50)
    assert three.values(1) == [b"a"]


def test_retention_deletes_what_is_old_and_committed() -> None:
    alone = Replicas(1, log_config=LogConfig(retention_ms=1_000))
    alone.told(led_by(1, 1, isr=(1,), replicas=(1,)))
    alone.append(1, b"a")
    alone[1].retain(1_001)
    assert (alone[1].log.log_start_offset, alone[1].log.log_end_offset) == (1, 1)


def test_a_follower_whose_end_the_leader_has_deleted_begins_where_the_leader_does() -> None:
    both = Replicas(1, 2)
    both.told(led_by(1, 1, isr=(1,), replicas=(1, 2)))
    both.append(1, b"a", b"b", b"c")
    both[1].on_delete_records(DeleteRecords(PARTITION, 2))
    assert both.fetch(2, 1).error is Error.OFFSET_OUT_OF_RANGE
    assert (both[2].log.log_start_offset, both[2].high_watermark) == (2, 2)
    both.fetch(2, 1)
    assert both.values(2) == [b"c"]


def test_a_follower_takes_the_whole_of_a_batch_in_which_the_leaders_log_begins() -> None:
    both = Replicas(1, 2)
    both.told(led_by(1, 1, isr=(1,), replicas=(1, 2)))
    both[1].append(records(*[b"%d" % n for n in range(10)]), 1, 0)
    both[1].on_delete_records(DeleteRecords(PARTITION, 5))
    both.fetch(2, 1, times=2)
    assert (both[2].log.log_start_offset, both[2].log.log_end_offset) == (5, 10)
    assert both[2].high_watermark == 10


def test_a_follower_keeps_its_place_when_the_leader_has_deleted_everything(
    three: Replicas,
) -> None:
    """A log without records has no epoch to compare; to begin at 0 again would be a step back."""
    three.append(1, b"a", b"b")
    three.fetch(2, 1, times=2)
    three.fetch(3, 1, times=2)
    three[1].on_delete_records(DeleteRecords(PARTITION, 2))
    asked = FetchPartition(PARTITION, 2, UNKNOWN_EPOCH, 1)
    assert three[1].on_consumer_fetch(asked, False).diverging is None
    assert three.fetch(2, 1).diverging is None
    assert (three[2].log.log_start_offset, three[2].log.log_end_offset) == (2, 2)


def test_a_follower_cuts_to_the_end_of_a_leader_that_has_deleted_everything() -> None:
    both = Replicas(1, 2)
    both.told(led_by(2, 1, isr=(1, 2), replicas=(1, 2)))
    both.append(2, b"a")
    both.fetch(1, 2, times=2)
    both.append(2, b"z")
    both.told(led_by(1, 2, isr=(1, 2), replicas=(1, 2)))
    both[1].on_delete_records(DeleteRecords(PARTITION, 1))
    assert both.fetch(2, 1).diverging == EpochEnd(UNKNOWN_EPOCH, 1)
    assert (both[2].log.log_start_offset, both[2].log.log_end_offset) == (0, 1)
    both.fetch(2, 1)
    assert (both[2].log.log_start_offset, both[2].log.log_end_offset) == (1, 1)


def test_a_follower_that_tells_no_epoch_cuts_what_is_beyond_the_leaders_end() -> None:
    both = Replicas(1, 2, rules=without("truncate_by_epoch"))
    both.told(led_by(2, 1, isr=(2,), replicas=(1, 2)))
    both.append(2, b"y", b"z")
    both.told(led_by(1, 2, isr=(1,), replicas=(1, 2)))
    assert both.fetch(2, 1).error is Error.OFFSET_OUT_OF_RANGE
    assert both[2].log.log_end_offset == 0


def test_a_leader_with_an_empty_log_says_where_it_ends(three: Replicas) -> None:
    fetched = three.ask(2, 1, FetchPartition(PARTITION, 4, 1))
    assert (fetched.error, fetched.diverging) == (
        Error.OFFSET_OUT_OF_RANGE,
        EpochEnd(UNKNOWN_EPOCH, 0),
    )


def test_out_of_range_without_a_word_of_the_end_changes_nothing(three: Replicas) -> None:
    asked = three[2].next_fetch()
    assert three[2].on_fetched(asked, Fetched(PARTITION, Error.OFFSET_OUT_OF_RANGE), 0)
    assert three[2].log.log_end_offset == 0


# What a follower makes of answers


def test_a_refusal_is_a_reason_to_ask_a_little_later(three: Replicas) -> None:
    asked = three[2].next_fetch()
    assert not three[2].on_fetched(asked, Fetched(PARTITION, Error.FENCED_LEADER_EPOCH), 0)


def test_an_answer_to_what_was_asked_before_the_log_changed_is_not_for_now(
    three: Replicas,
) -> None:
    three.append(1, b"a")
    asked = three[2].next_fetch()
    fetched = three.ask(2, 1, asked)
    assert three[2].on_fetched(asked, fetched, 0)
    assert three[2].on_fetched(asked, fetched, 0)
    assert three.values(2) == [b"a"]


@pytest.mark.parametrize("leader", [2, 3])
def test_an_answer_of_an_earlier_epoch_is_not_for_now(three: Replicas, leader: int) -> None:
    three.append(1, b"a")
    asked = three[2].next_fetch()
    fetched = three.ask(2, 1, asked)
    three.told(led_by(leader, 2), 2)
    assert three[2].on_fetched(asked, fetched, 0)
    assert three.values(2) == []


def test_who_leads_takes_nothing_from_another_leader_even_if_no_epoch_is_told() -> None:
    three = Replicas(rules=without("fetch_checks_epoch"))
    three.told(led_by(1, 1))
    three.append(1, b"a")
    asked = three[2].next_fetch()
    fetched = three.ask(2, 1, asked)
    three.told(led_by(2, 2), 2)
    assert three[2].on_fetched(asked, fetched, 0)
    assert three.values(2) == []


def test_a_follower_takes_markers_and_refuses_nothing_that_the_leader_took(
    three: Replicas,
) -> None:
    sent = records(b"a", producer_id=7, epoch=0, sequence=0, transactional=True)
    three[1].append(sent, 1, 0)
    ended(three[1], committed=False)
    three.fetch(2, 1)
    three.told(led_by(2, 2, isr=(2,)))
    assert seen(three[2], read_committed=True) == [b"a"]
    assert read(three[2], read_committed=True).aborted == (AbortedTransaction(7, 0, 1, 2),)


# Consumers


@with_and_without("consumers_read_committed")
def test_consumers_read_what_is_committed(rules: Rules, is_on: bool) -> None:
    """R4, R5: what only the leader has may vanish with it."""
    both = Replicas(1, 2, rules=rules)
    both.told(led_by(1, 1, isr=(1, 2), replicas=(1, 2)))
    both.append(1, b"a")
    assert seen(both[1]) == ([] if is_on else [b"a"])
    both.told(led_by(2, 2, isr=(2,), replicas=(1, 2)))
    both.append(2, b"b")
    assert seen(both[2]) == [b"b"]


def test_followers_fetch_what_consumers_do_not_see_yet(three: Replicas) -> None:
    """R4."""
    three.append(1, b"a")
    assert three.ask(2, 1).data
    assert seen(three[1]) == []
    assert seen(three[1], 1) == []  # beyond the high watermark, and within the log


def test_a_consumer_beyond_the_logs_end_is_out_of_range(three: Replicas) -> None:
    assert read(three[1], 1).error is Error.OFFSET_OUT_OF_RANGE


def test_open_transactions_and_what_follows_them_are_hidden_from_who_asks_for_it() -> None:
    """C14: the last stable offset bounds what is read."""
    alone = Replicas(1)
    alone.told(led_by(1, 1, isr=(1,), replicas=(1,)))
    alone.append(1, b"a")
    alone[1].append(records(b"b", producer_id=7, epoch=0, sequence=0, transactional=True), 1, 0)
    alone.append(1, b"c")
    assert alone[1].last_stable_offset == 1
    assert seen(alone[1], read_committed=True) == [b"a"]
    assert seen(alone[1]) == [b"a", b"b", b"c"]
    assert latest(alone[1], read_committed=True) == (Error.NONE, 1)
    assert ended(alone[1], committed=True) is Error.NONE
    assert seen(alone[1], read_committed=True) == [b"a", b"b", b"c"]
    assert read(alone[1], read_committed=True).aborted == ()
    assert latest(alone[1], read_committed=True) == (Error.NONE, 4)


def test_a_fetch_names_the_aborted_transactions_in_what_it_brings() -> None:
    alone = Replicas(1)
    alone.told(led_by(1, 1, isr=(1,), replicas=(1,)))
    alone[1].append(records(b"b", producer_id=7, epoch=0, sequence=0, transactional=True), 1, 0)
    assert ended(alone[1], committed=False) is Error.NONE
    assert read(alone[1], read_committed=True).aborted == (AbortedTransaction(7, 0, 1, 2),)
    assert read(alone[1]).aborted == ()


def test_a_marker_counts_once_it_is_committed(three: Replicas) -> None:
    three[1].append(records(b"b", producer_id=7, epoch=0, sequence=0, transactional=True), 1, 0)
    for follower in (2, 3):
        three.fetch(follower, 1, times=2)
    ended(three[1], committed=True)
    assert seen(three[1], read_committed=True) == []
    for follower in (2, 3):
        three.fetch(follower, 1, times=2)
    assert seen(three[1], read_committed=True) == [b"b"]


def test_a_marker_of_an_earlier_coordinator_or_producer_is_refused(three: Replicas) -> None:
    three[1].append(records(producer_id=7, epoch=1, sequence=0, transactional=True), 1, 0)
    assert ended(three[1], committed=True, epoch=0) is Error.INVALID_PRODUCER_EPOCH
    assert ended(three[1], committed=True, epoch=1, coordinator=4) is Error.NONE
    late = ended(three[1], committed=True, epoch=1, coordinator=3)
    assert late is Error.TRANSACTION_COORDINATOR_FENCED


# Offsets by time


def test_offsets_are_listed_by_place_and_by_time() -> None:
    alone = Replicas(1)
    alone.told(led_by(1, 5, isr=(1,), replicas=(1,)))
    for time_ms in (10, 20, 30):
        alone[1].append(records(timestamp_ms=time_ms), 1, 0)
    alone[1].on_delete_records(DeleteRecords(PARTITION, 1))

    def listed(at: int) -> tuple[int, int]:
        return alone[1].on_list_offsets(ListOffsets(PARTITION, UNKNOWN_EPOCH, at))[2:]

    assert listed(OffsetKind.EARLIEST) == (1, 5)
    assert listed(OffsetKind.LATEST) == (3, 5)
    assert listed(25) == (2, 5)
    assert listed(5) == (1, 5)
    assert listed(31) == (-1, UNKNOWN_EPOCH)


def test_what_is_not_committed_is_not_listed(three: Replicas) -> None:
    three[1].append(records(timestamp_ms=10), 1, 0)
    assert latest(three[1]) == (Error.NONE, 0)
    assert three[1].on_list_offsets(ListOffsets(PARTITION, 1, 10)).offset == -1


@with_and_without("offset_not_available_after_election")
def test_the_end_of_a_log_does_not_step_back_after_an_election(rules: Rules, is_on: bool) -> None:
    """R19, KIP-207: the new leader may not know yet what the old one has committed."""
    both = Replicas(1, 2, rules=rules)
    both.told(led_by(1, 1, isr=(1, 2), replicas=(1, 2)))
    both.append(1, b"a")
    both.fetch(2, 1)
    both.ask(2, 1)  # 1 commits, and 2 does not hear of it
    assert latest(both[1]) == (Error.NONE, 1)
    both.told(led_by(2, 2, isr=(1, 2), replicas=(1, 2)))
    assert latest(both[2]) == ((Error.OFFSET_NOT_AVAILABLE, -1) if is_on else (Error.NONE, 0))
    earliest = both[2].on_list_offsets(ListOffsets(PARTITION, 2, OffsetKind.EARLIEST))
    assert (earliest.error, earliest.offset) == (Error.NONE, 0)
    by_time = both[2].on_list_offsets(ListOffsets(PARTITION, 2, 0))
    assert by_time.error is (Error.OFFSET_NOT_AVAILABLE if is_on else Error.NONE)
    both.fetch(1, 2)
    assert latest(both[2]) == (Error.NONE, 1)


def test_what_is_known_to_be_committed_is_found_by_time_at_once() -> None:
    both = Replicas(1, 2)
    both.told(led_by(1, 1, isr=(1, 2), replicas=(1, 2)))
    both[1].append(records(timestamp_ms=10), 1, 0)
    both.fetch(2, 1, times=2)
    both[1].append(records(timestamp_ms=20), 1, 0)
    both.fetch(2, 1)
    both.told(led_by(2, 2, isr=(1, 2), replicas=(1, 2)))
    assert latest(both[2]) == (Error.OFFSET_NOT_AVAILABLE, -1)
    assert both[2].on_list_offsets(ListOffsets(PARTITION, 2, 5)).offset == 0
    later = both[2].on_list_offsets(ListOffsets(PARTITION, 2, 15))
    assert later.error is Error.OFFSET_NOT_AVAILABLE


# Whom a leader and a follower do not believe


def test_a_late_fetch_of_a_process_that_was_replaced_does_not_count(three: Replicas) -> None:
    three.append(1, b"a")
    asked = three[2].next_fetch()
    assert three[1].on_follower_fetch(2, 5, asked, 0).error is Error.NONE
    late = asked._replace(offset=1)
    assert three[1].on_follower_fetch(2, 4, late, 0).error is Error.STALE_BROKER_EPOCH
    assert three[1].progress[2].log_end_offset == 0


def test_an_answer_to_somebody_who_is_no_replica_is_nothing_to_remember(three: Replicas) -> None:
    three[1].on_answered(9)
    assert 9 not in three[1].progress


def test_a_follower_asks_again_when_what_came_is_damaged(three: Replicas) -> None:
    three.append(1, b"a")
    asked = three[2].next_fetch()
    fetched = three.ask(2, 1, asked)
    damaged = fetched._replace(data=fetched.data[:-1])
    assert not three[2].on_fetched(asked, damaged, 0)
    assert three.values(2) == []
