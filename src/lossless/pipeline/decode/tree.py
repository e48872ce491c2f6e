"""What a row must look like: the tree that DDL and JSON Schema are both compiled to.

A node answers six questions, most of them with SQL:

    reads       the type that `from_json` is asked for. Dates and timestamps are read as text and
                cast here: `from_json` takes an integer for a timestamp, multiplies it into
                microseconds without an overflow check and so turns epoch milliseconds into the
                year 55000 and epoch microseconds into any year at all. A TINYINT is read as a
                SMALLINT: `from_json` reads 128 as -128.
    type        the type of the row's column
    converted   from the one to the other
    rules       what a value that was read must satisfy
    facts       what the document itself must satisfy: the kind of each JSON value, the presence of
                each property. They need a second parse, see facts.py.
    doubts      when the second parse is needed although the first one had nothing to complain of

A rule is a test that is written for the value it concerns and lifted outwards, by a struct to the
struct that holds it, by an array to the array of it, until it is a test of the whole record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyspark.sql import types as T

from lossless.pipeline.decode.facts import SHOWN_LENGTH_MAX, Fact, joined, path_of
from lossless.pipeline.decode.sql import Sql, Test, case, each, fresh, literal, member

MISSING = "is missing or null"

# What JSON values other than strings look like, if they begin with a digit, a sign or a bracket.
TEXT_OF_A_NON_STRING = r"^(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|(?s:[\[{].*[\]}]))$"

# What Java puts in the place of bytes that are not UTF-8.
REPLACEMENT = "\ufffd"

# Digits one by one: Java counts repetitions more slowly.
ISO_8601_DATE = r"^\d\d\d\d-\d\d-\d\d\z"
ISO_8601_TIMESTAMP = (
    r"^\d\d\d\d-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?\z"
)
RFC_3339_TIMESTAMP = r"^\d\d\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)\z"

TEMPORAL = (T.DateType, T.TimestampType, T.TimestampNTZType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A test that is true (not null, not false) when the value breaks the rule."""

    path: str = ""
    broken: Test
    says: str
    shows: Test | None = None  # the text of the value, for the message

    def message(self, value: Sql) -> Sql:
        place = self.path or "the value"
        if self.shows is None:
            return literal(f"{place}: {self.says}")
        shown = f"substring({self.shows(value)}, 1, {SHOWN_LENGTH_MAX})"
        before, after = literal(f"{place}: "), literal(f" {self.says}")
        return f"concat({before}, coalesce({shown}, 'null'), {after})"

    def within(self, name: str) -> Rule:
        """The same rule about a struct, one of whose fields is what it was about."""
        shows = self.shows
        child = struct_field(name)
        return replace(
            self,
            path=joined(name, self.path),
            broken=through(child, self.broken),
            shows=None if shows is None else through(child, shows),
        )

    def of_any(self, elements: Test) -> Rule:
        """The same rule about a collection, each of whose elements is what it was about."""
        return replace(
            self,
            path=joined("[]", self.path),
            broken=any_element(elements, self.broken),
            says=self.says if self.shows is None else f"an element {self.says}",
            shows=None,
        )


def struct_field(name: str) -> Test:
    return lambda struct: member(struct, name)


def itself(value: Sql) -> Sql:
    return value


def keys_of(value: Sql) -> Sql:
    return f"map_keys({value})"


def values_of(value: Sql) -> Sql:
    return f"map_values({value})"


def may_be_the_text_of_a_non_string(text: Sql) -> Sql:
    """A string column takes any JSON value as its text: `5` cannot be told from `"5"`.

    Every string is asked this, so the first character decides as cheaply as can be, by comparison.
    """
    is_digit_or_sign = f"({text} < ':' AND {text} >= '-')"
    is_bracket = f"(({text} >= '[' AND {text} < r'\\') OR ({text} >= '{{' AND {text} < '|'))"
    looks_like_one = f"{text} RLIKE {literal(TEXT_OF_A_NON_STRING)}"
    return (
        f"((({is_digit_or_sign} OR {is_bracket}) AND {looks_like_one})"
        f" OR {text} IN ('true', 'false'))"
    )


