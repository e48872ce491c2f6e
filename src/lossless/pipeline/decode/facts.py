"""Facts: what the document itself must satisfy, checked on the few records that need it.

A row does not show everything: that a string was a number, which value spoiled a column, that a
property was there. The document as a variant does. Facts are data, not expressions: one table that
one expression of constant size walks, so that a wide schema costs no planning time in every batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from lossless.pipeline.decode.sql import Sql, case, each, fresh, let, literal

SHOWN_LENGTH_MAX = 60

TABLE = (
    "array<struct<label: string, steps: array<struct<path: string, members: boolean>>,"
    " path: string, kinds: array<string>, low: double, high: double, child: string,"
    " child_nullable: boolean, names: array<string>, folded: array<string>, says: string>>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Into a collection: every element of the array, or every member of the object, at `path`."""

    path: str
    members: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """About the values at `path`, after the steps. Exactly one of kinds, child and names is set."""

    label: str = ""
    steps: tuple[Step, ...] = ()
    path: str = "$"
    kinds: tuple[str, ...] | None = None  # the value is of one of these kinds, or null,
    low: float | None = None  # and if it is a number, not below `low`
    high: float | None = None  # and below `high`
    child: str | None = None  # the value, if it is an object, has a property at this path
    child_nullable: bool = False  # which may be null
    names: tuple[str, ...] | None = None  # the value, if it is an object, has no other properties,
    folded: tuple[str, ...] | None = None  # or none that are among these in lower case
    says: str

    def within(self, name: str) -> Fact:
        """The same fact about the object that holds the value as its property `name`."""
        label = joined(name, self.label)
        if not self.steps:
            return replace(self, label=label, path=path_of(name) + self.path[1:])
        first = replace(self.steps[0], path=path_of(name) + self.steps[0].path[1:])
        return replace(self, label=label, steps=(first, *self.steps[1:]))

    def of_each(self, *, members: bool = False) -> Fact:
        """The same fact about a collection whose elements are the values."""
        return replace(
            self,
            label=joined("[]", self.label),
            steps=(Step(path="$", members=members), *self.steps),
        )


def joined(outer: str, inner: str) -> str:
    """`address` and `city` to `address.city`; `lines` and `[].sku` to `lines[].sku`."""
    return f"{outer}{inner}" if not inner or inner.startswith("[") else f"{outer}.{inner}"


def path_of(name: str) -> str:
    quote = '"' if "'" in name else "'"
    return f"$[{quote}{name}{quote}]"


def broken_facts(document: Sql, facts: Iterable[Fact]) -> Sql:
    """The messages of the facts that do not hold for the document, a variant."""
    # Folded to a literal by the optimizer.
    table = f"from_json({literal(json.dumps([asdict(fact) for fact in facts]))}, '{TABLE}')"

    def message(fact: Sql) -> Sql:
        """Null when the fact holds."""
        broken = each("filter", _values(document, fact), lambda value: _is_broken(value, fact))
        label = f"IF({fact}.label = '', 'the value', {fact}.label)"

        def said(values: Sql) -> Sql:
            shown = f"substring({_shown(f'get({values}, 0)', fact)}, 1, {SHOWN_LENGTH_MAX})"
            text = f"concat({label}, ': ', concat_ws(' ', {shown}, {fact}.says))"
            return case((f"size({values}) > 0", text))

        return let(broken, said)

    return each("transform", table, message)


def _values(document: Sql, fact: Sql) -> Sql:
    values, step = fresh(), fresh()

    def elements(value: Sql) -> Sql:
        inner = _get(value, f"{step}.path", "variant")
        members = f"map_values({_get(inner, _HERE, 'map<string,variant>')})"
        array = _get(inner, _HERE, "array<variant>")
        return f"coalesce(IF({step}.members, {members}, {array}), array())"

    stepped = f"flatten({each('transform', values, elements)})"
    holders = f"aggregate({fact}.steps, array({document}), ({values}, {step}) -> {stepped})"
    return each("transform", holders, lambda holder: _get(holder, f"{fact}.path", "variant"))


def _is_broken(value: Sql, fact: Sql) -> Sql:
    return let(_kind(value), lambda kind: _is_broken_of(kind, value, fact))


def _is_broken_of(kind: Sql, value: Sql, fact: Sql) -> Sql:
    number = f"IF({kind} IN ('BIGINT', 'DECIMAL', 'DOUBLE'), {_get(value, _HERE, 'double')}, NULL)"
    is_of_kind = f"(array_contains({fact}.kinds, {kind}) OR {kind} = 'VOID')"
    is_out_of_range = f"({number} < {fact}.low OR {number} >= {fact}.high)"
    child = _get(value, f"{fact}.child", "variant")
    return case(
        (f"{fact}.kinds IS NOT NULL", f"NOT {is_of_kind} OR coalesce({is_out_of_range}, FALSE)"),
        (f"{value} IS NULL OR {kind} != 'OBJECT'", "FALSE"),
        (
            f"{fact}.child IS NOT NULL",
            f"{child} IS NULL OR (is_variant_null({child}) AND NOT {fact}.child_nullable)",
        ),
        otherwise=f"size({_unnamed(value, fact)}) > 0",
    )


def _shown(value: Sql, fact: Sql) -> Sql:
    return case(
        (f"{fact}.kinds IS NOT NULL", f"to_json({value})"),
        (f"{fact}.names IS NOT NULL", f"concat_ws(', ', {_unnamed(value, fact)})"),
    )


def _unnamed(value: Sql, fact: Sql) -> Sql:
    members = _get(value, _HERE, "map<string,variant>")
    unnamed = f"array_except(map_keys({members}), {fact}.names)"

    def is_meant(name: Sql) -> Sql:
        return f"{fact}.folded IS NULL OR array_contains({fact}.folded, lower({name}))"

    return each("filter", unnamed, is_meant)


def _kind(value: Sql) -> Sql:
    """OBJECT, ARRAY, STRING, BOOLEAN, BIGINT, DECIMAL, DOUBLE or VOID; null when there is none.

    The schema of an array takes time that grows with the square of the different keys in it, so
    that only scalars are asked for theirs.
    """
    return case(
        (f"{value} IS NULL", "NULL"),
        (f"is_variant_null({value})", "'VOID'"),
        (f"{_get(value, _HERE, 'map<string,variant>')} IS NOT NULL", "'OBJECT'"),
        (f"{_get(value, _HERE, 'array<variant>')} IS NOT NULL", "'ARRAY'"),
        otherwise=f"regexp_extract(schema_of_variant({value}), '^[A-Z]+', 0)",
    )


_HERE = "'$'"


def _get(value: Sql, path: Sql, kind: str) -> Sql:
    return f"try_variant_get({value}, {path}, '{kind}')"
