"""The source's side of a pipeline: which topics there are, where their logs begin and end.

Spark's own connector reads the records. What it does not tell (topic ids, the last stable offset)
and what it must be told (where to start, for every partition) is asked of the cluster here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from lossless.contract import librdkafka_settings
from lossless.errors import BadInput, Unavailable
from lossless.pipeline.authorization import denied
from lossless.pipeline.ledger import Ledger, SourcePartition

if TYPE_CHECKING:
    from lossless.contract import PipelineContract

REQUEST_TIMEOUT_S = 15.0
# A client asks the broker that it last took for the controller, or for a partition's leader, and
# waits for that one in vain if it has died: the first attempts are short, and after each it is told
# to look again who that is.
PATIENCE_S = (1.0, 2.0, 4.0, REQUEST_TIMEOUT_S)
# How long a leader or a coordinator that is moving is waited for.
MOVING_ATTEMPTS = 60
MOVING_WAIT_S = 0.25
LEADER_ERRORS = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    # A leader just elected does not know yet how far its records are committed.
    KafkaError.OFFSET_NOT_AVAILABLE,
    # Its disk failed: another will lead.
    KafkaError.KAFKA_STORAGE_ERROR,
)
DENIALS = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)
COORDINATOR_ERRORS = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)

# The client's own patience (a minute) is how long Spark plans nothing after a broker died that it
# was asking. Less of it, and the query is started again from the ledger instead.
IMPATIENT = {"request.timeout.ms": "10000", "default.api.timeout.ms": "15000"}

# Spark reads a range of offsets from end to end and then stops. What a task fetches beyond the end
# of the log makes it wait at its own end, half a second by default, for records that nobody wants;
# polls and fetches of the default sizes cost more than the records in them.
IN_BULK = {
    "fetch.max.wait.ms": "10",
    "max.poll.records": "50000",
    "max.partition.fetch.bytes": str(4 << 20),
    "receive.buffer.bytes": str(1 << 20),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """What a partition's log holds: the first offset that is there and the one after the last."""

    earliest: int
    latest: int
    leader_epoch: int | None = None  # of the leader that said where the log ends


# What brokers say of a topic that was created before topics had ids (Kafka 2.8 brought them).
NO_TOPIC_ID = "A" * 22

# Kafka's own topics: its administration client does not list them, so Spark never reads them by a
# pattern. librdkafka lists them like any others.
# Names of topics that programs keep for themselves: Kafka's own, and this package's audit topic.
INTERNAL_PREFIX = "__"


def kafka_topic_id(uuid: object) -> str:
    """A topic id as Kafka's own tools print it: librdkafka uses the other base64 alphabet."""
    return str(uuid).replace("+", "-").replace("/", "_")


def _refuse_without_ids(partitions: Iterable[SourcePartition]) -> None:
    """Every such topic would be taken for the same one, also when it is created anew."""
    nameless = sorted({p.topic for p in partitions if p.topic_id == NO_TOPIC_ID})
    if nameless:
        raise BadInput(
            f"the brokers give no topic id for {', '.join(nameless)}: a topic that is deleted and "
            "created again could not be told from the old one, and its records would be taken for "
            "records that are stored already",
            hint="topic ids need Kafka 2.8 and inter.broker.protocol.version 2.8 or newer on every "
            "broker",
        )


