"""SQL as text: what schemas are compiled to.

A string crosses into the JVM in one call and is parsed there in milliseconds. The same expression
made of Columns takes thousands of calls, and a second, in every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from itertools import count
from typing import TypeAlias

Sql: TypeAlias = str

# What is asked about a value, and how one gets from a value to another: both are expressions.
Test: TypeAlias = Callable[[Sql], Sql]

_numbers = count(1)


def literal(value: str | float | bool | Decimal) -> Sql:
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return f"{value}L" if abs(value) >= 2**31 else str(value)
        case float():
            return f"{value!r}D"
        case Decimal():
            return f"{value:f}BD"
        case str() if value.isprintable() and "'" not in value:
            return f"r'{value}'"
        case str():
            # What a quoted text means depends on the session's settings; this does not.
            return f"CAST(X'{value.encode().hex()}' AS STRING)"


def quoted_name(name: str) -> Sql:
    return "`" + name.replace("`", "``") + "`"


def member(struct: Sql, name: str) -> Sql:
    return f"{struct}.{quoted_name(name)}"


def any_of(tests: Iterable[Sql]) -> Sql:
    return "(" + " OR ".join(tests) + ")"


def case(*branches: tuple[Sql, Sql], otherwise: Sql = "NULL") -> Sql:
    """The value beside the first condition that is true."""
    listed = " ".join(f"WHEN {condition} THEN {value}" for condition, value in branches)
    return f"CASE {listed} ELSE {otherwise} END"


def each(function: str, collection: Sql, body: Test) -> Sql:
    """`transform`, `filter` or `exists` of a collection."""
    variable = fresh()
    return f"{function}({collection}, {variable} -> {body(variable)})"


def let(value: Sql, body: Test) -> Sql:
    """`body` of a value that is computed once, both interpreted rather than compiled to Java."""
    return f"get({each('transform', f'array({value})', body)}, 0)"


def fresh() -> Sql:
    """A variable that no other lambda has: an inner one would hide it."""
    return f"x{next(_numbers)}"
