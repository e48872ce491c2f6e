"""A run without mistakes has no anomaly; a mistake planted in it is called by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import pytest
from correct_runs import correct_runs
from hypothesis import assume, given
from hypothesis import strategies as st

from lossless.verifier.anomaly import Kind
from lossless.verifier.history import (
    Acknowledged,
    Event,
    Failed,
    History,
    Partition,
    Processed,
    Read,
    Records,
    Reset,
    Sent,
    TransactionEnded,
)
from lossless.verifier.sets import Sets
from lossless.verifier.verdict import judge, undecided

C = TypeVar("C")

# The history with the mistake in it, the value it is about, its name, and whether nothing else
# may be found.
Planted = tuple[History, str | None, Kind, bool]


@given(correct_runs())
def test_a_run_without_mistakes_has_no_anomaly(run: History) -> None:
    assert judge(run) == ()
    assert undecided(run) == ()


@given(correct_runs())
def test_the_sets_of_a_run_without_mistakes_hold(run: History) -> None:
    assume(not run.aborted)
    assume(all(log.start_offset == 0 for log in run.final))
    assert Sets.of(run).hold


@given(correct_runs())
def test_a_run_without_mistakes_that_was_cut_off_has_no_anomaly(run: History) -> None:
    """Whatever has not arrived is only late."""
    for length in range(0, len(run.events), 3):
        late = replace(run, events=run.events[:length], settled=False)
        # What is in the log and was not sent yet at the cut is from the future of this history.
        assert {anomaly.kind for anomaly in judge(late)} <= {Kind.INVENTED}


# Where to plant.


def one_of(data: st.DataObject, candidates: list[C]) -> C:
    assume(candidates)
    return data.draw(st.sampled_from(candidates))


def without(run: History, *events: Event) -> History:
    return replace(run, events=tuple(event for event in run.events if event not in events))


def with_records(run: History, partition: Partition, records: Records) -> History:
    """As if that had been the log, on every replica."""
    final = [
        log._replace(records=records, replicas={}) if log.partition == partition else log
        for log in run.final
    ]
    return replace(run, final=tuple(final))


def without_record(run: History, partition: Partition, value: str) -> History:
    kept = tuple(record for record in run.logs[partition].records if record[1] != value)
    return with_records(run, partition, kept)


def promised(run: History) -> list[Acknowledged]:
    """Acknowledged, in the log, and of no transaction that was not committed."""
    return [
        told
        for told in run.of(Acknowledged)
        if told.value in run.stored[told.partition]
        and (told.partition, told.value) not in run.not_committed
    ]


# What to plant. Each says what has to be found, and about which value; `exactly` says that
# nothing else may be.


def an_acknowledged_record_is_gone(data: st.DataObject, run: History) -> Planted:
    told = one_of(
        data,
        [
            told
            for told in promised(run)
            if told.offset is not None or run.logs[told.partition].start_offset == 0
        ],
    )
    return without_record(run, told.partition, told.value), told.value, Kind.LOST, False


def the_log_stops_before_it(data: st.DataObject, run: History) -> Planted:
    told = one_of(data, [told for told in promised(run) if told.offset is not None])
    log = run.logs[told.partition]
    kept = log.between(log.start_offset, run.stored[told.partition][told.value])
    cut = log._replace(end_offset=run.stored[told.partition][told.value], records=kept)
    final = tuple(cut if other is log else other for other in run.final)
    return replace(run, final=final), told.value, Kind.LOST, False


def a_record_is_stored_twice(data: st.DataObject, run: History) -> Planted:
    log = one_of(data, [log for log in run.final if log.records])
    _, value = one_of(data, list(log.records))
    end = log.end_offset
    longer = log._replace(
        end_offset=end + 1,
        records=(*log.records, (end, value)),
        high_watermark=end,  # nobody has come to the copy yet
    )
    final = tuple(longer if other is log else other for other in run.final)
    return replace(run, final=final), value, Kind.DUPLICATE, True


def two_records_change_places(data: st.DataObject, run: History) -> Planted:
    """Before anybody looked, so that nothing but their order is wrong."""
    log = one_of(data, [log for log in run.final if len(log.records) > 1])
    producers = {(sent.partition, sent.value): sent.producer for sent in run.of(Sent)}
    pairs = [
        (index, index + 1)
        for index in range(len(log.records) - 1)
        if producers[log.partition, log.records[index][1]]
        == producers[log.partition, log.records[index + 1][1]]
    ]
    first, second = one_of(data, pairs)
    (one, before), (two, after) = log.records[first], log.records[second]
    records = list(log.records)
    records[first], records[second] = (one, after), (two, before)
    offsets = {before: two, after: one}
    events = [
        event._replace(offset=offsets[event.value])
        if isinstance(event, Acknowledged)
        and event.partition == log.partition
        and event.value in offsets
        and event.offset is not None
        else event
        for event in run.events
        if not isinstance(event, Read | Reset)
    ]
    swapped = with_records(
        replace(run, events=tuple(events), groups=()), log.partition, tuple(records)
    )
    return swapped, after, Kind.REORDERED, True


def a_replica_has_another_value(data: st.DataObject, run: History) -> Planted:
    log = one_of(data, [log for log in run.final if log.records])
    index = one_of(data, list(range(len(log.records))))
    changed = list(log.records)
    changed[index] = (changed[index][0], "other")
    divergent = log._replace(replicas={**log.replicas, 9: tuple(changed)})
    final = tuple(divergent if other is log else other for other in run.final)
    return replace(run, final=final), "other", Kind.INCONSISTENT_OFFSET, True


def a_producer_was_told_a_wrong_offset(data: st.DataObject, run: History) -> Planted:
    told = one_of(
        data,
        [
            told
            for told in promised(run)
            if told.offset is not None
            and run.stored[told.partition][told.value] > run.logs[told.partition].start_offset
        ],
    )
    assert told.offset is not None
    wrong = told._replace(offset=told.offset - 1)
    events = tuple(wrong if event is told else event for event in run.events)
    return replace(run, events=events), told.value, Kind.INCONSISTENT_OFFSET, True


def what_was_read_was_taken_back(data: st.DataObject, run: History) -> Planted:
    read = one_of(
        data,
        [
            read
            for read in run.of(Read)
            if read.offset >= run.logs[read.partition].start_offset
            and (read.partition, read.value) not in run.aborted
        ],
    )
    log = run.logs[read.partition]
    records = tuple(
        (offset, "other" if offset == read.offset else value) for offset, value in log.records
    )
    return with_records(run, log.partition, records), read.value, Kind.PRECOMMITTED_READ, False


def nobody_read_it(data: st.DataObject, run: History) -> Planted:
    """The audit, which is alone, never got the last record of its partition."""
    told = one_of(
        data,
        [told for told in promised(run) if run.logs[told.partition].records[-1][1] == told.value],
    )
    gone = [
        event
        for event in run.events
        if isinstance(event, Read | Processed)
        and (event.partition, event.value, event.consumer) == (told.partition, told.value, "c3")
    ]
    return without(run, *gone), told.value, Kind.UNSEEN, False


def it_was_committed_and_never_processed(data: st.DataObject, run: History) -> Planted:
    done = one_of(
        data,
        [done for done in run.of(Processed) if done.value in run.stored[done.partition]],
    )
    return without(run, done), done.value, Kind.UNPROCESSED, True


def it_was_processed_twice(data: st.DataObject, run: History) -> Planted:
    done = one_of(data, run.of(Processed))
    again = done._replace(time_ms=10**6)
    return replace(run, events=(*run.events, again)), done.value, Kind.REPEATED, True


def a_producer_was_never_answered(data: st.DataObject, run: History) -> Planted:
    sent = one_of(data, run.of(Sent))
    verdicts = [
        event
        for event in run.events
        if isinstance(event, Acknowledged | Failed)
        and (event.partition, event.value) == (sent.partition, sent.value)
    ]
    # A refused record of a committed transaction would now count among its records.
    assume(sent.transaction is None or not isinstance(verdicts[0], Failed))
    return without(run, *verdicts), sent.value, Kind.STUCK, True


def the_last_stable_offset_stands_still(data: st.DataObject, run: History) -> Planted:
    log = one_of(
        data,
        [
            log
            for log in run.final
            if log.end_offset > log.start_offset and log.last_stable_offset == log.end_offset
        ],
    )
    assume(not any(transaction not in run.outcomes for transaction in run.transactions))
    still = log._replace(last_stable_offset=log.start_offset)
    final = tuple(still if other is log else other for other in run.final)
    return replace(run, final=final), None, Kind.STUCK, True


def the_transaction_was_aborted_after_all(data: st.DataObject, run: History) -> Planted:
    seen = {(read.partition, read.value) for read in run.of(Read) if read.consumer != "c3"}
    ended = one_of(
        data,
        [
            ended
            for ended in run.of(TransactionEnded)
            if ended.committed
            and any(
                (s.partition, s.value) in seen for s in run.transactions.get(ended.transaction, [])
            )
        ],
    )
    value = next(
        s.value for s in run.transactions[ended.transaction] if (s.partition, s.value) in seen
    )
    aborted = ended._replace(committed=False)
    events = tuple(aborted if event is ended else event for event in run.events)
    return replace(run, events=events), value, Kind.ABORTED_READ, True


def a_transaction_lost_one_of_its_records(data: st.DataObject, run: History) -> Planted:
    told = {(t.partition, t.value) for t in promised(run) if t.offset is not None}
    parts = [
        [s for s in records if (s.partition, s.value) in told]
        for transaction, records in run.transactions.items()
        if run.outcomes.get(transaction)
    ]
    sent = one_of(data, one_of(data, [records for records in parts if len(records) > 1]))
    return without_record(run, sent.partition, sent.value), sent.value, Kind.TORN_TRANSACTION, False


def nobody_ever_sent_it(data: st.DataObject, run: History) -> Planted:
    sent = one_of(
        data,
        [
            sent
            for sent in run.of(Sent)
            if sent.value in run.stored[sent.partition] and sent.transaction is None
        ],
    )
    return without(run, sent), sent.value, Kind.INVENTED, True


def a_consumer_skipped_a_record(data: st.DataObject, run: History) -> Planted:
    audit = [event for event in run.polls if event.consumer == "c3"]
    candidates = [
        event
        for event, following in pairwise(sorted(audit, key=lambda event: str(event.partition)))
        if isinstance(event, Read)
        and isinstance(following, Read)
        and event.partition == following.partition
        and event.value in run.stored[event.partition]
        and (event.partition, event.value) not in run.not_committed
    ]
    skipped = one_of(data, candidates)
    return without(run, skipped), skipped.value, Kind.REORDERED, False


def a_consumer_read_a_record_again(data: st.DataObject, run: History) -> Planted:
    read = one_of(data, run.of(Read))
    at = run.events.index(read)
    events = (*run.events[: at + 1], read, *run.events[at + 1 :])
    return replace(run, events=events), read.value, Kind.REORDERED, True


PLANTS: list[Callable[[st.DataObject, History], Planted]] = [
    an_acknowledged_record_is_gone,
    the_log_stops_before_it,
    a_record_is_stored_twice,
    two_records_change_places,
    a_replica_has_another_value,
    a_producer_was_told_a_wrong_offset,
    what_was_read_was_taken_back,
    nobody_read_it,
    it_was_committed_and_never_processed,
    it_was_processed_twice,
    a_producer_was_never_answered,
    the_last_stable_offset_stands_still,
    the_transaction_was_aborted_after_all,
    a_transaction_lost_one_of_its_records,
    nobody_ever_sent_it,
    a_consumer_skipped_a_record,
    a_consumer_read_a_record_again,
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
@given(st.data())
def test_a_planted_mistake_is_called_by_its_name(
    plant: Callable[[st.DataObject, History], Planted], data: st.DataObject
) -> None:
    run, value, kind, exactly = plant(data, data.draw(correct_runs(spoilt=True)))
    anomalies = judge(run)
    assert (kind, value) in {(anomaly.kind, anomaly.value) for anomaly in anomalies}
    if exactly:
        assert {anomaly.kind for anomaly in anomalies} == {kind}
