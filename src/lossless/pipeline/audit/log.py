"""The log's side of an audit: which topics there are, how far they reach, and a frame over them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ListOffsetsResultInfo,
    OffsetSpec,
    TopicMetadata,
)

from lossless.acknowledged import AUDIT_TOPIC, AcknowledgedCount
from lossless.contract import librdkafka_settings
from lossless.errors import BadInput, Unavailable
from lossless.pipeline.audit.model import LogBounds
from lossless.pipeline.direct_source import direct_records
from lossless.pipeline.ledger import Position, SourcePartition
from lossless.pipeline.source import (
    REQUEST_TIMEOUT_S,
    SourceLog,
    consumer_options,
    leader_epoch,
)
from lossless.pipeline.transform import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """The topics an audit looks at: those the contract names and those the ledger knows."""

    topics: Sequence[str]
    topic_pattern: str | None
    isolation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundReports:
    """What the audit topic holds: reports, and why some of its records were skipped."""

    reports: Sequence[AcknowledgedCount]
    skipped: Sequence[str] = ()

    @property
    def notes(self) -> list[str]:
        if not self.skipped:
            return []
        records = "1 record" if len(self.skipped) == 1 else f"{len(self.skipped)} records"
        left_out = f"{records} of {AUDIT_TOPIC} could not be read and were left out"
        return [f"{left_out}; the first: {self.skipped[0]}"]


class AuditedLog:
    """Everything an audit asks of the cluster, with the client settings by their Java names."""

    def __init__(self, client_settings: Mapping[str, str], selection: TopicSelection) -> None:
        self._client_settings = client_settings
        self._settings: dict[str, str | int | float | bool] = {
            **librdkafka_settings(client_settings),
            # Failures reach us as exceptions; librdkafka's own lines would only repeat them.
            "log_level": "0",
        }
        self._admin = AdminClient(self._settings)
        self._source = SourceLog(client_settings)
        self._selection = selection
        self.isolation = selection.isolation
        self.selected: set[str] = set()  # the topics of the contract, once `partitions` has looked
        # Set when Spark's source has failed on a timestamp: see direct_source.py.
        self.reads_directly = False

    def close(self) -> None:
        self._source.close()

    def partitions(self, known: Iterable[SourcePartition]) -> list[SourcePartition]:
        """Every partition there is now of the pipeline's topics; `known` are the ledger's."""
        existing = self._source.existing_topics()
        remembered = {source.topic for source in known}
        # A topic that is gone and was never read is a mistake in the contract; one that is gone
        # and was read is for the audit to judge.
        named = [t for t in self._selection.topics if t in existing or t not in remembered]
        self.selected = set(self._source.topics(named, self._selection.topic_pattern))
        return self._source.partitions(sorted(self.selected | (remembered & existing)))

    def bounds(self, partitions: Sequence[SourcePartition]) -> dict[SourcePartition, LogBounds]:
        starts = self._offsets(partitions, OffsetSpec.earliest(), READ_UNCOMMITTED)
        ends = self._offsets(partitions, OffsetSpec.latest(), self.isolation)
        return {
            p: LogBounds(
                start=starts[p].offset, end=ends[p].offset, leader_epoch=leader_epoch(ends[p])
            )
            for p in partitions
        }

    def cut_back(
        self,
        positions: Mapping[SourcePartition, Position],
        bounds: Mapping[SourcePartition, LogBounds],
    ) -> dict[SourcePartition, int]:
        """Logs that hold other records than those that were read, each with the first of them."""
        led_by_another = {
            source: (position.next_offset, position.leader_epoch)
            for source, position in positions.items()
            if position.leader_epoch is not None
            and (held := bounds.get(source)) is not None
            and held.leader_epoch != position.leader_epoch
            and held.start < position.next_offset <= held.end
        }
        return self._source.cut_back(led_by_another)

    def high_watermarks(self, partitions: Sequence[SourcePartition]) -> dict[SourcePartition, int]:
        found = self._offsets(partitions, OffsetSpec.latest(), READ_UNCOMMITTED)
        return {source: result.offset for source, result in found.items()}

    def compacted_topics(self, topics: Iterable[str]) -> set[str]:
        """Topics whose cleanup.policy has `compact`, as far as this client may know."""
        compacted: set[str] = set()
        resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        if not resources:
            return compacted
        answers = self._admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S)
        for resource, answer in answers.items():
            try:
                policy = str(answer.result()["cleanup.policy"].value)
            except (KafkaException, KeyError):
                continue  # not allowed to ask: then compaction is no evidence
            if "compact" in policy:
                compacted.add(str(resource.name))
        return compacted

    def time_span_ms(self, partitions: Sequence[SourcePartition]) -> tuple[int, int] | None:
        """First and last timestamp in the log, to choose a bucket width by; None when empty."""
        first = self._offsets(partitions, OffsetSpec.for_timestamp(0), READ_UNCOMMITTED)
        last = self._offsets(partitions, OffsetSpec.max_timestamp(), READ_UNCOMMITTED)
        firsts = [result.timestamp for result in first.values() if result.timestamp >= 0]
        lasts = [result.timestamp for result in last.values() if result.timestamp >= 0]
        return (min(firsts), max(lasts)) if firsts and lasts else None

    def _offsets(
        self, partitions: Sequence[SourcePartition], spec: OffsetSpec, isolation: str
    ) -> dict[SourcePartition, ListOffsetsResultInfo]:
        return self._source.list_offsets(partitions, spec, isolation=_isolation_level(isolation))

    def acknowledged_reports(self) -> FoundReports | None:
        """Every report in the audit topic; None when there is no such topic."""
        metadata = self._ask(lambda: self._admin.list_topics(timeout=REQUEST_TIMEOUT_S))
        topic = metadata.topics.get(AUDIT_TOPIC)
        if topic is None:
            return None
        consumer = Consumer(
            {
                **self._settings,
                "group.id": "lossless-audit",  # never joined, never committed
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
                "auto.offset.reset": "error",
                "isolation.level": READ_COMMITTED,
            }
        )
        try:
            return self._ask(lambda: _read_to_end(consumer, topic))
        finally:
            consumer.close()

    def frame(
        self,
        spark: SparkSession,
        ranges: Mapping[SourcePartition, tuple[int, int]],
        *,
        isolation: str | None = None,
    ) -> DataFrame | None:
        """The records of exactly these offsets; None when there are none."""
        wanted = {source: ends for source, ends in ranges.items() if ends[0] < ends[1]}
        if not wanted:
            return None
        if self.reads_directly:
            return direct_records(
                spark,
                self._client_settings,
                [OffsetRange(s.topic, s.partition, *ends) for s, ends in sorted(wanted.items())],
                isolation=isolation or self.isolation,
                with_headers=False,
            )
        assigned: dict[str, list[int]] = {}
        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for source, (start, end) in sorted(wanted.items()):
            assigned.setdefault(source.topic, []).append(source.partition)
            starts.setdefault(source.topic, {})[str(source.partition)] = start
            ends.setdefault(source.topic, {})[str(source.partition)] = end
        settings = {**self._client_settings, "isolation.level": isolation or self.isolation}
        return (
            spark.read.format("kafka")
            .options(**consumer_options(settings))
            .option("assign", json.dumps(assigned))
            .option("startingOffsets", json.dumps(starts))
            .option("endingOffsets", json.dumps(ends))
            .option("failOnDataLoss", "true")
            .load()
        )

    def _ask(self, request: Callable[[], Result]) -> Result:
        try:
            return request()
        except KafkaException as error:
            address = self._client_settings.get("bootstrap.servers", "(no bootstrap.servers)")
            raise Unavailable(
                f"no answer from Kafka at {address}: {error.args[0]}",
                hint="is the cluster up, and are the client settings those of its listener?",
            ) from error


def _isolation_level(name: str) -> IsolationLevel:
    if name == READ_COMMITTED:
        return IsolationLevel.READ_COMMITTED
    return IsolationLevel.READ_UNCOMMITTED


def _read_to_end(consumer: Consumer, topic: TopicMetadata) -> FoundReports:
    if topic.error is not None:  # without partitions, which is not the same as empty
        raise KafkaException(topic.error)
    # From the first record that is there, whatever retention has taken: reports may be partial.
    positions, unread = [], {}
    for partition in topic.partitions:
        low, high = consumer.get_watermark_offsets(
            TopicPartition(AUDIT_TOPIC, partition), timeout=REQUEST_TIMEOUT_S
        )
        positions.append(TopicPartition(AUDIT_TOPIC, partition, low))
        unread[partition] = high
    consumer.assign(positions)
    reports: list[AcknowledgedCount] = []
    skipped: list[str] = []
    while unread:
        # One at a time: to ask for many would be to wait for many.
        message = consumer.poll(REQUEST_TIMEOUT_S)
        if message is None:
            raise Unavailable(f"{AUDIT_TOPIC} did not answer within {REQUEST_TIMEOUT_S:.0f} s")
        error = message.error()
        if error is None:
            # Anybody can write to the topic: one bad record must not take the audit away.
            try:
                reports.append(AcknowledgedCount.from_bytes(message.value() or b""))
            except BadInput as refused:
                skipped.append(refused.what)
        elif error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        # A leader just elected may tell of an end that comes too soon (R19): there is more.
        elif (message.offset() or 0) >= unread.get(message.partition() or 0, 0):
            unread.pop(message.partition() or 0, None)
    return FoundReports(reports=reports, skipped=skipped)
