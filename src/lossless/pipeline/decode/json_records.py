"""JSON records to rows: one parse for a good record, more only for a doubtful one.

    parsed    from_json of the value with a member added before its last brace, once per record
    suspect   false for a record that is good beyond doubt: the only thing all records pay for
    letter    of a suspect: null if it is good after all

Why the member: `from_json` stops at the end of the first JSON value and never reads what follows
it. If the value's last brace does not close its first object, the member is not found in that
object. Where it is missing, or the value is `{}`, the suspect is parsed again inside an envelope,
`{"rows":[VALUE],"end":true}`, which tells what is wrong: whatever follows the value either breaks
the syntax, is another element of `rows`, or hides `end`.

What suspects need is interpreted by Spark rather than compiled to Java: compiled, the messages of a
few dozen rules exceed the 64 KB that a Java method can have, and few records need them.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lossless.pipeline.decode.facts import broken_facts
from lossless.pipeline.decode.letters import (
    MALFORMED_JSON,
    NO_VALUE,
    SCHEMA_VIOLATION,
    dead_letter,
)
from lossless.pipeline.decode.patterns import check_patterns
from lossless.pipeline.decode.provenance import provenance
from lossless.pipeline.decode.sql import Sql, any_of, case, let, literal, member, quoted_name
from lossless.pipeline.decode.tree import Object
from lossless.pipeline.outcomes import DEAD_LETTER, IS_DEAD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARSED = "_lossless_parsed"
CORRUPT = "_lossless_corrupt"
# Short, because every record pays for it; odd and random, so that it is nobody's own member.
END = f"~{secrets.token_urlsafe(3)}"
SOURCE = ("key", "value", "headers", "topic", "topic_id", "partition", "offset", "timestamp")

# Jackson would let these pass; JSON does not have them.
OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}

TEXT = "CAST(value AS STRING)"
STRIPPED = f"rtrim({literal(' ' + chr(9) + chr(10) + chr(13))}, {TEXT})"


def _with_end(value: Sql) -> Sql:
    # Bytes, because the length of a text, and the cut, are counted in characters, one by one.
    end = f"CAST(',\"{END}\":0}}' AS BINARY)"
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
        parsed = F.from_json(F.expr(WITH_END), self._parsed_type, OPTIONS)
        letter = F.expr(self._letter)
        # In one select Spark computes the letter once. It does not merge the two, because what the
        # first computes the second uses repeatedly.
        return records.select(*SOURCE, parsed.alias(PARSED)).select(
            *map(F.expr, self._columns),
            F.expr(provenance()),
            letter.alias(DEAD_LETTER),
            letter.isNotNull().alias(IS_DEAD),
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
    def _columns(self) -> list[Sql]:
        return [
            f"{column.node.converted(member(PARSED, column.name))} AS {quoted_name(column.name)}"
            for column in self.tree.fields
        ]

    @cached_property
    def _letter(self) -> Sql:
        """Null for a good record: one beyond doubt, or a suspect that is good after all."""
        fields = ", ".join(f"'{name}', {name}" for name in SOURCE)
        letter = let(f"named_struct({fields})", self._letter_of)
        return case((self._is_suspect(), letter))

    def _letter_of(self, record: Sql) -> Sql:
        return let(
            self._error(record),
            lambda error: case(
                (
                    f"{error} IS NOT NULL",
                    dead_letter(
                        record,
                        fqcn=f"{error}.fqcn",
                        message=f"{error}.message",
                        group=self.group,
                    ),
                )
            ),
        )

    def _is_suspect(self) -> Sql:
        """What every record pays for. False for a record that is good beyond doubt."""
        suspicions = [
            f"{PARSED}.{CORRUPT} IS NOT NULL",
            f"{member(PARSED, END)} IS NULL",
            *(rule.broken(PARSED) for rule in self.tree.rules()),
            *(doubt(PARSED) for doubt in self.tree.doubts()),
        ]
        # Of a column that is null most rules are null: neither broken nor kept.
        return f"coalesce({any_of(suspicions)}, FALSE)"

    def _error(self, record: Sql) -> Sql:
        """Null after all, or the name and the message of the error."""
        schema = T.StructType(
            [
                T.StructField("rows", T.ArrayType(self.tree.reads)),
                T.StructField("end", T.BooleanType()),
                T.StructField(CORRUPT, T.StringType()),
            ]
        )
        options = ", ".join(f"'{key}', '{value}'" for key, value in OPTIONS.items())
        text = f"CAST({record}.value AS STRING)"
        enclosed = f"concat('{{\"rows\":[', {text}, '],\"end\":true}}')"
        parsed = f"from_json({enclosed}, {literal(schema.json())}, map({options}))"
        document = f"try_variant_get(try_parse_json({enclosed}), '$.rows[0]', 'variant')"
        return case(
            (f"{record}.value IS NULL", _named(NO_VALUE, "no value: the record is a tombstone")),
            (f"NOT is_valid_utf8({text})", _named(MALFORMED_JSON, "the value is not UTF-8")),
            otherwise=let(parsed, lambda envelope: self._error_in(envelope, document)),
        )

    def _error_in(self, envelope: Sql, document: Sql) -> Sql:
        """`document` is the value as a variant; null when it is not JSON or repeats a key."""
        row, corrupt = f"get({envelope}.rows, 0)", f"{envelope}.{CORRUPT} IS NOT NULL"
        count = f"size({envelope}.rows)"
        is_doubtful = any_of([corrupt, *(doubt(row) for doubt in self.tree.doubts())])
        return case(
            (f"{count} = 0", _named(MALFORMED_JSON, "the value is empty")),
            (
                f"{count} > 1 OR ({envelope}.end IS NULL AND NOT {corrupt})",
                _named(MALFORMED_JSON, "something follows the JSON value"),
            ),
            (
                f"NOT {corrupt} AND {row} IS NULL",
                _named(SCHEMA_VIOLATION, "the value: null is not an object"),
            ),
            (is_doubtful, let(document, lambda d: self._second_look(envelope, d))),
            otherwise=_violation(self._broken_rules(row)),
        )

    def _second_look(self, envelope: Sql, document: Sql) -> Sql:
        row, corrupt = f"get({envelope}.rows, 0)", f"{envelope}.{CORRUPT} IS NOT NULL"
        broken_rules = f"IF({corrupt}, array(), {self._broken_rules(row)})"
        messages = f"array_union({broken_rules}, {broken_facts(document, self.tree.facts())})"
        return case(
            (
                f"{document} IS NULL AND {envelope}.rows IS NULL",
                _named(MALFORMED_JSON, "the value is not JSON"),
            ),
            (
                f"{document} IS NULL",
                _named(MALFORMED_JSON, "an object has the same key twice"),
            ),
            otherwise=_violation(
                messages,
                otherwise=case(
                    (
                        corrupt,
                        _named(SCHEMA_VIOLATION, "a value does not have the type of its column"),
                    )
                ),
            ),
        )

    def _broken_rules(self, row: Sql) -> Sql:
        messages = [case((rule.broken(row), rule.message(row))) for rule in self.tree.rules()]
        return f"CAST(array({', '.join(messages)}) AS ARRAY<STRING>)"


def _violation(messages: Sql, otherwise: Sql = "NULL") -> Sql:
    """Of an array of messages, null where a rule is kept."""
    return let(
        f"concat_ws('; ', {messages})",
        lambda listed: case(
            (f"{listed} != ''", f"named_struct('fqcn', '{SCHEMA_VIOLATION}', 'message', {listed})"),
            otherwise=otherwise,
        ),
    )


def _named(fqcn: str, message: str) -> Sql:
    return f"named_struct('fqcn', '{fqcn}', 'message', '{message}')"
