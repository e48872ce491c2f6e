"""A real topic, and a sink kept in lists that tests can damage."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import types as T

from lossless.contract import ParquetSinkContract, PipelineContract, librdkafka_settings
from lossless.pipeline.audit.balance import add
from lossless.pipeline.contents import Uncoverings, content_hashes, doubtful_rows
from lossless.pipeline.ledger import Ledger, LedgerEntry, Position, Receipt, SourcePartition
from lossless.pipeline.outcomes import PROVENANCE, PROVENANCE_TYPE
from lossless.pipeline.source import kafka_topic_id
from lossless.tally import Tally, record_hash

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lossless.pipeline.sinks.unreadable_files import UnreadableFile

START_MS = 1_700_000_040_000  # the beginning of a minute
SCHEMA = T.StructType(
    [T.StructField("note", T.StringType()), T.StructField(PROVENANCE, PROVENANCE_TYPE)]
)


@dataclass(frozen=True)
class Delivered:
    topic: str
    topic_id: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes

    @property
    def source(self) -> SourcePartition:
        return SourcePartition(self.topic, self.topic_id, self.partition)


def within_deadline(request: Callable[[], Any], seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return request()
        except KafkaException:
            if time.monotonic() > deadline:
                raise


class AuditedTopic:
    """A topic of its own with what was delivered to it."""

    def __init__(
        self,
        client_settings: Mapping[str, str],
        *,
        partitions: int = 2,
        name: str | None = None,
    ) -> None:
        self.settings = librdkafka_settings(client_settings)
        self.admin = AdminClient(dict(self.settings))
        self.name = name or f"audited-{uuid.uuid4().hex[:8]}"
        # The records carry timestamps of long ago: without this, retention takes them away.
        topic = NewTopic(self.name, partitions, 1, config={"retention.ms": "-1"})
        # A deleted topic of this name goes, and a new one is known to every broker, a moment after
        # the controller said so.
        within_deadline(lambda: self.admin.create_topics([topic])[self.name].result(30))
        topics = TopicCollection([self.name])
        described = within_deadline(
            lambda: self.admin.describe_topics(topics)[self.name].result(30)
        )
        self.topic_id = kafka_topic_id(described.topic_id)
        self.partitions = partitions

    @property
    def pipeline(self) -> PipelineContract:
        return PipelineContract(
            name="orders",
            sink=ParquetSinkContract(path="unused"),
            topics=(self.name,),
            group="unused",
        )

    def send(self, first: int, count: int, *, producer: Producer | None = None) -> list[Delivered]:
        """Record n goes to partition n mod the number of partitions, a second after n - 1."""
        sending = producer or Producer({**self.settings, "acks": "all"})
        delivered: list[Delivered] = []

        def report(error: object, message: object) -> None:
            assert error is None, error
            delivered.append(
                Delivered(
                    topic=self.name,
                    topic_id=self.topic_id,
                    partition=message.partition(),  # type: ignore[attr-defined]
                    offset=message.offset(),  # type: ignore[attr-defined]
                    timestamp_ms=message.timestamp()[1],  # type: ignore[attr-defined]
                    key=message.key(),  # type: ignore[attr-defined]
                    value=message.value(),  # type: ignore[attr-defined]
                )
            )

        for number in range(first, first + count):
            sending.produce(
                self.name,
                key=f"order-{number}",
                value=f"value-{number}",
                partition=number % self.partitions,
                timestamp=START_MS + number * 1_000,
                on_delivery=report,
            )
        assert sending.flush(30) == 0
        return delivered


def tally(records: list[Delivered]) -> Tally:
    return add(Tally(1, record_hash(r.topic_id, r.partition, r.offset)) for r in records)


class ListSink:
    """Rows, letters and ledger in lists. `commit` does what a real sink and its runner do."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.rows_: list[Delivered] = []
        self.letters_: list[Delivered] = []
        self.ledger_ = Ledger()
        self.history_: list[LedgerEntry] = []

    def commit(
        self,
        stored: list[Delivered],
        *,
        dead: list[Delivered] | None = None,
        filtered: list[Delivered] | None = None,
    ) -> None:
        dead, filtered = dead or [], filtered or []
        changed = {}
        for source in {r.source for r in [*stored, *dead, *filtered]}:
            mine = [[r for r in part if r.source == source] for part in (stored, dead, filtered)]
            position = self.ledger_.positions.get(source, Position(start_offset=0, next_offset=0))
            together = [*mine[0], *mine[1], *mine[2]]
            changed[source] = position.advanced(
                max(r.offset for r in together) + 1,
                Receipt(
                    read=tally(together),
                    stored=tally(mine[0]),
                    dead=tally(mine[1]),
                    rows=len(mine[0]),
                ),
            )
        successor = self.ledger_.successor(changed)
        self.history_.append(LedgerEntry.between(self.ledger_, successor, committed_at_ms=0))
        self.ledger_ = successor
        self.rows_ += stored
        self.letters_ += dead

    def shift(self, source: SourcePartition, by: int) -> None:
        position = self.ledger_.positions[source]
        moved = replace(position, next_offset=position.next_offset + by)
        self.ledger_ = Ledger(
            sequence=self.ledger_.sequence, positions={**self.ledger_.positions, source: moved}
        )

    def copy(self) -> ListSink:
        other = ListSink(self._spark)
        other.rows_, other.letters_ = list(self.rows_), list(self.letters_)
        other.ledger_, other.history_ = self.ledger_, list(self.history_)
        return other

    def describe(self) -> str:
        return "a table in memory"

    def ledger(self) -> Ledger:
        return self.ledger_

    def history(self) -> list[LedgerEntry]:
        return self.history_

    def other_ledgers(self) -> dict[str, Ledger]:
        return {}

    def unreadable_files(self, *, read: bool) -> tuple[()]:  # noqa: ARG002
        return ()

    def leave_out(self, files: Sequence[UnreadableFile]) -> None:
        """There are no files to leave out."""

    def contents(self, covered: Sequence[str], uncovered: Uncoverings) -> DataFrame:
        return doubtful_rows(self.rows(), covered, uncovered)

    def content_hashes(self) -> DataFrame:
        return content_hashes(self.rows())

    def rows(self) -> DataFrame:
        return self._frame(self.rows_)

    def dead_letters(self) -> DataFrame:
        bytes_ = [(r.key, r.value) for r in self.letters_]
        letters = self._frame(self.letters_, bytes_, "key BINARY, value BINARY")
        return letters.drop("note")

    def _frame(
        self, records: list[Delivered], more: list[tuple[bytes, bytes]] | None = None, ddl: str = ""
    ) -> DataFrame:
        return self._spark.createDataFrame(
            [
                (
                    "a row",
                    (
                        r.topic_id,
                        r.partition,
                        r.offset,
                        datetime.fromtimestamp(r.timestamp_ms / 1000, UTC),
                    ),
                    *extra,
                )
                for r, extra in zip(records, more or [()] * len(records), strict=True)
            ],
            T.StructType([*SCHEMA.fields, *T.StructType.fromDDL(ddl).fields]) if ddl else SCHEMA,
        )
