"""What a row must look like: the tree that DDL and JSON Schema are both compiled to.

A node answers six questions, most of them with native Spark expressions:

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

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lossless.pipeline.decode.facts import SHOWN_LENGTH_MAX, Fact, joined, path_of

if TYPE_CHECKING:
    from pyspark.sql import Column

    # What is asked about a value, and how one gets from a value to another: both are expressions.
    Test: TypeAlias = Callable[[Column], Column]

INFINITY = float("inf")
MISSING = "is missing or null"

# What JSON values other than strings look like, if they begin with a digit, a sign or a bracket.
TEXT_OF_A_NON_STRING = r"^(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|(?s:[\[{].*[\]}]))$"

ISO_8601_DATE = r"^\d{4}-\d{2}-\d{2}\z"
ISO_8601_TIMESTAMP = (
    r"^\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})?)?\z"
)
RFC_3339_TIMESTAMP = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})\z"

TEMPORAL = (T.DateType, T.TimestampType, T.TimestampNTZType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A test that is true (not null, not false) when the value breaks the rule."""

    path: str = ""
    broken: Test
    says: str
    shows: Test | None = None  # the text of the value, for the message

    def message(self, value: Column) -> Column:
        place = self.path or "the value"
        if self.shows is None:
            return F.lit(f"{place}: {self.says}")
        shown = F.substring(self.shows(value), 1, SHOWN_LENGTH_MAX)
        return F.concat(
            F.lit(f"{place}: "), F.coalesce(shown, F.lit("null")), F.lit(f" {self.says}")
        )

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
            broken=of_any(elements, self.broken),
            says=self.says if self.shows is None else f"an element {self.says}",
            shows=None,
        )


def struct_field(name: str) -> Test:
    return lambda struct: struct.getField(name)


def itself(value: Column) -> Column:
    return value


def may_be_the_text_of_a_non_string(text: Column) -> Column:
    """A string column takes any JSON value as its text: `5` cannot be told from `"5"`.

    Every string is asked this, so the first character decides as cheaply as can be, by comparison.
    """
    is_digit_or_sign = (text < ":") & (text >= "-")
    is_bracket = ((text >= "[") & (text < "\\")) | ((text >= "{") & (text < "|"))
    begins_like_one = is_digit_or_sign | is_bracket
    return (begins_like_one & text.rlike(TEXT_OF_A_NON_STRING)) | text.isin("true", "false")


def absent(child: Test) -> Test:
    """Of a struct that is there, the field is null."""
    return lambda value: value.isNotNull() & child(value).isNull()


def through(child: Test, test: Test) -> Test:
    return lambda value: test(child(value))


def of_any(elements: Test, test: Test) -> Test:
    return lambda value: F.exists(elements(value), test)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """One value of one type, and the rules it obeys besides."""

    type: T.DataType
    called: str  # what messages call the type
    extra: tuple[Rule, ...] = ()
    exact: bool = False  # a string column refuses JSON numbers, booleans, objects and arrays
    written: str = ""  # how a date or a timestamp is written, as a regular expression

    @property
    def reads(self) -> T.DataType:
        if isinstance(self.type, TEMPORAL):
            return T.StringType()
        return T.ShortType() if isinstance(self.type, T.ByteType) else self.type

    def converted(self, value: Column) -> Column:
        return value if self.reads == self.type else value.try_cast(self.type)

    def rules(self) -> Iterator[Rule]:
        if isinstance(self.type, TEMPORAL):
            yield Rule(
                broken=lambda text: (
                    text.isNotNull()
                    & (~text.rlike(self.written) | text.try_cast(self.type).isNull())
                ),
                says=f"is not of type {self.called}",
                shows=itself,
            )
        if isinstance(self.type, T.DoubleType | T.FloatType):
            yield Rule(
                broken=lambda number: number.isin(INFINITY, -INFINITY),
                says=f"is out of the range of type {self.called}",
            )
        if isinstance(self.type, T.ByteType):
            yield Rule(
                broken=lambda number: (number < -(2**7)) | (number >= 2**7),
                says=f"is not of type {self.called}",
                shows=lambda number: number.cast("string"),
            )
        yield from self.extra

    def facts(self) -> Iterator[Fact]:
        kinds = self._kinds()
        if kinds:
            low, high = self._range()
            yield Fact(kinds=kinds, low=low, high=high, says=f"is not of type {self.called}")

    def doubts(self) -> Iterator[Test]:
        if self.exact:
            yield may_be_the_text_of_a_non_string

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

    def converted(self, value: Column) -> Column:
        if self.reads == self.type:
            return value
        fields = [f.node.converted(value.getField(f.name)).alias(f.name) for f in self.fields]
        return F.when(value.isNotNull(), F.struct(*fields))

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
            yield lambda value: value.isNotNull()


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

    def converted(self, value: Column) -> Column:
        return value if self.reads == self.type else F.transform(value, self.element.converted)

    def rules(self) -> Iterator[Rule]:
        if not self.nullable:
            is_null = Rule(broken=lambda element: element.isNull(), says="an element is null")
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
            yield of_any(itself, doubt)


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

    def converted(self, value: Column) -> Column:
        if self.reads == self.type:
            return value
        return F.transform_values(value, lambda _key, member: self.value.converted(member))

    def rules(self) -> Iterator[Rule]:
        for rule in self.value.rules():
            yield rule.of_any(F.map_values)

    def facts(self) -> Iterator[Fact]:
        yield Fact(kinds=("OBJECT",), says="is not an object")
        for fact in self.value.facts():
            yield fact.of_each(members=True)

    def doubts(self) -> Iterator[Test]:
        for doubt in self.value.doubts():
            yield of_any(F.map_values, doubt)


Node = Scalar | Object | Array | Map
