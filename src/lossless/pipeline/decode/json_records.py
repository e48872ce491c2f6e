"""JSON records to rows: one parse for a good record, more only for a doubtful one.

    parsed    from_json of the value with a member added before its last brace, once per record
    suspect   false for a record that is good beyond doubt: the only thing all records pay for
    judged    of a suspect: a dead letter, or the row, read again from the texts of its values

Why the member: `from_json` stops at the end of the first JSON value and never reads what follows
it. If the value's last brace does not close its first object, the member is not found in that
object. Where it is missing, or the value is `{}`, the record is a suspect.

A key that is repeated, or that differs from a column's name only in case, is not seen in what was
parsed. It takes a comma, so a record with no more commas than the members that were found need has
no such key. Others are parsed as a variant, which refuses a repeated key.

A double has 15 digits that are always those that were sent, so a number with more makes a suspect.

What suspects need is interpreted by Spark rather than compiled to Java: compiled, the messages of a
few dozen rules exceed the 64 KB that a Java method can have, and few records need them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lossless.pipeline.decode.facts import broken_facts
from lossless.pipeline.decode.hidden import (
    TEXT,
    commas_before,
    has_half_of_a_pair,
    hides_a_key,
    may_hide_a_key,
)
from lossless.pipeline.decode.letters import (
    MALFORMED_JSON,
    NO_VALUE,
    SCHEMA_VIOLATION,
    dead_letter,
)
from lossless.pipeline.decode.patterns import check_patterns
from lossless.pipeline.decode.provenance import provenance
from lossless.pipeline.decode.sql import Sql, any_of, case, let, literal, member, quoted_name
from lossless.pipeline.decode.texts import (
    DEPTH_MAX,
    digit_rules,
    is_one_value,
    needs_texts,
    patched,
    texts,
)
from lossless.pipeline.decode.tree import (
    TEMPORAL,
    Array,
    Field,
    Map,
    Node,
    Object,
    Rule,
    Scalar,
)
from lossless.pipeline.outcomes import DEAD_LETTER, IS_DEAD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARSED = "_lossless_parsed"
DOCUMENT = "_lossless_document"
COMMAS = "_lossless_commas"
JUDGED = "_lossless_judged"
CORRUPT = "_lossless_corrupt"
# Short, because every record pays for it; odd and random, so that it is nobody's own member.
END = f"~{secrets.token_urlsafe(3)}"
LAST_MEMBER = f'"{END}":0}}'
SOURCE = ("key", "value", "headers", "topic", "topic_id", "partition", "offset", "timestamp")

# Jackson would let these pass; JSON does not have them.
OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}

# Limits of the parser besides: those on numbers and texts can be lifted, the others cannot.
UNLIMITED = {"maxNumLen": str(2**31 - 1), "maxStringLen": str(2**31 - 1)}
KEY_LENGTH_MAX = 50_000
PARSER_DEPTH_MAX = 1_000
NOT_JSON = "the value is not JSON"
NOT_JSON_OR_DEEP = f"{NOT_JSON}, or it is nested more than 1,000 levels deep"
NOT_JSON_OR_LONG_KEY = f"{NOT_JSON_OR_DEEP}, or a key in it is longer than 50,000 characters"
TOO_LONG = "a number has more than 1,000 digits, or a text more than 20,000,000 characters"

# Up to here a double has the digits that were sent.
DIGITS_MAX = 15
EXPONENT = literal("[0-9][eE]-[0-9]*[1-9][0-9][0-9]")  # large enough for a double to become zero
WHITESPACE = literal(" " + chr(9) + chr(10) + chr(13))
STRIPPED = f"rtrim({WHITESPACE}, {TEXT})"


def _with_end(value: Sql) -> Sql:
    # Bytes, because the length of a text, and the cut, are counted in characters, one by one.
    end = f"CAST(',{LAST_MEMBER}' AS BINARY)"
    return f"CAST(overlay({value} PLACING {end} FROM octet_length({value})) AS STRING)"


# Null when it cannot be an object.
WITH_END = case(
    (f"endswith({TEXT}, '}}')", _with_end("value")),
    (f"endswith({STRIPPED}, '}}')", _with_end(f"CAST({STRIPPED} AS BINARY)")),
)


@dataclass(frozen=True, kw_only=True)
class JsonDecoder:
    tree: Object
    group: str
    patterns: tuple[tuple[str, str], ...] = ()  # (place in the schema, regular expression)

    @property
    def schema(self) -> T.StructType:
        return self.tree.type

    def decode(self, records: DataFrame) -> DataFrame:
        check_patterns(records.sparkSession, self.patterns)
        options = OPTIONS | ({"maxNumLen": str(DIGITS_MAX)} if has_digits(self.tree) else {})
        parsed = F.from_json(F.col(DOCUMENT), self._parsed_type, options)
        commas = F.expr(commas_before(LAST_MEMBER, DOCUMENT))
        judged = F.expr(case((self._is_suspect(), self._judged)))
        converted = [F.expr(f"{one} AS {name}") for name, one in self._converted.values()]
        # Spark does not merge the selects, because what one computes the next uses repeatedly.
        return (
            records.select(*SOURCE, F.expr(WITH_END).alias(DOCUMENT))
            .select(*SOURCE, parsed.alias(PARSED), commas.alias(COMMAS))
            .select(*SOURCE, PARSED, *converted, judged.alias(JUDGED))
            .select(
                *map(F.expr, self._columns),
                F.expr(provenance()),
                F.expr(f"{JUDGED}.letter AS {DEAD_LETTER}"),
                F.expr(f"{JUDGED}.letter IS NOT NULL AS {IS_DEAD}"),
            )
        )

    @property
    def _parsed_type(self) -> T.StructType:
        return T.StructType(
            [
                *self.tree.reads.fields,
                T.StructField(END, T.ByteType()),
                T.StructField(CORRUPT, T.StringType()),
            ]
        )

    @cached_property
    def _converted(self) -> dict[str, tuple[str, Sql]]:
        """Dates and timestamps: the name of the column with the converted value, and its SQL.

        The rule about them needs the same conversion, which Spark evaluates once for one select.
        Decimals are not among them: their rule decides whether a conversion may be tried at all.
        """
        return {
            column.name: (
                f"_lossless_converted_{number}",
                column.node.converted(member(PARSED, column.name)),
            )
            for number, column in enumerate(self.tree.fields)
            if isinstance(column.node, Scalar) and isinstance(column.node.type, TEMPORAL)
        }

    @cached_property
    def _columns(self) -> list[Sql]:
        return [f"{self._column(field)} AS {quoted_name(field.name)}" for field in self.tree.fields]

    def _column(self, field: Field) -> Sql:
        parsed, judged = member(PARSED, field.name), member(f"{JUDGED}.row", field.name)
        if field.name not in self._converted:
            return field.node.converted(f"IF({JUDGED} IS NULL, {parsed}, {judged})")
        name, _ = self._converted[field.name]
        return f"IF({JUDGED} IS NULL, {name}, {field.node.converted(judged)})"

    def _is_suspect(self) -> Sql:
        """What every record pays for. False for a record that is good beyond doubt."""
        suspicions = [
            f"{PARSED}.{CORRUPT} IS NOT NULL",
            f"{member(PARSED, END)} IS NULL",
            *(rule.broken(PARSED) for rule in self.tree.rules()),
            *(doubt(PARSED) for doubt in self.tree.doubts()),
            f"({may_hide_a_key(self.tree, PARSED, COMMAS)} AND {hides_a_key(self.tree)})",
        ]
        if underflows := [underflow(PARSED) for underflow in self.tree.underflows()]:
            suspicions.append(f"({any_of(underflows)} AND {TEXT} RLIKE {EXPONENT})")
        # Of a column that is null most rules are null: neither broken nor kept.
        return f"coalesce({any_of(suspicions)}, FALSE)"

    @cached_property
    def _judged(self) -> Sql:
        fields = ", ".join(f"'{name}', {name}" for name in SOURCE)
        return let(f"named_struct({fields})", self._judgement_of)

    def _judgement_of(self, record: Sql) -> Sql:
        def judgement(verdict: Sql) -> Sql:
            letter = dead_letter(
                record, fqcn=f"{verdict}.fqcn", message=f"{verdict}.message", group=self.group
            )
            has_failed = f"{verdict}.fqcn IS NOT NULL"
            return f"named_struct('letter', {case((has_failed, letter))}, 'row', {verdict}.row)"

        verdict = let(f"CAST({record}.value AS STRING)", lambda text: self._verdict(record, text))
        return let(verdict, judgement)

    def _verdict(self, record: Sql, text: Sql) -> Sql:
        """The name and the message of the error, or the row."""
        document = f"try_parse_json({text})"
        return case(
            (
                f"{record}.value IS NULL",
                _failed(NO_VALUE, "no value: the record is a tombstone"),
            ),
            (f"NOT is_valid_utf8({text})", _failed(MALFORMED_JSON, "the value is not UTF-8")),
            (f"trim({WHITESPACE}, {text}) = ''", _failed(MALFORMED_JSON, "the value is empty")),
            otherwise=let(document, lambda variant: self._verdict_on(text, variant)),
        )

    def _verdict_on(self, text: Sql, document: Sql) -> Sql:
        """`document` is the text as a variant; null when it is not JSON or repeats a key."""

        def parsed(options: Mapping[str, str]) -> Sql:
            return f"from_json(concat('[', {text}, ']'), 'array<string>', {_options(options)})"

        is_json = parsed(OPTIONS | UNLIMITED)
        return case(
            (
                f"{document} IS NULL AND {is_json} IS NULL",
                _failed_with(
                    MALFORMED_JSON,
                    case(
                        (f"char_length({text}) > {KEY_LENGTH_MAX}", literal(NOT_JSON_OR_LONG_KEY)),
                        (f"char_length({text}) > {PARSER_DEPTH_MAX}", literal(NOT_JSON_OR_DEEP)),
                        otherwise=literal(NOT_JSON),
                    ),
                ),
            ),
            (
                f"NOT {is_one_value(text)}",
                _failed(
                    MALFORMED_JSON,
                    "something follows the JSON value, or it is nested more than "
                    f"{DEPTH_MAX} levels deep",
                ),
            ),
            (
                f"{document} IS NULL AND {parsed(OPTIONS)} IS NULL",
                _failed(MALFORMED_JSON, TOO_LONG),
            ),
            (
                f"{document} IS NULL",
                _failed(MALFORMED_JSON, "an object has the same key twice"),
            ),
            (
                has_half_of_a_pair(text),
                _failed(
                    MALFORMED_JSON,
                    "a text has half of a surrogate pair, which is not a character",
                ),
            ),
            (
                f"is_variant_null({document})",
                _failed(SCHEMA_VIOLATION, "the value: null is not an object"),
            ),
            otherwise=let(self._reading(text), lambda r: self._verdict_on_row(r, document)),
        )

    def _reading(self, text: Sql) -> Sql:
        """The value read once more, whatever its numbers look like, and the texts in it."""
        schema = T.StructType([*self.tree.reads.fields, T.StructField(CORRUPT, T.StringType())])
        parsed = f"from_json({text}, {literal(schema.json())}, {_options(OPTIONS)})"
        found = texts(self.tree, text) if needs_texts(self.tree) else "NULL"
        return f"named_struct('parsed', {parsed}, 'texts', {found})"

    def _verdict_on_row(self, reading: Sql, document: Sql) -> Sql:
        tree, corrupt = self.tree, f"{reading}.parsed.{CORRUPT} IS NOT NULL"
        row = f"{reading}.parsed"
        if needs_texts(tree):
            row = patched(tree, row, f"{reading}.texts")
        of_digits = _broken(digit_rules(tree), f"{reading}.texts")

        def verdict(row: Sql) -> Sql:
            of_values = f"IF({corrupt}, array(), {_broken(tree.rules(), row)})"
            of_document = broken_facts(document, tree.facts())
            messages = f"array_union(array_union({of_values}, {of_document}), {of_digits})"
            return let(f"concat_ws('; ', {messages})", lambda said: outcome(said, row))

        def outcome(said: Sql, row: Sql) -> Sql:
            return case(
                (f"{said} != ''", _failed_with(SCHEMA_VIOLATION, said)),
                (
                    corrupt,
                    _failed(SCHEMA_VIOLATION, "a value does not have the type of its column"),
                ),
                otherwise=f"named_struct('fqcn', CAST(NULL AS STRING),"
                f" 'message', CAST(NULL AS STRING), 'row', {row})",
            )

        return let(row, verdict)


def has_digits(node: Node) -> bool:
    """Whether a number with many digits may be another one once it is read."""
    match node:
        case Scalar():
            return needs_texts(node) and not node.is_loose
        case Object():
            return any(has_digits(field.node) for field in node.fields)
        case Array():
            return has_digits(node.element)
        case Map():
            return has_digits(node.value)


def _broken(rules: Iterable[Rule], value: Sql) -> Sql:
    messages = [case((rule.broken(value), rule.message(value))) for rule in rules]
    return f"CAST(array({', '.join(messages)}) AS ARRAY<STRING>)"


def _failed(fqcn: str, message: str) -> Sql:
    return _failed_with(fqcn, literal(message))


def _failed_with(fqcn: str, message: Sql) -> Sql:
    return f"named_struct('fqcn', '{fqcn}', 'message', {message}, 'row', NULL)"


def _options(options: Mapping[str, str]) -> Sql:
    return "map(" + ", ".join(f"'{key}', '{value}'" for key, value in options.items()) + ")"
