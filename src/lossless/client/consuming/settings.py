"""What a consumer is asked to do, checked: nothing contradictory gets as far as Kafka.

Settings are given by the Java client's names or librdkafka's. Some belong to the engine, whatever
is given: it decides positions and commits itself, so that neither a silent jump nor a commit of
unprocessed records can happen (claims C2 to C4).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from confluent_kafka import Consumer as Client
from confluent_kafka import KafkaException, TopicPartition

from lossless.client.connecting import Connections, check_files
from lossless.client.consuming.checking import check_numbers, check_times
from lossless.client.consuming.interfaces import Hook
from lossless.client.unknown_settings import check_values, refused_settings
from lossless.contract import Contract
from lossless.contract.librdkafka import librdkafka_settings, without_effect
from lossless.contract.rules import consumer_contradictions, known, refuse
from lossless.contract.rules.judging import enforce
from lossless.errors import BadInput

logger = logging.getLogger("lossless.client.consuming")

WorkerKind = Literal["thread", "process", "asyncio"]
Order = Literal["partition", "key", "none"]
NoOffset = Literal["earliest", "latest", "stop"]
OutOfRange = Literal["stop", "earliest", "latest"]
Truncated = Literal["stop", "continue"]

CHUNK_RECORDS = 500
BUFFERED_BYTES_MAX = 64_000_000
BUFFERED_BYTES_MIN = 16_384
QUEUED_MAX = "queued.max.messages.kbytes"
FORWARDED_BYTES_MAX = 1_000_000_000
MAX_POLL_INTERVAL_MS = 300_000  # what both clients do unless told otherwise
# librdkafka's own, a second, is how long reading stands still after its queue was full once, which
# a loop that keeps up with it notices.
FETCH_QUEUE_BACKOFF_MS = 20

_OURS: Mapping[str, object] = {
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": False,
}
# Refused where they say something else than these.
_REQUIRED: Mapping[str, tuple[bool, str, str]] = {
    "check.crcs": (
        True,
        "a record that was damaged on its way, or on a disk, would be processed",
        "leave it out: checksums are checked unless it is off",
    ),
    "enable.partition.eof": (
        False,
        "loops and handlers are given records, and no ends of partitions",
        "leave it out; consumer.metrics.lag says how far each partition is behind",
    ),
}
# Of a consumer only: what is left over also makes a producer that reaches the same cluster.
_CONSUMER_ONLY = ("auto.", "enable.auto.", "fetch.", "group.", "queued.", "coordinator.query.")
_CONSUMER_ONLY_NAMES = frozenset(
    {
        "check.crcs",
        "enable.partition.eof",
        "heartbeat.interval.ms",
        "isolation.level",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "max.poll.records",
        "offset.store.method",
        "partition.assignment.strategy",
        "session.timeout.ms",
    }
)


# Without these a client contacts no broker and no identity provider, and logs nothing.
_NOT_TRIED = frozenset(
    {"bootstrap.servers", "debug", "logger", "metadata.broker.list", "security.protocol"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """Everything but Kafka's own settings."""

    topics: tuple[str, ...]
    workers: int = 1
    worker_kind: WorkerKind = "thread"
    order: Order = "partition"
    commit_every_s: float = 5.0
    commit_every_records: int | None = None
    no_offset: NoOffset = "earliest"
    out_of_range: OutOfRange = "stop"
    truncated: Truncated = "stop"
    remember_finished: bool = False
    buffered_max: int = 10_000
    drain_timeout_s: float = 30.0
    connect_timeout_s: float | None = 120.0
    on_assigned: Hook | None = None
    on_revoked: Hook | None = None
    on_lost: Hook | None = None
    retries: bool = False
    stores: bool = False

    @property
    def chunk_records(self) -> int:
        return max(1, min(CHUNK_RECORDS, self.commit_every_records or CHUNK_RECORDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """What librdkafka is given. May hold secrets: no `repr` shows it."""

    group: str
    cooperative: bool  # partitions come and go one by one, not all at once
    max_poll_interval_s: float
    connections: Connections  # of every client that is made from these
    buffered_bytes_max: int  # in our hands; the rest waits in librdkafka's queue
    librdkafka: Mapping[str, Any] = field(repr=False)
    given: Mapping[str, object] = field(repr=False)

    @property
    def reads_uncommitted(self) -> bool:
        return str(self.librdkafka.get("isolation.level", "")).lower() == "read_uncommitted"

    def of_a_producer(self) -> dict[str, object]:
        """For records that are sent on: with the headers that say why, one that fitted still fits
        the client, and the topic decides."""
        given = {
            name: value
            for name, value in self.given.items()
            if not name.startswith(_CONSUMER_ONLY)
            and name not in _CONSUMER_ONLY_NAMES
            and not callable(value)
        }
        return {"message.max.bytes": FORWARDED_BYTES_MAX, **given}

    def of_an_admin(self) -> dict[str, object]:
        """librdkafka's settings for an admin client that reaches the same cluster."""
        return {
            name: value
            for name, value in self.librdkafka.items()
            if not name.startswith(_CONSUMER_ONLY) and name not in _CONSUMER_ONLY_NAMES
        }


def read_settings(
    given: Mapping[str, object],
    *,
    group: str | None,
    workers: int,
    buffered_bytes_max: int = BUFFERED_BYTES_MAX,
) -> ConsumerSettings:
    """BadInput with the reason and the fix where settings contradict each other."""
    settings = dict(given)
    check_values(settings)
    if group is not None:
        check_values({"group": group})
        if settings.get("group.id", group) != group:
            raise BadInput(
                f"group={group!r} and group.id = {settings['group.id']}: which one?",
                hint="give the group once",
            )
        settings["group.id"] = group
    if "on_commit" in settings:
        raise BadInput(
            "on_commit is taken: the consumer itself has to know what was committed",
            hint="leave it out; consumer.metrics counts commits, on_revoked follows the last one",
        )
    # One thread polls whatever a record takes, so no processing is too long for the group.
    refuse(
        consumer_contradictions(_plain(settings), workers=workers, polls_meanwhile=True),
        where="consumer",
    )
    _refuse_opposites(settings)
    callbacks = {name: value for name, value in settings.items() if _is_python(value)}
    java = {name: text for name, text in _plain(settings).items() if name not in callbacks}
    translated: dict[str, Any] = {**librdkafka_settings(java), **callbacks, **_OURS}
    translated["check.crcs"] = True
    check_files(translated)
    connections = Connections(translated.get("logger", logger), translated)
    translated["logger"] = connections
    ignored = without_effect(java)
    if ignored:
        logger.warning(
            "these settings of the Java client have no effect here: %s%s",
            ", ".join(ignored),
            "; batches(records_max) limits how many records are handed out at once"
            if "max.poll.records" in ignored
            else "",
        )
    translated.setdefault("fetch.queue.backoff.ms", FETCH_QUEUE_BACKOFF_MS)
    ours = _bound_bytes(translated, buffered_bytes_max)
    _try(translated)
    strategy = str(translated.get("partition.assignment.strategy", ""))
    return ConsumerSettings(
        group=str(translated["group.id"]),
        cooperative=str(translated.get("group.protocol", "classic")).lower() == "consumer"
        or "cooperative" in strategy,
        max_poll_interval_s=int(translated.get("max.poll.interval.ms", MAX_POLL_INTERVAL_MS))
        / 1000,
        connections=connections,
        buffered_bytes_max=ours,
        librdkafka=translated,
        given=settings,
    )


def _refuse_opposites(settings: Mapping[str, object]) -> None:
    for name, (required, reason, fix) in _REQUIRED.items():
        value = str(settings.get(name, required)).lower()
        if value != str(required).lower():
            raise BadInput(f"consumer: {name} = {value}: {reason}", hint=fix)


def _try(translated: Mapping[str, Any]) -> None:
    """Raises BadInput if librdkafka takes no such settings: at once, and not in the first loop."""
    tried = {name: value for name, value in translated.items() if name not in _NOT_TRIED}
    try:
        Client({**tried, "log_level": 0}).close()
    except (KafkaException, TypeError, ValueError) as error:
        raise refused_settings(error, known.of_consumers("lossless")) from error


def _bound_bytes(translated: dict[str, Any], buffered_bytes_max: int) -> int:
    """Returns how many bytes may be in our hands before more are read.

    One read takes at most all of librdkafka's queue, which librdkafka fills again meanwhile. So the
    queue counts twice. Unless given, it is a quarter of the whole.
    """
    check_numbers(buffered_bytes_max=buffered_bytes_max)
    if buffered_bytes_max < BUFFERED_BYTES_MIN:
        raise BadInput(
            f"buffered_bytes_max={buffered_bytes_max}: at least {BUFFERED_BYTES_MIN} is needed"
        )
    queued = int(translated.setdefault(QUEUED_MAX, buffered_bytes_max // 4 // 1024)) * 1024
    if 2 * queued >= buffered_bytes_max:
        raise BadInput(
            f"{QUEUED_MAX} = {translated[QUEUED_MAX]} and buffered_bytes_max={buffered_bytes_max}: "
            "the queue of librdkafka counts twice, because it is filled again while its records "
            "are processed",
            hint=f"leave {QUEUED_MAX} out, or set buffered_bytes_max above twice its bytes",
        )
    return buffered_bytes_max - 2 * queued


def check_options(options: ConsumerOptions) -> ConsumerOptions:
    if not options.topics or not all(options.topics):
        raise BadInput("a consumer without topics", hint="name at least one topic")
    _choice("worker_kind", options.worker_kind, get_args(WorkerKind))
    _choice("order", options.order, get_args(Order))
    _choice("no_offset", options.no_offset, get_args(NoOffset))
    _choice("out_of_range", options.out_of_range, get_args(OutOfRange))
    _choice("truncated", options.truncated, get_args(Truncated))
    check_numbers(workers=options.workers, buffered_max=options.buffered_max)
    if options.commit_every_records is not None:
        check_numbers(commit_every_records=options.commit_every_records)
    check_times(commit_every_s=options.commit_every_s, drain_timeout_s=options.drain_timeout_s)
    if options.connect_timeout_s is not None:
        check_times(connect_timeout_s=options.connect_timeout_s)
    for name in ("workers", "buffered_max"):
        if getattr(options, name) < 1:
            raise BadInput(f"{name}={getattr(options, name)}: at least 1 is needed")
    if options.commit_every_records is not None and options.commit_every_records < 1:
        raise BadInput("commit_every_records must be 1 or more; None leaves it to the seconds")
    if not options.commit_every_s > 0 or not options.drain_timeout_s >= 0:
        raise BadInput("commit_every_s must be above 0, and drain_timeout_s not below it")
    if options.connect_timeout_s is not None and not options.connect_timeout_s > 0:
        raise BadInput(
            f"connect_timeout_s={options.connect_timeout_s!r}: not a time to wait",
            hint="give a number of seconds above 0, or None to wait without end",
        )
    if options.stores and (options.workers > 1 or options.worker_kind != "thread"):
        raise BadInput(
            f"a store with workers={options.workers} of kind {options.worker_kind}: what is "
            "stored with an offset must have happened before it, one record after the other",
            hint="leave workers at 1, and start more consumers of the group instead",
        )
    if options.remember_finished and options.order == "partition":
        raise BadInput(
            'remember_finished with order="partition": records of a partition finish in order, '
            "and there is nothing to remember",
            hint='leave it out, or choose order="key" or "none"',
        )
    if options.remember_finished and options.stores:
        raise BadInput(
            "remember_finished with a store: the store remembers what is finished",
            hint="leave remember_finished out",
        )
    return options


def checked_partitions(partitions: Any) -> set[tuple[str, int]]:
    """The topics and numbers of partitions that a caller gives as TopicPartition."""
    if isinstance(partitions, TopicPartition):
        raise BadInput(f"{partitions!r} is a single partition", hint="put it into a list")
    given = list(partitions) if isinstance(partitions, Iterable) else [partitions]
    for each in given:
        if not isinstance(each, TopicPartition):
            raise BadInput(
                f"{each!r} is not a partition",
                hint='for instance confluent_kafka.TopicPartition("orders", 0)',
            )
    return {(each.topic, each.partition) for each in given}


def topics_of(topics: str | Sequence[str]) -> tuple[str, ...]:
    return (topics,) if isinstance(topics, str) else tuple(topics)


def contract_settings(contract: Contract, name: str) -> dict[str, object]:
    """What the contract says of the consumer of this name; the group is its name, if not said."""
    block = contract.consumers.get(name)
    if block is None:
        known = ", ".join(sorted(contract.consumers)) or "none"
        raise BadInput(f"{contract.path.name} has no [consumers.{name}]", hint=f"it has: {known}")
    enforce(contract, consumers=[name])
    settings: dict[str, object] = {**contract.cluster.client, **block.config}
    settings.setdefault("group.id", name)
    # Said in the contract for other clients; here positions and commits are never librdkafka's.
    settings.pop("enable.auto.commit", None)
    settings.pop("enable.auto.offset.store", None)
    return settings


def no_offset_of(settings: Mapping[str, object], given: NoOffset | None) -> NoOffset:
    """Where a group without an offset begins: by auto.offset.reset, if it is set."""
    reset = str(settings.get("auto.offset.reset", "")).lower()
    meant: Mapping[str, NoOffset] = {
        "earliest": "earliest",
        "smallest": "earliest",
        "beginning": "earliest",
        "latest": "latest",
        "largest": "latest",
        "end": "latest",
        "none": "stop",
        "error": "stop",
    }
    if given is not None and meant.get(reset, given) != given:
        raise BadInput(
            f"auto.offset.reset = {reset} and no_offset={given!r} contradict each other",
            hint="leave auto.offset.reset out",
        )
    return given or meant.get(reset, "earliest")


def is_async(handler: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - an object whose call is a coroutine
    )


def _choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise BadInput(f"{name}={value!r}", hint=f"choose one of {', '.join(choices)}")


def _is_python(value: object) -> bool:
    return callable(value) or isinstance(value, logging.Logger)


def _plain(settings: Mapping[str, object]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
        if not _is_python(value) and value is not None
    }
