"""From what the application gave to what librdkafka gets: names translated, safe where silent.

Settings may have Java's names or librdkafka's, and values that are no strings yet. What is safe:
every in-sync replica acknowledges, retries make no duplicates and no disorder, a record is retried
for four times as long as the longest pause that is promised, and keys land where Java's clients
put them. Whoever asks for fewer acknowledgements without a word on idempotence gets none, as with
Java's client; whoever asks for both contradicts himself and is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lossless.client.producing.callbacks import called_well
from lossless.client.unknown_settings import check_names, check_values
from lossless.contract.librdkafka import librdkafka_settings, without_effect
from lossless.contract.rules import known
from lossless.errors import BadInput

logger = logging.getLogger("lossless.client.producer")

DELIVERY_TIMEOUT_S_MIN = 120.0  # Java's default, and less than librdkafka's
PAUSES_PER_TIMEOUT = 4
STATISTICS_INTERVAL_MS = 5_000
TRANSACTION_TIMEOUT_MS = 60_000  # librdkafka's default
# When the coordinator of a group has left the cluster, librdkafka commits offsets in a transaction
# only after some connection opens or closes (confluentinc/librdkafka#5511): idle ones are closed.
IDLE_MS_MAX = 10_000

MAX_BLOCK = "max.block.ms"

# librdkafka has two names for these; the first is the one we use.
_SYNONYMS: Mapping[str, str] = {
    "request.required.acks": "acks",
    "delivery.timeout.ms": "message.timeout.ms",
    "message.send.max.retries": "retries",
    "queue.buffering.max.ms": "linger.ms",
    "metadata.broker.list": "bootstrap.servers",
}
# What an administrator's or an auditor's client has no use for.
_OF_RECORDS = frozenset(
    {
        "acks",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "message.timeout.ms",
        "partitioner",
        "statistics.interval.ms",
        "transactional.id",
        "transaction.timeout.ms",
    }
)
_CALLBACKS = frozenset({"error_cb", "stats_cb", "throttle_cb", "logger", "on_delivery"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    librdkafka: Mapping[str, Any] = field(repr=False)  # secrets may be among them
    delivery_timeout_s: float  # 0: never given up
    transactional_id: str | None
    transaction_timeout_s: float
    client_id: str | None

    def for_records(self, *, ourselves_timed: bool) -> dict[str, Any]:
        """Ourselves timed: librdkafka never gives up a record by itself, because we do."""
        settings = dict(self.librdkafka)
        if ourselves_timed:
            settings["message.timeout.ms"] = "0"
        return settings

    def for_others(self) -> dict[str, Any]:
        """The same cluster, for a client that sends none of the application's records."""
        return {
            name: value
            for name, value in self.librdkafka.items()
            if name not in _OF_RECORDS and name not in _CALLBACKS
        }


def producer_settings(given: Mapping[str, object], *, pause_max_s: float) -> ProducerSettings:
    check_values(given)
    strings, objects = _split(given)
    ignored = without_effect(strings)
    if ignored:
        logger.warning(
            "these settings of the Java client have no effect here: %s%s",
            ", ".join(ignored),
            "; buffer_wait_s= says for how long send may block" if MAX_BLOCK in ignored else "",
        )
    settings: dict[str, Any] = {}
    for name, value in librdkafka_settings(strings).items():
        settings[_SYNONYMS.get(name, name)] = value
    if not settings.get("bootstrap.servers"):
        check_names(strings, known.of_producers("lossless"))  # it may be a typing error in this one
        raise BadInput(
            "a producer needs bootstrap.servers",
            hint='for instance {"bootstrap.servers": "localhost:9092"}',
        )
    if "on_delivery" in objects:
        raise BadInput(
            "on_delivery is no setting here",
            hint="every send() returns a delivery: give it a callback, or wait for its result()",
        )
    acks = {"-1": "all"}.get(settings.get("acks", "all"), settings.get("acks", "all"))
    settings["acks"] = acks
    settings.setdefault("enable.idempotence", "true" if acks == "all" else "false")
    timeout_s = max(PAUSES_PER_TIMEOUT * pause_max_s, DELIVERY_TIMEOUT_S_MIN)
    transactional = settings.get("transactional.id")
    if not transactional:  # librdkafka has the transaction's time-out there
        settings.setdefault("message.timeout.ms", str(int(timeout_s * 1000)))
    transaction_timeout_ms = _number(
        "transaction.timeout.ms",
        settings.get("transaction.timeout.ms", str(TRANSACTION_TIMEOUT_MS)),
    )
    if transactional:
        idle_ms = min(IDLE_MS_MAX, max(1, transaction_timeout_ms // 2))
        settings.setdefault("connections.max.idle.ms", str(idle_ms))
    if "message.timeout.ms" in settings:
        timeout_s = _number("delivery.timeout.ms", settings["message.timeout.ms"]) / 1000
    if not {"partitioner", "partitioner.class"} & settings.keys():
        settings["partitioner"] = "murmur2_random"
    settings.setdefault("statistics.interval.ms", str(STATISTICS_INTERVAL_MS))
    return ProducerSettings(
        librdkafka={**settings, **objects},
        delivery_timeout_s=timeout_s,
        transactional_id=transactional,
        transaction_timeout_s=transaction_timeout_ms / 1000,
        client_id=settings.get("client.id"),
    )


def _split(given: Mapping[str, object]) -> tuple[dict[str, str], dict[str, object]]:
    """Those of Kafka, as text, and those of confluent-kafka: functions and loggers."""
    strings: dict[str, str] = {}
    objects: dict[str, object] = {}
    for name, value in given.items():
        if isinstance(value, bool):
            strings[name] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            strings[name] = str(value)
        elif value is not None:
            objects[name] = value
    return strings, objects


def _number(name: str, value: str) -> int:
    if not value.isdecimal():
        raise BadInput(
            f"{name} = {value} is not a number of milliseconds",
            hint="give a whole number, 0 or more"
            + ("; 0 never gives a record up" if name == "delivery.timeout.ms" else ""),
        )
    return int(value)


def chained(ours: Callable[[Any], None], theirs: object) -> Callable[[Any], None]:
    """Both are called; ours first, and it does not raise."""
    if theirs is None:
        return ours
    if not callable(theirs):
        raise BadInput(f"{theirs!r} is given as a callback and cannot be called")
    call = theirs

    def both(argument: Any) -> None:
        ours(argument)
        called_well(call, argument, name="a callback of the application")

    return both