class SourceLog:
    """Questions about topics and offsets, asked with the client's own settings (Java names)."""

    def __init__(self, client_settings: Mapping[str, str]) -> None:
        self._client_settings = client_settings
        self._settings = librdkafka_settings(client_settings)
        # Failures reach us as exceptions; librdkafka's own lines on stderr would only repeat them.
        self._admin = AdminClient({**self._settings, "log_level": "0"})
        self._consumers: dict[str, Consumer] = {}
        self._address = client_settings.get("bootstrap.servers", "(no bootstrap.servers)")

    def topics(
        self, names: Sequence[str], pattern: str | None = None, *, existing_only: bool = False
    ) -> list[str]:
        """The topics of a pipeline that exist now. BadInput if one asked for by name does not,
        unless only the existing ones are asked for.

        A pattern selects no internal topic.
        """
        existing = self.existing_topics()
        if pattern is not None:
            chosen = (t for t in existing if re.fullmatch(pattern, t))
            return sorted(t for t in chosen if not t.startswith(INTERNAL_PREFIX))
        if existing_only:
            return [name for name in names if name in existing]
        missing = sorted(set(names) - existing)
        if missing:
            self._require_describe(missing)
            there = [t for t in sorted(existing) if not t.startswith(INTERNAL_PREFIX)]
            raise BadInput(
                f"topic {', '.join(missing)} does not exist at {self._address}",
                hint=f"topics there: {_some(there)}",
            )
        return list(names)

    def existing_topics(self) -> set[str]:
        """All topics that this client may see."""
        return set(self._call(lambda: self._admin.list_topics(timeout=REQUEST_TIMEOUT_S)).topics)

    def _require_describe(self, topics: Sequence[str]) -> None:
        """A listing leaves out what the client may not see; asked by name, the broker says so."""
        described = self._admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT_S
        )
        for topic, future in described.items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise denied("DESCRIBE", f"topic {topic}", self._client_settings) from error

    def partitions(self, topics: Sequence[str]) -> list[SourcePartition]:
        """Every partition of the topics, each with its topic's id."""
        if not topics:
            return []
        for timeout_s in PATIENCE_S:
            described = self._admin.describe_topics(
                TopicCollection(list(topics)), request_timeout=timeout_s
            )
            try:
                found = sorted(
                    SourcePartition(name, kafka_topic_id(topic.topic_id), partition.id)
                    for name, topic in ((n, future.result()) for n, future in described.items())
                    for partition in topic.partitions
                )
                _refuse_without_ids(found)
                return found
            except KafkaException as error:
                if error.args[0].code() != KafkaError._TIMED_OUT or timeout_s == REQUEST_TIMEOUT_S:
                    raise self._unavailable(error, topics) from error
            self._look_again(topics[:1])
        raise AssertionError("the last attempt returns or raises")

    def ranges(self, partitions: Iterable[SourcePartition]) -> dict[SourcePartition, LogRange]:
        wanted = list(partitions)
        earliest = self._offsets(wanted, OffsetSpec.earliest())
        latest = self._latest(wanted)
        return {
            p: LogRange(
                earliest=earliest[p],
                latest=int(latest[p].offset),
                leader_epoch=leader_epoch(latest[p]),
            )
            for p in wanted
        }

    def leader_epochs(
        self, partitions: Sequence[SourcePartition]
    ) -> dict[SourcePartition, int | None]:
        """The epoch of each partition's leader; None where a broker does not tell."""
        return {source: leader_epoch(end) for source, end in self._latest(partitions).items()}

    def cut_back(
        self, positions: Mapping[SourcePartition, tuple[int, int]]
    ) -> dict[SourcePartition, int]:
        """Where a log was cut back below a position, given as (next offset, leader epoch).

        The answer is the first offset that no longer holds the record of that epoch. librdkafka
        asks OffsetForLeaderEpoch (KIP-320) before it fetches from a position that has an epoch, and
        refuses one that is not in order. A leader that no longer has the epoch (a log that was
        emptied keeps none) gives no offset, which shows nothing. Only a leader of an earlier epoch
        than the position's shows another log.
        """
        answers = self._first_answers(positions, isolation="read_uncommitted")
        ends = {source: _EPOCH_END.search(error.str()) for source, error in answers.refused.items()}
        found = {source: int(end[1]) for source, end in ends.items() if end is not None}
        without_offset = [source for source, offset in found.items() if offset < 0]
        for source, epoch in self.leader_epochs(without_offset).items():
            if epoch is not None and epoch < positions[source][1]:
                found[source] = 0
        return {source: offset for source, offset in found.items() if offset >= 0}

    def first_records(
        self, starts: Mapping[SourcePartition, int], *, isolation: str
    ) -> dict[SourcePartition, int]:
        """The offset of the first record at or after each start; without partitions that end."""
        positions = {source: (start, -1) for source, start in starts.items()}
        answers = self._first_answers(positions, isolation=isolation)
        for source, error in answers.refused.items():
            raise Unavailable(f"{source} cannot be read from {starts[source]}: {error.str()}")
        return answers.offsets

    def _first_answers(
        self, positions: Mapping[SourcePartition, tuple[int, int]], *, isolation: str
    ) -> _Answers:
        if not positions:
            return _Answers()
        consumer = Consumer(
            {
                **self._settings,
                "group.id": "lossless-positions",  # never joined, never committed
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
                "auto.offset.reset": "error",
                "isolation.level": isolation,
                "fetch.message.max.bytes": "1",  # a broker gives one batch all the same
                "queued.min.messages": "1",
                "log_level": "0",
            }
        )
        try:
            answers: _Answers = self._call(lambda: _first_answers(consumer, positions))
            return answers
        finally:
            consumer.close()

    def latest(self, partitions: Sequence[SourcePartition]) -> dict[SourcePartition, int]:
        """The high watermarks: the offset after the last record that is committed."""
        return {source: int(end.offset) for source, end in self._latest(partitions).items()}

    def _latest(
        self, partitions: Sequence[SourcePartition]
    ) -> dict[SourcePartition, ListOffsetsResultInfo]:
        return self.list_offsets(
            partitions, OffsetSpec.latest(), isolation=IsolationLevel.READ_UNCOMMITTED
        )

    def offsets_at(
        self, partitions: Sequence[SourcePartition], moment: datetime
    ) -> dict[SourcePartition, int]:
        """The first offset at or after a moment; the end of the log where there is none."""
        milliseconds = int(moment.timestamp() * 1000)
        found = self._offsets(partitions, OffsetSpec.for_timestamp(milliseconds))
        ends = self.latest(partitions)
        return {p: offset if offset >= 0 else ends[p] for p, offset in found.items()}

    def _offsets(
        self,
        partitions: Sequence[SourcePartition],
        spec: OffsetSpec,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[SourcePartition, int]:
        found = self.list_offsets(partitions, spec, isolation=isolation)
        return {source: int(result.offset) for source, result in found.items()}

    def list_offsets(
        self,
        partitions: Sequence[SourcePartition],
        spec: OffsetSpec,
        *,
        isolation: IsolationLevel,
    ) -> dict[SourcePartition, ListOffsetsResultInfo]:
        """What the leaders say; asked again while leadership is moving."""
        if not partitions:
            return {}
        patience = list(PATIENCE_S)
        topics = sorted({partition.topic for partition in partitions})
        for attempt in range(1, MOVING_ATTEMPTS + 1):
            try:
                return self._list_offsets(partitions, spec, isolation, patience[0])
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError._TIMED_OUT:
                    patience.pop(0)
                elif code not in LEADER_ERRORS:
                    raise self._unavailable(error, topics) from error
                if attempt == MOVING_ATTEMPTS or not patience:
                    raise self._unavailable(error, topics) from error
            time.sleep(MOVING_WAIT_S)
            self._look_again(topics)
        raise AssertionError("the last attempt returns or raises")

    def _list_offsets(
        self,
        partitions: Sequence[SourcePartition],
        spec: OffsetSpec,
        isolation: IsolationLevel,
        timeout_s: float,
    ) -> dict[SourcePartition, ListOffsetsResultInfo]:
        by_name = {(p.topic, p.partition): p for p in partitions}
        answers = self._admin.list_offsets(
            {TopicPartition(topic, partition): spec for topic, partition in by_name},
            isolation_level=isolation,
            request_timeout=timeout_s,
        )
        found = {by_name[tp.topic, tp.partition]: future.result() for tp, future in answers.items()}
        for source, result in found.items():
            # Without an error: librdkafka says so of a leader that it cannot reach.
            if result.offset == OFFSET_INVALID:
                silence = f"{source} has no leader that answers"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, silence))
        return found

    def _look_again(self, topics: Sequence[str]) -> None:
        """The answer tells the client which brokers to take for leaders and controller now."""
        for topic in topics:
            self._call(
                lambda topic=topic: self._admin.list_topics(topic, timeout=REQUEST_TIMEOUT_S)
            )

    def open_transactions(
        self, partitions: Sequence[SourcePartition]
    ) -> dict[SourcePartition, tuple[int, int]]:
        """Where a transaction is open: (last stable offset, high watermark)."""
        watermark = self.latest(partitions)
        stable = self._offsets(
            partitions, OffsetSpec.latest(), isolation=IsolationLevel.READ_COMMITTED
        )
        return {p: (stable[p], watermark[p]) for p in partitions if stable[p] < watermark[p]}

    def commit_group(self, group: str, ledger: Ledger) -> None:
        """Tells Kafka how far the pipeline is, so that lag tools see it. Never moves back.

        The group has no members: Spark's own consumers stay out of it. Raises KafkaException.
        """
        for attempt in range(1, MOVING_ATTEMPTS + 1):
            try:
                self._commit_group(group, ledger)
                return
            except KafkaException as error:
                coordinator_is_moving = error.args[0].code() in COORDINATOR_ERRORS
                if attempt == MOVING_ATTEMPTS or not coordinator_is_moving:
                    raise
                time.sleep(MOVING_WAIT_S)

    def _commit_group(self, group: str, ledger: Ledger) -> None:
        ours = [
            TopicPartition(source.topic, source.partition, position.next_offset)
            for source, position in ledger.positions.items()
            if not position.closed
        ]
        consumer = self._group_consumer(group)
        committed = {
            (tp.topic, tp.partition): tp.offset
            for tp in consumer.committed(ours, timeout=REQUEST_TIMEOUT_S)
        }
        ahead = [tp for tp in ours if tp.offset > committed[tp.topic, tp.partition]]
        if ahead:
            consumer.commit(offsets=ahead, asynchronous=False)

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

    def _group_consumer(self, group: str) -> Consumer:
        if group not in self._consumers:
            self._consumers[group] = Consumer(
                {
                    **self._settings,
                    "group.id": group,
                    "enable.auto.commit": "false",
                    "log_level": "0",
                }
            )
        return self._consumers[group]

    def _call(self, request: Any) -> Any:
        try:
            return request()
        except KafkaException as error:
            raise self._unavailable(error) from error

    def _unavailable(
        self, error: KafkaException, topics: Sequence[str] = ()
    ) -> Unavailable | BadInput:
        cause = error.args[0]
        if isinstance(cause, KafkaError) and cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return BadInput(f"{cause.str()} at {self._address}")
        reason = cause.str() if isinstance(cause, KafkaError) else str(cause)
        if isinstance(cause, KafkaError) and cause.code() in DENIALS:
            resource = f"topic {', '.join(topics)}" if topics else "cluster"
            return denied("DESCRIBE", resource, self._client_settings)
        return Unavailable(
            f"no answer from Kafka at {self._address}: {reason}",
            hint="is the cluster up, and are the client settings those of its listener?",
        )


