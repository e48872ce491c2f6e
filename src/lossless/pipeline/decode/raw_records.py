"""Raw records: key, value and headers as they are. Nothing can be wrong with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from lossless.pipeline.decode.provenance import provenance
from lossless.pipeline.outcomes import DEAD_LETTER, DEAD_LETTER_TYPE, IS_DEAD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RAW_TYPE = T.StructType(
    [
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
        T.StructField("headers", DEAD_LETTER_TYPE["record_headers"].dataType),
    ]
)


@dataclass(frozen=True, slots=True)
class RawDecoder:
    @property
    def schema(self) -> T.StructType:
        return RAW_TYPE

    def decode(self, records: DataFrame) -> DataFrame:
        return records.selectExpr(
            "key",
            "value",
            f"CAST(headers AS {RAW_TYPE['headers'].dataType.simpleString()}) AS headers",
            provenance(),
            f"CAST(NULL AS STRING) AS {DEAD_LETTER}",
            f"FALSE AS {IS_DEAD}",
        )
