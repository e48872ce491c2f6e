"""Where a record came from, as every row and dead letter carries it."""

from __future__ import annotations

from lossless.pipeline.decode.sql import Sql
from lossless.pipeline.outcomes import PROVENANCE, PROVENANCE_TYPE


def provenance() -> Sql:
    """PROVENANCE of a record as Spark's Kafka source gives it, with `topic_id` beside it."""
    fields = ", ".join(f"'{name}', {name}" for name in PROVENANCE_TYPE.names)
    return f"CAST(named_struct({fields}) AS {PROVENANCE_TYPE.simpleString()}) AS {PROVENANCE}"