def leader_epoch(end: ListOffsetsResultInfo) -> int | None:
    """The epoch of the leader that answered; None where it does not tell."""
    epoch = end.leader_epoch
    return int(epoch) if epoch is not None and epoch >= 0 else None


# librdkafka gives the offset at which the epoch ended in the text of its error only.
_EPOCH_END = re.compile(r"broker end offset is (-?\d+)")


@dataclass(slots=True)
class _Answers:
    """What fetching from positions gave: a record's offset, a refusal, or nothing at the end."""

    offsets: dict[SourcePartition, int] = field(default_factory=dict)
    refused: dict[SourcePartition, KafkaError] = field(default_factory=dict)


def _first_answers(
    consumer: Consumer, positions: Mapping[SourcePartition, tuple[int, int]]
) -> _Answers:
    unanswered = {(source.topic, source.partition): source for source in positions}
    consumer.assign(
        [
            TopicPartition(source.topic, source.partition, offset, leader_epoch=leader_epoch)
            for source, (offset, leader_epoch) in positions.items()
        ]
    )
    answers = _Answers()
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    while unanswered:
        message = consumer.poll(max(0.0, deadline - time.monotonic()))
        if message is None:
            silent = ", ".join(str(source) for source in sorted(unanswered.values()))
            raise KafkaException(
                KafkaError(KafkaError._TIMED_OUT, f"no answer about the position in {silent}")
            )
        name = (str(message.topic()), message.partition() or 0)
        error = message.error()
        if name not in unanswered:
            continue  # more of a partition that has answered, or about a broker
        source = unanswered.pop(name)
        if error is None:
            answers.offsets[source] = int(message.offset() or 0)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            answers.refused[source] = error
        elif error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        consumer.incremental_unassign([TopicPartition(*name)])
    return answers


