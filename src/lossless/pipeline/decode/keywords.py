"""The keywords of JSON Schema that limit one value, each as a rule.

A builder raises ValueError, with the reason, for an argument that the keyword cannot have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from lossless.pipeline.decode.sql import Sql, literal
from lossless.pipeline.decode.tree import PRECISION_MAX, Rule

LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1

UUID = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\z"
EMAIL = r"^[^@\s]+@[^@\s]+\z"


def quoted(text: Sql) -> Sql:
    return f"concat('\"', {text}, '\"')"


def as_text(value: Sql) -> Sql:
    return f"CAST({value} AS STRING)"


def number(argument: Any) -> int | float:
    """What a keyword of an integer or a double compares with."""
    limit = exact_number(argument)
    if limit != limit.to_integral_value():
        return float(limit)
    if not LONG_MIN <= limit <= LONG_MAX:
        raise ValueError("needs a number of at most 64 bits")
    return int(limit) if isinstance(argument, int) else float(limit)


def exact_number(argument: Any) -> Decimal:
    """What a keyword of a decimal compares with."""
    if isinstance(argument, bool) or not isinstance(argument, int | Decimal):
        raise ValueError("needs a number")
    exact = Decimal(argument)
    if scale_of(exact) > PRECISION_MAX or exact.adjusted() >= PRECISION_MAX:
        raise ValueError(f"needs a number of at most {PRECISION_MAX} digits")
    return exact


def scale_of(exact: Decimal) -> int:
    return max(0, -int(exact.normalize().as_tuple().exponent))


def count(argument: Any) -> int:
    if isinstance(argument, bool) or not isinstance(argument, int) or argument < 0:
        raise ValueError("needs a whole number that is not negative")
    return argument


def comparison(
    operator: str, says: str, limit_of: Callable[[Any], int | float | Decimal]
) -> Callable[[Any], Rule]:
    """The builder of a rule that is broken when `operator` holds."""

    def build(argument: Any) -> Rule:
        limit = limit_of(argument)
        return Rule(
            broken=lambda value: f"{value} {operator} {literal(limit)}",
            says=f"{says} {shown(limit)}",
            shows=as_text,
        )

    return build


def comparisons(
    limit_of: Callable[[Any], int | float | Decimal],
) -> Mapping[str, Callable[[Any], Rule]]:
    return {
        "minimum": comparison("<", "is below the minimum", limit_of),
        "maximum": comparison(">", "is above the maximum", limit_of),
        "exclusiveMinimum": comparison("<=", "is not above", limit_of),
        "exclusiveMaximum": comparison(">=", "is not below", limit_of),
    }


def shown(value: str | float | bool | Decimal) -> str:
    match value:
        case str():
            return f'"{value}"'
        case Decimal():
            return f"{value:f}"
        case _:
            return repr(value)


def multiple_of(argument: Any) -> Rule:
    divisor = number(argument)
    if not isinstance(divisor, int) or divisor <= 0:
        raise ValueError("needs a whole number above zero")
    says = f"is not a multiple of {divisor}"
    return Rule(broken=lambda value: f"{value} % {literal(divisor)} != 0", says=says, shows=as_text)


def decimal_multiple_of(argument: Any) -> Rule:
    """Its digits after the point are those of the column, too."""
    divisor = exact_number(argument)
    if divisor <= 0:
        raise ValueError("needs a number above zero")
    return Rule(
        broken=lambda value: f"{value} % {literal(divisor)} != 0",
        says=f"is not a multiple of {shown(divisor)}",
        shows=as_text,
    )


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
    listed = ", ".join(map(shown, allowed))
    return Rule(
        broken=lambda value: f"{value} NOT IN ({', '.join(map(literal, allowed))})",
        says=f"is not one of {listed}" if len(allowed) != 1 else f"is not {listed}",
        shows=quoted if text else as_text,
    )


# By the type they are about.
LIMITS: Mapping[str, Mapping[str, Callable[[Any], Rule]]] = {
    "integer": {**comparisons(number), "multipleOf": multiple_of},
    "number": comparisons(number),
    "decimal": {**comparisons(exact_number), "multipleOf": decimal_multiple_of},
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
