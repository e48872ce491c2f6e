"""JSON Schema: what is checked, what is refused, and what the messages say."""

from __future__ import annotations

from datetime import UTC, date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka_records import TIMESTAMP, records, schema_file, verdicts
from pyspark.sql import functions as F

from lossless.errors import BadInput
from lossless.pipeline.decode import decoder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Order",
    "type": "object",
    "required": ["id", "coupon"],
    "properties": {
        "id": {"type": "integer", "minimum": 1, "exclusiveMaximum": 100, "multipleOf": 3},
        "coupon": {"type": ["string", "null"], "description": "always said, often null"},
        "name": {"type": "string", "minLength": 2, "maxLength": 4},
        "code": {"type": "string", "pattern": "^[A-Z]+$"},
        "amount": {"type": "number", "exclusiveMinimum": 0, "maximum": 1.5},
        "currency": {"enum": ["EUR", "USD"]},
        "state": {"type": ["string", "null"], "enum": ["new", None]},
        "version": {"const": 2},
        "paid": {"type": "boolean"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "token": {"type": "string", "format": "uuid"},
        "mail": {"type": "string", "format": "email"},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "address": {
            "type": "object",
            "required": ["city"],
            "properties": {"city": {"type": "string"}, "number": {"type": "integer"}},
        },
        "extra": {"type": "object"},
    },
    "$defs": {
        "line": {
            "type": "object",
            "required": ["sku"],
            "properties": {
                "sku": {"type": "string"},
                "quantity": {"type": "integer", "minimum": 1},
                "due": {"type": "string", "format": "date"},
            },
        }
    },
}
MAIL = "SchemaViolation: mail: "

