"""What a row must look like: the tree that DDL and JSON Schema are both compiled to.

A node answers seven questions, most of them with SQL:

    reads       the type that `from_json` is asked for. Dates, timestamps, decimals and bytes are
                read as text and cast here: `from_json` takes an integer for a timestamp,
                multiplies it into microseconds without an overflow check and so turns epoch
                milliseconds into the year 55000 and epoch microseconds into any year at all; it
                rounds decimals, reads "1,50" as 150, and takes minutes for 1e5000000. A TINYINT is
                read as a SMALLINT: `from_json` reads 128 as -128.
    type        the type of the row's column
    converted   from the one to the other
    rules       what a value that was read must satisfy
    facts       what the document itself must satisfy: the kind of each JSON value, the presence of
                each property. They need a second parse, see facts.py.
    doubts      when the second parse is needed although the first one had nothing to complain of
    underflows  which numbers may have been others, too small for a double

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

# How Spark writes values that are not strings and that it may have been sent in another form.
TEXT_THAT_SPARK_WROTE = r"^(?:-?\d+\.\d+(?:E-?\d+)?|0|(?s:[\[{].*[\]}]))$"
TEXTS_OF_INFINITY = ('"Infinity"', '"-Infinity"')

# What Java puts in the place of bytes that are not UTF-8.
REPLACEMENT = "\ufffd"

# Digits one by one: Java counts repetitions more slowly.
ISO_8601_DATE = r"^\d\d\d\d-\d\d-\d\d\z"
_DATE_TIME = r"^\d\d\d\d-\d\d-\d\d[T ]\d\d:\d\d"
# A timestamp has microseconds.
_SECONDS = r":\d\d(?:\.\d{1,6}0*)?"
_LOCAL_TIMESTAMP = rf"{_DATE_TIME}(?:{_SECONDS})?"
ISO_8601_TIMESTAMP = rf"(?:{_LOCAL_TIMESTAMP}(?:Z|[+-]\d\d:?\d\d)?\z|{ISO_8601_DATE})"
ISO_8601_LOCAL_TIMESTAMP = rf"(?:{_LOCAL_TIMESTAMP}\z|{ISO_8601_DATE})"
RFC_3339_TIMESTAMP = rf"{_DATE_TIME}{_SECONDS}(?:Z|[+-]\d\d:\d\d)\z"

_OFFSET = r"(?:Z|[+-]\d\d:?\d\d)\z"
# Names of time zones whose clocks never change.
WITHOUT_CHANGES = ("UTC", "Etc/UTC", "Z", "GMT", "Etc/GMT", "+00:00")
_SOON = "INTERVAL '23' HOUR"  # a day would be one of the calendar, with or without the change

# Without leading zeros, as JSON writes numbers. Bounded, because a cast takes time that grows with
# the square of the digits, and with an exponent of 5000000 it takes minutes.
DECIMAL = r"^-?(?:0|[1-9]\d{0,99})(?:\.\d{1,99})?(?:[eE][+-]?0*\d{1,2})?\z"
# A cast gives NULL for a zero with a large exponent.
ZERO = r"^-?0(?:\.0{1,99})?[eE][+-]?0*\d{1,2}\z"

TEMPORAL = (T.DateType, T.TimestampType, T.TimestampNTZType)
READ_AS_TEXT = (*TEMPORAL, T.DecimalType, T.BinaryType)
PRECISION_MAX = 38


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


def may_be_a_text_that_spark_wrote(text: Sql) -> Sql:
    """A value that is not a string is kept as the text that was sent. Spark writes its own.

    The texts of integers, `true` and `false` are the same in both.
    """
    is_digit_or_sign = f"({text} < ':' AND {text} >= '-')"
    is_bracket = f"(({text} >= '[' AND {text} < r'\\') OR ({text} >= '{{' AND {text} < '|'))"
    looks_like_one = f"{text} RLIKE {literal(TEXT_THAT_SPARK_WROTE)}"
    infinity = ", ".join(map(literal, TEXTS_OF_INFINITY))
    return (
        f"((({is_digit_or_sign} OR {is_bracket}) AND {looks_like_one}) OR {text} IN ({infinity}))"
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
    rounded: bool = False  # a decimal with too many digits is rounded half to even

    @property
    def reads(self) -> T.DataType:
        match self.type:
            case _ if isinstance(self.type, READ_AS_TEXT):
                return T.StringType()
            case T.ByteType():
                return T.ShortType()
            case T.FloatType():
                return T.DoubleType()
            case _:
                return self.type

    @property
    def is_loose(self) -> bool:
        """Whether it is a string column that takes any JSON value as its text."""
        return isinstance(self.type, T.StringType) and not self.exact

    def converted(self, value: Sql) -> Sql:
        if self.reads == self.type:
            return value
        if isinstance(self.type, T.BinaryType):
            return f"try_to_binary({value}, 'base64')"
        cast = f"TRY_CAST({value} AS {self.type.simpleString()})"
        if not isinstance(self.type, T.DecimalType):
            return cast
        if self.rounded:
            wide = T.DecimalType(PRECISION_MAX, self._rounded_from).simpleString()
            rounded = f"bround(TRY_CAST({value} AS {wide}), {self.type.scale})"
            cast = f"TRY_CAST({rounded} AS {self.type.simpleString()})"
        zero = f"CAST(0 AS {self.type.simpleString()})"
        return f"coalesce({cast}, {case((f'{value} RLIKE {literal(ZERO)}', zero))})"

    @property
    def _rounded_from(self) -> int:
        """The digits after the point that are looked at to round."""
        assert isinstance(self.type, T.DecimalType)
        return PRECISION_MAX - (self.type.precision - self.type.scale)

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
        if isinstance(self.type, T.TimestampType) and self.written == ISO_8601_TIMESTAMP:
            yield Rule(
                broken=lambda text: _is_no_single_moment(text, self.converted(text)),
                says="has no offset, and the session's time zone skips this time or has it twice",
                shows=itself,
            )
        if isinstance(self.type, T.DoubleType | T.FloatType):
            yield Rule(
                broken=lambda number: (
                    f"{self.converted(number)} IN (CAST('Infinity' AS DOUBLE),"
                    " CAST('-Infinity' AS DOUBLE))"
                ),
                says=f"is out of the range of type {self.called}",
            )
        if isinstance(self.type, T.DecimalType):
            yield from self._decimal_rules(self.type)
        if isinstance(self.type, T.BinaryType):
            yield Rule(
                broken=lambda text: (
                    f"({text} IS NOT NULL AND"
                    f" NOT coalesce({_base64(self.converted(text))} = {text}, FALSE))"
                ),
                says="is not base64",
                shows=itself,
            )
        if isinstance(self.type, T.ByteType):
            yield Rule(
                broken=lambda number: f"({number} < {-(2**7)} OR {number} >= {2**7})",
                says=f"is not of type {self.called}",
                shows=lambda number: f"CAST({number} AS STRING)",
            )
        yield from self.extra

    def about_text(self, rule: Rule) -> Rule:
        """The same rule about the text of a decimal."""
        is_decimal = f"RLIKE {literal(DECIMAL)}"
        return replace(
            rule,
            broken=lambda text: rule.broken(case((f"{text} {is_decimal}", self.converted(text)))),
            shows=itself,
        )

    def _decimal_rules(self, kind: T.DecimalType) -> Iterator[Rule]:
        precision, scale = kind.precision, kind.scale
        whole = precision - scale
        plain = literal(_plain_decimal(whole, scale))
        is_decimal = f"RLIKE {literal(DECIMAL)}"
        yield Rule(
            broken=lambda text: (
                f"(NOT {text} RLIKE {plain}"
                f" AND NOT ({text} {is_decimal} AND {_magnitude(text)} <= {whole}))"
            ),
            says=f"is not of type {self.called}",
            shows=itself,
        )
        digits = self._rounded_from if self.rounded else scale
        yield Rule(
            broken=lambda text: (
                f"(NOT {text} RLIKE {plain} AND {text} {is_decimal}"
                f" AND {_magnitude(text)} <= {whole} AND {_lowest_digit(text)} < {-digits})"
            ),
            says=f"has more digits than type {self.called} "
            + ("can round" if self.rounded else "keeps"),
            shows=itself,
        )
        # Nothing that was sent may become NULL, whatever the cast makes of it.
        yield Rule(
            broken=lambda text: (
                f"(NOT {text} RLIKE {plain} AND {text} {is_decimal}"
                f" AND {_magnitude(text)} <= {whole} AND {_lowest_digit(text)} >= {-digits}"
                f" AND {self.converted(text)} IS NULL)"
            ),
            says=f"is not of type {self.called}" + (" once it is rounded" if self.rounded else ""),
            shows=itself,
        )

    def facts(self) -> Iterator[Fact]:
        kinds = self._kinds()
        if kinds:
            low, high = self._range()
            yield Fact(kinds=kinds, low=low, high=high, says=f"is not of type {self.called}")

    def doubts(self) -> Iterator[Test]:
        if self.listed:
            return
        if self.exact or isinstance(self.type, T.BinaryType):
            yield may_be_the_text_of_a_non_string
        if self.is_loose:
            yield may_be_a_text_that_spark_wrote
        if isinstance(self.type, T.StringType):
            yield may_come_from_bad_bytes
        if isinstance(self.type, T.DecimalType):
            # Java before 19 writes some of these numbers with other digits than were sent.
            yield lambda text: f"({text} LIKE '%E%' AND {text} RLIKE 'E-?[0-9]{{2}}')"
        if isinstance(self.type, T.FloatType):
            # Up to 15 digits are in the double; a FLOAT has fewer.
            yield (
                lambda number: (
                    f"CAST(CAST(CAST({number} AS FLOAT) AS STRING) AS DOUBLE) != {number}"
                )
            )

    def underflows(self) -> Iterator[Test]:
        if isinstance(self.type, T.DoubleType | T.FloatType):
            yield lambda number: f"abs({number}) < 1e-290D"
        if isinstance(self.type, T.DecimalType):
            yield lambda text: f"{text} IN ('0.0', '-0.0')"

    def _kinds(self) -> tuple[str, ...]:
        match self.type:
            case T.StringType():
                return ("STRING",) if self.exact else ()
            case T.BooleanType():
                return ("BOOLEAN",)
            case T.DecimalType():
                return ()  # the text of it, in quotes or not, has a rule
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
            case _:
                return None, None


def _base64(binary: Sql) -> Sql:
    """In one line, which Spark's own is only up to 57 bytes, unless a setting says otherwise."""
    line_break = literal(chr(13) + chr(10))
    return f"replace(base64({binary}), {line_break}, '')"


