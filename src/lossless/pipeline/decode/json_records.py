"""JSON records to rows: one parse for a good record, a second one only for a doubtful one.

    parsed    from_json of `{"rows":[VALUE],"end":true}`, once per record
    suspect   false for a record that is good beyond doubt: the only thing all records pay for
    error     of a suspect: null after all, or name and message
    outcome   struct<row, letter>

What suspects need is interpreted by Spark rather than compiled to Java: compiled, the messages of a
few dozen rules exceed the 64 KB that a Java method can have, and few records need them.

Why the envelope: `from_json` stops at the end of the first JSON value and never reads what follows
it. Inside the envelope whatever follows the value either breaks the syntax, is another element of
`rows`, or hides `end`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from operator import or_
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
from lossless.pipeline.decode.tree import Object
from lossless.pipeline.outcomes import DEAD_LETTER, DEAD_LETTER_TYPE, PROVENANCE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PARSED = "_lossless_parsed"

# Jackson would let these pass; JSON does not have them.
OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "corrupt",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonDecoder:
    tree: Object
    group: str
    patterns: tuple[tuple[str, str], ...] = ()  # (place in the schema, regular expression)

    @property
    def schema(self) -> T.StructType:
        return self.tree.type

    def decode(self, records: DataFrame) -> DataFrame:
        check_patterns(records.sparkSession, self.patterns)
        text = F.col("value").cast("string")
        parsed = F.from_json(_envelope(text), self._parsed_type(), OPTIONS)
        # The two selects stay apart in the plan, because the second one uses `parsed` repeatedly.
        return (
            records.withColumn(PARSED, parsed)
            .select(provenance(), self._outcome(text, F.col(PARSED)).alias("outcome"))
            .select(PROVENANCE, "outcome.row", F.col("outcome.letter").alias(DEAD_LETTER))
        )

    def _outcome(self, text: Column, parsed: Column) -> Column:
        row = self.tree.converted(_row(parsed))
        # The partition id is never negative. It is there because Spark does not move filters past
        # what it takes for non-deterministic: a filter of the user's would otherwise bring a
        # second from_json with it.
        is_good = (F.spark_partition_id() >= 0) & ~self._is_suspect(text, parsed)
        return F.when(
            is_good, F.struct(row.alias("row"), F.lit(None).cast(DEAD_LETTER_TYPE).alias("letter"))
        ).otherwise(
            _let(
                self._error(text, parsed),
                lambda error: F.struct(
                    F.when(error.isNull(), row).alias("row"),
                    F.when(
                        error.isNotNull(),
                        dead_letter(fqcn=error["fqcn"], message=error["message"], group=self.group),
                    ).alias("letter"),
                ),
            )
        )

    def _parsed_type(self) -> T.StructType:
        return T.StructType(
            [
                T.StructField("rows", T.ArrayType(self.tree.reads)),
                T.StructField("end", T.BooleanType()),
                T.StructField("corrupt", T.StringType()),
            ]
        )

    def _is_suspect(self, text: Column, parsed: Column) -> Column:
        """What every record pays for. False for a record that is good beyond doubt."""
        row = _row(parsed)
        suspicions = [
            text.isNull(),
            ~F.is_valid_utf8(text),
            _is_corrupt(parsed),
            F.size(parsed["rows"]) > 1,
            parsed["end"].isNull(),
            row.isNull(),
            *(rule.broken(row) for rule in self.tree.rules()),
            *(doubt(row) for doubt in self.tree.doubts()),
        ]
        # Of a column that is null most rules are null: neither broken nor kept.
        return F.coalesce(_any(suspicions), F.lit(False))

    def _error(self, text: Column, parsed: Column) -> Column:
        """Null after all, or the name and the message of the error."""
        row, corrupt = _row(parsed), _is_corrupt(parsed)
        count = F.size(parsed["rows"])
        is_doubtful = _any([corrupt, *(doubt(row) for doubt in self.tree.doubts())])
        return (
            F.when(text.isNull(), _named(NO_VALUE, "no value: the record is a tombstone"))
            .when(~F.is_valid_utf8(text), _named(MALFORMED_JSON, "the value is not UTF-8"))
            .when(count == 0, _named(MALFORMED_JSON, "the value is empty"))
            .when(
                (count > 1) | (parsed["end"].isNull() & ~corrupt),
                _named(MALFORMED_JSON, "something follows the JSON value"),
            )
            .when(
                ~corrupt & row.isNull(),
                _named(SCHEMA_VIOLATION, "the value: null is not an object"),
            )
            .when(is_doubtful, _let(_document(text), lambda d: self._second_look(parsed, d)))
            .otherwise(_named(SCHEMA_VIOLATION, F.concat_ws("; ", self._broken_rules(row))))
        )

    def _second_look(self, parsed: Column, document: Column) -> Column:
        corrupt = _is_corrupt(parsed)
        broken_rules = F.when(~corrupt, self._broken_rules(_row(parsed))).otherwise(F.array())
        messages = F.array_union(broken_rules, broken_facts(document, self.tree.facts()))
        return (
            F.when(
                document.isNull() & parsed["rows"].isNull(),
                _named(MALFORMED_JSON, "the value is not JSON"),
            )
            .when(document.isNull(), _named(MALFORMED_JSON, "an object has the same key twice"))
            .otherwise(
                _let(
                    F.concat_ws("; ", messages),
                    lambda listed: F.when(listed != "", _named(SCHEMA_VIOLATION, listed)).when(
                        corrupt,
                        _named(SCHEMA_VIOLATION, "a value does not have the type of its column"),
                    ),
                )
            )
        )

    def _broken_rules(self, row: Column) -> Column:
        rules = self.tree.rules()
        messages = [F.when(rule.broken(row), rule.message(row)) for rule in rules]
        return F.array(*messages).cast("array<string>")


def _envelope(text: Column) -> Column:
    return F.concat(F.lit('{"rows":['), text, F.lit('],"end":true}'))


def _document(text: Column) -> Column:
    """The value as a variant; null when it is not JSON or repeats a key."""
    return F.try_variant_get(F.try_parse_json(_envelope(text)), "$.rows[0]", "variant")


def _row(parsed: Column) -> Column:
    return F.get(parsed["rows"], F.lit(0))


def _is_corrupt(parsed: Column) -> Column:
    return parsed["corrupt"].isNotNull()


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """`body` of a value that is computed once, both interpreted rather than compiled to Java."""
    return F.get(F.transform(F.array(value), body), F.lit(0))


def _any(tests: Iterable[Column]) -> Column:
    """A balanced tree: a chain of a few hundred would overflow the stack of the optimizer."""
    pending = list(tests)
    while len(pending) > 2:
        pending = [reduce(or_, pending[i : i + 2]) for i in range(0, len(pending), 2)]
    return reduce(or_, pending)


def _named(fqcn: str, message: str | Column) -> Column:
    text = F.lit(message) if isinstance(message, str) else message
    return F.struct(F.lit(fqcn).alias("fqcn"), text.alias("message"))
