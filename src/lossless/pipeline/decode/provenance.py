"""Where a record came from, as every row and dead letter carries it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lossless.pipeline.outcomes import PROVENANCE, PROVENANCE_TYPE

if TYPE_CHECKING:
    from pyspark.sql import Column


def provenance() -> Column:
    """PROVENANCE of a record as Spark's Kafka source gives it, with `topic_id` beside it."""
    fields = F.struct(*[F.col(name) for name in PROVENANCE_TYPE.names])
    return fields.cast(PROVENANCE_TYPE).alias(PROVENANCE)