def _plain_decimal(whole: int, scale: int) -> str:
    """What a decimal usually looks like: every number like this fits the type as it is."""
    before = "0" if whole == 0 else f"(?:0|[1-9][0-9]{{0,{whole - 1}}})"
    after = f"[0-9]{{1,{scale}}}0{{0,50}}" if scale else "0{1,50}"
    return rf"^-?{before}(?:\.{after})?\z"


def _magnitude(number: Sql) -> Sql:
    """Of the text of a decimal, how many digits it has before the point; null without a text."""
    digits = f"ltrim('0', {_all_digits(number)})"
    return case(
        (f"{digits} = ''", "0"),
        otherwise=f"char_length({digits}) - char_length({_fraction(number)}) + {_exponent(number)}",
    )


def _lowest_digit(number: Sql) -> Sql:
    """The power of ten of the last digit that is not zero: -3 for 10.005."""
    digits = _all_digits(number)
    zeros = f"char_length({digits}) - char_length(rtrim('0', {digits}))"
    return case(
        (f"ltrim('0', {digits}) = ''", "0"),
        otherwise=f"{zeros} - char_length({_fraction(number)}) + {_exponent(number)}",
    )


def _all_digits(number: Sql) -> Sql:
    return f"regexp_replace({number}, {literal('[eE].*|[-.]')}, '')"


