"""What contradicts in a producer's settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lossless.contract.faults import FaultKind
from lossless.contract.rules.rule import Contradiction, Rule, rule_of
from lossless.contract.rules.settings import IN_FLIGHT, IN_FLIGHT_IDEMPOTENT_MAX, Settings
from lossless.contract.values import Delivery, Guarantee, Order

PRODUCER_RULES: list[Rule[Producing]] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Producing:
    settings: Settings
    delivery: Delivery | None
    order: Order | None
    guarantee: Guarantee | None = None  # the whole promise, if the settings are a contract's

    @property
    def may_not_lose(self) -> bool:
        return self.delivery in ("at-least-once", "exactly-once")

    def loses_without_acks(self, acks: int) -> bool:
        """A leader takes with it what only it has; acks=0 also loses with a connection."""
        if self.guarantee is None:
            return True
        if acks == 0 and self.guarantee.survived(FaultKind.CLIENT_DISCONNECT):
            return True
        return self.guarantee.brokers_away > 0


def _producer(*claims: str) -> Callable[[Callable[[Producing], Contradiction | None]], None]:
    def register(function: Callable[[Producing], Contradiction | None]) -> None:
        PRODUCER_RULES.append(rule_of(function, claims))

    return register


@_producer("P4", "KAFKA-13673")
def _idempotence_needs_acks(asked: Producing) -> Contradiction | None:
    """Idempotence needs acks=all: both clients refuse the two together."""
    settings = asked.settings
    if not settings.idempotent() or settings.acks() in (-1, None):
        return None
    return Contradiction(
        settings=("acks", "enable.idempotence"),
        reason=f"{settings.shown('acks')} with enable.idempotence = true: a record that only the "
        "leader has can vanish, and then its number is missing from the sequence",
        fix="set acks = all; or, if records may be lost, enable.idempotence = false",
    )


@_producer("P4", "KAFKA-13673")
def _idempotence_silently_off(asked: Producing) -> Contradiction | None:
    """Java's producer switches its default idempotence off, with one line in its log."""
    settings = asked.settings
    if settings.client != "java" or "enable.idempotence" in settings or settings.idempotent():
        return None
    causes = [
        name
        for name, holds in (
            ("acks", settings.acks() != -1),
            ("retries", settings.number("retries") == 0),
            (IN_FLIGHT, settings.in_flight() > IN_FLIGHT_IDEMPOTENT_MAX),
        )
        if holds and name in settings
    ]
    return Contradiction(
        settings=(*causes, "enable.idempotence"),
        reason=f"{settings.shown(*causes)} switches idempotence off without an error: a retry can "
        "then duplicate and reorder",
        fix=f"leave {' and '.join(causes)} out; or say enable.idempotence = false, if it is meant",
    )


@_producer("P4", "R1")
def _idempotence_in_flight(asked: Producing) -> Contradiction | None:
    """A broker remembers five batches of a producer: more in flight cannot be told apart."""
    settings = asked.settings
    if not settings.idempotent() or settings.in_flight() <= IN_FLIGHT_IDEMPOTENT_MAX:
        return None
    return Contradiction(
        settings=(IN_FLIGHT, "enable.idempotence"),
        reason=f"{settings.shown(IN_FLIGHT)} with enable.idempotence = true: brokers remember "
        f"{IN_FLIGHT_IDEMPOTENT_MAX} batches of a producer, and cannot tell a repeated older one",
        fix=f"set {settings.called(IN_FLIGHT)} = {IN_FLIGHT_IDEMPOTENT_MAX}, or leave it out",
    )


@_producer("P3", "P4")
def _idempotence_needs_retries(asked: Producing) -> Contradiction | None:
    """Without a retry idempotence has nothing to do, and both clients refuse it."""
    settings = asked.settings
    if not settings.idempotent() or settings.number("retries") != 0:
        return None
    return Contradiction(
        settings=("retries", "enable.idempotence"),
        reason=f"{settings.shown('retries')} with enable.idempotence = true: a batch that is given "
        "up at the first error leaves a gap in the sequence",
        fix="leave retries out: delivery.timeout.ms says how long to try",
    )