def is_plainly_a_string(value: object) -> bool:
    """Of a value in a schema: what may_be_the_text_of_a_non_string asks of one in a record."""
    return value is None or (
        isinstance(value, str)
        and value not in ("true", "false")
        and REPLACEMENT not in value
        and re.search(TEXT_OF_A_NON_STRING, value) is None
    )


def may_come_from_bad_bytes(text: Sql) -> Sql:
    """Asked of what is stored: to look at every byte of every record costs three times as much."""
    return f"contains({text}, {literal(REPLACEMENT)})"


def absent(child: Test) -> Test:
    """Of a struct that is there, the field is null."""
    return lambda value: f"({value} IS NOT NULL AND {child(value)} IS NULL)"


def through(child: Test, test: Test) -> Test:
    return lambda value: test(child(value))


def any_element(elements: Test, test: Test) -> Test:
    return lambda value: each("exists", elements(value), test)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """One value of one type, and the rules it obeys besides."""

    type: T.DataType
    called: str  # what messages call the type
    extra: tuple[Rule, ...] = ()
    exact: bool = False  # a string column refuses JSON numbers, booleans, objects and arrays
    written: str = ""  # how a date or a timestamp is written, as a regular expression
    listed: bool = False  # the rules name every value, and none that is not plainly a string

    @property
    def reads(self) -> T.DataType:
        if isinstance(self.type, TEMPORAL):
            return T.StringType()
        return T.ShortType() if isinstance(self.type, T.ByteType) else self.type

    def converted(self, value: Sql) -> Sql:
        if self.reads == self.type:
            return value
        return f"TRY_CAST({value} AS {self.type.simpleString()})"

    def rules(self) -> Iterator[Rule]:
        if isinstance(self.type, TEMPORAL):
            yield Rule(
                broken=lambda text: (
                    f"({text} IS NOT NULL AND ({self.converted(text)} IS NULL"
                    f" OR NOT {text} RLIKE {literal(self.written)}))"
                ),
                says=f"is not of type {self.called}",
                shows=itself,
            )
        if isinstance(self.type, T.DoubleType | T.FloatType):
            yield Rule(
                broken=lambda number: (
                    f"{number} IN (CAST('Infinity' AS DOUBLE), CAST('-Infinity' AS DOUBLE))"
                ),
                says=f"is out of the range of type {self.called}",
            )
        if isinstance(self.type, T.ByteType):
            yield Rule(
                broken=lambda number: f"({number} < {-(2**7)} OR {number} >= {2**7})",
                says=f"is not of type {self.called}",
                shows=lambda number: f"CAST({number} AS STRING)",
            )
        yield from self.extra

    def facts(self) -> Iterator[Fact]:
        kinds = self._kinds()
        if kinds:
            low, high = self._range()
            yield Fact(kinds=kinds, low=low, high=high, says=f"is not of type {self.called}")

    def doubts(self) -> Iterator[Test]:
        if self.listed:
            return
        if self.exact:
            yield may_be_the_text_of_a_non_string
        if isinstance(self.type, T.StringType):
            yield may_come_from_bad_bytes

    def _kinds(self) -> tuple[str, ...]:
        match self.type:
            case T.StringType():
                return ("STRING",) if self.exact else ()
            case T.BooleanType():
                return ("BOOLEAN",)
            case T.DecimalType():  # also as text, which is how people keep decimals exact
                return ("BIGINT", "DECIMAL", "DOUBLE", "STRING")
            case T.DoubleType() | T.FloatType():
                return ("BIGINT", "DECIMAL", "DOUBLE")
            case T.ByteType() | T.ShortType() | T.IntegerType() | T.LongType():
                return ("BIGINT",)
            case _:
                return ("STRING",)

    def _range(self) -> tuple[float | None, float | None]:
        """From, and up to but without."""
        match self.type:
            case T.ByteType():
                return -(2.0**7), 2.0**7
            case T.ShortType():
                return -(2.0**15), 2.0**15
            case T.IntegerType():
                return -(2.0**31), 2.0**31
            case T.LongType():
                return -(2.0**63), 2.0**63
            case T.DecimalType():
                limit = 10.0 ** (self.type.precision - self.type.scale)
                return -limit, limit
            case _:
                return None, None


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    name: str
    node: Node
    required: bool = False  # the property must be there
    nullable: bool = True  # and may be null all the same; of no effect unless required