# What is said beside {"id": 3, "coupon": null}, and what becomes of the record.
CASES: dict[str, dict[str, Any] | str] = {
    '"paid":true': {"paid": True},
    '"name":"ab"': {"name": "ab"},
    '"name":"a"': 'SchemaViolation: name: "a" is shorter than 2 characters',
    '"name":"abcde"': 'SchemaViolation: name: "abcde" is longer than 4 characters',
    '"name":"äöüß"': {"name": "äöüß"},
    '"name":null': {},
    '"code":"A1"': 'SchemaViolation: code: "A1" does not match ^[A-Z]+$',
    '"amount":1.5': {"amount": 1.5},
    '"amount":0': "SchemaViolation: amount: 0.0 is not above 0",
    '"amount":1.6': "SchemaViolation: amount: 1.6 is above the maximum 1.5",
    '"amount":1e999': "SchemaViolation: amount: is out of the range of type number; "
    "amount: Infinity is above the maximum 1.5",
    '"currency":"EUR"': {"currency": "EUR"},
    '"currency":"CHF"': 'SchemaViolation: currency: "CHF" is not one of "EUR", "USD"',
    '"state":null': {},
    '"state":"old"': 'SchemaViolation: state: "old" is not "new"',
    '"version":2': {"version": 2},
    '"version":3': "SchemaViolation: version: 3 is not 2",
    '"paid":"true"': 'SchemaViolation: paid: "true" is not of type boolean',
    # Strings are strings; a text that looks like something else is still one.
    '"name":"42"': {"name": "42"},
    '"name":"true"': {"name": "true"},
    '"name":"{}"': {"name": "{}"},
    '"name":42': "SchemaViolation: name: 42 is not of type string",
    '"name":-1.5': "SchemaViolation: name: -1.5 is not of type string",
    '"name":1e1': "SchemaViolation: name: 10.0 is not of type string",
    '"name":true': "SchemaViolation: name: true is not of type string",
    '"name":[1]': "SchemaViolation: name: [1] is not of type string",
    '"name":{}': "SchemaViolation: name: {} is not of type string",
    '"name":"42","name":"43"': "MalformedJson: an object has the same key twice",
    '"tags":["a","1"]': {"tags": ["a", "1"]},
    '"tags":["a",1]': "SchemaViolation: tags[]: 1 is not of type string",
    '"tags":["a",null]': "SchemaViolation: tags[]: an element is null",
    '"tags":[]': "SchemaViolation: tags: has fewer than 1 elements",
    '"tags":["a","b","c"]': "SchemaViolation: tags: has more than 2 elements",
    '"tags":"a"': 'SchemaViolation: tags: "a" is not an array',
    # Formats.
    '"day":"2026-01-02"': {"day": date(2026, 1, 2)},
    '"day":"2026-01-02\\n"': "SchemaViolation: day: 2026-01-02\n is not of type date",
    '"at":"2026-01-02T03:04:05"': (
        "SchemaViolation: at: 2026-01-02T03:04:05 is not of type date-time"
    ),
    '"at":"2026-13-02T03:04:05Z"': (
        "SchemaViolation: at: 2026-13-02T03:04:05Z is not of type date-time"
    ),
    '"at":1767323045': "SchemaViolation: at: 1767323045 is not of type date-time",
    '"token":"01234567-89ab-CDEF-0123-456789abcdef"': {
        "token": "01234567-89ab-CDEF-0123-456789abcdef"
    },
    '"token":"0123"': 'SchemaViolation: token: "0123" is not of format uuid',
    '"mail":"a@b.c"': {"mail": "a@b.c"},
    '"mail":"a b@c"': MAIL + '"a b@c" is not of format email',
    # What is nested.
    '"address":{}': "SchemaViolation: address.city: is missing or null",
    '"address":{"city":7}': "SchemaViolation: address.city: 7 is not of type string",
    '"address":{"city":"Ulm","number":"x"}': (
        'SchemaViolation: address.number: "x" is not of type integer'
    ),
    '"lines":[{"sku":"a","quantity":1,"due":"2026-01-02"}]': {
        "lines": [{"sku": "a", "quantity": 1, "due": date(2026, 1, 2)}]
    },
    '"lines":[{"sku":"a"},{}]': "SchemaViolation: lines[].sku: is missing or null",
    '"lines":[{"sku":"a","quantity":0}]': (
        "SchemaViolation: lines[].quantity: an element is below the minimum 1"
    ),
    '"lines":[{"sku":5}]': "SchemaViolation: lines[].sku: 5 is not of type string",
    '"lines":[null]': "SchemaViolation: lines[]: an element is null",
    '"extra":{"a":1,"b":{"c":"d"}}': {"extra": {"a": "1", "b": '{"c":"d"}'}},
    '"extra":[]': "SchemaViolation: extra: [] is not an object",
    # Several at once.
    '"name":"a","paid":1,"amount":"x"': (
        'SchemaViolation: amount: "x" is not of type number; paid: 1 is not of type boolean'
    ),
    '"paid":1,"paid":2': "MalformedJson: an object has the same key twice",
    '"name":"a","version":1': (
        'SchemaViolation: name: "a" is shorter than 2 characters; version: 1 is not 2'
    ),
}
# Whole records.
RECORDS: dict[str, dict[str, Any] | str] = {
    '{"id":3}': "SchemaViolation: coupon: is missing",
    '{"coupon":null}': "SchemaViolation: id: is missing or null",
    '{"id":null,"coupon":"x"}': "SchemaViolation: id: is missing or null",
    '{"id":0,"coupon":"x"}': "SchemaViolation: id: 0 is below the minimum 1",
    '{"id":102,"coupon":"x"}': "SchemaViolation: id: 102 is not below 100",
    '{"id":4,"coupon":"x"}': "SchemaViolation: id: 4 is not a multiple of 3",
}


def test_every_record_is_a_row_or_a_dead_letter_that_says_why(
    spark: SparkSession, tmp_path: Path
) -> None:
    beside = {
        '{"coupon":null,"id":3,' + said + "}": {"id": 3, **found}
        if isinstance(found, dict)
        else found
        for said, found in CASES.items()
    }
    expected = {**beside, **RECORDS}
    found = verdicts(spark, decoder("json", schema_file(tmp_path, ORDER)), list(expected))
    assert dict(zip(expected, found, strict=True)) == expected


