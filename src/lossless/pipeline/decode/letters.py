"""Dead letters: the record as it was, and the headers that say where it came from and why it died.

The header names are the ones that consumers of dead letter topics already read.
"""

from __future__ import annotations

from lossless.pipeline.decode.sql import Sql, literal
from lossless.pipeline.outcomes import DEAD_LETTER_TYPE

MALFORMED_JSON = "lossless.MalformedJson"
NO_VALUE = "lossless.NoValue"
SCHEMA_VIOLATION = "lossless.SchemaViolation"
TRANSFORM_FAILED = "lossless.TransformFailed"
UNSTORABLE = "lossless.Unstorable"
UNREADABLE_HEADERS = "lossless.UnreadableHeaders"
TIMESTAMP_OUT_OF_RANGE = "lossless.TimestampOutOfRange"

MESSAGE_LENGTH_MAX = 1000


def dead_letter(
    record: Sql = "", *, fqcn: Sql, message: Sql, group: str, timestamp_ms: Sql = ""
) -> Sql:
    """DEAD_LETTER of a record as Spark's Kafka source gives it.

    `record` is the struct that holds its columns, if they are in one; `fqcn` is a name from above.
    `timestamp_ms` is the Kafka timestamp where the column `timestamp` cannot hold it.
    """
    of = f"{record}." if record else ""
    timestamp_ms = timestamp_ms or f"unix_millis({of}timestamp)"
    headers: dict[str, Sql] = {
        "kafka_dlt-original-topic": f"{of}topic",
        "kafka_dlt-original-partition": f"CAST({of}partition AS STRING)",
        "kafka_dlt-original-offset": f"CAST({of}offset AS STRING)",
        # Milliseconds since the epoch, as in the record itself.
        "kafka_dlt-original-timestamp": f"CAST({timestamp_ms} AS STRING)",
        "kafka_dlt-original-consumer-group": literal(group),
        "kafka_dlt-exception-fqcn": fqcn,
        "kafka_dlt-exception-message": f"substring({message}, 1, {MESSAGE_LENGTH_MAX})",
    }
    entries = ", ".join(f"'{name}', {value}" for name, value in headers.items())
    fields = (
        f"'key', {of}key, 'value', {of}value, 'record_headers', {of}headers,"
        f" 'headers', map({entries})"
    )
    return f"to_json(CAST(named_struct({fields}) AS {DEAD_LETTER_TYPE.simpleString()}))"