def _fraction(number: Sql) -> Sql:
    return f"regexp_extract({number}, {literal('[.]([0-9]+)')}, 1)"


def _exponent(number: Sql) -> Sql:
    digits = f"regexp_extract({number}, {literal('[eE][+-]?0*([0-9]*)')}, 1)"
    return f"CAST('0' || {digits} AS INT) * IF({number} RLIKE '[eE]-', -1, 1)"


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
        names = tuple(field.name for field in self.fields)
        yield Fact(
            names=names,
            folded=tuple(name.lower() for name in names),
            says="differs from the name of a column only in case",
        )
        if self.closed:
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

    def underflows(self) -> Iterator[Test]:
        for field in self.fields:
            for underflow in field.node.underflows():
                yield through(struct_field(field.name), underflow)


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

    def underflows(self) -> Iterator[Test]:
        for underflow in self.element.underflows():
            yield any_element(itself, underflow)


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

    def underflows(self) -> Iterator[Test]:
        for underflow in self.value.underflows():
            yield any_element(values_of, underflow)


Node = Scalar | Object | Array | Map


def _is_no_single_moment(text: Sql, moment: Sql) -> Sql:
    """Whether a local time is skipped, or comes twice, when the clocks of the time zone change.

    Spark moves a skipped time, and takes the first of two. Where the session's time zone is UTC, as
    in sessions of this package, Spark finds that when it plans, and asks nothing of any record.
    """
    local = f"CAST({moment} AS TIMESTAMP_NTZ)"
    # By how much the clocks are set back in the next hours, if they are: then a second moment has
    # the same local time so much later.
    set_back = f"({local} + {_SOON} - CAST({moment} + {_SOON} AS TIMESTAMP_NTZ))"
    twice = (
        f"({set_back} > INTERVAL '0' SECOND"
        f" AND CAST({moment} + {set_back} AS TIMESTAMP_NTZ) = {local})"
    )
    skipped = f"TRY_CAST({text} AS TIMESTAMP_NTZ) != {local}"
    return (
        f"(current_timezone() NOT IN ({', '.join(map(literal, WITHOUT_CHANGES))})"
        f" AND {text} IS NOT NULL AND NOT {text} RLIKE {literal(_OFFSET)}"
        f" AND coalesce({skipped} OR {twice}, FALSE))"
    )