def test_a_date_time_is_an_instant(spark: SparkSession, tmp_path: Path) -> None:
    schema = {"properties": {"at": {"type": "string", "format": "date-time"}}}
    frame = decoder("json", schema_file(tmp_path, schema)).decode(
        records(spark, ['{"at":"2026-01-02T04:04:05.678+01:00"}'])
    )
    millis = frame.select(F.unix_millis("at")).collect()[0][0]
    assert millis == TIMESTAMP.astimezone(UTC).timestamp() * 1000


def test_closed_objects_refuse_what_they_do_not_name(spark: SparkSession, tmp_path: Path) -> None:
    inner = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"x": {"type": "integer"}},
    }
    schema = {
        "additionalProperties": False,
        "properties": {
            "a": {"type": "integer"},
            "o": inner,
            "l": {"type": "array", "items": inner},
        },
    }
    expected = {
        '{"a":1}': {"a": 1},
        '{"a":1,"o":{"x":1},"l":[{"x":2}]}': {"a": 1, "o": {"x": 1}, "l": [{"x": 2}]},
        '{"a":1,"b":2}': (
            "SchemaViolation: the value: b is a property that the schema does not name"
        ),
        '{"o":{"y":2,"z":3}}': (
            "SchemaViolation: o: y, z is a property that the schema does not name"
        ),
        '{"l":[{"x":1},{"y":2}]}': (
            "SchemaViolation: l[]: y is a property that the schema does not name"
        ),
        '{"a":1,"a":2}': "MalformedJson: an object has the same key twice",
        '{"a":"x","b":1}': (
            'SchemaViolation: a: "x" is not of type integer; '
            "the value: b is a property that the schema does not name"
        ),
    }
    found = verdicts(spark, decoder("json", schema_file(tmp_path, schema)), list(expected))
    assert dict(zip(expected, found, strict=True)) == expected


def test_columns_have_the_types_of_the_table_in_the_documentation(tmp_path: Path) -> None:
    schema = decoder("json", schema_file(tmp_path, ORDER)).schema
    assert {field.name: field.dataType.simpleString() for field in schema.fields} == {
        "id": "bigint",
        "coupon": "string",
        "name": "string",
        "code": "string",
        "amount": "double",
        "currency": "string",
        "state": "string",
        "version": "bigint",
        "paid": "boolean",
        "at": "timestamp",
        "day": "date",
        "token": "string",
        "mail": "string",
        "tags": "array<string>",
        "lines": "array<struct<sku:string,quantity:bigint,due:date>>",
        "address": "struct<city:string,number:bigint>",
        "extra": "map<string,string>",
    }
    assert all(field.nullable for field in schema.fields)


