"""DDL to a tree: `order_id BIGINT NOT NULL, tags ARRAY<STRING>, address STRUCT<city: STRING>`.

Spark's own parser lives in the JVM; this one needs no session, so that a contract can be checked
without starting one. It reads the part of the language that JSON can fill, and one property more:
`amount DECIMAL(10,2) round = "half-even"` rounds what has more digits, which is otherwise refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NoReturn

from pyspark.sql import types as T

from lossless.errors import BadInput
from lossless.pipeline.decode.names import check_names
from lossless.pipeline.decode.tree import (
    ISO_8601_DATE,
    ISO_8601_LOCAL_TIMESTAMP,
    ISO_8601_TIMESTAMP,
    PRECISION_MAX,
    Array,
    Field,
    Map,
    Node,
    Object,
    Scalar,
)

SCALARS: dict[str, T.DataType] = {
    "STRING": T.StringType(),
    "BOOLEAN": T.BooleanType(),
    "TINYINT": T.ByteType(),
    "BYTE": T.ByteType(),
    "SMALLINT": T.ShortType(),
    "SHORT": T.ShortType(),
    "INT": T.IntegerType(),
    "INTEGER": T.IntegerType(),
    "BIGINT": T.LongType(),
    "LONG": T.LongType(),
    "FLOAT": T.FloatType(),
    "REAL": T.FloatType(),
    "DOUBLE": T.DoubleType(),
    "BINARY": T.BinaryType(),
    "DATE": T.DateType(),
    "TIMESTAMP": T.TimestampType(),
    "TIMESTAMP_LTZ": T.TimestampType(),
    "TIMESTAMP_NTZ": T.TimestampNTZType(),
}
PROPERTIES = ("NOT", "COMMENT", "ROUND")
DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
WRITTEN = {
    "date": ISO_8601_DATE,
    "timestamp": ISO_8601_TIMESTAMP,
    "timestamp_ntz": ISO_8601_LOCAL_TIMESTAMP,
}

TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
      | (?P<quoted>`(?:[^`]|``)+`)
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<word>[^\W\d]\w*|\d+)
      | (?P<sign>[<>(),:=])""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    start: int


def parse_ddl(text: str, *, where: str) -> Object:
    """The tree of a table's columns. `where` names the file or the key the text came from."""
    return _Parser(text, where).table()


class _Parser:
    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        self._tokens = list(self._tokenize())
        self._next = 0

    def table(self) -> Object:
        columns = self._fields()
        if self._peek().kind != "end":
            self._fail("a comma or the end")
        return columns

    def _fields(self) -> Object:
        fields = [self._field()]
        while self._accept(","):
            fields.append(self._field())
        check_names([field.name for field in fields], where=self._where)
        return Object(fields=tuple(fields))

    def _field(self) -> Field:
        name = self._name()
        self._accept(":")
        node = self._type()
        required = False
        while self._peek().kind == "word" and self._peek().text.upper() in PROPERTIES:
            match self._take().text.upper():
                case "NOT":
                    if not self._accept("NULL"):
                        self._fail("NULL")
                    required = True
                case "ROUND":
                    node = self._rounded(node)
                case _:
                    if (comment := self._take()).kind != "text":
                        self._fail("a comment in quotes", comment)
        return Field(name=name, node=node, required=required, nullable=not required)

    def _rounded(self, node: Node) -> Node:
        self._expect("=")
        how = self._take()
        if how.kind != "text" or how.text[1:-1] != "half-even":
            self._fail('"half-even"', how)
        if not isinstance(node, Scalar) or not isinstance(node.type, T.DecimalType):
            self._fail("a DECIMAL before round", how)
        return replace(node, rounded=True)

    def _name(self) -> str:
        token = self._take()
        if token.kind == "quoted":
            return token.text[1:-1].replace("``", "`")
        if token.kind == "word":
            return token.text
        return self._fail("a column name", token)

    def _type(self) -> Node:
        token = self._take()
        name = token.text.upper() if token.kind == "word" else ""
        if name == "ARRAY":
            self._expect("<")
            element = self._type()
            self._expect(">")
            return Array(element=element)
        if name == "MAP":
            return self._map()
        if name == "STRUCT":
            return self._struct()
        if name in DECIMALS:
            return self._decimal()
        if name in SCALARS:
            kind = SCALARS[name]
            called = kind.simpleString()
            return Scalar(type=kind, called=called, written=WRITTEN.get(called, ""))
        return self._fail("a type that JSON can fill: " + ", ".join(_type_names()), token)

    def _map(self) -> Map:
        self._expect("<")
        key = self._take()
        if key.text.upper() != "STRING":
            self._fail("STRING: the keys of a JSON object are strings", key)
        self._expect(",")
        value = self._type()
        self._expect(">")
        return Map(value=value)

    def _struct(self) -> Object:
        self._expect("<")
        fields = self._fields()
        self._expect(">")
        return fields

    def _decimal(self) -> Scalar:
        precision, scale = 10, 0
        if self._accept("("):
            precision = self._number()
            if self._accept(","):
                scale = self._number()
            self._expect(")")
        if not 0 < precision <= PRECISION_MAX or scale > precision:
            self._fail(f"a precision up to {PRECISION_MAX} and a scale up to it before it")
        kind = T.DecimalType(precision, scale)
        return Scalar(type=kind, called=kind.simpleString())

    def _number(self) -> int:
        token = self._take()
        if not token.text.isdigit():
            self._fail("a number", token)
        return int(token.text)

    def _tokenize(self) -> list[Token]:
        tokens: list[Token] = []
        at = 0
        while at < len(self._text):
            match = TOKEN.match(self._text, at)
            if match is None:
                self._refuse(at, f"{self._text[at]!r} has no place in DDL")
            if match.lastgroup != "space":
                tokens.append(Token(str(match.lastgroup), match.group(), at))
            at = match.end()
        return [*tokens, Token("end", "", len(self._text))]

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._peek()
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _accept(self, text: str) -> bool:
        token = self._peek()
        if token.kind in ("sign", "word") and token.text.upper() == text:
            self._take()
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            self._fail(repr(text))

    def _fail(self, expected: str, found_token: Token | None = None) -> NoReturn:
        token = found_token or self._peek()
        found = repr(token.text) if token.text else "the end"
        self._refuse(token.start, f"found {found} where it needs {expected}")

    def _refuse(self, at: int, what: str) -> NoReturn:
        line = self._text.count("\n", 0, at) + 1
        column = at - self._text.rfind("\n", 0, at)
        raise BadInput(
            f"{self._where}: line {line}, column {column}: {what}",
            hint="DDL reads like: order_id BIGINT NOT NULL, tags ARRAY<STRING>, "
            "address STRUCT<city: STRING>",
        )


def _type_names() -> list[str]:
    return [*SCALARS, *DECIMALS, "ARRAY", "MAP", "STRUCT"]
