"""Members of a document that are not seen in what Spark parsed.

Of a key that is repeated Spark keeps the last value, and a key that differs from a column's name
only in case is a property like any other that the schema does not name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyspark.sql import types as T

from lossless.pipeline.decode.sql import Sql, any_of, literal, member
from lossless.pipeline.decode.tree import Array, Map, Node, Object, Scalar

TEXT = "CAST(value AS STRING)"
BACKSLASH = literal("\\")
# From the start of a text on, so that each text is read once: a text may have many escapes.
ESCAPED_KEY = literal(r'[{,]\s*+"[^"\\]*+\\(?:[^"\\]++|\\.)*+"\s*+:')
HALF_OF_A_PAIR = literal(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)


def commas_before(end: str, document: Sql) -> Sql:
    """How many commas are in a document that ends with a comma and `end`; of no meaning in others.

    Spark counts as it looks for an element of a list: nothing else in it counts as fast.
    """
    return f"(find_in_set({literal(end)}, {document}) - 1)"


def may_hide_a_key(tree: Object, parsed: Sql, commas: Sql) -> Sql:
    """Whether the document may have members that were not found in it, or odd texts.

    Asked of every record, so it compares `commas` with those that the members which were found
    need, and, if there are more, with those that are in texts besides.
    """
    needed = " + ".join(_commas_of(tree, parsed))
    within = [f"coalesce(size(split({text}, ',')) - 1, 0)" for text in _texts_in(tree, parsed)]
    may_be_in_texts = f"{commas} != {needed} + {' + '.join(within)}" if within else "TRUE"
    has_escapes = f"contains({TEXT}, {BACKSLASH})"
    return f"({has_escapes} OR ({commas} != {needed} AND {may_be_in_texts}))"


def hides_a_key(tree: Object) -> Sql:
    """Whether a key is repeated, differs from a name only in case, or has escapes in it.

    True as well for a text with half of a surrogate pair, which Spark reads as a question mark.
    """
    names = [field.name for field in tree.fields]
    others = f"array_except(json_object_keys({TEXT}), array({', '.join(map(literal, names))}))"
    folded = ", ".join(literal(name.lower()) for name in names)
    line = literal(chr(10))
    suspicions = [
        f"try_parse_json({TEXT}) IS NULL",
        f"arrays_overlap(split(lower(concat_ws({line}, {others})), {line}), array({folded}))",
    ]
    escapes = f"({TEXT} RLIKE {ESCAPED_KEY} OR {has_half_of_a_pair(TEXT)})"
    suspicions.append(f"(contains({TEXT}, {BACKSLASH}) AND {escapes})")
    if within := sorted({name for field in tree.fields for name in _names_within(field.node)}):
        listed = "|".join(re.escape(name) for name in within)
        other_case = rf'"(?!(?:{listed})")(?iu:{listed})"\s*+:'
        suspicions.append(f"{TEXT} RLIKE {literal(other_case)}")
    return f"coalesce({any_of(suspicions)}, FALSE)"


def has_half_of_a_pair(text: Sql) -> Sql:
    without_backslashes = f"replace({text}, {literal(2 * chr(92))}, '__')"
    return f"{without_backslashes} RLIKE {HALF_OF_A_PAIR}"


def _commas_of(tree: Object, value: Sql) -> Iterator[Sql]:
    """Parts of the sum: a comma for each member of an object, and one less in those within.

    What may hide a member without a comma makes the sum too small: an object in which nothing was
    found, and objects in arrays and maps.
    """
    for field in tree.fields:
        child = member(value, field.name)
        yield f"CAST({child} IS NOT NULL AS INT)"
        match field.node:
            case Object():
                yield from _commas_of(field.node, child)
                yield f"- CAST({child} IS NOT NULL AS INT)"
            case Array(element=Scalar()):
                yield f"greatest(coalesce(size({child}), 0) - 1, 0)"
            case node if any(_names_within(node)):
                yield f"- CAST({child} IS NOT NULL AS INT)"


def _texts_in(tree: Object, value: Sql) -> Iterator[Sql]:
    for field in tree.fields:
        child = member(value, field.name)
        if isinstance(field.node, Object):
            yield from _texts_in(field.node, child)
        elif isinstance(field.node, Scalar) and isinstance(field.node.type, T.StringType):
            yield child


def _names_within(node: Node) -> Iterator[str]:
    match node:
        case Object():
            for field in node.fields:
                yield field.name
                yield from _names_within(field.node)
        case Array():
            yield from _names_within(node.element)
        case Map():
            yield from _names_within(node.value)
        case _:
            return
