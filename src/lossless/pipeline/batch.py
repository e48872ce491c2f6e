"""One batch: records decoded once, transformed, handed to the sink as outcomes, counted.

Without a transform every record becomes one row or one dead letter, in one pass: what was read is
what was stored and what is dead. With a transform the decoded batch is kept in Spark's cache while
it is counted, transformed and written, and what the transform dropped is the difference.

A transform that fails is tried again before a record is blamed. A failure that tells of something
unreachable is left to the runner, which tries the whole batch again with growing pauses; only when
that has gone on for PATIENCE of `retry_max_s` is the cause looked for among the records.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from lossless.errors import BadInput, LosslessError, Unavailable
from lossless.pipeline.decode import (
    TIMESTAMP_OUT_OF_RANGE,
    TRANSFORM_FAILED,
    Decoder,
    dead_letter,
)
from lossless.pipeline.decode.provenance import provenance
from lossless.pipeline.decode.sql import Sql, case, literal
from lossless.pipeline.direct_source import OUT_OF_RANGE_MS
from lossless.pipeline.ledger import Receipt
from lossless.pipeline.outcomes import (
    DEAD_LETTER,
    IS_DEAD,
    PROVENANCE,
    marked,
    tally_by_partition,
)
from lossless.pipeline.sinks.interface import Sink, Staged
from lossless.pipeline.transform import (
    Failure,
    OffsetRange,
    Transform,
    describe_failure,
    failing_records,
)
from lossless.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Rejected = Mapping[OffsetRange, Failure]

# The part of `retry_max_s` in which an unreachable service is waited for. The rest is for finding
# the records that are to blame, if some are.
PATIENCE = 0.5


@dataclass(slots=True, kw_only=True)
class Batcher:
    """Turns the records of a batch into staged outcomes with complete receipts."""

    decoder: Decoder
    transform: Transform | None
    sink: Sink
    group: str  # named in dead letters as the consumer group
    retry_max_s: float = 300.0

    _transient_since: float | None = field(default=None, init=False)

    def stage(
        self, records: DataFrame, topics: Mapping[str, str], ranges: Sequence[OffsetRange]
    ) -> Staged:
        """`topics` gives the id of every topic; `ranges` are the planned offsets."""
        records = records.withColumn("topic_id", _topic_id(topics))
        if self.transform is None:
            staged = self.sink.stage(self._decode(records), may_expand=False)
            return _with_reads(staged, None)
        return self._stage_transformed(self.transform, records, topics, ranges)

    def _decode(self, records: DataFrame) -> DataFrame:
        """Outcomes of records; those whose timestamp Spark cannot hold are dead letters."""
        if OUT_OF_RANGE_MS not in records.columns:
            return self.decoder.decode(records)
        held = records.where(f"{OUT_OF_RANGE_MS} IS NULL").drop(OUT_OF_RANGE_MS)
        letters = _out_of_range_letters(records, self.group)
        return self.decoder.decode(held).unionByName(letters, allowMissingColumns=True)

    def _stage_transformed(
        self,
        transform: Transform,
        records: DataFrame,
        topics: Mapping[str, str],
        ranges: Sequence[OffsetRange],
    ) -> Staged:
        decoded = self._decode(records).persist()
        try:
            read = tally_by_partition(decoded)
            try:
                staged = self._stage_once(transform, records, decoded, read, topics, {})
            except (PySparkException, Py4JJavaError, LosslessError) as error:
                if describe_failure(error).is_transient and self._is_patient():
                    raise
                # Asking which record is to blame also tells whether any is: a sink that is down
                # or a lost executor leaves nothing to find, and the batch is tried again as it is.
                give_up_at = time.monotonic() + self.retry_max_s
                rejected = failing_records(
                    transform, _rows(decoded), topics, ranges, give_up_at=give_up_at
                )
                are_transient = any(failure.is_transient for failure in rejected.values())
                if not rejected or (are_transient and self._is_patient()):
                    raise
                _refuse_if_all(rejected, _rows(decoded).count(), error)
                staged = self._stage_once(transform, records, decoded, read, topics, rejected)
            self._transient_since = None
            return staged
        finally:
            decoded.unpersist()

    def _is_patient(self) -> bool:
        """Whether something that is unreachable may still come back."""
        now = time.monotonic()
        if self._transient_since is None:
            self._transient_since = now
        return now - self._transient_since < self.retry_max_s * PATIENCE

    def _stage_once(
        self,
        transform: Transform,
        records: DataFrame,
        decoded: DataFrame,
        read: Mapping[tuple[str, int], Tally],
        topics: Mapping[str, str],
        rejected: Rejected,
    ) -> Staged:
        rows = _rows(decoded)
        if rejected:
            rows = rows.where(~_is_rejected(rejected, topics))
        result = transform(rows).withColumn(DEAD_LETTER, F.lit(None).cast("string"))
        letters = decoded.where(IS_DEAD).select(PROVENANCE, DEAD_LETTER)
        if rejected:
            letters = letters.unionByName(_rejected_letters(records, rejected, self.group))
        both = result.unionByName(letters, allowMissingColumns=True)
        return _with_reads(self.sink.stage(marked(both), may_expand=True), read)


def _topic_id(topics: Mapping[str, str]) -> Column:
    if len(topics) == 1:
        return F.lit(next(iter(topics.values())))
    pairs = chain.from_iterable((F.lit(name), F.lit(topic_id)) for name, topic_id in topics.items())
    return F.create_map(*pairs)[F.col("topic")]


def _rows(decoded: DataFrame) -> DataFrame:
    return decoded.where(f"NOT {IS_DEAD}").drop(DEAD_LETTER, IS_DEAD)


def _is_rejected(rejected: Rejected, topics: Mapping[str, str]) -> Column:
    condition = F.lit(False)
    for record in rejected:
        condition = condition | (
            (F.col(f"{PROVENANCE}.topic_id") == topics[record.topic])
            & (F.col(f"{PROVENANCE}.partition") == record.partition)
            & (F.col(f"{PROVENANCE}.offset") == record.start)
        )
    return condition


def _rejected_letters(records: DataFrame, rejected: Rejected, group: str) -> DataFrame:
    """The letters of records that decode well and that the transform fails on."""
    message = case(
        *((_is_at(at), literal(f"{why.exception}: {why.message}")) for at, why in rejected.items())
    )
    letter = dead_letter(fqcn=literal(TRANSFORM_FAILED), message=message, group=group)
    return records.where(f"{message} IS NOT NULL").selectExpr(
        provenance(), f"{letter} AS {DEAD_LETTER}"
    )


def _out_of_range_letters(records: DataFrame, group: str) -> DataFrame:
    message = (
        f"concat('the timestamp, ', {OUT_OF_RANGE_MS}, ' ms since 1970, is beyond what Spark holds;"
        " is it in another unit than milliseconds?')"
    )
    letter = dead_letter(
        fqcn=literal(TIMESTAMP_OUT_OF_RANGE),
        message=message,
        group=group,
        timestamp_ms=OUT_OF_RANGE_MS,
    )
    return records.where(f"{OUT_OF_RANGE_MS} IS NOT NULL").selectExpr(
        provenance(), f"{letter} AS {DEAD_LETTER}", f"TRUE AS {IS_DEAD}"
    )


def _is_at(record: OffsetRange) -> Sql:
    place = f"partition = {record.partition} AND offset = {record.start}"
    return f"topic = {literal(record.topic)} AND {place}"


def _refuse_if_all(rejected: Rejected, decoded_well: int, error: BaseException) -> None:
    """A transform that fails on everything is broken; a lone record that fails is a bad record."""
    if len(rejected) > 1 and len(rejected) == decoded_well:
        failure = next(iter(rejected.values()))
        refusal = Unavailable if failure.is_transient else BadInput
        raise refusal(
            f"the transform fails on every record: {failure.exception}: {failure.message}",
            hint="nothing of this batch was written; mend the transform and run again",
        ) from error


def _with_reads(staged: Staged, read: Mapping[tuple[str, int], Tally] | None) -> Staged:
    """Fills in what was read: counted before the transform, or the sum of the outcomes."""
    if read is None:
        receipts = {
            key: replace(receipt, read=receipt.stored + receipt.dead)
            for key, receipt in staged.receipts.items()
        }
    else:
        receipts = {
            key: replace(staged.receipts.get(key, Receipt()), read=read.get(key, Tally()))
            for key in {*staged.receipts, *read}
        }
    return replace(staged, receipts=receipts)