@_producer("P2", "P3")
def _promise_needs_retries(asked: Producing) -> Contradiction | None:
    """Every election would lose what was in flight."""
    settings = asked.settings
    if not asked.may_not_lose or settings.idempotent() or settings.number("retries") != 0:
        return None
    return Contradiction(
        settings=("retries",),
        reason=f"{settings.shown('retries')} with {asked.delivery} promised: the first election of "
        "a leader loses what is in flight",
        fix="leave retries out: delivery.timeout.ms says how long to try",
    )


@_producer("P1", "P5", "R6")
def _promise_needs_acks(asked: Producing) -> Contradiction | None:
    """What is acknowledged before it is committed can vanish."""
    settings = asked.settings
    acks = settings.acks()
    if not asked.may_not_lose or acks in (-1, None) or not asked.loses_without_acks(acks):
        return None
    return Contradiction(
        settings=("acks",),
        reason=f"{settings.shown('acks')} with {asked.delivery} promised: records can be lost "
        "without an error when a leader is replaced",
        fix='set acks = all; or promise delivery = "at-most-once"',
    )


@_producer("P1", "P3")
def _nobody_says_that_it_arrived(asked: Producing) -> Contradiction | None:
    """With acks=0 every delivery of the reliable producer would be a guess."""
    settings = asked.settings
    if settings.client != "lossless" or settings.acks() != 0:
        return None
    return Contradiction(
        settings=("acks",),
        reason=f"{settings.shown('acks')}: brokers answer nothing, so that a delivery could not be "
        "told from a loss",
        fix="set acks = all, or acks = 1 with enable.idempotence = false; for acks = 0 use "
        "confluent_kafka.Producer itself",
    )


@_producer("P5")
def _exactly_once_needs_idempotence(asked: Producing) -> Contradiction | None:
    """A lost acknowledgement makes a retry a duplicate."""
    settings = asked.settings
    if settings.idempotent():
        return None
    promised = f"{asked.delivery} is promised"
    if asked.delivery != "exactly-once":
        if asked.guarantee is None or not asked.guarantee.may_not_duplicate:
            return None
        if settings.number("retries") == 0:
            return None  # what is sent once arrives at most once
        promised = "duplicates_max = 0 is promised"
    return Contradiction(
        settings=("enable.idempotence",),
        reason=f"{promised} without enable.idempotence: a lost acknowledgement makes the retry a "
        "duplicate",
        fix="set enable.idempotence = true",
    )


@_producer("P5")
def _transactions_need_idempotence(asked: Producing) -> Contradiction | None:
    """Both clients refuse it."""
    settings = asked.settings
    if not settings.text("transactional.id") or settings.idempotent():
        return None
    return Contradiction(
        settings=("transactional.id", "enable.idempotence"),
        reason="transactional.id without idempotence: a retry could be written twice inside the "
        "transaction",
        fix="leave enable.idempotence, acks, retries and max.in.flight out: their defaults are "
        "right with a transactional.id",
    )


@_producer("P5")
def _transaction_outlives_delivery(asked: Producing) -> Contradiction | None:
    """librdkafka refuses a delivery that may be tried for longer than its transaction lives."""
    settings = asked.settings
    longest_ms = settings.number("transaction.timeout.ms")
    if (
        settings.client == "java"
        or not settings.text("transactional.id")
        or "delivery.timeout.ms" not in settings
        or longest_ms is None
    ):
        return None
    delivery_ms = settings.number("delivery.timeout.ms")
    if delivery_ms is None or 0 < delivery_ms <= longest_ms:
        return None
    return Contradiction(
        settings=("delivery.timeout.ms", "transaction.timeout.ms"),
        reason=f"{settings.shown('delivery.timeout.ms', 'transaction.timeout.ms')}: the "
        "transaction would be aborted while its records are still being sent",
        fix="set transaction.timeout.ms to at least delivery.timeout.ms, or leave both out",
    )


@_producer("P2", "P3")
def _time_for_one_attempt(asked: Producing) -> Contradiction | None:
    """Java refuses delivery.timeout < linger + request timeout; librdkafka only without linger."""
    settings = asked.settings
    delivery_ms = settings.number("delivery.timeout.ms")
    if delivery_ms is None or "delivery.timeout.ms" not in settings:
        return None
    if delivery_ms == 0 and settings.client != "java":  # for ever
        return None
    waits = [name for name in ("socket.timeout.ms", "request.timeout.ms") if name in settings]
    if settings.client == "java":
        waits = ["request.timeout.ms"]
    needed_ms = (settings.number("linger.ms") or 0) + max(
        [settings.number(name) or 0 for name in waits], default=0
    )
    if delivery_ms > needed_ms or (waits and delivery_ms == needed_ms):
        return None
    parts = ("linger.ms", *waits)
    return Contradiction(
        settings=("delivery.timeout.ms", *parts),
        reason=f"{settings.shown('delivery.timeout.ms')} is less than "
        f"{settings.shown(*parts)} together: a record is given up before one attempt has ended",
        fix=f"set {settings.called('delivery.timeout.ms')} to {needed_ms + 1:.0f} or more; what "
        "should not be lost wants minutes",
    )


