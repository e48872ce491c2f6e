"""Dead letters: the record as it was, and the headers that say where it came from and why it died.

The header names are the ones that consumers of dead letter topics already read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lossless.pipeline.outcomes import DEAD_LETTER_TYPE

if TYPE_CHECKING:
    from pyspark.sql import Column

MALFORMED_JSON = "lossless.MalformedJson"
NO_VALUE = "lossless.NoValue"
SCHEMA_VIOLATION = "lossless.SchemaViolation"
TRANSFORM_FAILED = "lossless.TransformFailed"

MESSAGE_LENGTH_MAX = 1000


def dead_letter(
    *, fqcn: Column, message: Column, group: str, stacktrace: Column | None = None
) -> Column:
    """The DEAD_LETTER struct of a record as Spark's Kafka source gives it.

    `fqcn` is one of the names above; a stack trace is written only where there is one.
    """
    headers: dict[str, Column] = {
        "kafka_dlt-original-topic": F.col("topic"),
        "kafka_dlt-original-partition": F.col("partition").cast("string"),
        "kafka_dlt-original-offset": F.col("offset").cast("string"),
        # Milliseconds since the epoch, as in the record itself.
        "kafka_dlt-original-timestamp": F.unix_millis("timestamp").cast("string"),
        "kafka_dlt-original-consumer-group": F.lit(group),
        "kafka_dlt-exception-fqcn": fqcn,
        "kafka_dlt-exception-message": F.substring(message, 1, MESSAGE_LENGTH_MAX),
    }
    if stacktrace is not None:
        headers["kafka_dlt-exception-stacktrace"] = stacktrace
    entries = [part for name, value in headers.items() for part in (F.lit(name), value)]
    return F.struct(
        F.col("key").alias("key"),
        F.col("value").alias("value"),
        F.col("headers").alias("record_headers"),
        F.create_map(*entries).alias("headers"),
    ).cast(DEAD_LETTER_TYPE)