def spark_options(pipeline: PipelineContract, client_settings: Mapping[str, str]) -> dict[str, str]:
    """The options of Spark's Kafka source for a pipeline, but for where it starts."""
    settings = {**client_settings, **pipeline.config, "isolation.level": pipeline.isolation}
    options = consumer_options(settings)
    if pipeline.topic_pattern is not None:
        # Spark takes a topic if the pattern is found anywhere in its name.
        options["subscribePattern"] = rf"\A(?!{INTERNAL_PREFIX})(?:{pipeline.topic_pattern})\z"
    else:
        options["subscribe"] = ",".join(pipeline.topics)
    options["includeHeaders"] = "true"
    options["failOnDataLoss"] = "true"
    if pipeline.records_per_batch_max is not None:
        options["maxOffsetsPerTrigger"] = str(pipeline.records_per_batch_max)
    return options


def consumer_options(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of Kafka's consumer, over our defaults, as Spark's Kafka sources take them."""
    return {f"kafka.{name}": value for name, value in {**IMPATIENT, **IN_BULK, **settings}.items()}


def starting_offsets(offsets: Mapping[SourcePartition, int]) -> dict[str, dict[str, int]]:
    """Offsets in the shape that Spark's source takes and writes: topic → partition → offset."""
    shaped: dict[str, dict[str, int]] = {}
    for source, offset in sorted(offsets.items()):
        shaped.setdefault(source.topic, {})[str(source.partition)] = offset
    return shaped


def _some(names: Sequence[str], most: int = 10) -> str:
    if not names:
        return "(none)"
    return ", ".join(names[:most]) + (f" … ({len(names)} in all)" if len(names) > most else "")
