"""A follower fetches, and cuts off what its leader does not have.

A test with the ids `on` and `off` runs one history twice: with the rule nothing bad happens, and
without it the published bug does.
"""

from __future__ import annotations

import pytest
from machines import (
    PARTITION,
    Replicas,
    ended,
    led_by,
    read,
    records,
    seen,
    with_and_without,
    without,
)

from lossless.core.messages import (
    UNKNOWN_EPOCH,
    Error,
    Fetched,
    FetchPartition,
    ListOffsets,
    OffsetForLeaderEpoch,
    OffsetKind,
)
from lossless.core.replica import ALL
from lossless.log.batch import parse_all
from lossless.log.index import AbortedTransaction
from lossless.log.leader_epochs import EpochEnd
from lossless.log.rules import Rules

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


def test_there_is_news_for_a_fetch_that_waits_when_records_are(three: Replicas) -> None:
    """What is committed alone is none: it is told with the next record."""
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
    assert not three[1].has_news_for(2, asked)


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
    ).end == EpochEnd(1, 0)
    three.append(1, b"a", b"b")
    three.told(led_by(1, 3), 1)
    three.append(1, b"c")
    assert end(1) == EpochEnd(1, 2)
    assert end(2) == EpochEnd(1, 2)
    assert end(3) == EpochEnd(3, 3)
    assert end(4) is None


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
        asked, Fetched(PARTITION, Error.NONE, 0, 0, 0, diverging=EpochEnd(1, 0))
    )
    assert both[2].log.log_end_offset == 0


# What a follower makes of answers


def test_a_refusal_is_a_reason_to_ask_a_little_later(three: Replicas) -> None:
    asked = three[2].next_fetch()
    assert not three[2].on_fetched(asked, Fetched(PARTITION, Error.FENCED_LEADER_EPOCH))


def test_an_answer_to_what_was_asked_before_the_log_changed_is_not_for_now(
    three: Replicas,
) -> None:
    three.append(1, b"a")
    asked = three[2].next_fetch()
    fetched = three.ask(2, 1, asked)
    assert three[2].on_fetched(asked, fetched)
    assert three[2].on_fetched(asked, fetched)
    assert three.values(2) == [b"a"]


@pytest.mark.parametrize("leader", [2, 3])
def test_an_answer_of_an_earlier_epoch_is_not_for_now(three: Replicas, leader: int) -> None:
    three.append(1, b"a")
    asked = three[2].next_fetch()
    fetched = three.ask(2, 1, asked)
    three.told(led_by(leader, 2), 2)
    assert three[2].on_fetched(asked, fetched)
    assert three.values(2) == []


def test_who_leads_takes_nothing_from_another_leader_even_if_no_epoch_is_told() -> None:
    three = Replicas(rules=without("fetch_checks_epoch"))
    three.told(led_by(1, 1))
    three.append(1, b"a")
    asked = three[2].next_fetch()
    fetched = three.ask(2, 1, asked)
    three.told(led_by(2, 2), 2)
    assert three[2].on_fetched(asked, fetched)
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


# Whom a leader and a follower do not believe


def test_a_late_fetch_of_a_process_that_was_replaced_does_not_count(three: Replicas) -> None:
    three.append(1, b"a")
    asked = three[2].next_fetch()
    assert three[1].on_follower_fetch(2, 5, asked, 0).error is Error.NONE
    late = asked._replace(offset=1)
    assert three[1].on_follower_fetch(2, 4, late, 0).error is Error.STALE_BROKER_EPOCH
    assert three[1].progress[2].log_end_offset == 0


def test_a_follower_asks_again_when_what_came_is_damaged(three: Replicas) -> None:
    three.append(1, b"a")
    asked = three[2].next_fetch()
    fetched = three.ask(2, 1, asked)
    damaged = fetched._replace(data=fetched.data[:-1])
    assert not three[2].on_fetched(asked, damaged)
    assert three.values(2) == []
