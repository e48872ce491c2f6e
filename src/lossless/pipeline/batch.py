"""One batch: records decoded once, transformed, handed to the sink as outcomes, counted.

Without a transform every record becomes one row or one dead letter, in one pass: what was read is
what was stored and what is dead. With a transform the decoded batch is kept in Spark's cache while
it is counted, transformed and written, and what the transform dropped is the difference.

A transform that fails is tried again before a record is blamed. A failure that tells of something
unreachable is left to the runner, which tries the whole batch again with growing pauses; only when
that has gone on for PATIENCE of `retry_max_s` is the cause looked for among the records.

Records that the sink refuses, when it stages the batch or when it commits it, become dead letters
too: the batch is staged again without them. Their bytes, keys and headers are read from the topic.
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
    UNREADABLE_HEADERS,
    UNSTORABLE,
    Decoder,
    dead_letter,
)
from lossless.pipeline.decode.provenance import provenance
from lossless.pipeline.decode.sql import case, literal
from lossless.pipeline.direct_source import HEADERS_UNREADABLE, OUT_OF_RANGE_MS
from lossless.pipeline.ledger import Receipt, SourcePartition
from lossless.pipeline.outcomes import (
    DEAD_LETTER,
    IS_DEAD,
    PROVENANCE,
    marked,
    tally_by_partition,
)
from lossless.pipeline.session import check_settings
from lossless.pipeline.sinks.interface import Place, RecordsRefused, Sink, Staged
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
Refused = Mapping[Place, str]

NONE_REFUSED: Refused = {}
# The columns of a frame of records that are dead whatever they hold.
_CONDEMNED = {name: f"_lossless_condemned_{name}" for name in ("topic_id", "partition", "offset")}
_WHY, _MESSAGE = "_lossless_condemned_why", "_lossless_condemned_message"
_CONDEMNED_SCHEMA = ", ".join(
    f"{name} {kind}"
    for name, kind in zip(
        (*_CONDEMNED.values(), _WHY, _MESSAGE),
        ("string", "int", "long", "string", "string"),
        strict=True,
    )
)

_IS_OUT_OF_RANGE = f"{OUT_OF_RANGE_MS} IS NOT NULL"
_IS_UNREADABLE = f"{_IS_OUT_OF_RANGE} OR {HEADERS_UNREADABLE}"

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
        self,
        records: DataFrame,
        topics: Mapping[str, str],
        ranges: Sequence[OffsetRange],
        refused: Refused = NONE_REFUSED,
    ) -> Staged:
        """Stages the batch; `refused` are records that become dead letters, and the reasons.

        `topics` gives the id of every topic; `ranges` are the planned offsets.
        """
        check_settings(records.sparkSession)
        records = records.withColumn("topic_id", _topic_id(topics))
        while True:
            try:
                if self.transform is None:
                    return self._stage_decoded(records, refused)
                return self._stage_transformed(self.transform, records, topics, ranges, refused)
            except RecordsRefused as refusal:
                refused = refusal.beyond(refused)

    def _stage_decoded(self, records: DataFrame, refused: Refused) -> Staged:
        condemned = _condemned(records, {}, {}, refused)
        if condemned is None:
            outcomes = self._decode(records)
        else:
            decoded = self._decode(_without(records, condemned)).drop(IS_DEAD)
            letters = _letters(records, condemned, self.group)
            outcomes = marked(decoded.unionByName(letters, allowMissingColumns=True))
        return _with_reads(self.sink.stage(outcomes, may_expand=False), None)

    def _decode(self, records: DataFrame) -> DataFrame:
        """Outcomes of records; those that direct_records could not read whole are dead letters."""
        if OUT_OF_RANGE_MS not in records.columns:
            return self.decoder.decode(records)
        held = records.where(f"NOT ({_IS_UNREADABLE})").drop(OUT_OF_RANGE_MS, HEADERS_UNREADABLE)
        letters = _unreadable_letters(records, self.group)
        return self.decoder.decode(held).unionByName(letters, allowMissingColumns=True)

    def _stage_transformed(
        self,
        transform: Transform,
        records: DataFrame,
        topics: Mapping[str, str],
        ranges: Sequence[OffsetRange],
        refused: Refused,
    ) -> Staged:
        decoded = self._decode(records).persist()
        try:
            read = tally_by_partition(decoded)
            condemned = _condemned(records, topics, {}, refused)
            try:
                staged = self._stage_once(transform, records, decoded, read, condemned)
            except RecordsRefused:
                raise
            except (PySparkException, Py4JJavaError, LosslessError) as error:
                if describe_failure(error).is_transient and self._is_patient():
                    raise
                # Asking which record is to blame also tells whether any is: a sink that is down
                # or a lost executor leaves nothing to find, and the batch is tried again as it is.
                give_up_at = time.monotonic() + self.retry_max_s
                rows = _rows(decoded, condemned)
                rejected = failing_records(transform, rows, topics, ranges, give_up_at=give_up_at)
                are_transient = any(failure.is_transient for failure in rejected.values())
                if not rejected or (are_transient and self._is_patient()):
                    raise
                _refuse_if_all(rejected, rows.count(), error)
                condemned = _condemned(records, topics, rejected, refused)
                staged = self._stage_once(transform, records, decoded, read, condemned)
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
        condemned: DataFrame | None,
    ) -> Staged:
        result = transform(_rows(decoded, condemned))
        result = result.withColumn(DEAD_LETTER, F.lit(None).cast("string"))
        letters = decoded.where(IS_DEAD).select(PROVENANCE, DEAD_LETTER)
        if condemned is not None:
            letters = letters.unionByName(_letters(records, condemned, self.group))
        both = result.unionByName(letters, allowMissingColumns=True)
        return _with_reads(self.sink.stage(marked(both), may_expand=True), read)


def _topic_id(topics: Mapping[str, str]) -> Column:
    if len(topics) == 1:
        return F.lit(next(iter(topics.values())))
    pairs = chain.from_iterable((F.lit(name), F.lit(topic_id)) for name, topic_id in topics.items())
    return F.create_map(*pairs)[F.col("topic")]


def _rows(decoded: DataFrame, condemned: DataFrame | None) -> DataFrame:
    rows = decoded.where(f"NOT {IS_DEAD}").drop(DEAD_LETTER, IS_DEAD)
    return rows if condemned is None else _without(rows, condemned, f"{PROVENANCE}.")


def _condemned(
    records: DataFrame, topics: Mapping[str, str], rejected: Rejected, refused: Refused
) -> DataFrame | None:
    """The records that the transform or the sink fails on, with the reasons; None if none are."""
    dead = [
        (topics[at.topic], at.partition, at.start, TRANSFORM_FAILED, f"{f.exception}: {f.message}")
        for at, f in rejected.items()
    ]
    dead += [(*place, UNSTORABLE, reason) for place, reason in refused.items()]
    return records.sparkSession.createDataFrame(dead, _CONDEMNED_SCHEMA) if dead else None


def _without(frame: DataFrame, condemned: DataFrame, source: str = "") -> DataFrame:
    """The frame without what comes of condemned records; `source` is where it has the place."""
    return frame.join(F.broadcast(condemned), _is_condemned(source), "left_anti")


def _letters(records: DataFrame, condemned: DataFrame, group: str) -> DataFrame:
    """The letters of condemned records: the bytes, key and headers are those of the topic."""
    letter = dead_letter(fqcn=_WHY, message=_MESSAGE, group=group)
    return records.join(F.broadcast(condemned), _is_condemned("")).selectExpr(
        provenance(), f"{letter} AS {DEAD_LETTER}"
    )


def _unreadable_letters(records: DataFrame, group: str) -> DataFrame:
    of_timestamp = (
        f"concat('the timestamp, ', {OUT_OF_RANGE_MS}, ' ms since 1970, is beyond what Spark holds;"
        " is it in another unit than milliseconds?')"
    )
    of_headers = literal("the name of a header is not UTF-8; the headers are not in this letter")
    both = f"concat_ws('; ', {of_timestamp}, {case((HEADERS_UNREADABLE, of_headers))})"
    letter = dead_letter(
        fqcn=case(
            (_IS_OUT_OF_RANGE, literal(TIMESTAMP_OUT_OF_RANGE)),
            otherwise=literal(UNREADABLE_HEADERS),
        ),
        message=both,
        group=group,
        timestamp_ms=f"coalesce({OUT_OF_RANGE_MS}, unix_millis(timestamp))",
    )
    return records.where(_IS_UNREADABLE).selectExpr(
        provenance(), f"{letter} AS {DEAD_LETTER}", f"TRUE AS {IS_DEAD}"
    )


def _is_condemned(source: str) -> Column:
    conditions = [F.col(f"{source}{name}") == F.col(one) for name, one in _CONDEMNED.items()]
    return conditions[0] & conditions[1] & conditions[2]


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


def refuse_foreign_rows(source: SourcePartition, start: int, end: int, receipt: Receipt) -> None:
    """Refuses rows and letters that were not made of the batch's own records."""
    first, last = receipt.first_offset, receipt.last_offset
    if first is not None and first < start:
        raise foreign(f"of offset {first} of {source}, below the batch's first, {start}")
    if last is not None and last >= end:
        raise foreign(f"of offset {last} of {source}, beyond the batch's last, {end - 1}")
    filtered = receipt.read - receipt.stored - receipt.dead
    if filtered.count < 0 or (filtered.count == 0 and filtered.hash != 0):
        raise foreign(
            f"of {receipt.stored.count + receipt.dead.count} records of {source}, but it read "
            f"{receipt.read.count}, or other ones"
        )


def foreign(what: str) -> BadInput:
    """The batch has rows that were not made of its records."""
    return BadInput(
        f"the batch has rows {what}: it was not committed",
        hint=f"a transform may only return rows made of its input, each with the {PROVENANCE} it "
        "came with; does it add rows of a table?",
    )
