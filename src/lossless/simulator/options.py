"""Settings by name, as scenario files and `lossless prove` spell them.

brokers=3 rf=3 min-isr=2 acks=all faults=broker-crash,power-loss off=shrink_when_confirmed
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

from lossless.contract.faults import FaultKind
from lossless.errors import BadInput
from lossless.log.producers import BATCHES_MAX
from lossless.log.rules import Rules
from lossless.simulator.invariants import INVARIANTS
from lossless.simulator.settings import (
    AT_A_TIME_MAX,
    FAULTS,
    LATE_MS_MAX,
    Allowed,
    Settings,
    allowed,
)
from lossless.verifier.anomaly import Kind as AnomalyKind

RULE_NAMES = tuple(rule.name for rule in fields(Rules))
FOUND = (*(kind.value for kind in AnomalyKind if kind is not AnomalyKind.REPEATED), *INVARIANTS)


class Option(NamedTuple):
    accepted: str
    apply: Callable[[Settings, str], Settings | None]  # None: not accepted
    value: Callable[[Settings], str]  # as it would be written


def whole_number(text: str, low: int, high: int) -> int | None:
    """None: not one, or not within the limits."""
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(high)):
        return None
    return int(text) if low <= int(text) <= high else None


def _number(name: str, low: int, high: int) -> Option:
    def apply(settings: Settings, text: str) -> Settings | None:
        number = whole_number(text, low, high)
        if number is None:
            return None
        given: dict[str, Any] = {name: number}
        return replace(settings, **given)

    return Option(f"{low} to {high}", apply, lambda settings: str(getattr(settings, name)))


def _flag(name: str) -> Option:
    def apply(settings: Settings, text: str) -> Settings | None:
        given: dict[str, Any] = {name: text == "true"}
        return replace(settings, **given) if text in ("true", "false") else None

    return Option("true, false", apply, lambda settings: _text(getattr(settings, name)))


def _producer(name: str, values: Mapping[str, Any]) -> Option:
    def apply(settings: Settings, text: str) -> Settings | None:
        if text not in values:
            return None
        return replace(settings, producer=replace(settings.producer, **{name: values[text]}))

    named = {value: text for text, value in values.items()}
    return Option(
        ", ".join(values), apply, lambda settings: named[getattr(settings.producer, name)]
    )


def _producer_count(name: str) -> Option:
    option = _producer(name, {str(count): count for count in range(1, 101)})
    return option._replace(accepted="1 to 100")


def _consumer(name: str, values: Mapping[str, Any]) -> Option:
    def apply(settings: Settings, text: str) -> Settings | None:
        if text not in values:
            return None
        return replace(settings, consumer=replace(settings.consumer, **{name: values[text]}))

    named = {value: text for text, value in values.items()}
    return Option(
        ", ".join(values), apply, lambda settings: named[getattr(settings.consumer, name)]
    )


def _text(flag: bool) -> str:
    return "true" if flag else "false"


def _client(settings: Settings, text: str) -> Settings | None:
    if text not in ("java", "librdkafka"):
        return None
    return replace(
        settings,
        producer=replace(settings.producer, client=text),
        consumer=replace(settings.consumer, client=text),
    )


def _faults(settings: Settings, text: str) -> Settings | None:
    """A name is one at a time; name=N is N at a time, or, of late messages, at most N ms late."""
    faults: dict[FaultKind, Allowed] = {}
    for part in text.split(",") if text != "none" else ():
        name, equals, number = part.strip().partition("=")
        if name not in FAULT_NAMES or FaultKind(name) in faults:
            return None
        kind = FaultKind(name)
        most = LATE_MS_MAX if kind is FaultKind.LATE_MESSAGES else AT_A_TIME_MAX
        count = whole_number(number, 1, most)
        if equals and count is None:
            return None
        faults[kind] = allowed(kind, count)
    return replace(settings, faults=tuple(faults.values()))


def _off(settings: Settings, text: str) -> Settings | None:
    names = [part.strip() for part in text.split(",")] if text != "none" else []
    return settings.without(*names) if all(name in RULE_NAMES for name in names) else None


def _transactions(settings: Settings, text: str) -> Settings | None:
    """With them records belong together, two by two unless said otherwise."""
    if text not in _FLAGS:
        return None
    unit = settings.producer.unit or (2 if _FLAGS[text] else 0)
    return replace(
        settings, producer=replace(settings.producer, transactional=_FLAGS[text], unit=unit)
    )


def _racks(settings: Settings, text: str) -> Settings | None:
    racks = tuple(part.strip() for part in text.split(","))
    return replace(settings, racks=racks) if all(racks) else None


_FLAGS = {"true": True, "false": False}
FAULT_NAMES = tuple(kind.value for kind in FAULTS)
OPTIONS: dict[str, Option] = {
    "brokers": _number("brokers", 1, 9),
    "controllers": _number("controllers", 1, 5),
    "partitions": _number("partitions", 1, 9),
    "rf": _number("replication_factor", 1, 9),
    "min-isr": _number("min_isr", 1, 9),
    "unclean": _flag("unclean"),
    "flush-before-ack": _flag("flush_before_ack"),
    "racks": Option(
        "names, one for each broker in turn", _racks, lambda settings: ",".join(settings.racks)
    ),
    "segment-bytes": _number("segment_bytes", 100, 1 << 30),
    "compaction": _flag("compaction"),
    "fetch-bytes": _number("fetch_bytes", 1, 1 << 20),
    "lag-ms": _number("lag_ms", 100, 100_000),
    "client": Option("java, librdkafka", _client, lambda settings: settings.producer.client),
    "producers": _number("producers", 0, 9),
    "records": _producer_count("records"),
    "acks": _producer("acks", {"0": 0, "1": 1, "all": -1}),
    "idempotent": _producer("idempotent", {**_FLAGS, "default": None}),
    "in-flight": _producer_count("in_flight_max"),
    "retries": _producer("retries", _FLAGS),
    "first-alone": _producer("first_alone", _FLAGS),
    "transactions": Option(
        "true, false", _transactions, lambda settings: _text(settings.producer.transactional)
    ),
    "unit": _producer("unit", {str(count): count for count in range(10)}),
    "abort-every": _producer("abort_every", {str(count): count for count in range(10)}),
    "transaction-version": _producer("transaction_version", {"1": 1, "2": 2}),
    "verification": _flag("verification"),
    "consumers": _number("consumers", 0, 9),
    "groups": _number("groups", 0, 9),
    "transform": _flag("transforms"),
    "each-sees-all": _flag("each_sees_all"),
    "isolation": _consumer(
        "isolation",
        {"read_committed": "read_committed", "read_uncommitted": "read_uncommitted"},
    ),
    "offsets-retention-ms": _number("offsets_retention_ms", 1, 10_000_000),
    "commit": _consumer("commit", {one: one for one in ("after", "before", "auto", "transaction")}),
    "hand-off": _consumer("hand_off", _FLAGS),
    "reset": _consumer("reset", {"earliest": "earliest", "latest": "latest", "none": "none"}),
    "from-follower": _consumer("from_follower", _FLAGS),
    "faults": Option(
        "none, or of "
        + ", ".join(FAULT_NAMES)
        + f"; name=N is at most N at a time (1 to {AT_A_TIME_MAX}), late-messages=N at most N ms "
        + f"late (1 to {LATE_MS_MAX})",
        _faults,
        lambda settings: ",".join(map(str, settings.faults)) or "none",
    ),
    "retention": _flag("deletes"),
    "faults-max": _number("faults_max", 1, 20),
    "chaos-ms": _number("chaos_ms", 100, 100_000),
    "off": Option(
        "none, or of " + ", ".join(RULE_NAMES),
        _off,
        lambda settings: ",".join(settings.rules_off) or "none",
    ),
}


# These are always shown; any other only if it is not as it is by default.
_ALWAYS_SHOWN = (
    "brokers",
    "controllers",
    "rf",
    "min-isr",
    "unclean",
    "client",
    "acks",
    "idempotent",
    "producers",
    "consumers",
)


def shown(settings: Settings, *, every: bool = False) -> list[tuple[str, str]]:
    """The settings as `changed` takes them, without what is left at its default."""
    default = Settings()
    return [
        (name, option.value(settings))
        for name, option in OPTIONS.items()
        if every
        or name in _ALWAYS_SHOWN
        or (name != "faults" and option.value(settings) != option.value(default))
    ]


def changed(settings: Settings, pairs: Iterable[tuple[str, str]], where: str) -> Settings:
    """With every pair applied, and checked as a whole. BadInput names the place and what goes."""
    given: set[str] = set()
    for name, text in pairs:
        if name in given:
            raise BadInput(f"{where}: {name} is given twice")
        given.add(name)
        option = OPTIONS.get(name)
        if option is None:
            near = difflib.get_close_matches(name, OPTIONS, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise BadInput(
                f"{where}: there is no setting {name}", hint=f"{hint}known: {', '.join(OPTIONS)}"
            )
        applied = option.apply(settings, text)
        if applied is None:
            raise BadInput(f"{where}: {name}={text} is not accepted; {name} is {option.accepted}")
        settings = applied
    for contradiction in _contradictions(settings):
        raise BadInput(f"{where}: {contradiction}")
    return settings


_AFTER_COPIES = ("after", "transaction")
_NEEDED = {FaultKind.PRODUCER_CRASH: "producers", FaultKind.CONSUMER_CRASH: "consumers"}


def _contradictions(settings: Settings) -> Iterator[str]:
    """Settings that cannot be had together, because a client would refuse them, for example."""
    producer, consumer = settings.producer, settings.consumer
    if producer.transactional and not producer.unit:
        yield "transactions need records that belong together; unit is 1 to 9"
    if settings.replication_factor > settings.brokers:
        yield (
            f"rf={settings.replication_factor} needs as many brokers, and there are "
            f"{settings.brokers}; rf is 1 to {settings.brokers} here"
        )
    if producer.transactional and not producer.is_idempotent:
        yield "transactions need an idempotent producer: acks=all idempotent=true"
    if producer.idempotent and producer.acks != -1:
        yield f"idempotent=true needs acks=all, not acks={producer.acks}"
    if producer.is_idempotent and producer.in_flight_max > BATCHES_MAX:
        yield f"in-flight is 1 to {BATCHES_MAX} with an idempotent producer"
    if producer.idempotent and not producer.retries:
        yield "idempotent=true needs retries=true"
    if consumer.from_follower and settings.replication_factor == 1:
        yield "from-follower=true needs a follower; rf is 2 or more"
    if settings.compaction and not settings.internal_topics:
        yield "compaction=true needs coordinators, whose topics are compacted: groups=1 for example"
    if settings.transforms and not (producer.transactional and settings.groups):
        yield "transform=true needs a group that writes in transactions: groups=1 transactions=true"
    if settings.transforms and (consumer.commit not in _AFTER_COPIES or consumer.hand_off):
        yield "transform=true commits after the transaction or in it; commit is after, transaction"
    if consumer.commit == "transaction" and not settings.transforms:
        yield "commit=transaction needs consumers that write: transform=true"
    if settings.groups > settings.consumers:
        yield (
            f"groups={settings.groups} needs as many consumers, and there are "
            f"{settings.consumers}; groups is 0 to {settings.consumers} here"
        )
    for kind, name in _NEEDED.items():
        if kind in dict(settings.faults) and not getattr(settings, name):
            yield f"faults={kind.value} has nothing to strike with {name}=0"


def pairs_of(text: str, where: str) -> list[tuple[str, str]]:
    pairs = []
    for word in text.split():
        name, equals, value = word.partition("=")
        if not equals or not value:
            raise BadInput(f"{where}: {word!r} is not of the form name=value")
        pairs.append((name, value))
    return pairs


def kinds_of(text: str, where: str) -> tuple[str, ...]:
    kinds = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for kind in kinds:
        if kind not in FOUND:
            raise BadInput(f"{where}: nothing is called {kind!r}; known: {', '.join(FOUND)}")
    return kinds
