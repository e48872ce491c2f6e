"""The keywords of JSON Schema that limit one value, each as a rule.

A builder raises ValueError, with the reason, for an argument that the keyword cannot have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lossless.pipeline.decode.sql import Sql, literal
from lossless.pipeline.decode.tree import Rule

LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1

UUID = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\z"
EMAIL = r"^[^@\s]+@[^@\s]+\z"


def quoted(text: Sql) -> Sql:
    return f"concat('\"', {text}, '\"')"


def as_text(value: Sql) -> Sql:
    return f"CAST({value} AS STRING)"


def number(argument: Any) -> int | float:
    if isinstance(argument, bool) or not isinstance(argument, int | float):
        raise ValueError("needs a number")
    if isinstance(argument, int) and not LONG_MIN <= argument <= LONG_MAX:
        raise ValueError("needs a number of at most 64 bits")
    return argument


def count(argument: Any) -> int:
    if isinstance(argument, bool) or not isinstance(argument, int) or argument < 0:
        raise ValueError("needs a whole number that is not negative")
    return argument


def minimum(argument: Any) -> Rule:
    limit = number(argument)
    says = f"is below the minimum {limit}"
    return Rule(broken=lambda value: f"{value} < {literal(limit)}", says=says, shows=as_text)


def maximum(argument: Any) -> Rule:
    limit = number(argument)
    says = f"is above the maximum {limit}"
    return Rule(broken=lambda value: f"{value} > {literal(limit)}", says=says, shows=as_text)


def exclusive_minimum(argument: Any) -> Rule:
    limit = number(argument)
    says = f"is not above {limit}"
    return Rule(broken=lambda value: f"{value} <= {literal(limit)}", says=says, shows=as_text)


def exclusive_maximum(argument: Any) -> Rule:
    limit = number(argument)
    says = f"is not below {limit}"
    return Rule(broken=lambda value: f"{value} >= {literal(limit)}", says=says, shows=as_text)


def multiple_of(argument: Any) -> Rule:
    divisor = number(argument)
    if not isinstance(divisor, int) or divisor <= 0:
        raise ValueError("needs a whole number above zero")
    says = f"is not a multiple of {divisor}"
    return Rule(broken=lambda value: f"{value} % {literal(divisor)} != 0", says=says, shows=as_text)


def min_length(argument: Any) -> Rule:
    limit = count(argument)
    says = f"is shorter than {limit} characters"
    return Rule(broken=lambda text: f"char_length({text}) < {limit}", says=says, shows=quoted)


def max_length(argument: Any) -> Rule:
    limit = count(argument)
    says = f"is longer than {limit} characters"
    return Rule(broken=lambda text: f"char_length({text}) > {limit}", says=says, shows=quoted)


def pattern(argument: Any) -> Rule:
    if not isinstance(argument, str):
        raise ValueError("needs a regular expression")
    return Rule(
        broken=lambda text: f"NOT {text} RLIKE {literal(argument)}",
        says=f"does not match {argument}",
        shows=quoted,
    )


def text_format(argument: Any) -> Rule:
    if argument not in ("uuid", "email"):
        raise ValueError("can be date-time, date, uuid or email here")
    expression = UUID if argument == "uuid" else EMAIL
    return Rule(
        broken=lambda text: f"NOT {text} RLIKE {literal(expression)}",
        says=f"is not of format {argument}",
        shows=quoted,
    )


def min_items(argument: Any) -> Rule:
    limit = count(argument)
    return Rule(
        broken=lambda array: f"size({array}) < {limit}", says=f"has fewer than {limit} elements"
    )


def max_items(argument: Any) -> Rule:
    limit = count(argument)
    return Rule(
        broken=lambda array: f"size({array}) > {limit}", says=f"has more than {limit} elements"
    )


def one_of(allowed: Sequence[Any]) -> Rule:
    """`enum` and `const`."""
    text = allowed and isinstance(allowed[0], str)
    listed = ", ".join(
        repr(value) if not isinstance(value, str) else f'"{value}"' for value in allowed
    )
    return Rule(
        broken=lambda value: f"{value} NOT IN ({', '.join(map(literal, allowed))})",
        says=f"is not one of {listed}" if len(allowed) != 1 else f"is not {listed}",
        shows=quoted if text else as_text,
    )


# By the type they are about.
LIMITS: Mapping[str, Mapping[str, Callable[[Any], Rule]]] = {
    "integer": {
        "minimum": minimum,
        "maximum": maximum,
        "exclusiveMinimum": exclusive_minimum,
        "exclusiveMaximum": exclusive_maximum,
        "multipleOf": multiple_of,
    },
    "number": {
        "minimum": minimum,
        "maximum": maximum,
        "exclusiveMinimum": exclusive_minimum,
        "exclusiveMaximum": exclusive_maximum,
    },
    "string": {
        "minLength": min_length,
        "maxLength": max_length,
        "pattern": pattern,
        "format": text_format,
    },
    "boolean": {},
    "array": {"minItems": min_items, "maxItems": max_items},
    "object": {},
}
