"""A client's settings by one name each, with the defaults of the client that takes them."""

from __future__ import annotations

from collections.abc import Mapping

from lossless.contract.values import Client

IN_FLIGHT = "max.in.flight.requests.per.connection"
IN_FLIGHT_IDEMPOTENT_MAX = 5  # what a broker remembers of one producer in one partition

# Other names of the same setting, in librdkafka; the first name is the one that Java knows too.
_ALIASES: Mapping[str, str] = {
    "request.required.acks": "acks",
    "message.send.max.retries": "retries",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.timeout.ms": "delivery.timeout.ms",
    "queue.buffering.max.ms": "linger.ms",
    "compression.codec": "compression.type",
}
ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
NUMBERS = frozenset(
    {
        "retries",
        "max.in.flight.requests.per.connection",
        "delivery.timeout.ms",
        "linger.ms",
        "request.timeout.ms",
        "socket.timeout.ms",
        "transaction.timeout.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "session.timeout.ms",
        "heartbeat.interval.ms",
    }
)
YES_OR_NO = frozenset(
    {
        "enable.idempotence",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "delivery.report.only.error",
        "partitioner.ignore.keys",
    }
)
VALUES: Mapping[str, tuple[str, ...]] = {
    "compression.type": ("none", "gzip", "snappy", "lz4", "zstd"),
    "partitioner": (
        "random",
        "consistent",
        "consistent_random",
        "murmur2",
        "murmur2_random",
        "fnv1a",
        "fnv1a_random",
    ),
    "queuing.strategy": ("fifo", "lifo"),
    "isolation.level": ("read_committed", "read_uncommitted"),
    "group.protocol": ("classic", "consumer"),
    "auto.offset.reset": (
        "earliest",
        "latest",
        "none",
        "error",
        "smallest",
        "beginning",
        "largest",
        "end",
    ),
}

_DEFAULTS: Mapping[Client, Mapping[str, str]] = {
    "java": {
        "acks": "all",
        "max.in.flight.requests.per.connection": "5",
        "delivery.timeout.ms": "120000",
        "request.timeout.ms": "30000",
        "linger.ms": "5",
        "transaction.timeout.ms": "60000",
        "enable.auto.commit": "true",
        "auto.offset.reset": "latest",
        "isolation.level": "read_uncommitted",
        "max.poll.interval.ms": "300000",
        "max.poll.records": "500",
        "session.timeout.ms": "45000",
        "heartbeat.interval.ms": "3000",
    },
    "librdkafka": {
        "acks": "all",
        "enable.idempotence": "false",
        "max.in.flight.requests.per.connection": "1000000",
        "delivery.timeout.ms": "300000",
        "linger.ms": "5",
        "transaction.timeout.ms": "60000",
        "enable.auto.commit": "true",
        "enable.auto.offset.store": "true",
        "auto.offset.reset": "latest",
        "isolation.level": "read_committed",
        "max.poll.interval.ms": "300000",
        "session.timeout.ms": "45000",
        "heartbeat.interval.ms": "3000",
    },
    "lossless": {
        "acks": "all",
        "enable.idempotence": "true",
        "max.in.flight.requests.per.connection": "5",
        "linger.ms": "5",
        "transaction.timeout.ms": "60000",
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "max.poll.interval.ms": "300000",
        "session.timeout.ms": "45000",
        "heartbeat.interval.ms": "3000",
    },
}


class Settings:
    """Settings by one name each, and read as what they are; None for what cannot be read."""

    def __init__(self, given: Mapping[str, object], client: Client) -> None:
        self.client = client
        self.twice: list[tuple[str, str]] = []
        self.name_given: dict[str, str] = {}
        self._given: dict[str, str] = {}
        self._defaults = _DEFAULTS[client]
        for name, value in given.items():
            known = _ALIASES.get(name, name)
            text = _text(value)
            if self._given.get(known, text) != text:
                self.twice.append((self.name_given[known], name))
            self._given[known] = text
            self.name_given[known] = name

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def given(self) -> Mapping[str, str]:
        return self._given

    def text(self, name: str) -> str | None:
        return self._given.get(name, self._defaults.get(name))

    def number(self, name: str) -> float | None:
        return number_of(self.text(name))

    def yes(self, name: str) -> bool | None:
        return BOOLEANS.get((self.text(name) or "").lower())

    def acks(self) -> int | None:
        return ACKS.get((self.text("acks") or "").lower())

    def idempotent(self) -> bool:
        """As it will be, not as it was written: transactions switch it on, Java switches it off."""
        if "enable.idempotence" in self:
            return self.yes("enable.idempotence") is True
        if self.client == "java":
            few = (self.number(IN_FLIGHT) or 1) <= IN_FLIGHT_IDEMPOTENT_MAX
            return self.acks() == -1 and self.number("retries") != 0 and few
        return self.yes("enable.idempotence") is True or bool(self.text("transactional.id"))

    def in_flight(self) -> float:
        if IN_FLIGHT not in self and self.idempotent():
            return IN_FLIGHT_IDEMPOTENT_MAX  # both clients lower their default then
        return self.number(IN_FLIGHT) or 1

    def shown(self, *names: str) -> str:
        return " and ".join(f"{self.called(name)} = {self.text(name)}" for name in names)

    def called(self, name: str) -> str:
        return self.name_given.get(name, name)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def number_of(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
