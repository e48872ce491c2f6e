"""A value arrives exactly as it was sent, or its record becomes a dead letter."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka_records import decoded, records, schema_file, verdict, verdicts
from pyspark.sql import types as T
from values_document import PAGE, render

from lossless.errors import BadInput
from lossless.pipeline.decode import decoder
from lossless.pipeline.decode.ddl import parse_ddl
from lossless.pipeline.outcomes import IS_DEAD, PROVENANCE
from lossless.pipeline.session import setting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = """
    id BIGINT, price DECIMAL(10,2), wide DECIMAL(38,20), ratio DOUBLE, short FLOAT, note STRING,
    at TIMESTAMP, local TIMESTAMP_NTZ, bytes BINARY, address STRUCT<city: STRING, area: DOUBLE>,
    lines ARRAY<STRUCT<sku: STRING, price: DECIMAL(10,2), weight: DOUBLE>>,
    labels MAP<STRING, STRING>, prices MAP<STRING, DECIMAL(5,1)>
"""
TWICE = "MalformedJson: an object has the same key twice"
FOLLOWS = (
    "MalformedJson: something follows the JSON value, or it is nested more than 50 levels deep"
)
HALF = "MalformedJson: a text has half of a surrogate pair, which is not a character"
CASE = "differs from the name of a column only in case"
LONG_BASE64 = base64.b64encode(bytes(range(200))).decode()
DEEP = "[" * 60 + "]" * 60


def not_decimal(text: str) -> str:
    return f"SchemaViolation: price: {text} is not of type decimal(10,2)"


def digits(path: str, text: str, kind: str) -> str:
    return f"SchemaViolation: {path}: {text} has more digits than type {kind} keeps"


CASES: dict[str, dict[str, Any] | str] = {
    # Decimals, as numbers and as text.
    '{"price":"1,50"}': not_decimal("1,50"),
    '{"price":"1.234,56"}': not_decimal("1.234,56"),
    '{"price":"+1.5"}': not_decimal("+1.5"),
    '{"price":"007"}': not_decimal("007"),
    '{"price":true}': not_decimal("true"),
    '{"price":{"a": 1}}': not_decimal('{"a": 1}'),
    '{"price":1e5000000}': not_decimal("1e5000000"),
    '{"price":"1e5000000"}': not_decimal("1e5000000"),
    '{"price":"1e-5000000"}': not_decimal("1e-5000000"),
    '{"price":1e-400}': not_decimal("1e-400"),
    '{"price":100000000}': not_decimal("100000000"),
    '{"price":10.005}': digits("price", "10.005", "decimal(10,2)"),
    '{"price":"10.005"}': digits("price", "10.005", "decimal(10,2)"),
    '{"price":99999999.990000000000000000001}': digits(
        "price", "99999999.990000000000000000001", "decimal(10,2)"
    ),
    '{"price":99999999.990000000000000000000}': {"price": Decimal("99999999.99")},
    '{"price":12345678.9}': {"price": Decimal("12345678.9")},
    '{"price":1e2}': {"price": Decimal(100)},
    '{"price":0.0000}': {"price": Decimal(0)},
    # A cast gives NULL for these.
    '{"price":"0e99"}': {"price": Decimal(0)},
    '{"price":"-0.00E+40"}': {"price": Decimal(0)},
    '{"price":0e99,"note":1.0}': {"price": Decimal(0), "note": "1.0"},
    '{"price":"0e-99"}': {"price": Decimal(0)},
    '{"price":"0e100"}': not_decimal("0e100"),
    '{"prices":{"a":"0e99"},"lines":[{"price":"0E39"}]}': {
        "prices": {"a": Decimal(0)},
        "lines": [{"sku": None, "price": Decimal(0), "weight": None}],
    },
    '{"price":"-0.01"}': {"price": Decimal("-0.01")},
    '{"wide":123456789012345678.12345678901234567890}': {
        "wide": Decimal("123456789012345678.1234567890123456789")
    },
    # Java before 19 writes this number as 6.1633791801546998E18.
    '{"wide":6.1633791801547E+17}': {"wide": Decimal("616337918015470000")},
    # Doubles.
    '{"ratio":0.30000000000000004}': {"ratio": 0.30000000000000004},
    '{"ratio":0.10000000000000000000}': {"ratio": 0.1},
    '{"ratio":0.10000000000000001}': digits("ratio", "0.10000000000000001", "double"),
    '{"ratio":12345678901234567890}': digits("ratio", "12345678901234567890", "double"),
    '{"ratio":9007199254740992}': {"ratio": 2.0**53},
    '{"ratio":9007199254740993}': digits("ratio", "9007199254740993", "double"),
    '{"ratio":1e-400}': digits("ratio", "1e-400", "double"),
    '{"ratio":0e-400}': {"ratio": 0.0},
    '{"ratio":5e-324}': {"ratio": 5e-324},
    '{"id":1767323045678901234,"ratio":0.5}': {"id": 1767323045678901234, "ratio": 0.5},
    '{"short":16777216}': {"short": 2.0**24},
    '{"short":16777217}': digits("short", "16777217", "float"),
    # A string column keeps other values as they were written.
    '{"note":12345678901234567890123.10}': {"note": "12345678901234567890123.10"},
    '{"note":{"a":1.10}}': {"note": '{"a":1.10}'},
    r'{"note": { "a" : 1.10 , "b":[2e5,{"c":"\u00e9\/"}] }}': {
        "note": r'{ "a" : 1.10 , "b":[2e5,{"c":"\u00e9\/"}] }'
    },
    '{"note":-0}': {"note": "-0"},
    '{"note":1e400}': {"note": "1e400"},
    r'{"note":"\"Infinity\""}': {"note": '"Infinity"'},
    '{"note":"1.50"}': {"note": "1.50"},
    '{"note":' + DEEP + "}": FOLLOWS,
    '{"labels":{"a":"x","b":1.0,"c":{"d": 1.0},"e\\"":null}}': {
        "labels": {"a": "x", "b": "1.0", "c": '{"d": 1.0}', 'e"': None}
    },
    # Halves of surrogate pairs.
    r'{"note":"\ud800"}': HALF,
    r'{"note":"\\\udc00"}': HALF,
    r'{"note":"\\ud83d\ude00"}': HALF,
    r'{"note":"\ud83d\ude00"}': {"note": "\U0001f600"},
    r'{"note":"\\ud800"}': {"note": r"\ud800"},
    r'{"labels":{"\ud800":"x"}}': HALF,
    # Times.
    '{"local":"2026-01-02T03:04:05+05:00"}': (
        "SchemaViolation: local: 2026-01-02T03:04:05+05:00 is not of type timestamp_ntz"
    ),
    '{"at":"2026-01-02T03:04:05.123456789Z"}': (
        "SchemaViolation: at: 2026-01-02T03:04:05.123456789Z is not of type timestamp"
    ),
    '{"local":"2026-01-02T03:04:05.123456000"}': {"local": datetime(2026, 1, 2, 3, 4, 5, 123456)},
    # Names.
    '{"Price":5}': f"SchemaViolation: the value: Price {CASE}",
    '{"price":1,"Price":5}': f"SchemaViolation: the value: Price {CASE}",
    '{"address":{"city":"Ulm","City":"x"}}': f"SchemaViolation: address: City {CASE}",
    '{"lines":[{"SKU":"x"}]}': f"SchemaViolation: lines[]: SKU {CASE}",
    r'{"\u0050rice":5}': f"SchemaViolation: the value: Price {CASE}",
    r'{"\u0069d":2}': {"id": 2},
    '{"id":1,"id":2}': TWICE,
    r'{"id":1,"\u0069d":2}': TWICE,
    '{"id" :1, "id" :1}': TWICE,
    '{"at":"2026-01-02T03:04:05Z","at":null}': TWICE,
    '{"labels":{"a":"1","a":"2"}}': TWICE,
    '{"note":{"a":1,"a":2}}': TWICE,
    '{"unknown":[{"a":1,"a":2}]}': TWICE,
    '{"id":1,"note":"a:b","unknown":1,"price":null}': {"id": 1, "note": "a:b"},
    # Bytes.
    '{"bytes":"AQ=="}': {"bytes": b"\x01"},
    f'{{"bytes":"{LONG_BASE64}"}}': {"bytes": bytes(range(200))},
    '{"bytes":"AR=="}': "SchemaViolation: bytes: AR== is not base64",
    '{"bytes":"1234"}': {"bytes": b"\xd7m\xf8"},
    '{"bytes":1234}': "SchemaViolation: bytes: 1234 is not of type binary",
    # What follows the value.
    '{"id":1}],"x":[{}': FOLLOWS,
    '{"id":1}],"rows":[{"id":2}': FOLLOWS,
    '{"id":1}{"id":2}': FOLLOWS,
    '{"id":1} \x0b': FOLLOWS,
    ' \t{"id":1}\r\n ': {"id": 1},
    # What is nested.
    '{"lines":[{"sku":{"x":1.0},"price":"2.25","weight":0.1},null]}': {
        "lines": [{"sku": '{"x":1.0}', "price": Decimal("2.25"), "weight": 0.1}, None]
    },
    '{"lines":[{"price":1.5},{"price":12.345}]}': (
        "SchemaViolation: lines[].price: an element has more digits than type decimal(10,2) keeps"
    ),
    '{"lines":[{"weight":0.12345678901234567890}]}': (
        "SchemaViolation: lines[].weight: an element has more digits than type double keeps"
    ),
    '{"address":{"city":"Ulm","area":1.234567890123456789}}': digits(
        "address.area", "1.234567890123456789", "double"
    ),
    '{"prices":{"a":1.0,"b":"2.5","c":null}}': {
        "prices": {"a": Decimal(1), "b": Decimal("2.5"), "c": None}
    },
    '{"prices":{"a":1.05}}': (
        "SchemaViolation: prices[]: an element has more digits than type decimal(5,1) keeps"
    ),
}


def test_no_value_is_changed_in_silence(spark: SparkSession) -> None:
    found = verdicts(spark, decoder("json", COLUMNS), list(CASES))
    assert dict(zip(CASES, found, strict=True)) == CASES


def test_a_long_text_does_not_stall_a_batch(spark: SparkSession) -> None:
    """Searches that read the rest of a text again from each of its characters take hours here."""
    lines, digits = (76 * "x" + "\n") * 100_000, "1" + 3_000_000 * "0" + "1"
    found = verdicts(
        spark,
        decoder("json", "note STRING, ratio DOUBLE"),
        [json.dumps({"note": lines}), json.dumps({"ratio": digits})],
    )
    assert found[0] == {"note": lines}
    assert 'ratio: "1000' in found[1]


MEGABYTE = 2**20
LONG_DOCUMENTS = {
    "backslashes": json.dumps({"note": {"a": "\\" * (MEGABYTE // 2)}}),
    "quotes": json.dumps({"note": {"a": '"' * (MEGABYTE // 2)}}),
    "escaped characters": '{"note":{"a":"' + r"\u00e4" * (MEGABYTE // 6) + '"}}',
    "a key with escapes": '{"note":{"' + r"\n" * 20_000 + '":1}}',  # Spark takes 50,000
    "many elements": json.dumps({"note": [1.5] * (MEGABYTE // 5)}),
    "many members": json.dumps({"note": {f"k{n}": n for n in range(MEGABYTE // 14)}}),
    "many empty objects": json.dumps({"note": [{}] * (MEGABYTE // 4)}),
    "white space": '{"note":{"a":' + " " * MEGABYTE + "1}}",
}


@pytest.mark.parametrize("shape", LONG_DOCUMENTS)
def test_a_long_document_kept_as_text_does_not_stall_a_batch(
    spark: SparkSession, shape: str
) -> None:
    text = LONG_DOCUMENTS[shape]
    (found,) = verdicts(spark, decoder("json", "note STRING"), [text])
    assert found == {"note": text.removeprefix('{"note":').removeprefix(" ")[:-1]}


def test_limits_of_the_parser_are_named(spark: SparkSession) -> None:
    values = [
        '{"note":"' + 21_000_000 * "x" + '"}',
        '{"note":1' + 2000 * "0" + "}",
        '{"' + 60_000 * "k" + '":1}',
        "{",
    ]
    too_long = "a number has more than 1,000 digits, or a text more than 20,000,000 characters"
    assert verdicts(spark, decoder("json", "note STRING"), values) == [
        f"MalformedJson: {too_long}",
        f"MalformedJson: {too_long}",
        (
            "MalformedJson: the value is not JSON, or it is nested more than 1,000 levels deep,"
            " or a key in it is longer than 50,000 characters"
        ),
        "MalformedJson: the value is not JSON",
    ]


def test_a_great_many_keys_do_not_stall_a_batch(spark: SparkSession) -> None:
    """Time that grows with the square of the keys is many minutes here."""
    keys = [f"k{number}" for number in range(150_000)]
    labels = dict.fromkeys(keys, 1.0)
    nested = {key: {"a": [1.0]} for key in keys[:30_000]}
    objects = [{key: 1.0} for key in keys[:60_000]]
    outcomes = decoded(
        spark,
        decoder(
            "json",
            "labels MAP<STRING, STRING>, nested MAP<STRING, MAP<STRING, ARRAY<STRING>>>,"
            " objects ARRAY<MAP<STRING, STRING>>, note STRING",
        ),
        [
            json.dumps({"labels": labels}),
            json.dumps({"nested": nested}),
            json.dumps({"objects": objects}),
            json.dumps({"note": objects}),
        ],
    )
    assert outcomes[0]["labels"] == dict.fromkeys(labels, "1.0")
    assert outcomes[1]["nested"] == {key: {"a": ["1.0"]} for key in nested}
    assert outcomes[2]["objects"] == [{key: "1.0"} for (key,) in objects]
    assert outcomes[3]["note"] == json.dumps(objects)


def test_amounts_of_json_schema_are_decimals(spark: SparkSession, tmp_path: Path) -> None:
    schema = {
        "properties": {
            "amount": {"type": "number", "multipleOf": 0.01, "minimum": 0.1, "maximum": 1e6},
            "rate": {"type": ["number", "null"], "multipleOf": 0.0000000001},
            "step": {"type": "number", "multipleOf": 0.05, "enum": [0.05, 0.1]},
            "tax": {"type": "number", "multipleOf": 0.01, "round": "half-even"},
        }
    }
    made = decoder("json", schema_file(tmp_path, schema))
    assert {field.name: field.dataType.simpleString() for field in made.schema.fields} == {
        "amount": "decimal(18,2)",
        "rate": "decimal(38,10)",
        "step": "decimal(18,2)",
        "tax": "decimal(18,2)",
    }
    expected: Mapping[str, object] = {
        '{"amount":1.1}': {"amount": Decimal("1.10")},
        '{"amount":0.10}': {"amount": Decimal("0.10")},
        '{"amount":0.09}': "SchemaViolation: amount: 0.09 is below the minimum 0.1",
        '{"amount":1000000.01}': (
            "SchemaViolation: amount: 1000000.01 is above the maximum 1000000.0"
        ),
        '{"amount":10.005}': digits("amount", "10.005", "decimal(18,2)"),
        '{"amount":1e-5000000}': (
            "SchemaViolation: amount: 1e-5000000 is not of type decimal(18,2)"
        ),
        '{"rate":0.0000000001}': {"rate": Decimal("0.0000000001")},
        '{"step":0.1}': {"step": Decimal("0.10")},
        '{"step":0.07}': (
            "SchemaViolation: step: 0.07 is not a multiple of 0.05; "
            "step: 0.07 is not one of 0.05, 0.1"
        ),
        '{"tax":1.005}': {"tax": Decimal("1.00")},
        '{"tax":1.015}': {"tax": Decimal("1.02")},
        '{"tax":"1.0150000000000000001"}': {"tax": Decimal("1.02")},
        '{"tax":1.0050000000000000000000000001}': (
            "SchemaViolation: tax: 1.0050000000000000000000000001 has more digits than type "
            "decimal(18,2) can round"
        ),
        '{"tax":9999999999999999.995}': (
            "SchemaViolation: tax: 9999999999999999.995 is not of type decimal(18,2) "
            "once it is rounded"
        ),
    }
    found = verdicts(spark, made, list(expected))
    assert dict(zip(expected, found, strict=True)) == expected


def test_ddl_asks_for_rounding(spark: SparkSession) -> None:
    made = decoder("json", """amount DECIMAL(5,2) NOT NULL round = "half-even" COMMENT 'net'""")
    assert verdicts(spark, made, ['{"amount":0.125}', '{"amount":"0.135"}', "{}"]) == [
        {"amount": Decimal("0.12")},
        {"amount": Decimal("0.14")},
        "SchemaViolation: amount: is missing or null",
    ]
    for ddl, message in [
        ("a DECIMAL(5,2) round = 'up'", 'where it needs "half-even"'),
        ("a BIGINT round = 'half-even'", "where it needs a DECIMAL before round"),
    ]:
        with pytest.raises(BadInput) as refused:
            decoder("json", ddl)
        assert message in refused.value.what


@pytest.mark.parametrize(
    ("subschema", "message"),
    [
        ({"multipleOf": 0}, "`multipleOf` needs a number above zero; found 0"),
        ({"multipleOf": "0.01"}, '`multipleOf` needs a number; found "0.01"'),
        ({"multipleOf": 1e-40}, "`multipleOf` needs a number of at most 38 digits"),
        ({"multipleOf": 0.1, "round": "up"}, '`round` can be "half-even" here; found "up"'),
        ({"round": "half-even"}, "`round` is not supported for type number"),
    ],
)
def test_a_decimal_that_cannot_be_is_refused(
    tmp_path: Path, subschema: dict[str, object], message: str
) -> None:
    path = schema_file(tmp_path, {"properties": {"a": {"type": "number", **subschema}}})
    with pytest.raises(BadInput) as refused:
        decoder("json", path)
    assert message in refused.value.what


# --- random documents against random schemas


@dataclass(frozen=True)
class Json:
    """A JSON value and the text it was written as."""

    text: str
    value: object  # str, bool, None, a list or dictionary of Json; the text of a number


TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+)\s*')


class Twice(Exception):
    """A key is repeated."""


def parsed(text: str, at: int = 0) -> tuple[Json, int]:
    """The value that begins at `at`, and where it ends. The text must be JSON."""
    match = TOKEN.match(text, at)
    assert match is not None
    token, start, at = match[1], match.start(1), match.end(1)
    if token not in "[{":
        value: object = token
        if token.startswith('"') or token in ("true", "false", "null"):
            value = json.loads(token)
        return Json(token, value), at
    members: list[tuple[str, Json]] = []
    while (token := _next(text, at)) not in "]}":
        if token == ",":
            at = text.index(",", at) + 1
        name = ""
        if text[start] == "{":
            found, at = parsed(text, at)
            name, at = str(found.value), text.index(":", at) + 1
        member, at = parsed(text, at)
        members.append((name, member))
    at = text.index(token, at) + 1
    if text[start] == "[":
        return Json(text[start:at], [member for _, member in members]), at
    if len({name for name, _ in members}) < len(members):
        raise Twice
    return Json(text[start:at], dict(members)), at


def _next(text: str, at: int) -> str:
    match = TOKEN.match(text, at)
    assert match is not None
    return match[1]


def number(text: object) -> Decimal | None:
    return Decimal(str(text)) if re.match(r"-?\d", str(text)) else None


def is_kept(kind: T.DataType, stored: Any, sent: Json | None) -> bool:
    """Whether what is stored, rendered back, is what was sent."""
    value = None if sent is None else sent.value
    if sent is None or value is None or stored is None:
        return stored is None and value is None
    match kind:
        case T.StringType():
            return bool(stored == (value if sent.text.startswith('"') else sent.text))
        case T.BooleanType():
            return stored is value
        case T.LongType() | T.ByteType():
            return re.fullmatch(r"-?\d+", sent.text) is not None and stored == int(sent.text)
        case T.DoubleType():
            return number(sent.text) in (Decimal(stored), Decimal(repr(stored)))
        case T.FloatType():
            # Exactly, or by the shortest text: that of 41272992 is 4.127299e7.
            return number(sent.text) in (Decimal(stored), Decimal(str(numpy.float32(stored))))
        case T.DecimalType():
            return bool(stored == number(value))
        case T.DateType():
            return bool(stored == date.fromisoformat(str(value)))
        case T.TimestampType():  # without an offset it is in the session's time zone
            moment = datetime.fromisoformat(str(value))
            moment = moment.replace(tzinfo=moment.tzinfo or UTC)
            return bool(stored.astimezone(UTC) == moment)
        case T.ArrayType():
            return (
                isinstance(value, list)
                and len(stored) == len(value)
                and all(
                    is_kept(kind.elementType, *pair) for pair in zip(stored, value, strict=True)
                )
            )
        case T.MapType():
            return (
                isinstance(value, dict)
                and stored.keys() == value.keys()
                and all(is_kept(kind.valueType, stored[name], value[name]) for name in value)
            )
        case T.StructType():
            return isinstance(value, dict) and all(
                is_kept(field.dataType, stored[field.name], value.get(field.name))
                for field in kind.fields
            )
    raise AssertionError(kind)


NAMES = ("a", "b", "c c", 'A"')
number_texts = st.one_of(
    st.integers().map(str),
    st.integers(-(10**20), 10**20).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-99, max_value=99).map(
        str
    ),
    st.from_regex(r"\A-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,22})?([eE][+-]?[0-9]{1,3})?\Z"),
).map(lambda text: text if re.match(r"-?(0|[1-9])", text) else "0")
moments = st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2100, 1, 1))
strings = st.one_of(
    st.text(max_size=6),
    number_texts,
    st.sampled_from(["true", "{}", "[1.0]", "a:b", "?", "1,50", "2026-02-29", "\\u00e9", '"']),
    st.dates().map(str),
    moments.map(lambda moment: moment.isoformat()),
    moments.map(lambda moment: moment.isoformat() + "+05:30"),
)
string_texts = st.builds(
    lambda text, escaped: json.dumps(text, ensure_ascii=escaped), strings, st.booleans()
)
scalar_texts = st.one_of(number_texts, string_texts, st.sampled_from(["true", "false", "null"]))
spaces = st.sampled_from(["", "", " ", "\n\t"])


def object_texts(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    names = st.sampled_from([*map(json.dumps, NAMES), '"B"', r'"\u0061"', '"other"'])
    members = st.lists(st.builds("{0}{2}:{2}{1}".format, names, values, spaces), max_size=5)
    return st.builds(
        lambda parts, space: "{" + f"{space},".join(parts) + space + "}", members, spaces
    )


def array_texts(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda parts, space: f"[{f'{space},'.join(parts)}{space}]",
        st.lists(values, max_size=3),
        spaces,
    )


any_texts = st.recursive(
    scalar_texts, lambda inner: object_texts(inner) | array_texts(inner), max_leaves=6
)
SCALARS = (
    *("STRING", "BOOLEAN", "BIGINT", "TINYINT", "DOUBLE", "FLOAT", "DATE", "TIMESTAMP"),
    *("DECIMAL(10,2)", "DECIMAL(38,20)", "DECIMAL(18,0)"),
)


def struct_of(types: list[str], separator: str = " ") -> str:
    names = ["`" + name + "`" for name in NAMES]
    return ", ".join(f"{name}{separator}{kind}" for name, kind in zip(names, types, strict=False))


def kinds_around(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    fields = st.lists(inner, min_size=1, max_size=2)
    return st.one_of(
        st.sampled_from(SCALARS),
        inner.map("ARRAY<{}>".format),
        inner.map("MAP<STRING, {}>".format),
        fields.map(lambda types: f"STRUCT<{struct_of(types, ': ')}>"),
    )


kinds = kinds_around(kinds_around(st.sampled_from(SCALARS)))


def texts_of(kind: T.DataType) -> st.SearchStrategy[str]:
    """Mostly texts of the type, sometimes of anything."""
    match kind:
        case T.StringType():
            own = string_texts | any_texts
        case T.BooleanType():
            own = st.sampled_from(["true", "false"])
        case T.DateType():
            own = st.dates().map(lambda day: f'"{day}"')
        case T.TimestampType():
            own = moments.map(lambda moment: f'"{moment.isoformat()}Z"')
        case T.ArrayType():
            own = array_texts(texts_of(kind.elementType))
        case T.MapType():
            own = object_texts(texts_of(kind.valueType))
        case T.StructType():
            own = documents_of(kind)
        case _:
            own = number_texts
    return st.one_of(own, own, own, own, any_texts, st.just("null"))


def documents_of(kind: T.StructType) -> st.SearchStrategy[str]:
    members = [
        st.builds(
            "{0}{2}:{2}{1}".format,
            st.just(json.dumps(field.name)),
            texts_of(field.dataType),
            spaces,
        )
        for field in kind.fields
    ]
    own = st.tuples(*members).map(lambda parts: "{" + ",".join(parts) + "}")
    return st.one_of(own, own, own, object_texts(any_texts))


@st.composite
def schemas_and_documents(draw: st.DrawFn) -> tuple[str, list[str]]:
    ddl = struct_of(draw(st.lists(kinds, min_size=2, max_size=4)))
    schema = parse_ddl(ddl, where="here").type
    return ddl, draw(st.lists(documents_of(schema), min_size=60, max_size=60))


@settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(drawn=schemas_and_documents())
def test_random_documents_are_stored_as_they_were_sent_or_become_dead_letters(
    spark: SparkSession, drawn: tuple[str, list[str]]
) -> None:
    ddl, documents = drawn
    made = decoder("json", ddl)
    kind = made.schema
    outcomes = decoded(spark, made, documents)
    assert [outcome[PROVENANCE]["offset"] for outcome in outcomes] == list(range(len(documents)))
    for outcome, document in zip(outcomes, documents, strict=True):
        if outcome[IS_DEAD]:
            continue
        sent, _ = parsed(document)
        assert is_kept(kind, outcome, sent), (ddl, document, verdict(outcome))


def test_the_reference_lists_every_kind_of_value_against_every_type(spark: SparkSession) -> None:
    assert PAGE.read_text() == render(spark), "run scripts/document-values"


NO_MOMENT = "has no offset, and the session's time zone skips this time or has it twice"


@pytest.mark.parametrize(
    ("zone", "text", "moment"),
    [
        ("Europe/Berlin", "2026-03-29T02:30:00", None),  # the clocks skip it
        ("Europe/Berlin", "2026-03-29T01:59:59.999999", "2026-03-29T00:59:59.999999+00:00"),
        ("Europe/Berlin", "2026-03-29T03:00", "2026-03-29T01:00:00+00:00"),
        ("Europe/Berlin", "2026-10-25 02:30:00", None),  # it comes twice
        ("Europe/Berlin", "2026-10-25T02:00", None),
        ("Europe/Berlin", "2026-10-25T01:59:59", "2026-10-24T23:59:59+00:00"),
        ("Europe/Berlin", "2026-10-25T03:00", "2026-10-25T02:00:00+00:00"),
        ("Europe/Berlin", "2026-10-25T02:30:00+02:00", "2026-10-25T00:30:00+00:00"),
        ("Europe/Berlin", "2026-10-25T02:30:00+0100", "2026-10-25T01:30:00+00:00"),
        ("Europe/Berlin", "2026-03-29T02:30:00Z", "2026-03-29T02:30:00+00:00"),
        ("Europe/Berlin", "2026-07-01", "2026-06-30T22:00:00+00:00"),
        ("America/Sao_Paulo", "2018-11-04", None),  # a day without a midnight
        ("Australia/Lord_Howe", "2026-04-05T01:45", None),  # half an hour comes twice
        ("Pacific/Apia", "2011-12-30T12:00", None),  # a day that was skipped
        ("UTC", "2026-03-29T02:30:00", "2026-03-29T02:30:00+00:00"),
    ],
)
def test_a_local_time_that_is_no_moment_or_two_is_a_dead_letter(
    spark: SparkSession, zone: str, text: str, moment: str | None
) -> None:
    made = decoder("json", "at TIMESTAMP", group="g")
    record = json.dumps({"at": text})
    with setting(spark, "spark.sql.session.timeZone", zone):
        (outcome,) = decoded(spark, made, [record])
    if moment is None:
        assert verdict(outcome) == f"SchemaViolation: at: {text} {NO_MOMENT}"
    else:
        assert outcome["at"].astimezone(UTC).isoformat() == moment


def test_times_are_converted_in_the_select_that_judges_them(spark: SparkSession) -> None:
    """Spark evaluates an expression once for each select, and a conversion costs every record."""
    made = decoder("json", "at TIMESTAMP, local TIMESTAMP_NTZ, day DATE", group="g")
    plan = made.decode(records(spark, []))._jdf.queryExecution().optimizedPlan()
    last = str(plan.toString()).splitlines()[0]
    assert last.startswith("Project")
    assert "_lossless_parsed" not in last
