"""Outcomes from a frame in which dead letters are still structs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lossless.pipeline.outcomes import DEAD_LETTER, marked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def outcomes_from(frame: DataFrame) -> DataFrame:
    return marked(frame.withColumn(DEAD_LETTER, F.to_json(DEAD_LETTER)))