@_producer("P2", "P3")
def _given_up_during_a_failover(asked: Producing) -> Contradiction | None:
    """A record must be tried for longer than the longest pause that is promised."""
    settings, promised = asked.settings, asked.guarantee
    if promised is None or not asked.may_not_lose:
        return None
    if not promised.brokers_away and not promised.survived(FaultKind.CLIENT_DISCONNECT):
        return None
    delivery_ms = settings.number("delivery.timeout.ms")
    pause_ms = promised.pause_max_s * 1000
    if delivery_ms is None or delivery_ms > pause_ms:
        return None
    if delivery_ms == 0 and settings.client != "java":  # for ever
        return None
    silent = "" if "delivery.timeout.ms" in settings else " (the default)"
    return Contradiction(
        settings=("delivery.timeout.ms",),
        reason=f"{settings.shown('delivery.timeout.ms')}{silent} with pause_max_s = "
        f"{promised.pause_max_s:g}: records are given up while a failover is still going on",
        fix=f"set {settings.called('delivery.timeout.ms')} to {4 * pause_ms:.0f}, four pauses; or "
        "promise a shorter pause_max_s",
    )


@_producer("R1")
def _retry_reorders(asked: Producing) -> Contradiction | None:
    """The second of two batches in flight is written before the first is sent again."""
    settings = asked.settings
    if asked.order in (None, "none") or settings.idempotent() or settings.in_flight() <= 1:
        return None
    if settings.number("retries") == 0:
        return None
    return Contradiction(
        settings=(IN_FLIGHT, "enable.idempotence", "retries"),
        reason=f"order {asked.order} is promised, with {settings.in_flight():.0f} requests in "
        "flight and no idempotence: a retry comes after what was sent later",
        fix=f"set enable.idempotence = true; or {IN_FLIGHT} = 1",
    )


@_producer("R1")
def _last_in_first_out(asked: Producing) -> Contradiction | None:
    """librdkafka can send the newest first, and refuses that with idempotence."""
    settings = asked.settings
    if (settings.text("queuing.strategy") or "fifo").lower() == "fifo":
        return None
    if not settings.idempotent() and asked.order in (None, "none"):
        return None
    return Contradiction(
        settings=("queuing.strategy",),
        reason=f"{settings.shown('queuing.strategy')} sends the newest first, and order is kept by "
        + ("idempotence" if settings.idempotent() else "promise"),
        fix="leave queuing.strategy out",
    )


@_producer("R1")
def _keys_scattered(asked: Producing) -> Contradiction | None:
    """Records of one key have an order only where they share a partition."""
    settings = asked.settings
    if asked.order != "per-key":
        return None
    scattering = [
        name
        for name, scatters in (
            ("partitioner", (settings.text("partitioner") or "").lower() == "random"),
            ("partitioner.ignore.keys", settings.yes("partitioner.ignore.keys") is True),
            (
                "partitioner.class",
                (settings.text("partitioner.class") or "").endswith(
                    ("RoundRobinPartitioner", "UniformStickyPartitioner")
                ),
            ),
        )
        if scatters
    ]
    if not scattering:
        return None
    return Contradiction(
        settings=tuple(scattering),
        reason=f"{settings.shown(*scattering)} with order per-key promised: records of one key go "
        "to any partition",
        fix=f"leave {scattering[0]} out: then the key chooses the partition",
    )


@_producer("P3")
def _successes_unreported(asked: Producing) -> Contradiction | None:
    """The reliable producer would wait for reports that never come."""
    settings = asked.settings
    if settings.client != "lossless" or settings.yes("delivery.report.only.error") is not True:
        return None
    return Contradiction(
        settings=("delivery.report.only.error",),
        reason="delivery.report.only.error = true: nobody would hear that a record arrived",
        fix="leave it out",
    )
