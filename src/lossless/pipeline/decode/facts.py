"""Facts: what the document itself must satisfy, checked on the few records that need it.

A row does not show everything: that a string was a number, which value spoiled a column, that a
property was there. The document as a variant does. Facts are data, not expressions: one table that
one expression of constant size walks, so that a wide schema costs no planning time in every batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

SHOWN_LENGTH_MAX = 60
NUMBERS = ("BIGINT", "DECIMAL", "DOUBLE")

TABLE = """array<struct<
    label: string, steps: array<struct<path: string, members: boolean>>, path: string,
    kinds: array<string>, low: double, high: double, child: string, child_nullable: boolean,
    names: array<string>, says: string>>"""


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
    names: tuple[str, ...] | None = None  # the value, if it is an object, has no other properties
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


def broken_facts(document: Column, facts: Iterable[Fact]) -> Column:
    """The messages of the facts that do not hold for the document, a variant."""
    # Folded to a literal by the optimizer.
    table = F.from_json(F.lit(json.dumps([asdict(fact) for fact in facts])), TABLE)

    def message(fact: Column) -> Column:
        """Null when the fact holds."""
        broken = F.filter(_values(document, fact), lambda value: _is_broken(value, fact))
        shown = F.substring(_shown(F.get(broken, F.lit(0)), fact), 1, SHOWN_LENGTH_MAX)
        label = F.when(fact["label"] == "", F.lit("the value")).otherwise(fact["label"])
        return F.when(
            F.size(broken) > 0, F.concat(label, F.lit(": "), F.concat_ws(" ", shown, fact["says"]))
        )

    return F.transform(table, message)


def _values(document: Column, fact: Column) -> Column:
    def stepped(values: Column, step: Column) -> Column:
        def elements(value: Column) -> Column:
            inner = F.try_variant_get(value, step["path"], "variant")
            members = F.map_values(F.try_variant_get(inner, "$", "map<string,variant>"))
            array = F.try_variant_get(inner, "$", "array<variant>")
            return F.coalesce(F.when(step["members"], members).otherwise(array), F.array())

        return F.flatten(F.transform(values, elements))

    holders = F.aggregate(fact["steps"], F.array(document), stepped)
    return F.transform(holders, lambda holder: F.try_variant_get(holder, fact["path"], "variant"))


def _is_broken(value: Column, fact: Column) -> Column:
    kind = _kind(value)
    number = F.when(kind.isin(*NUMBERS), F.try_variant_get(value, "$", "double"))
    is_of_kind = F.array_contains(fact["kinds"], kind) | (kind == "VOID")
    is_out_of_range = (number < fact["low"]) | (number >= fact["high"])
    child = _kind(F.try_variant_get(value, fact["child"], "variant"))
    return (
        F.when(fact["kinds"].isNotNull(), ~is_of_kind | F.coalesce(is_out_of_range, F.lit(False)))
        .when(value.isNull() | (kind != "OBJECT"), F.lit(False))
        .when(
            fact["child"].isNotNull(),
            child.isNull() | ((child == "VOID") & ~fact["child_nullable"]),
        )
        .otherwise(F.size(_unnamed(value, fact)) > 0)
    )


def _shown(value: Column, fact: Column) -> Column:
    return F.when(fact["kinds"].isNotNull(), F.to_json(value)).when(
        fact["names"].isNotNull(), F.concat_ws(", ", _unnamed(value, fact))
    )


def _unnamed(value: Column, fact: Column) -> Column:
    members = F.try_variant_get(value, "$", "map<string,variant>")
    return F.array_except(F.map_keys(members), fact["names"])


def _kind(value: Column) -> Column:
    """OBJECT, ARRAY, STRING, BOOLEAN, BIGINT, DECIMAL, DOUBLE or VOID; null when there is none."""
    return F.regexp_extract(F.schema_of_variant(value), "^[A-Z]+", 0)
