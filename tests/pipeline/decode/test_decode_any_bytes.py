"""Whatever the bytes are: exactly one of row and dead letter, and nothing throws."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka_records import decoded, schema_file

from lossless.pipeline.decode import decoder
from lossless.pipeline.outcomes import DEAD_LETTER, IS_DEAD, PROVENANCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = {
    "required": ["id"],
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "s": {"type": ["string", "null"]},
        "n": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "l": {"type": "array", "items": {"type": "string"}},
        "o": {"type": "object", "properties": {"id": {"type": "integer"}}},
        "m": {"type": "object"},
    },
}
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("12")
)
documents = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*SCHEMA["properties"], "else"]), inner, max_size=5)
    ),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from([*SCHEMA["properties"]]), documents, max_size=6)
values = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.text(alphabet='{}[]",:1e.-at ', max_size=30).map(str.encode),
    documents.map(lambda document: json.dumps(document).encode()),
    objects.map(lambda document: json.dumps(document | {"id": 1}).encode()),
    objects.map(lambda document: json.dumps(document)[:-1].encode()),
)


@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.large_base_example,
    ],
)
@given(batch=st.lists(values, min_size=80, max_size=120))
def test_every_record_has_a_row_or_a_dead_letter_and_never_both(
    spark: SparkSession, tmp_path: Path, batch: list[bytes | None]
) -> None:
    made = decoder("json", schema_file(tmp_path, SCHEMA))
    outcomes = decoded(spark, made, batch)
    assert sorted(outcome[PROVENANCE]["offset"] for outcome in outcomes) == list(range(len(batch)))
    for outcome in outcomes:
        assert outcome[IS_DEAD] == (outcome[DEAD_LETTER] is not None)
        if outcome[DEAD_LETTER] is None:
            said = json.loads(batch[outcome[PROVENANCE]["offset"]] or b"")
            assert outcome["id"] == said["id"]
            assert outcome["s"] == said.get("s")
            assert outcome["l"] == said.get("l")