@dataclass(frozen=True, slots=True, kw_only=True)
class Object:
    """An object with named properties: a struct."""

    fields: tuple[Field, ...]
    closed: bool = False  # properties that are not named are refused

    @property
    def reads(self) -> T.StructType:
        return T.StructType([T.StructField(f.name, f.node.reads) for f in self.fields])

    @property
    def type(self) -> T.StructType:
        return T.StructType([T.StructField(f.name, f.node.type) for f in self.fields])

    def converted(self, value: Sql) -> Sql:
        if self.reads == self.type:
            return value
        fields = ", ".join(
            f"{literal(f.name)}, {f.node.converted(member(value, f.name))}" for f in self.fields
        )
        return case((f"{value} IS NOT NULL", f"named_struct({fields})"))

    def rules(self) -> Iterator[Rule]:
        for field in self.fields:
            child = struct_field(field.name)
            if field.required and not field.nullable:
                yield Rule(
                    path=field.name,
                    broken=absent(child),
                    says=MISSING,
                )
            for rule in field.node.rules():
                yield rule.within(field.name)

    def facts(self) -> Iterator[Fact]:
        yield Fact(kinds=("OBJECT",), says="is not an object")
        for field in self.fields:
            if field.required:
                yield Fact(
                    label=field.name,
                    child=path_of(field.name),
                    child_nullable=field.nullable,
                    says="is missing" if field.nullable else MISSING,
                )
            for fact in field.node.facts():
                yield fact.within(field.name)
        if self.closed:
            names = tuple(field.name for field in self.fields)
            yield Fact(names=names, says="is a property that the schema does not name")

    def doubts(self) -> Iterator[Test]:
        for field in self.fields:
            child = struct_field(field.name)
            if field.required and field.nullable:
                yield absent(child)
            for doubt in field.node.doubts():
                yield through(child, doubt)
        if self.closed:
            yield lambda value: f"{value} IS NOT NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    element: Node
    nullable: bool = True  # elements may be null
    extra: tuple[Rule, ...] = ()

    @property
    def reads(self) -> T.ArrayType:
        return T.ArrayType(self.element.reads)

    @property
    def type(self) -> T.ArrayType:
        return T.ArrayType(self.element.type)

    def converted(self, value: Sql) -> Sql:
        if self.reads == self.type:
            return value
        return each("transform", value, self.element.converted)

    def rules(self) -> Iterator[Rule]:
        if not self.nullable:
            is_null = Rule(broken=lambda element: f"{element} IS NULL", says="an element is null")
            yield is_null.of_any(itself)
        yield from self.extra
        for rule in self.element.rules():
            yield rule.of_any(itself)

    def facts(self) -> Iterator[Fact]:
        yield Fact(kinds=("ARRAY",), says="is not an array")
        for fact in self.element.facts():
            yield fact.of_each()

    def doubts(self) -> Iterator[Test]:
        for doubt in self.element.doubts():
            yield any_element(itself, doubt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """An object whose properties have no names in the schema."""

    value: Node

    @property
    def reads(self) -> T.MapType:
        return T.MapType(T.StringType(), self.value.reads)

    @property
    def type(self) -> T.MapType:
        return T.MapType(T.StringType(), self.value.type)

    def converted(self, value: Sql) -> Sql:
        if self.reads == self.type:
            return value
        key, member = fresh(), fresh()
        return f"transform_values({value}, ({key}, {member}) -> {self.value.converted(member)})"

    def rules(self) -> Iterator[Rule]:
        for rule in self.value.rules():
            yield rule.of_any(values_of)

    def facts(self) -> Iterator[Fact]:
        yield Fact(kinds=("OBJECT",), says="is not an object")
        for fact in self.value.facts():
            yield fact.of_each(members=True)

    def doubts(self) -> Iterator[Test]:
        yield any_element(keys_of, may_come_from_bad_bytes)
        for doubt in self.value.doubts():
            yield any_element(values_of, doubt)


Node = Scalar | Object | Array | Map
