"""Outcomes: one DataFrame in which every record of a batch is either rows or a dead letter.

A batch is decoded once. Rows and dead letters travel in the same DataFrame, told apart by the
column IS_DEAD, so that a sink can write both in one evaluation and no non-deterministic step can
disagree with itself. A sink that wrote outcomes reads back what it
wrote to fill its receipts: counts come from what is there, never from what was meant.

    <the row's own columns…>   of no meaning for a dead letter
    _lossless                  struct<topic_id, partition, offset, timestamp>: where it came from
    _lossless_dead_letter      JSON of key, value, record_headers and headers: null for a row
    _lossless_dead             whether it is one; a column of its own, because a sink that asked the
                               letter would cost every row another copy
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from lossless.pipeline.ledger import Receipt
from lossless.tally import HASH_MODULUS, Tally

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PROVENANCE = "_lossless"
DEAD_LETTER = "_lossless_dead_letter"
IS_DEAD = "_lossless_dead"

# 1582-10-15, which every sink can store and every tool can show. Dead letters carry it in place of
# an earlier Kafka timestamp that cannot be stored, so an audit takes all earlier ones for this one.
EARLIEST_MS = -12_219_292_800_000

# In stored rows only: what the row held when it was written (contents.py).
CONTENT_HASH = "_lossless_content_hash"

PROVENANCE_TYPE = T.StructType(
    [
        T.StructField("topic_id", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("timestamp", T.TimestampType()),
    ]
)

# What the JSON of a dead letter holds; bytes are in base64. As a text it costs a row, which has
# none, one column in every copy and file instead of six. `record_headers` are the record's own, as
# they were; `headers` are the ones that people know from dead letter topics
# (kafka_dlt-original-topic, kafka_dlt-exception-message …).
DEAD_LETTER_TYPE = T.StructType(
    [
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
        T.StructField(
            "record_headers",
            T.ArrayType(
                T.StructType(
                    [
                        T.StructField("key", T.StringType()),
                        T.StructField("value", T.BinaryType()),
                    ]
                )
            ),
        ),
        T.StructField("headers", T.MapType(T.StringType(), T.StringType())),
    ]
)


# A record may be as long as a Java array; a letter that cannot be read back stops whoever reads it.
_WHOLE = {"maxStringLen": str(2**31 - 1), "mode": "FAILFAST"}


def opened(letter: Column) -> Column:
    """The parts of a dead letter, from its JSON."""
    return F.from_json(letter, DEAD_LETTER_TYPE, _WHOLE)


def row_schema(outcomes: T.StructType) -> T.StructType:
    """The schema of the rows among outcomes: everything but the dead letter."""
    return T.StructType([f for f in outcomes.fields if f.name not in (DEAD_LETTER, IS_DEAD)])


def marked(frame: DataFrame) -> DataFrame:
    """Outcomes from a frame that has everything but IS_DEAD."""
    return frame.withColumn(IS_DEAD, F.col(DEAD_LETTER).isNotNull())


def provenance_hash(topic_id: Column, partition: Column, offset: Column) -> Column:
    return F.xxhash64(topic_id, partition, offset)


def hash_sums(
    digest: Column, when: Column | None = None, times: Column | None = None
) -> tuple[Column, Column]:
    """Two sums that together give the sum of hashes modulo 2^64, each taken `times` times.

    Spark's ANSI mode refuses a sum that overflows, so the halves are summed apart: neither can
    overflow before four billion records.
    """
    high = F.shiftright(digest, 32)
    low = digest.bitwiseAND(F.lit(0xFFFFFFFF))
    if when is not None:
        high, low = F.when(when, high), F.when(when, low)
    if times is not None:
        high, low = high * times, low * times
    return F.coalesce(F.sum(high), F.lit(0)), F.coalesce(F.sum(low), F.lit(0))


def tally(count: int, high: int, low: int) -> Tally:
    return Tally(count, ((high << 32) + low) % HASH_MODULUS)


def tally_by_partition(frame: DataFrame) -> dict[tuple[str, int], Tally]:
    """Count and hash of the rows of `frame`, which carries PROVENANCE, by (topic id, partition)."""
    topic_id = F.col(f"{PROVENANCE}.topic_id")
    partition = F.col(f"{PROVENANCE}.partition")
    digest = provenance_hash(topic_id, partition, F.col(f"{PROVENANCE}.offset"))
    high, low = hash_sums(digest)
    counted = frame.groupBy(topic_id.alias("topic_id"), partition.alias("partition")).agg(
        F.count(F.lit(1)).alias("count"), high.alias("high"), low.alias("low")
    )
    return {
        (r["topic_id"], r["partition"]): tally(r["count"], r["high"], r["low"])
        for r in counted.collect()
    }


_CONTENT_HALVES = ("content_high", "content_low")


def receipts(written: DataFrame, *, may_expand: bool) -> dict[tuple[str, int], Receipt]:
    """What one batch wrote, by (topic id, partition).

    `written` carries PROVENANCE and IS_DEAD and is read back from where it was written. One job;
    `read` stays zero, because only the runner knows it.
    """
    provenance = [F.col(f"{PROVENANCE}.{field}") for field in ("topic_id", "partition", "offset")]
    sums_contents = may_expand and CONTENT_HASH in written.columns
    written = written.select(
        *provenance,
        F.col(IS_DEAD).alias("dead"),
        F.lit(1).cast("long").alias("rows"),
        *([CONTENT_HASH] if sums_contents else []),
    )
    if may_expand:
        content_high, content_low = hash_sums(F.col(CONTENT_HASH))
        # Several rows of one record are one stored offset. Nothing else needs this shuffle.
        written = written.groupBy("topic_id", "partition", "offset", "dead").agg(
            F.sum("rows").alias("rows"),
            *(
                (content_high.alias("content_high"), content_low.alias("content_low"))
                if sums_contents
                else ()
            ),
        )
    digest = provenance_hash(F.col("topic_id"), F.col("partition"), F.col("offset"))
    high, low = hash_sums(digest)
    row_high, row_low = hash_sums(digest, times=F.col("rows"))
    counted = written.groupBy("topic_id", "partition", "dead").agg(
        F.count(F.lit(1)).alias("count"),
        F.sum("rows").alias("rows"),
        high.alias("high"),
        low.alias("low"),
        *((row_high.alias("row_high"), row_low.alias("row_low")) if may_expand else ()),
        *(F.sum(half).alias(half) for half in _CONTENT_HALVES if sums_contents),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
    )
    found: dict[tuple[str, int], Receipt] = {}
    for row in counted.collect():
        key = (row["topic_id"], row["partition"])
        part = tally(row["count"], row["high"], row["low"])
        receipt = found.get(key, Receipt())
        if row["dead"]:
            receipt = replace(receipt, dead=part)
        else:
            row_hash = None
            if row["rows"] > part.count:
                row_hash = tally(row["rows"], row["row_high"], row["row_low"]).hash
            receipt = replace(receipt, stored=part, rows=row["rows"], row_hash=row_hash)
            if sums_contents:
                contents = tally(row["rows"], row["content_high"], row["content_low"])
                receipt = replace(receipt, content_sum=contents.hash)
        found[key] = replace(
            receipt,
            first_offset=least(receipt.first_offset, row["first_offset"]),
            last_offset=greatest(receipt.last_offset, row["last_offset"]),
        )
    return found


def least(known: int | None, other: int) -> int:
    """The smaller of two offsets, of which one may not be known yet."""
    return other if known is None else min(known, other)


def greatest(known: int | None, other: int) -> int:
    """The larger of two offsets, of which one may not be known yet."""
    return other if known is None else max(known, other)


def add_tallies(tallies: Iterable[Tally]) -> Tally:
    total = Tally()
    for one in tallies:
        total = total + one
    return total
