"""JSON Schema (2020-12, and 07 where they agree) to a tree.

What has a meaning for a table is compiled; annotations are passed over; every other keyword is
refused by name and place, because a check that is silently left out is worse than none.

    string            STRING; with format date-time TIMESTAMP, with format date DATE
    integer, number   BIGINT, DOUBLE; a number with multipleOf DECIMAL: 0.01 gives DECIMAL(18,2).
                      A decimal with more digits is refused, or rounded with "round": "half-even"
    boolean           BOOLEAN
    array             ARRAY of `items`
    object            STRUCT of `properties`; without them MAP<STRING, STRING>, whose values are
                      the text of any JSON value
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NoReturn

from pyspark.sql import types as T

from lossless.errors import BadInput
from lossless.pipeline.decode.keywords import LIMITS, exact_number, one_of, scale_of
from lossless.pipeline.decode.names import check_names
from lossless.pipeline.decode.tree import (
    ISO_8601_DATE,
    PRECISION_MAX,
    RFC_3339_TIMESTAMP,
    Array,
    Field,
    Map,
    Node,
    Object,
    Rule,
    Scalar,
    is_plainly_a_string,
)

ANNOTATIONS = frozenset(
    [
        *("title", "description", "examples", "default", "deprecated", "readOnly", "writeOnly"),
        *("$schema", "$id", "$comment", "$defs", "definitions"),
    ]
)
PRECISION = 18  # the largest that Spark keeps in 64 bits
TYPES = ("string", "integer", "number", "boolean", "array", "object")
STRUCTURE: Mapping[str, frozenset[str]] = {
    "array": frozenset(["items"]),
    "object": frozenset(["properties", "required", "additionalProperties"]),
}
TEMPORAL: Mapping[str, Scalar] = {
    "date-time": Scalar(type=T.TimestampType(), called="date-time", written=RFC_3339_TIMESTAMP),
    "date": Scalar(type=T.DateType(), called="date", written=ISO_8601_DATE),
}
SCALARS: Mapping[str, Scalar] = {
    "string": Scalar(type=T.StringType(), called="string", exact=True),
    "integer": Scalar(type=T.LongType(), called="integer"),
    "number": Scalar(type=T.DoubleType(), called="number"),
    "boolean": Scalar(type=T.BooleanType(), called="boolean"),
}
# The Python types that `json` gives for the values of an enum; bool is an int to Python.
VALUES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, Decimal),
    "decimal": (int, Decimal),
    "boolean": (bool,),
}


def compile_json_schema(text: str, *, where: str) -> tuple[Object, tuple[tuple[str, str], ...]]:
    """The tree, and the regular expressions in it with their places."""
    try:
        document = json.loads(text, parse_float=Decimal)
    except json.JSONDecodeError as error:
        raise BadInput(
            f"{where}: line {error.lineno}, column {error.colno}: not JSON: {error.msg}"
        ) from error
    compiler = _Compiler(document=document, where=where)
    node, _nullable = compiler.compile(document, "", ())
    if not isinstance(node, Object):
        compiler.refuse("", "a row needs an object with properties at the top")
    return node, tuple(compiler.patterns)


@dataclass(slots=True, kw_only=True)
class _Compiler:
    document: Any
    where: str
    patterns: list[tuple[str, str]] = field(default_factory=list)

    def compile(self, schema: Any, pointer: str, referred: tuple[str, ...]) -> tuple[Node, bool]:
        """The node, and whether it may be null."""
        if not isinstance(schema, dict):
            self.refuse(pointer, "a schema is an object here; true and false give no column type")
        if "$ref" in schema:
            return self._reference(schema, pointer, referred)
        kind, nullable = self._kind(schema, pointer)
        if kind == "number" and "multipleOf" in schema:
            kind = "decimal"
        allowed = self._allowed(schema, kind, pointer)
        if allowed is not None:
            nullable = nullable and None in allowed
        if kind == "string" and schema.get("format") in list(TEMPORAL):
            base = TEMPORAL[schema["format"]]
            schema = {key: value for key, value in schema.items() if key != "format"}
        else:
            base = SCALARS.get(kind, SCALARS["string"])
        rules = self._rules(schema, kind, pointer)
        if kind == "object":
            return self._object(schema, pointer, referred), nullable
        if kind == "array":
            return self._array(schema, pointer, referred, rules), nullable
        if allowed is not None:
            values = [value for value in allowed if value is not None]
            rules = (*rules, one_of(list(map(float, values)) if kind == "number" else values))
        if kind == "decimal":
            return self._decimal(schema, rules), nullable
        return (
            Scalar(
                type=base.type,
                called=base.called,
                extra=rules,
                exact=base.exact,
                written=base.written,
                listed=allowed is not None and all(map(is_plainly_a_string, allowed)),
            ),
            nullable,
        )

    def _decimal(self, schema: dict[str, Any], rules: tuple[Rule, ...]) -> Scalar:
        scale = scale_of(exact_number(schema["multipleOf"]))
        kind = T.DecimalType(PRECISION if scale <= PRECISION // 2 else PRECISION_MAX, scale)
        scalar = Scalar(type=kind, called=kind.simpleString(), rounded="round" in schema)
        return replace(scalar, extra=tuple(map(scalar.about_text, rules)))

    def refuse(self, pointer: str, what: str, *, hint: str | None = None) -> NoReturn:
        raise BadInput(f"{self.where}#{pointer}: {what}", hint=hint)

    def _kind(self, schema: dict[str, Any], pointer: str) -> tuple[str, bool]:
        declared = schema.get("type")
        if declared is None:
            return self._implied_kind(schema, pointer), False
        names = declared if isinstance(declared, list) else [declared]
        kinds = [name for name in names if name != "null"]
        if len(kinds) != 1 or kinds[0] not in TYPES:
            self.refuse(
                f"{pointer}/type",
                f"a column has one type ({', '.join(TYPES)}), or one and null; found "
                f"{_shown(declared)}",
            )
        return str(kinds[0]), "null" in names

    def _implied_kind(self, schema: dict[str, Any], pointer: str) -> str:
        if "properties" in schema:
            return "object"
        if "items" in schema:
            return "array"
        values = schema.get("enum", [schema["const"]] if "const" in schema else [])
        for kind, types in VALUES.items():
            if values and isinstance(values, list) and all(type(v) in types for v in values):
                return kind
        return self.refuse(pointer, "`type` is missing, so the column would have none")

    def _allowed(self, schema: dict[str, Any], kind: str, pointer: str) -> list[Any] | None:
        if "enum" not in schema and "const" not in schema:
            return None
        keyword = "enum" if "enum" in schema else "const"
        values = schema["enum"] if keyword == "enum" else [schema["const"]]
        place = f"{pointer}/{keyword}"
        if "enum" in schema and "const" in schema:
            self.refuse(place, "use `enum` or `const`, not both")
        if kind not in VALUES or not isinstance(values, list) or not values:
            self.refuse(place, f"`{keyword}` lists strings, numbers or booleans here")
        for value in values:
            if value is not None and type(value) not in VALUES[kind]:
                self.refuse(place, f"{_shown(value)} is not of type {kind}")
        if all(value is None for value in values):
            self.refuse(place, "only null is allowed, which is no column")
        return values

    def _rules(self, schema: dict[str, Any], kind: str, pointer: str) -> tuple[Rule, ...]:
        rules = []
        known = {"type", "enum", "const"} | ANNOTATIONS | STRUCTURE.get(kind, frozenset())
        for keyword, argument in schema.items():
            place = f"{pointer}/{_escaped(keyword)}"
            if keyword in LIMITS[kind]:
                try:
                    rules.append(LIMITS[kind][keyword](argument))
                except ValueError as error:
                    self.refuse(place, f"`{keyword}` {error}; found {_shown(argument)}")
                if keyword == "pattern":
                    self.patterns.append((f"{self.where}#{place}", argument))
            elif keyword == "round" and kind == "decimal":
                if argument != "half-even":
                    self.refuse(place, f'`round` can be "half-even" here; found {_shown(argument)}')
            elif keyword not in known:
                self.refuse(
                    place,
                    f"`{keyword}` is not supported for type {kind}",
                    hint="leave it out and check it in the transform, which may drop or mark rows",
                )
        return tuple(rules)

    def _object(self, schema: dict[str, Any], pointer: str, referred: tuple[str, ...]) -> Node:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        additional = schema.get("additionalProperties", True)
        if not isinstance(properties, dict):
            self.refuse(f"{pointer}/properties", "`properties` is an object")
        if not isinstance(required, list):
            self.refuse(f"{pointer}/required", "`required` is a list of names")
        if not isinstance(additional, bool):
            self.refuse(f"{pointer}/additionalProperties", "can be true or false here")
        for name in required:
            if name not in properties:
                self.refuse(f"{pointer}/required", f"{name!r} is not among the properties")
        if not properties:
            if not additional:
                self.refuse(pointer, "an object that can have no properties is no column")
            return Map(value=Scalar(type=T.StringType(), called="string"))
        check_names(list(properties), where=f"{self.where}#{pointer}/properties")
        fields = []
        for name, subschema in properties.items():
            place = f"{pointer}/properties/{_escaped(name)}"
            node, nullable = self.compile(subschema, place, referred)
            fields.append(Field(name=name, node=node, required=name in required, nullable=nullable))
        return Object(fields=tuple(fields), closed=not additional)

    def _array(
        self,
        schema: dict[str, Any],
        pointer: str,
        referred: tuple[str, ...],
        rules: tuple[Rule, ...],
    ) -> Array:
        if "items" not in schema:
            self.refuse(pointer, "`items` is missing, so the elements would have no type")
        element, nullable = self.compile(schema["items"], f"{pointer}/items", referred)
        return Array(element=element, nullable=nullable, extra=rules)

    def _reference(
        self, schema: dict[str, Any], pointer: str, referred: tuple[str, ...]
    ) -> tuple[Node, bool]:
        place = f"{pointer}/$ref"
        target = schema["$ref"]
        for keyword in schema:
            if keyword != "$ref" and keyword not in ANNOTATIONS:
                self.refuse(f"{pointer}/{_escaped(keyword)}", f"`{keyword}` beside `$ref`")
        if not isinstance(target, str) or not target.startswith("#"):
            self.refuse(place, f"only references within the file, not {_shown(target)}")
        if target in referred or target == "#":
            self.refuse(place, f"{target} refers to itself: a column cannot hold a recursive type")
        found = self.document
        for part in target[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                self.refuse(place, f"{target} is not in the file")
            found = found[key]
        return self.compile(found, target[1:], (*referred, target))


def _shown(value: Any) -> str:
    return json.dumps(value, default=float)


def _escaped(token: str) -> str:
    return token.replace("~", "~0").replace("/", "~1")
