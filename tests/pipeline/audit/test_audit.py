"""The audit on a real log: what is damaged is named, what is explained is not blamed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from audited_topic import START_MS, AuditedTopic, Delivered, ListSink
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from lossless.acknowledged import AUDIT_TOPIC, AcknowledgedCounter
from lossless.errors import BadInput, Unavailable, Undecided
from lossless.pipeline.audit import AuditReport, FindingKind, PlainTable, Reported, Verdict, audit
from lossless.pipeline.audit.wording import conclusion
from lossless.pipeline.ledger import Ledger, Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Auditor = Callable[..., AuditReport]


def named(report: AuditReport) -> list[tuple[FindingKind, int, int | None]]:
    return [(f.kind, f.partition, f.offset) for f in report.findings]


@pytest.fixture(scope="module")
def topic(client_settings: Mapping[str, str]) -> AuditedTopic:
    return AuditedTopic(client_settings)


@pytest.fixture(scope="module")
def delivered(topic: AuditedTopic) -> list[Delivered]:
    return topic.send(0, 120)


@pytest.fixture(scope="module")
def settled(spark: SparkSession, delivered: list[Delivered]) -> ListSink:
    """100 of 120 records in two commits: rows, some dead letters, and some filtered."""
    sink = ListSink(spark)
    for first, last in ((0, 50), (50, 100)):
        batch = [r for r in delivered if first <= number(r) < last]
        sink.commit(
            [r for r in batch if number(r) % 10 not in (3, 7)],
            dead=[r for r in batch if number(r) % 10 == 3],
            filtered=[r for r in batch if number(r) % 10 == 7],
        )
    return sink


@pytest.fixture
def sink(settled: ListSink) -> ListSink:
    return settled.copy()


def number(record: Delivered) -> int:
    return int(record.key.decode().removeprefix("order-"))


def row(sink: ListSink, wanted: int) -> Delivered:
    return next(r for r in sink.rows_ if number(r) == wanted)


def test_a_pipeline_that_did_its_work_balances(
    audited: Auditor, topic: AuditedTopic, sink: ListSink
) -> None:
    report = audited(topic, sink, bucket_s=60)
    assert report.findings == []
    assert report.verdict is Verdict.BALANCED
    total = report.total
    assert (total.logged, total.stored, total.dead) == (120, 80, 10)
    assert (total.filtered, total.in_flight, total.lost) == (10, 20, 0)
    assert [(b.start_ms, b.logged, b.in_flight) for b in report.buckets] == [
        (START_MS, 60, 0),
        (START_MS + 60_000, 60, 20),
    ]


def test_without_reports_it_never_says_that_nothing_was_lost(
    audited: Auditor, topic: AuditedTopic, sink: ListSink
) -> None:
    report = audited(topic, sink)
    assert report.reported is Reported.NO
    assert conclusion(report).startswith("acknowledged not reported, 80 stored")
    assert "0 lost" not in conclusion(report)
    assert "0 missing, 0 duplicated" in conclusion(report)


def test_a_deleted_row_is_named(audited: Auditor, topic: AuditedTopic, sink: ListSink) -> None:
    victim = row(sink, 42)
    sink.rows_.remove(victim)
    report = audited(topic, sink)
    assert named(report) == [(FindingKind.MISSING, victim.partition, victim.offset)]
    (finding,) = report.findings
    assert (finding.key, finding.timestamp_ms) == (b"order-42", victim.timestamp_ms)
    assert (report.verdict, report.total.missing) == (Verdict.NOT_BALANCED, 1)
    assert [b.balanced for b in report.buckets].count(False) == 1


def test_a_duplicated_row_is_named(audited: Auditor, topic: AuditedTopic, sink: ListSink) -> None:
    victim = row(sink, 42)
    sink.rows_ += [victim, victim]
    report = audited(topic, sink)
    assert named(report) == [(FindingKind.DUPLICATED, victim.partition, victim.offset)]
    assert report.findings[0].key == b"order-42"
    assert (report.total.stored, report.total.duplicated) == (80, 2)


def test_a_deleted_and_a_duplicated_row_of_one_bucket_are_both_named(
    audited: Auditor, topic: AuditedTopic, sink: ListSink
) -> None:
    deleted, doubled = row(sink, 42), row(sink, 44)
    assert deleted.partition == doubled.partition
    sink.rows_.remove(deleted)
    sink.rows_.append(doubled)
    report = audited(topic, sink)
    assert sorted(named(report)) == [
        (FindingKind.DUPLICATED, doubled.partition, doubled.offset),
        (FindingKind.MISSING, deleted.partition, deleted.offset),
    ]
    assert (report.total.missing, report.total.duplicated) == (1, 1)


def test_a_ledger_shifted_forwards_names_what_it_skipped(
    audited: Auditor, topic: AuditedTopic, sink: ListSink, delivered: list[Delivered]
) -> None:
    skipped = [r for r in delivered if number(r) in (100, 102)]
    sink.shift(skipped[0].source, 2)
    report = audited(topic, sink)
    assert report.findings[0].kind is FindingKind.LEDGER
    assert named(report)[1:] == [(FindingKind.MISSING, r.partition, r.offset) for r in skipped]


def test_a_ledger_shifted_backwards_names_the_rows_beyond_it(
    audited: Auditor, topic: AuditedTopic, sink: ListSink, delivered: list[Delivered]
) -> None:
    beyond = [r for r in delivered if number(r) in (96, 98)]
    sink.shift(beyond[0].source, -2)
    report = audited(topic, sink)
    assert report.findings[0].kind is FindingKind.LEDGER
    assert named(report)[1:] == [(FindingKind.BEYOND_LEDGER, r.partition, r.offset) for r in beyond]
    assert (report.total.missing, report.total.duplicated) == (0, 0)


def test_a_deleted_dead_letter_is_named(
    audited: Auditor, topic: AuditedTopic, sink: ListSink
) -> None:
    victim = sink.letters_.pop(3)
    report = audited(topic, sink)
    assert named(report) == [(FindingKind.LETTER_MISSING, victim.partition, victim.offset)]


def test_a_row_altered_to_another_offset_is_named_with_the_one_it_had(
    audited: Auditor, topic: AuditedTopic, sink: ListSink, delivered: list[Delivered]
) -> None:
    victim = row(sink, 42)
    filtered = next(r for r in delivered if number(r) == 37)
    sink.rows_.remove(victim)
    sink.rows_.append(replace(victim, partition=filtered.partition, offset=filtered.offset))
    report = audited(topic, sink)
    assert sorted(named(report)) == [
        (FindingKind.MISSING, victim.partition, victim.offset),
        (FindingKind.OTHER_TIMESTAMP, filtered.partition, filtered.offset),
        (FindingKind.NOT_FILTERED, filtered.partition, filtered.offset),
    ]


def test_a_replaced_record_among_filtered_ones_is_named_with_contents(
    audited: Auditor, topic: AuditedTopic, sink: ListSink
) -> None:
    victim = row(sink, 41)
    sink.rows_.remove(victim)
    sink.rows_.append(replace(victim, timestamp_ms=victim.timestamp_ms + 1))
    report = audited(topic, sink, bucket_s=3600)
    assert report.verdict is Verdict.BALANCED
    assert any(
        note.startswith("timestamps were not compared in 1 partition with filtered records")
        for note in report.notes
    )
    report = audited(topic, sink, bucket_s=3600, contents=True)
    assert report.verdict is Verdict.NOT_BALANCED
    assert [f for f in named(report) if f[0] is not FindingKind.ALTERED] == [
        (FindingKind.OTHER_TIMESTAMP, victim.partition, victim.offset)
    ]


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_dead_letter_of_another_record_is_named_with_contents(
    audited: Auditor, topic: AuditedTopic, sink: ListSink, part: str
) -> None:
    victim = sink.letters_[3]
    sink.letters_[3] = replace(victim, **{part: b"another"})
    assert named(audited(topic, sink, contents=True)) == [
        (FindingKind.OTHER_RECORD, victim.partition, victim.offset)
    ]


def test_one_of_several_rows_with_another_timestamp_is_named(
    audited: Auditor, client_settings: Mapping[str, str], spark: SparkSession
) -> None:
    topic = AuditedTopic(client_settings, partitions=1)
    delivered = topic.send(0, 10)
    sink = ListSink(spark)
    sink.commit(delivered)
    (source,) = sink.ledger_.positions
    position = replace(sink.ledger_.positions[source], rows=20)
    sink.ledger_ = Ledger(sequence=1, positions={source: position})
    for moved_ms in (1, -1):
        later = replace(delivered[4], timestamp_ms=delivered[4].timestamp_ms + moved_ms)
        sink.rows_ = [*delivered, *delivered[:4], later, *delivered[5:]]
        assert named(audited(topic, sink)) == [(FindingKind.OTHER_TIMESTAMP, 0, 4)]


def test_a_row_from_a_topic_id_that_nobody_knows_is_named(
    audited: Auditor, topic: AuditedTopic, sink: ListSink
) -> None:
    sink.rows_.append(replace(row(sink, 42), topic_id="another-topic"))
    report = audited(topic, sink)
    (finding,) = report.findings
    assert finding.kind is FindingKind.UNKNOWN_SOURCE
    assert (finding.topic_id, finding.offset) == ("another-topic", row(sink, 42).offset)
    assert report.total.unexpected == 1


def test_a_pipeline_that_commits_during_the_audit_is_not_blamed(
    audited: Auditor, topic: AuditedTopic, sink: ListSink, delivered: list[Delivered]
) -> None:
    rows_before = sink.rows

    def commit_and_read() -> object:
        sink.rows = rows_before  # type: ignore[method-assign]
        sink.commit([r for r in delivered if number(r) >= 100])
        return sink.rows()

    sink.rows = commit_and_read  # type: ignore[method-assign, assignment]
    report = audited(topic, sink)
    assert report.findings == []
    assert (report.total.stored, report.total.in_flight) == (80, 20)


def test_a_ledger_that_goes_back_during_the_audit_forbids_a_verdict(
    audited: Auditor, topic: AuditedTopic, sink: ListSink
) -> None:
    rows_before = sink.rows

    def restore_and_read() -> object:
        sink.ledger_ = Ledger(sequence=1, positions=sink.ledger_.positions)
        return rows_before()

    sink.rows = restore_and_read  # type: ignore[method-assign, assignment]
    with pytest.raises(Undecided, match="went back from commit 2 to 1"):
        audited(topic, sink)


def test_records_deleted_by_retention_are_explained_once_read_and_lost_before(
    audited: Auditor, client_settings: Mapping[str, str], spark: SparkSession
) -> None:
    topic = AuditedTopic(client_settings, partitions=1)
    delivered = topic.send(0, 30)
    sink = ListSink(spark)
    sink.commit(delivered[:9], filtered=[delivered[9]])
    sink.commit(delivered[10:20])
    delete = {TopicPartition(topic.name, 0, 15): None}
    for answer in topic.admin.delete_records(list(delete)).values():
        answer.result(30)
    report = audited(topic, sink)
    assert report.findings == []
    assert (report.total.logged, report.total.stored, report.total.filtered) == (30, 19, 1)
    assert any("15 records are below the log start (15)" in note for note in report.notes)
    for answer in topic.admin.delete_records([TopicPartition(topic.name, 0, 25)]).values():
        answer.result(30)
    report = audited(topic, sink)
    (finding,) = report.findings
    assert finding.kind is FindingKind.DELETED_UNREAD
    assert (finding.offset, finding.last_offset, finding.records) == (20, 24, 5)
    assert report.total.lost == 5


def test_what_a_topic_lost_while_it_was_not_selected_is_lost_once_it_is_selected_again(
    audited: Auditor, client_settings: Mapping[str, str], spark: SparkSession
) -> None:
    topic = AuditedTopic(client_settings, partitions=1)
    sink = ListSink(spark)
    sink.commit(topic.send(0, 5))
    (source,) = sink.ledger_.positions
    closed = replace(sink.ledger_.positions[source], closed=True)
    sink.ledger_ = Ledger(sequence=2, positions={source: closed})
    topic.send(5, 3)
    for answer in topic.admin.delete_records([TopicPartition(topic.name, 0, 8)]).values():
        answer.result(30)
    (finding,) = audited(topic, sink).findings
    assert finding.kind is FindingKind.DELETED_UNREAD
    assert (finding.offset, finding.last_offset) == (5, 7)


def test_what_a_partition_lost_before_it_was_first_read_is_lost(
    audited: Auditor, client_settings: Mapping[str, str], spark: SparkSession
) -> None:
    topic = AuditedTopic(client_settings, partitions=2)
    delivered = topic.send(0, 20)
    sink = ListSink(spark)
    sink.commit([r for r in delivered if r.partition == 0])
    assert audited(topic, sink).verdict is Verdict.BALANCED
    for answer in topic.admin.delete_records([TopicPartition(topic.name, 1, 4)]).values():
        answer.result(30)
    (finding,) = audited(topic, sink).findings
    assert finding.kind is FindingKind.DELETED_UNREAD
    assert (finding.partition, finding.offset, finding.last_offset) == (1, 0, 3)


def test_rows_of_another_pipeline_in_the_same_table_are_not_unexpected(
    audited: Auditor, client_settings: Mapping[str, str], spark: SparkSession
) -> None:
    mine, others = (AuditedTopic(client_settings, partitions=1) for _ in range(2))
    sink, other = ListSink(spark), ListSink(spark)
    sink.commit(mine.send(0, 5))
    other.commit(others.send(0, 5))
    sink.rows_ += other.rows_
    assert audited(mine, sink).total.unexpected == 5
    sink.other_ledgers = lambda: {"other": other.ledger_}  # type: ignore[method-assign]
    report = audited(mine, sink)
    assert (report.verdict, report.total.unexpected) == (Verdict.BALANCED, 0)


def test_a_pipeline_whose_ledger_has_another_name_is_referred_to_rename(
    audited: Auditor, client_settings: Mapping[str, str], spark: SparkSession
) -> None:
    topic = AuditedTopic(client_settings, partitions=1)
    before, sink = ListSink(spark), ListSink(spark)
    before.commit(topic.send(0, 5))
    sink.rows_ = before.rows_
    sink.other_ledgers = lambda: {"old": before.ledger_}  # type: ignore[method-assign]
    with pytest.raises(BadInput, match="old reads the same topics into it") as refused:
        audited(topic, sink)
    assert refused.value.hint == "if the pipeline was renamed: lossless rename old orders"


def test_a_log_that_holds_other_records_than_those_that_were_read_does_not_balance(
    audited: Auditor, client_settings: Mapping[str, str], spark: SparkSession
) -> None:
    topic = AuditedTopic(client_settings, partitions=1)
    sink = ListSink(spark)
    sink.commit(topic.send(0, 5))
    (source,) = sink.ledger_.positions
    # No leader of this log ever had such an epoch: what was read came from another log.
    position = replace(sink.ledger_.positions[source], leader_epoch=9)
    sink.ledger_ = Ledger(sequence=1, positions={source: position})
    report = audited(topic, sink)
    assert report.verdict is Verdict.NOT_BALANCED
    assert named(report) == [(FindingKind.LEDGER, 0, None), (FindingKind.REPLACED, 0, 0)]


def test_a_topic_that_was_re_created_leaves_the_old_one_undecided(
    audited: Auditor, client_settings: Mapping[str, str], spark: SparkSession
) -> None:
    topic = AuditedTopic(client_settings, partitions=1)
    sink = ListSink(spark)
    sink.commit(topic.send(0, 5))
    topic.admin.delete_topics([topic.name])[topic.name].result(30)
    again = AuditedTopic(client_settings, partitions=1, name=topic.name)
    again.send(0, 3)
    report = audited(again, sink)
    assert report.verdict is Verdict.UNDECIDED
    assert topic.topic_id in report.undecided[0]
    assert report.total.in_flight == 3
    (source,) = sink.ledger_.positions
    closed = replace(sink.ledger_.positions[source], closed=True)
    sink.ledger_ = Ledger(sequence=2, positions={source: closed})
    assert audited(again, sink).verdict is Verdict.BALANCED
    sink.rows_.pop()
    assert audited(again, sink).verdict is Verdict.NOT_BALANCED


def test_a_plain_table_is_compared_with_the_whole_log(
    audited: Auditor, client_settings: Mapping[str, str], spark: SparkSession
) -> None:
    topic = AuditedTopic(client_settings)
    delivered = topic.send(0, 20)
    rows = ListSink(spark)
    rows.rows_ = [*delivered[1:], delivered[5]]
    report = audited(topic, PlainTable(spark, "a careless table", rows.rows()))
    assert sorted(named(report)) == [
        (FindingKind.DUPLICATED, delivered[5].partition, delivered[5].offset),
        (FindingKind.MISSING, delivered[0].partition, delivered[0].offset),
    ]
    assert (report.total.stored, report.total.lost, report.total.duplicated) == (19, 1, 1)


def report_acknowledged(topic: AuditedTopic, records: list[Delivered]) -> None:
    """What a Lossless producer does with its delivery reports; every report is sent twice."""
    if AUDIT_TOPIC not in topic.admin.list_topics(timeout=10).topics:
        topic.admin.create_topics([NewTopic(AUDIT_TOPIC, 1, 1)])[AUDIT_TOPIC].result(30)
    counter = AcknowledgedCounter(producer="shop@host#1", instance=topic.name)
    for r in records:
        counter.add(
            topic=r.topic,
            topic_id=r.topic_id,
            partition=r.partition,
            offset=r.offset,
            timestamp_ms=r.timestamp_ms,
        )
    producer = Producer(dict(topic.settings))
    for report in counter.reports(0, flush=True):
        for _ in range(2):
            producer.produce(AUDIT_TOPIC, key=report.key(), value=report.to_bytes())
    assert producer.flush(30) == 0


def test_reports_of_acknowledged_records_close_the_balance(
    audited: Auditor, client_settings: Mapping[str, str], spark: SparkSession
) -> None:
    topic = AuditedTopic(client_settings)
    delivered = topic.send(0, 100)
    sink = ListSink(spark)
    sink.commit(delivered)
    report_acknowledged(topic, delivered)
    report = audited(topic, sink, bucket_s=10)
    assert report.reported is Reported.FULLY
    assert conclusion(report) == "100 acknowledged, 100 stored, 0 lost, 0 duplicated"
    assert report.bucket_ms == 60_000  # producers report by the minute
    assert "not 10 s" in report.notes[0]
    later = topic.send(100, 10)
    sink.commit(later)
    report = audited(topic, sink)
    assert (report.verdict, report.reported) == (Verdict.BALANCED, Reported.PARTLY)
    assert "10 records in the log are in no producer's report" in report.notes[-1]


def test_acknowledged_records_that_the_log_lacks_are_lost_and_named(
    audited: Auditor, client_settings: Mapping[str, str], spark: SparkSession
) -> None:
    topic = AuditedTopic(client_settings, partitions=1)
    delivered = topic.send(0, 10)
    sink = ListSink(spark)
    sink.commit(delivered)
    # The leader died with them: acknowledged with acks=1, at offsets that the log never got.
    gone = [replace(delivered[-1], offset=offset) for offset in (10, 11)]
    report_acknowledged(topic, [*delivered, *gone])
    report = audited(topic, sink)
    assert named(report) == [(FindingKind.LOST, 0, 10), (FindingKind.LOST, 0, 11)]
    assert conclusion(report) == "12 acknowledged, 10 stored, 2 lost, 0 duplicated"


def test_aborted_and_open_transactions_are_explained_by_what_read_uncommitted_shows(
    audited: Auditor, client_settings: Mapping[str, str], spark: SparkSession
) -> None:
    topic = AuditedTopic(client_settings, partitions=1)

    def transactional(name: str) -> Producer:
        made = Producer({**topic.settings, "transactional.id": f"{topic.name}-{name}"})
        made.init_transactions(30)
        made.begin_transaction()
        return made

    committed = transactional("committed")
    kept = topic.send(0, 5, producer=committed)
    committed.commit_transaction(30)
    aborted = transactional("aborted")
    dropped = topic.send(5, 3, producer=aborted)
    aborted.abort_transaction(30)
    unfinished = transactional("open")
    pending = topic.send(8, 2, producer=unfinished)
    sink = ListSink(spark)
    sink.commit(kept)
    report_acknowledged(topic, [*kept, *dropped, *pending])
    report = audited(topic, sink)
    unfinished.abort_transaction(30)
    assert report.findings == []
    total = report.total
    assert (total.acknowledged, total.logged, total.stored) == (10, 10, 5)
    assert (total.explained, total.in_flight, total.lost) == (3, 2, 0)


def test_an_acknowledged_file_lists_lost_and_duplicated_records_one_by_one(
    audited: Auditor, client_settings: Mapping[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    topic = AuditedTopic(client_settings, partitions=1)
    delivered = topic.send(0, 10)
    again = topic.send(4, 1)[0]  # a retry without idempotence: value-4 at two offsets
    sink = ListSink(spark)
    sink.commit([*delivered, again])
    events = [event(r, r.offset, r.value.decode()) for r in delivered]
    events.append(event(delivered[3], 3, "value-gone"))  # another record took its offset
    events.append(event(delivered[3], 77, "value-cut"))  # the log was cut back
    events.append({"name": "startup_complete"})
    file = tmp_path / "producer.jsonl"
    file.write_text("".join(json.dumps(e) + "\n" for e in events))
    report = audited(topic, sink, acknowledged_file=file)
    assert sorted(named(report)) == [
        (FindingKind.LOST, 0, 3),
        (FindingKind.LOST, 0, 77),
        (FindingKind.DUPLICATED_IN_LOG, 0, again.offset),
    ]
    assert "value-gone" in report.findings[1].detail + report.findings[2].detail
    total = report.total
    assert (total.acknowledged, total.stored, total.lost, total.duplicated) == (12, 11, 2, 1)
    file.write_text('{"name": "producer_send_success", "topic": "x"}\n')
    with pytest.raises(BadInput, match="line 1"):
        audited(topic, sink, acknowledged_file=file)


def test_a_log_record_answers_for_one_acknowledgement_only(
    audited: Auditor, client_settings: Mapping[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    topic = AuditedTopic(client_settings, partitions=1)
    delivered = topic.send(0, 6)
    again = topic.send(4, 1)[0]  # a retry: value-4 stands at offsets 4 and 6
    sink = ListSink(spark)
    sink.commit([*delivered, again])
    events = [event(r, r.offset, r.value.decode()) for r in delivered]
    events += [
        event(delivered[2], 2, "value-2"),  # acknowledged twice, and stands there once
        event(delivered[1], 20, "value-1"),  # the same value again, and this one is gone
        event(delivered[4], 21, "value-4"),  # stands at offset 6, which nothing else answers for
        event(delivered[4], 22, "value-4"),  # and this one nowhere
        {**event(delivered[5], 5, ""), "value": None},
        {**event(delivered[5], 30, ""), "value": None},
    ]
    file = tmp_path / "producer.jsonl"
    file.write_text("".join(json.dumps(e) + "\n" for e in events))
    report = audited(topic, sink, acknowledged_file=file)
    lost = sorted(f.offset or 0 for f in report.findings if f.kind is FindingKind.LOST)
    assert lost == [2, 5, 20, 22, 30]
    assert (report.total.acknowledged, report.total.lost) == (12, 5)


def test_an_acknowledged_record_is_found_by_its_key_too(
    audited: Auditor, client_settings: Mapping[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    topic = AuditedTopic(client_settings, partitions=1)
    delivered = topic.send(0, 6)
    sink = ListSink(spark)
    sink.commit(delivered)
    events = [
        event(delivered[0], 0, "value-0"),
        {**event(delivered[1], 1, "value-1"), "key": "another"},
        # At another offset a record of the value is found, and only with its key.
        {**event(delivered[2], 20, "value-2"), "key": "another"},
        event(delivered[3], 21, "value-3"),
        {**event(delivered[3], 22, "value-3"), "key": None},  # which the one before has taken
        {**event(delivered[4], 23, "value-4"), "key": None},
        {**event(delivered[5], 5, ""), "key": "another", "value": None},
    ]
    file = tmp_path / "producer.jsonl"
    file.write_text("".join(json.dumps(e) + "\n" for e in events))
    report = audited(topic, sink, acknowledged_file=file)
    assert sorted(named(report)) == [(FindingKind.LOST, 0, offset) for offset in (1, 5, 20, 22)]


def test_records_of_one_value_and_different_keys_are_no_duplicates(
    audited: Auditor, client_settings: Mapping[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    topic = AuditedTopic(client_settings, partitions=1)
    producer = Producer({**topic.settings, "acks": "all"})
    for key in ("mine", "others", "twice", "twice"):
        producer.produce(topic.name, key=key, value="1", partition=0)
    assert producer.flush(30) == 0
    sink = ListSink(spark)
    sent = {"name": "producer_send_success", "topic": topic.name, "partition": 0, "value": "1"}
    file = tmp_path / "producer.jsonl"
    for keys, copies in ((("mine",), []), (("mine", "twice"), [3])):
        events = [{**sent, "key": k, "offset": 0 if k == "mine" else 2} for k in keys]
        file.write_text("".join(json.dumps(e) + "\n" for e in events))
        findings = audited(topic, sink, acknowledged_file=file).findings
        assert [f.offset for f in findings if f.kind is FindingKind.DUPLICATED_IN_LOG] == copies
        assert not [f for f in findings if f.kind is FindingKind.LOST]


def event(record: Delivered, offset: int, value: str) -> dict[str, object]:
    return {
        "name": "producer_send_success",
        "topic": record.topic,
        "partition": record.partition,
        "offset": offset,
        "key": record.key.decode(),
        "value": value,
    }


def test_a_pipeline_that_never_ran_has_everything_in_flight_and_no_verdict(
    audited: Auditor, topic: AuditedTopic, spark: SparkSession, delivered: list[Delivered]
) -> None:
    report = audited(topic, ListSink(spark))
    assert report.verdict is Verdict.UNDECIDED
    assert "orders has never run" in report.undecided[0]
    assert report.total.in_flight == len(delivered)


def test_expanded_records_are_counted_once(
    audited: Auditor, client_settings: Mapping[str, str], spark: SparkSession
) -> None:
    topic = AuditedTopic(client_settings, partitions=1)
    delivered = topic.send(0, 10)
    sink = ListSink(spark)
    sink.commit(delivered)
    (source,) = sink.ledger_.positions
    sink.rows_ += delivered  # two rows for every record
    position = replace(sink.ledger_.positions[source], rows=20)
    sink.ledger_ = Ledger(sequence=1, positions={source: position})
    assert audited(topic, sink).verdict is Verdict.BALANCED
    sink.rows_ = [r for r in sink.rows_ if r != delivered[4]]
    assert named(audited(topic, sink)) == [(FindingKind.MISSING, 0, 4)]


def test_a_missing_topic_and_a_cluster_that_does_not_answer_are_told_clearly(
    spark: SparkSession, topic: AuditedTopic
) -> None:
    missing = replace(topic.pipeline, topics=("no-such-topic",))
    with pytest.raises(BadInput, match="no-such-topic"):
        audit(
            spark,
            pipeline=missing,
            sink=ListSink(spark),
            client_settings={"bootstrap.servers": str(topic.settings["bootstrap.servers"])},
        )
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        audit(
            spark,
            pipeline=topic.pipeline,
            sink=ListSink(spark),
            client_settings={"bootstrap.servers": "127.0.0.1:1"},
        )


def test_an_accepted_start_is_not_the_pipelines_to_answer_for(
    audited: Auditor, client_settings: Mapping[str, str], spark: SparkSession
) -> None:
    topic = AuditedTopic(client_settings, partitions=1)
    delivered = topic.send(0, 20)
    report_acknowledged(topic, delivered)
    sink = ListSink(spark)
    source = delivered[0].source
    start = Position(start_offset=12, next_offset=12)
    sink.ledger_ = Ledger(sequence=1, positions={source: start})
    sink.commit(delivered[12:])
    report = audited(topic, sink)
    assert report.findings == []
    total = report.total
    assert (total.acknowledged, total.explained, total.stored, total.lost) == (20, 12, 8, 0)
    sink.rows_.append(delivered[2])
    assert named(audited(topic, sink)) == [(FindingKind.BEFORE_START, 0, 2)]
