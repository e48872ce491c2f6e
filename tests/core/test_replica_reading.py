"""What readers get of a replica: from where, up to where, and by time.

A test with the ids `on` and `off` runs one history twice: with the rule nothing bad happens, and
without it the published bug does.
"""

from __future__ import annotations

from machines import (
    PARTITION,
    Replicas,
    ended,
    latest,
    led_by,
    read,
    records,
    seen,
    with_and_without,
    without,
)

from lossless.core.messages import (
    UNKNOWN_EPOCH,
    DeleteRecords,
    DeleteRecordsAnswer,
    Error,
    Fetched,
    FetchPartition,
    ListOffsets,
    OffsetForLeaderEpoch,
    OffsetKind,
)
from lossless.log.batch import NO_TIMESTAMP
from lossless.log.index import AbortedTransaction
from lossless.log.leader_epochs import EpochEnd
from lossless.log.log import LogConfig
from lossless.log.rules import Rules

# The log's start


def test_a_follower_deletes_what_the_leader_has_deleted(three: Replicas) -> None:
    three.append(1, b"a", b"b", b"c")
    three.fetch(2, 1, times=2)
    three.fetch(3, 1, times=2)
    answer = three[1].on_delete_records(DeleteRecords(PARTITION, 2))
    assert (answer.error, answer.low_watermark) == (Error.NONE, 0)
    assert three[1].deleted(DeleteRecords(PARTITION, 2)) is None
    three.fetch(2, 1, times=2)
    assert three[2].log.log_start_offset == 2
    assert three[1].low_watermark == 0
    three.fetch(3, 1, times=2)
    done = three[1].deleted(DeleteRecords(PARTITION, 2))
    assert done == DeleteRecordsAnswer(PARTITION, Error.NONE, 2)
    assert read(three[1], 1).error is Error.OFFSET_OUT_OF_RANGE
    assert seen(three[1], 2) == [b"c"]


def test_what_is_deleted_already_need_not_be_deleted(three: Replicas) -> None:
    three.append(1, b"a", b"b", b"c")
    three.fetch(2, 1, times=2)
    three.fetch(3, 1, times=2)
    three[1].on_delete_records(DeleteRecords(PARTITION, 2))
    answer = three[1].on_delete_records(DeleteRecords(PARTITION, 1))
    assert (answer.error, three[1].log.log_start_offset) == (Error.NONE, 2)
    below = three[1].on_delete_records(DeleteRecords(PARTITION, -1))
    assert below.error is Error.OFFSET_OUT_OF_RANGE


def test_what_is_not_committed_is_not_deleted(three: Replicas) -> None:
    three.append(1, b"a")
    answer = three[1].on_delete_records(DeleteRecords(PARTITION, 1))
    assert answer.error is Error.OFFSET_OUT_OF_RANGE
    three[1].tidy(1 << 50)
    assert three.values(1) == [b"a"]


def test_retention_deletes_what_is_old_and_committed() -> None:
    alone = Replicas(1, log_config=LogConfig(retention_ms=1_000))
    alone.told(led_by(1, 1, isr=(1,), replicas=(1,)))
    alone.append(1, b"a")
    alone[1].tidy(1_001)
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


def test_every_epoch_of_an_emptied_log_ends_where_it_starts(three: Replicas) -> None:
    """As in Kafka: without an answer a consumer would take its position for truncated."""
    three.append(1, b"a", b"b")
    for follower in (2, 3):
        three.fetch(follower, 1, times=2)
    three[1].on_delete_records(DeleteRecords(PARTITION, 2))
    three.fetch(2, 1)
    asked = OffsetForLeaderEpoch(PARTITION, UNKNOWN_EPOCH, 1)
    assert three[1].on_offset_for_leader_epoch(asked).end == EpochEnd(1, 2)
    three.told(led_by(2, 2), 2)
    assert three[2].on_offset_for_leader_epoch(asked).end == EpochEnd(1, 2)
    three.restart(2)
    three.told(led_by(2, 3), 2)
    assert three[2].on_offset_for_leader_epoch(asked).end == EpochEnd(1, 2)
    unknown = OffsetForLeaderEpoch(PARTITION, UNKNOWN_EPOCH, UNKNOWN_EPOCH)
    assert three[2].on_offset_for_leader_epoch(unknown).end == EpochEnd(UNKNOWN_EPOCH, 2)


def test_a_follower_cuts_to_the_end_of_a_leader_that_has_deleted_everything() -> None:
    both = Replicas(1, 2)
    both.told(led_by(2, 1, isr=(1, 2), replicas=(1, 2)))
    both.append(2, b"a")
    both.fetch(1, 2, times=2)
    both.append(2, b"z")
    both.told(led_by(1, 2, isr=(1, 2), replicas=(1, 2)))
    both[1].on_delete_records(DeleteRecords(PARTITION, 1))
    assert both.fetch(2, 1).diverging == EpochEnd(1, 1)
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
    assert three[2].on_fetched(asked, Fetched(PARTITION, Error.OFFSET_OUT_OF_RANGE))
    assert three[2].log.log_end_offset == 0


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

    def listed(at: int) -> tuple[int, int, int]:
        return alone[1].on_list_offsets(ListOffsets(PARTITION, UNKNOWN_EPOCH, at))[2:]

    assert listed(OffsetKind.EARLIEST) == (1, 5, NO_TIMESTAMP)
    assert listed(OffsetKind.LATEST) == (3, 5, NO_TIMESTAMP)
    assert listed(OffsetKind.MAX_TIMESTAMP) == (2, 5, 30)
    assert listed(25) == (2, 5, 30)
    assert listed(5) == (1, 5, 20)
    assert listed(31) == (-1, UNKNOWN_EPOCH, NO_TIMESTAMP)


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
