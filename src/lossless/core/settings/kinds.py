"""One setting: its name, its kind, what it allows, and what a text means by it.

A setting's value is text wherever people and the protocol deal with it, and typed where machines
do. The text that a typed value has is Java's: `DescribeConfigs` answers 1.0E7, not 10000000.0.

Rules learnt
- Kafka trims every value, takes TRUE for true and +2 for 2, and splits lists at commas with spaces
  around them. An empty text is an empty list, and no number.
- Whoever sets a wrong value sees Kafka's own message: tools and people look for it.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import NamedTuple, Protocol

Value = bool | int | float | str | tuple[str, ...]

_TRIMMED = "".join(map(chr, range(33)))  # what Java's trim takes away
_BITS = {"SHORT": 16, "INT": 32, "LONG": 64}
_INTEGER = re.compile(r"[+-]?[0-9]{1,100}")  # Python refuses to read very long ones
_DECIMAL = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)")
_REPLICA = re.compile(r"([0-9]+:[0-9]+)?")


class Kind(enum.IntEnum):
    """As in Kafka's ConfigDef, with the numbers of the protocol."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Mode(enum.Enum):
    """Whether a broker's setting can change while it runs, and for whom."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Limit(Protocol):
    def problem(self, value: Value) -> str | None:
        """In the words of Kafka's message; None if the value is allowed."""


class Range(NamedTuple):
    low: float
    high: float | None = None
    also: int | None = None  # a number outside that has a meaning of its own

    def problem(self, value: Value) -> str | None:
        assert isinstance(value, int | float)
        if value == self.also:
            return None
        if self.also is not None and self.high is not None:
            inside = self.low <= value <= self.high
            expected = f"Value must be between {self.low} and {self.high} or equal to {self.also}"
            return None if inside else expected
        if value < self.low:
            return f"Value must be at least {self.low}"
        if self.high is not None and value > self.high:
            return f"Value must be no more than {self.high}"
        return None

    def __str__(self) -> str:
        ends = f"[{self.low},...]" if self.high is None else f"[{self.low},...,{self.high}]"
        return ends if self.also is None else f"{ends} or {self.also}"


class OneOf(NamedTuple):
    """One word, or in a list every word, of these."""

    allowed: tuple[str, ...]
    any_case: bool = False

    def problem(self, value: Value) -> str | None:
        words = value if isinstance(value, tuple) else (str(value),)
        allowed = {word.upper() for word in self.allowed} if self.any_case else set(self.allowed)
        if all((word.upper() if self.any_case else word) in allowed for word in words):
            return None
        how = " (case insensitive)" if self.any_case else ""
        return f"String must be one of{how}: {', '.join(self.allowed)}"

    def __str__(self) -> str:
        how = "(case insensitive) " if self.any_case else ""
        return f"{how}[{', '.join(self.allowed)}]"


class NonEmpty(NamedTuple):
    def problem(self, value: Value) -> str | None:
        return None if value else "String must be non-empty"

    def __str__(self) -> str:
        return "non-empty string"


class ThrottledReplicas(NamedTuple):
    name: str

    def problem(self, value: Value) -> str | None:
        assert isinstance(value, tuple)
        if "".join(value) == "*" or all(_REPLICA.fullmatch(replica) for replica in value):
            return None
        expected = f"the literal '*' or a list of replicas in the following format: {self}"
        return f"{self.name} must be {expected}"

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    name: str
    kind: Kind
    default: str | None = None  # Kafka's own; None: there is none
    limit: Limit | None = None
    documentation: str
    honoured: bool = False  # the embedded broker acts on it
    by_engine: bool = False  # addresses, roles, folders: whoever starts the cluster decides
    internal: bool = False  # exists, and is not shown
    required: bool = False
    mode: Mode = Mode.READ_ONLY  # of a broker's setting

    @property
    def is_sensitive(self) -> bool:
        return self.kind is Kind.PASSWORD


class InvalidSetting(ValueError):
    """What Kafka would refuse to start with, or a client would be told."""


def value_of(setting: Setting, text: str) -> Value:
    """InvalidSetting if the text is none of the setting's values."""
    try:
        value = _parsed(setting.kind, text)
    except ValueError as wrong:
        raise _invalid(setting, text, str(wrong)) from None
    why = None if setting.limit is None else setting.limit.problem(value)
    if why is not None:
        raise _invalid(setting, _shown_in_message(setting, value), why)
    return value


def problem(setting: Setting, text: str) -> str | None:
    """What is wrong with a value, as Kafka says it; None: nothing."""
    try:
        value_of(setting, text)
    except InvalidSetting as invalid:
        return str(invalid)
    return None


def text_of(value: Value) -> str:
    """As Kafka writes it."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return _java_double(value)
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def _invalid(setting: Setting, text: str, why: str) -> InvalidSetting:
    shown = "[hidden]" if setting.is_sensitive else text
    return InvalidSetting(f"Invalid value {shown} for configuration {setting.name}: {why}")


def _shown_in_message(setting: Setting, value: Value) -> str:
    if not isinstance(value, tuple):
        return text_of(value)
    limit = setting.limit
    if isinstance(limit, OneOf):  # of a list the first word that is wrong
        return next(word for word in value if limit.problem(word) is not None)
    return f"[{', '.join(value)}]"


def _parsed(kind: Kind, text: str) -> Value:
    trimmed = text.strip(_TRIMMED)
    match kind:
        case Kind.BOOLEAN:
            if trimmed.lower() not in ("true", "false"):
                raise ValueError("Expected value to be either true or false")
            return trimmed.lower() == "true"
        case Kind.SHORT | Kind.INT | Kind.LONG:
            half = 1 << (_BITS[kind.name] - 1)
            if not _INTEGER.fullmatch(trimmed) or not -half <= int(trimmed) < half:
                raise ValueError(f"Not a number of type {kind.name}")
            return int(trimmed)
        case Kind.DOUBLE:
            if not _DECIMAL.fullmatch(trimmed):
                raise ValueError(f"Not a number of type {kind.name}")
            return float(trimmed.rstrip("fFdD"))
        case Kind.LIST:
            return tuple(re.split(r"\s*,\s*", trimmed)) if trimmed else ()
        case _:
            return trimmed


def _java_double(value: float) -> str:
    """Java writes numbers below a thousandth and from ten million on with an exponent."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    # With one digit before the point, and no more digits than are needed to read it back.
    texts = (f"{value:.{digits}e}" for digits in range(18))
    mantissa, _, exponent = next(text for text in texts if float(text) == value).partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
