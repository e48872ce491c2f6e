"""The text of each value of a JSON document, exactly as it was sent.

Spark reads 1.10 as 1.1 and 12345678901234567890123.10 as 1.2345678901234568E22. Where that could
matter, the text of the value is cut out of the document itself, by regular expressions. They only
look for where a value ends, so the document must be known to be JSON.

    texts      a value shaped like the row, whose leaves are texts: of the columns that need them
    patched    the row that Spark read, with the texts in place of what it made of them
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import types as T

from lossless.pipeline.decode.sql import Sql, case, each, fresh, let, literal, member
from lossless.pipeline.decode.tree import (
    Array,
    Field,
    Map,
    Node,
    Object,
    Rule,
    Scalar,
    itself,
    keys_of,
    values_of,
)

# A regular expression has a level for each level of the document.
DEPTH_MAX = 50

_IN_QUOTES = r'(?:[^"\\]++|\\.)*+'
_STRING = f'"{_IN_QUOTES}"'
_PLAIN = r"[^\[\]{}\"]++|" + _STRING


def _nested(depth: int) -> str:
    inner = _PLAIN if depth == 1 else f"{_PLAIN}|{_nested(depth - 1)}"
    return r"[\[{](?:" + inner + r")*+[\]}]"


_VALUE = r"(?:" + _STRING + "|" + _nested(DEPTH_MAX) + r'|[^\s,:\[\]{}"]++)'
_WHITESPACE = r"[ \t\n\r]*+"  # JSON's; \s is more
_WHOLE = literal(r"\A" + _WHITESPACE + _VALUE + _WHITESPACE + r"\z")
_ELEMENT = literal(_VALUE)
_MEMBER = literal(f'"({_IN_QUOTES})"' + r"\s*+:\s*+(" + _VALUE + ")")
_BACKSLASH = literal("\\")
_DIGIT_FIRST = literal("^-?[0-9]")


def is_one_value(document: Sql) -> Sql:
    """Whether nothing follows the first JSON value, which is nested up to DEPTH_MAX deep."""
    return f"{document} RLIKE {_WHOLE}"


def needs_texts(node: Node) -> bool:
    match node:
        case Scalar():
            return node.is_loose or isinstance(
                node.type, T.DecimalType | T.DoubleType | T.FloatType
            )
        case Object():
            return any(needs_texts(field.node) for field in node.fields)
        case Array():
            return needs_texts(node.element)
        case Map():
            return needs_texts(node.value)


def texts(node: Node, source: Sql) -> Sql:
    """The texts within `source`, the text of a value; null where the value has another shape."""
    match node:
        case Scalar():
            return _text(source)
        case Object():
            return _if_begins(source, "{", let(_members(source), lambda m: _struct(node, m)))
        case Array():
            elements = f"regexp_extract_all(substr({source}, 2), {_ELEMENT}, 0)"
            return _if_begins(
                source, "[", each("transform", elements, lambda e: texts(node.element, e))
            )
        case Map():
            return _if_begins(source, "{", let(_members(source), lambda m: _map(node, m)))


def patched(node: Node, parsed: Sql, text: Sql) -> Sql:
    match node:
        case Scalar():
            return text if node.reads == T.StringType() else parsed
        case Object():
            fields = ", ".join(
                f"{literal(f.name)}, "
                + (
                    patched(f.node, member(parsed, f.name), member(text, f.name))
                    if needs_texts(f.node)
                    else member(parsed, f.name)
                )
                for f in node.fields
            )
            return case((f"{parsed} IS NOT NULL", f"named_struct({fields})"))
        case Array():
            element, index = fresh(), fresh()
            body = patched(node.element, element, f"get({text}, {index})")
            return f"transform({parsed}, ({element}, {index}) -> {body})"
        case Map():
            # By position: to look up each key would take time that grows with their square.
            value, index = fresh(), fresh()
            body = patched(node.value, value, f"get({values_of(text)}, {index})")
            values = f"transform({values_of(parsed)}, ({value}, {index}) -> {body})"
            return f"map_from_arrays({keys_of(parsed)}, {values})"


def digit_rules(node: Node) -> Iterator[Rule]:
    """Rules about texts: a number has no more digits than the floating-point type keeps."""
    match node:
        case Scalar(type=T.DoubleType() | T.FloatType()):
            yield Rule(
                broken=lambda text: _loses_digits(text, node.type.simpleString()),
                says=f"has more digits than type {node.called} keeps",
                shows=itself,
            )
        case Object():
            for field in node.fields:
                for rule in digit_rules(field.node):
                    yield rule.within(field.name)
        case Array():
            for rule in digit_rules(node.element):
                yield rule.of_any(itself)
        case Map():
            for rule in digit_rules(node.value):
                yield rule.of_any(values_of)
        case _:
            return


def _loses_digits(text: Sql, kind: str) -> Sql:
    """Whether the shortest text of the floating-point number is another number than the text.

    Java before 19 sometimes writes more digits than are needed, so fewer digits are right too.
    """
    sent, kept = _digits(text), _digits(f"CAST(TRY_CAST({text} AS {kind}) AS STRING)")
    is_kept = f"({sent} = {kept} OR char_length({sent}) < char_length({kept}))"
    return f"({text} RLIKE {_DIGIT_FIRST} AND NOT {is_kept})"


def _digits(number: Sql) -> Sql:
    """The significant digits: two texts of one number have the same."""
    bare = f"regexp_replace({number}, {literal('[eE].*|[-.]')}, '')"
    # Not from every zero of a row of zeros: a text may have a great many.
    return f"regexp_replace({bare}, {literal('^0+|(?<!0)0+$')}, '')"


def _text(source: Sql) -> Sql:
    """The content of a string, and any other value as it was sent. Null for null."""
    content = case(
        (
            f"contains({source}, {_BACKSLASH})",
            f"get(from_json(concat('[', {source}, ']'), 'array<string>'), 0)",
        ),
        otherwise=f"substr({source}, 2, char_length({source}) - 2)",
    )
    return case(
        (f"startswith({source}, '\"')", content),
        (f"{source} != 'null'", source),
    )


def _members(source: Sql) -> Sql:
    names = each("transform", f"regexp_extract_all({source}, {_MEMBER}, 1)", _name)
    values = f"regexp_extract_all({source}, {_MEMBER}, 2)"
    return f"named_struct('names', {names}, 'values', {values})"


def _name(in_quotes: Sql) -> Sql:
    return _text(f"concat('\"', {in_quotes}, '\"')")


def _struct(node: Object, members: Sql) -> Sql:
    def named(field: Field) -> Sql:
        value = let(_value_of(members, field.name), lambda v: texts(field.node, v))
        return f"{literal(field.name)}, {value}"

    return f"named_struct({', '.join(named(f) for f in node.fields if needs_texts(f.node))})"


def _value_of(members: Sql, name: str) -> Sql:
    position = f"CAST(array_position({members}.names, {literal(name)}) AS INT)"
    return f"get({members}.values, {position} - 1)"


def _map(node: Map, members: Sql) -> Sql:
    values = each("transform", f"{members}.values", lambda value: texts(node.value, value))
    return f"map_from_arrays({members}.names, {values})"


def _if_begins(source: Sql, bracket: str, value: Sql) -> Sql:
    return case((f"startswith({source}, '{bracket}')", value))
