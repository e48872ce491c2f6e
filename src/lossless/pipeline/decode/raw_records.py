"""Raw records: key, value and headers as they are. Nothing can be wrong with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lossless.pipeline.decode.provenance import provenance
from lossless.pipeline.outcomes import DEAD_LETTER, DEAD_LETTER_TYPE

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
        row = F.struct(*[F.col(name) for name in RAW_TYPE.names]).cast(RAW_TYPE)
        return records.select(
            provenance(), row.alias("row"), F.lit(None).cast(DEAD_LETTER_TYPE).alias(DEAD_LETTER)
        )