def of(subschema: object) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": subschema}}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "line 1, column 2: not JSON"),
        ([], "#: a schema is an object here"),
        ({"type": "array", "items": {"type": "string"}}, "#: a row needs an object"),
        ({"type": "object"}, "#: a row needs an object"),
        (of(True), "#/properties/a: a schema is an object here"),
        (of({}), "#/properties/a: `type` is missing"),
        (of({"anyOf": []}), "#/properties/a: `type` is missing"),
        (of({"type": "string", "anyOf": []}), "#/properties/a/anyOf: `anyOf` is not supported"),
        ({**of({"type": "string"}), "if": {}}, "#/if: `if` is not supported for type object"),
        ({**of({"type": "string"}), "patternProperties": {}}, "#/patternProperties: "),
        (of({"type": "string", "a/b~c": 1}), "#/properties/a/a~1b~0c: "),
        (of({"type": "integer", "minLength": 1}), "`minLength` is not supported for type integer"),
        (of({"type": "integer", "multipleOf": 0.5}), "`multipleOf` needs a whole number above"),
        (of({"type": "integer", "minimum": "1"}), '`minimum` needs a number; found "1"'),
        (of({"type": "integer", "exclusiveMinimum": True}), "`exclusiveMinimum` needs a number"),
        (of({"type": "integer", "maximum": 2**64}), "`maximum` needs a number of at most 64 bits"),
        (of({"type": "string", "minLength": -1}), "`minLength` needs a whole number"),
        (of({"type": "string", "pattern": 1}), "`pattern` needs a regular expression"),
        (
            of({"type": "string", "format": "ipv4"}),
            "`format` can be date-time, date, uuid or email",
        ),
        (of({"type": "string", "format": []}), "`format` can be date-time, date, uuid or email"),
        (of({"type": "text"}), "#/properties/a/type: a column has one type"),
        (of({"type": ["string", "integer"]}), "#/properties/a/type: a column has one type"),
        (of({"type": "null"}), "#/properties/a/type: a column has one type"),
        (of({"type": [[]]}), "#/properties/a/type: a column has one type"),
        (of({"type": "array"}), "#/properties/a: `items` is missing"),
        (of({"type": "array", "items": [{}]}), "#/properties/a/items: a schema is an object"),
        (of({"type": "integer", "enum": [1, "x"]}), '#/properties/a/enum: "x" is not of type'),
        (of({"type": "integer", "enum": [True]}), "true is not of type integer"),
        (of({"enum": [1, "x"]}), "#/properties/a: `type` is missing"),
        (of({"type": "string", "enum": []}), "#/properties/a/enum: `enum` lists"),
        (of({"type": "string", "enum": [None]}), "only null is allowed"),
        (of({"type": "string", "enum": ["a"], "const": "a"}), "use `enum` or `const`"),
        (of({"type": "object", "enum": [{}]}), "#/properties/a/enum: `enum` lists"),
        (of({"type": "object", "additionalProperties": False}), "no properties is no column"),
        (of({"type": "object", "additionalProperties": {}}), "can be true or false here"),
        ({"properties": []}, "#/properties: `properties` is an object"),
        ({**of({"type": "string"}), "required": "a"}, "#/required: `required` is a list"),
        ({**of({"type": "string"}), "required": ["b"]}, "'b' is not among the properties"),
        (of({"$ref": "#/$defs/x"}), "#/properties/a/$ref: #/$defs/x is not in the file"),
        (of({"$ref": "other.json"}), "only references within the file"),
        (of({"$ref": "#"}), "# refers to itself"),
        (of({"$ref": "#/properties/a"}), "#/properties/a refers to itself"),
        (
            of({"$ref": "#/$defs/x", "minimum": 1}),
            "#/properties/a/minimum: `minimum` beside `$ref`",
        ),
        ({"properties": {"_lossless_x": {"type": "string"}}}, "'_lossless_x' is reserved"),
        ({"properties": {"": {"type": "string"}}}, "a column has an empty name"),
    ],
)
def test_a_schema_that_cannot_be_kept_is_refused_with_its_place(
    tmp_path: Path, schema: object, message: str
) -> None:
    path = schema_file(tmp_path, schema)
    with pytest.raises(BadInput) as refused:
        decoder("json", path)
    assert refused.value.what.startswith(f"{path}")
    assert message in refused.value.what


def test_a_pattern_that_java_cannot_compile_is_refused_before_any_task(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = schema_file(tmp_path, of({"type": "string", "pattern": "(?<open"}))
    with pytest.raises(BadInput, match=r"#/properties/a/pattern: not a regular expression"):
        decoder("json", path).decode(records(spark, []))


def test_a_number_is_not_taken_for_the_text_that_an_enum_allows(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = decoder("json", schema_file(tmp_path, {"properties": {"grade": {"enum": ["1", "A"]}}}))
    assert verdicts(spark, made, ['{"grade":"1"}', '{"grade":1}', '{"grade":"A"}']) == [
        {"grade": "1"},
        "SchemaViolation: grade: 1 is not of type string",
        {"grade": "A"},
    ]
