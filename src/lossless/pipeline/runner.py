"""The runner: a Structured Streaming query whose only memory is the ledger in the sink.

    start      ledger ← sink; compare with the log; write down where a new source begins
    query      Spark reads from the ledger's offsets into a checkpoint that is new every time
    batch      plan ← the checkpoint's offset log; stage; check receipts, leader epochs and topic
               ids; commit(expected, next)
    after      the group's offsets go to Kafka, for lag tools; failing there only warns
    trouble    back off, and start again from the ledger

The checkpoint is disposable: it is never read back by a later start, so that it can be neither
ahead of nor behind the ledger, and losing it loses nothing. A batch whose commit fails is planned
again from the ledger, perhaps cut differently; a batch that was committed is never seen again.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import StreamingQueryException

from lossless.contract import PipelineContract
from lossless.errors import (
    BadInput,
    Fenced,
    Interrupted,
    LosslessError,
    PromiseBroken,
    Unavailable,
)
from lossless.pipeline.authorization import denial_in
from lossless.pipeline.batch import NONE_REFUSED, Batcher, Refused, foreign, refuse_foreign_rows
from lossless.pipeline.continuation import refuse_doubling
from lossless.pipeline.crash_points import CrashPoints
from lossless.pipeline.direct_source import direct_records, is_timestamp_overflow
from lossless.pipeline.events import (
    Accepted,
    Committed,
    Lag,
    Observer,
    Retrying,
    Started,
    Stopped,
    Warned,
    unobserved,
)
from lossless.pipeline.ledger import Ledger, Position, Receipt, SourcePartition
from lossless.pipeline.resume import Found, Resume, found_in, resume
from lossless.pipeline.session import is_local, setting
from lossless.pipeline.sinks.interface import (
    CommitUnknown,
    RecordsRefused,
    Sink,
    SinkUnavailable,
    Staged,
)
from lossless.pipeline.source import LogRange, SourceLog, spark_options, starting_offsets
from lossless.pipeline.stopping import CancelsOnStop
from lossless.pipeline.transform import OffsetRange, describe_failure
from lossless.pipeline.watchdog import (
    BatchWatch,
    ClusterManagerLost,
    ManagerWatch,
    executors,
    watch_manager,
)
from lossless.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

# How Spark writes the checkpoint. Its own choice starts a process for each of many looks at a local
# file, a tenth of a second for every batch; a checkpoint that nobody goes on from can do without.
CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
PLAIN_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
WATCH_INTERVAL_S = 1
BACK_OFF_FIRST_S = 0.5
BACK_OFF_MAX_S = 15.0


@dataclass(slots=True, kw_only=True)
class Runner:
    """One pipeline in one driver. Not reusable: make another to run again."""

    spark: SparkSession
    pipeline: PipelineContract
    client_settings: Mapping[str, str]
    source: SourceLog
    sink: Sink
    batcher: Batcher
    row_schema: StructType
    observe: Observer = unobserved
    crash_points: CrashPoints = field(default_factory=CrashPoints.from_environment)

    _began: bool = field(default=False, init=False)  # what fails before that fails at once
    _ledger_read: bool = field(default=False, init=False)
    _batch_left_out: bool = field(default=False, init=False)  # because of a stop
    _complete: bool = field(default=False, init=False)  # everything available is stored
    _when_stopped: str = field(default="before the first batch", init=False)
    _head: Ledger = field(default_factory=Ledger, init=False)
    _checkpoint: Path = field(default_factory=Path, init=False)
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _batch_lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _failure: Exception | None = field(default=None, init=False)
    _last_progress: float = field(default_factory=time.monotonic, init=False)
    _batch: BatchWatch = field(default_factory=BatchWatch, init=False)
    _stuck: dict[SourcePartition, tuple[int, float]] = field(default_factory=dict, init=False)

    def stop(self) -> None:
        """Asks for a drain: the batch under way is finished, no other is begun."""
        self._stop.set()

    def run(self, *, once: bool, accept_loss: bool = False) -> Ledger:
        """Runs until stopped, or with `once` until everything that is there now is in the table.

        Raises Interrupted if it was stopped before it had read its ledger.
        """
        back_off_s = BACK_OFF_FIRST_S
        self._last_progress = time.monotonic()
        try:
            while not self._stop.is_set():
                head_before = self._head
                try:
                    # Accepted are the losses that the start shows, and none that come later.
                    self._run_query(once=once, accept_loss=accept_loss and not self._began)
                    break
                except LosslessError as error:
                    if not self._began or not _worth_retrying(error):
                        raise
                    problem: Exception = error
                except (PySparkException, Py4JJavaError, KafkaException) as error:
                    problem = error
                if denial := denial_in(problem, {**self.client_settings, **self.pipeline.config}):
                    raise denial from problem
                if self._head.sequence > head_before.sequence:
                    back_off_s = BACK_OFF_FIRST_S
                self._back_off(problem, back_off_s)
                back_off_s = min(back_off_s * 2, BACK_OFF_MAX_S)
        finally:
            self.source.close()
        self.observe(
            Stopped(
                pipeline=self.pipeline.name,
                ledger=self._head if self._ledger_read else None,
                complete=self._complete,
                why=self._why_stopped(),
            )
        )
        if not self._ledger_read:
            raise Interrupted(f"{self.pipeline.name}: stopped {self._why_stopped()}")
        return self._head

    def _why_stopped(self) -> str:
        if not self._ledger_read:
            return "before its ledger was read; nothing was written"
        return "everything available is stored" if self._complete else self._when_stopped

    def plan(self, *, accept_loss: bool) -> tuple[Ledger, Resume]:
        """The stored ledger and where to go on from it. Writes nothing."""
        ledger = self.sink.ledger()
        if ledger.sequence < self._head.sequence:
            # A volume that is not mounted looks like a table that never was.
            raise SinkUnavailable(
                f"the {self.sink.describe()} has a ledger at sequence {ledger.sequence}, and this "
                f"driver has committed {self._head.sequence}: the table is gone or was put back",
                hint="bring it back; or, if it is as it should be, start the pipeline again",
            )
        found = self._found(ledger)
        if not ledger.sequence:
            refuse_doubling(self.pipeline.name, self.sink, self.row_schema, found.log)
        start = {} if ledger.sequence else self._start_of(found.log)
        return ledger, resume(ledger, found, start, accept_loss=accept_loss)

    def _begin(self, *, accept_loss: bool) -> Mapping[SourcePartition, int]:
        """Makes the sink ready and writes down what begins here; gives the offsets to read."""
        self._head, going_on = self.plan(accept_loss=accept_loss)
        self._ledger_read = True
        self.sink.sweep()
        self.sink.prepare(self.row_schema, add_columns=self.pipeline.add_columns)
        if going_on.changes:
            # Committed before the first record is read: a pipeline that starts at the latest
            # offset and dies at once must not start later the next time.
            successor = self._head.successor(going_on.changes)
            self._commit(self._head, successor, None)
            self._head = successor
        if going_on.accepted:
            losses = {loss.source: loss.what for loss in going_on.accepted}
            self.observe(Accepted(pipeline=self.pipeline.name, losses=losses))
        self.observe(
            Started(
                pipeline=self.pipeline.name,
                sink=self.sink.describe(),
                ledger=self._head,
                offsets=going_on.offsets,
            )
        )
        return going_on.offsets

    def _found(self, ledger: Ledger) -> Found:
        topics = self.source.topics(self.pipeline.topics, self.pipeline.topic_pattern)
        if not topics and not ledger.positions:
            raise BadInput(f"no topic matches {self.pipeline.topic_pattern!r}")
        return found_in(self.source, ledger, topics)

    def _start_of(self, log: Mapping[SourcePartition, LogRange]) -> dict[SourcePartition, int]:
        match self.pipeline.start:
            case "earliest":
                return {source: held.earliest for source, held in log.items()}
            case "latest":
                return {source: held.latest for source, held in log.items()}
            case datetime() as moment:
                return self.source.offsets_at(list(log), moment)

    def _run_query(self, *, once: bool, accept_loss: bool) -> None:
        with CancelsOnStop(self._stop, self.sink.cancel) as start:
            try:
                offsets = self._begin(accept_loss=accept_loss)
            except LosslessError:
                if start.cancelled:
                    self._when_stopped = "during its start, which was given up"
                    return
                raise
        if self._stop.is_set():
            return
        self._began = True
        self._failure = None
        self._checkpoint = Path(tempfile.mkdtemp(prefix=f"lossless-{self.pipeline.name}-"))
        try:
            query = self._start_query(offsets, once=once)
            try:
                with watch_manager(self.spark) as manager:
                    ended = self._watch(query, manager)
                self._complete = once and ended and not self._batch_left_out
            finally:
                self._end(query)
            if not self._stop.is_set():
                self._report_lag()  # what is left after the last commit
        finally:
            shutil.rmtree(self._checkpoint, ignore_errors=True)

    def _start_query(self, offsets: Mapping[SourcePartition, int], *, once: bool) -> StreamingQuery:
        records = (
            self.spark.readStream.format("kafka")
            .options(**spark_options(self.pipeline, self.client_settings))
            .option("startingOffsets", json.dumps(starting_offsets(offsets)))
            .load()
        )
        writer = (
            records.writeStream.queryName(f"lossless {self.pipeline.name}")
            .option("checkpointLocation", self._checkpoint.as_uri())
            .foreachBatch(self._on_batch)
        )
        if once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self.pipeline.trigger_s} seconds")
        # The query keeps the settings that it was started with.
        with setting(self.spark, CHECKPOINT_FILES, PLAIN_FILES):
            return writer.start()

    def _watch(self, query: StreamingQuery, manager: ManagerWatch) -> bool:
        """Waits for the query's end, or for a stop; meanwhile says how far behind it is.

        Returns whether the query has ended by itself.
        """
        give_up_at: float | None = None
        while True:
            try:
                if query.awaitTermination(WATCH_INTERVAL_S):
                    return True
            except StreamingQueryException as error:
                raise self._failure or error from error
            manager.raise_if_lost()
            if warning := self._batch.warning(self._what_a_batch_lacks):
                self._warn(warning)
            if not self._stop.is_set():
                self._report_lag()
                continue
            # A batch under way holds the lock and may finish; the next one finds the stop and
            # returns at once. Not stopped under the lock: Spark waits for its thread, which may
            # be waiting for the lock.
            if self._batch_lock.acquire(blocking=False):
                self._batch_lock.release()
                return False
            give_up_at = give_up_at or time.monotonic() + self.pipeline.retry_max_s
            if time.monotonic() >= give_up_at:
                self._warn(
                    f"the batch under way did not finish within {self.pipeline.retry_max_s:g} s of "
                    "the request to stop and is given up: the next run resumes from the ledger"
                )
                self._when_stopped = "the batch under way was given up"
                return False

    def _end(self, query: StreamingQuery) -> None:
        try:
            query.stop()
        except (PySparkException, Py4JJavaError) as error:
            # Its thread waits for something that cannot be interrupted, such as a server.
            self._warn(f"the query did not stop in time: {str(error).partition(chr(10))[0]}")

    def _what_a_batch_lacks(self) -> str:
        has_none = not is_local(str(self.spark.sparkContext.master)) and executors(self.spark) == 0
        return ": the application has no executors" if has_none else ""

    def _on_batch(self, records: DataFrame, batch_id: int) -> None:
        with self._batch_lock:
            if self._stop.is_set():
                self._batch_left_out = True
                return
            self._when_stopped = "between two batches"
            try:
                self._run_batch(records, batch_id)
                if self._stop.is_set():
                    self._when_stopped = "the batch under way was finished"
            except Exception as error:
                # Spark wraps what is raised here beyond recognition; _watch raises the original.
                self._failure = error
                self._when_stopped = "after a batch that failed; the next run repeats it"
                raise
            finally:
                self._batch.end()

    def _run_batch(self, records: DataFrame, batch_id: int) -> None:
        began = time.monotonic()
        planned = self._planned_ends(batch_id)
        topics = self._topic_ids(planned)
        ends = {
            SourcePartition(topic, topics[topic], partition): end
            for (topic, partition), end in planned.items()
        }
        starts = {source: self._position(source).next_offset for source in ends}
        ranges = [OffsetRange(s.topic, s.partition, starts[s], end) for s, end in ends.items()]
        if all(len(part) == 0 for part in ranges):
            return
        self._batch.begin(f"staging batch {self._head.sequence + 1}")
        epochs = self.source.leader_epochs(sorted(ends))
        self._refuse_cut_back(
            {s: (starts[s], self._position(s).leader_epoch) for s in ends}, epochs
        )
        refused = NONE_REFUSED
        while True:
            self.crash_points.reached("before-staging")
            staged = self._stage(records, topics, ranges, refused)
            staged_at = time.monotonic()
            self.crash_points.reached("after-staging")
            successor = self._successor(ends, staged, epochs)
            self._refuse_unread(starts, ends, staged.receipts)
            self._refuse_cut_back(
                {s: (end, epochs[s]) for s, end in ends.items()},
                self.source.leader_epochs(sorted(ends)),
            )
            self._check_dead_letters(successor)
            self._topic_ids(planned)  # a topic re-created meanwhile must not be committed
            self.crash_points.reached("before-commit")
            commit_began = time.monotonic()
            self._batch.begin(f"committing batch {successor.sequence}")
            try:
                self._commit(self._head, successor, staged)
                break
            except RecordsRefused as refusal:
                refused = refusal.beyond(refused)
                self._batch.begin(f"staging batch {successor.sequence} again")
        committed_at = time.monotonic()
        self.crash_points.reached("after-commit")
        before, self._head = self._head, successor
        self._last_progress = committed_at
        self._commit_group()
        self.crash_points.reached("after-group-commit")
        self.observe(
            _committed(
                self.pipeline.name,
                before,
                successor,
                staging_s=staged_at - began,
                commit_s=committed_at - commit_began,
                batch_s=time.monotonic() - began,
            )
        )

    def _stage(
        self,
        records: DataFrame,
        topics: Mapping[str, str],
        ranges: Sequence[OffsetRange],
        refused: Refused,
    ) -> Staged:
        try:
            return self.batcher.stage(records, topics, ranges, refused)
        except (PySparkException, Py4JJavaError, LosslessError) as error:
            if not is_timestamp_overflow(error):
                raise
        settings = {**self.client_settings, **self.pipeline.config}
        direct = direct_records(self.spark, settings, ranges, isolation=self.pipeline.isolation)
        return self.batcher.stage(direct, topics, ranges, refused)

    def _planned_ends(self, batch_id: int) -> dict[tuple[str, int], int]:
        """Where the batch ends, from the plan that Spark wrote down before it began.

        Never from the rows: a batch may end in transaction markers or compacted offsets.
        """
        lines = (self._checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
        return {
            (topic, int(partition)): offset
            for topic, partitions in json.loads(lines[-1]).items()
            for partition, offset in partitions.items()
        }

    def _topic_ids(self, planned: Mapping[tuple[str, int], int]) -> dict[str, str]:
        names = sorted({topic for topic, _ in planned})
        topics = {p.topic: p.topic_id for p in self.source.partitions(names)}
        for source, position in self._head.positions.items():
            now = topics.get(source.topic)
            if now is not None and now != source.topic_id and not position.closed:
                raise PromiseBroken(
                    f"topic {source.topic} was re-created while the pipeline ran: its id was "
                    f"{source.topic_id} and is {now}; the ledger stands at offset "
                    f"{position.next_offset} of partition {source.partition}",
                    hint="to go on with the new topic: lossless run --accept-loss",
                )
        return topics

    def _position(self, source: SourcePartition) -> Position:
        # Spark starts a partition that appears while it runs at its first offset, and refuses to
        # go on (failOnDataLoss) when that is not 0.
        return self._head.positions.get(source, Position(start_offset=0, next_offset=0))

    def _refuse_cut_back(
        self,
        positions: Mapping[SourcePartition, tuple[int, int | None]],
        epochs: Mapping[SourcePartition, int | None],
    ) -> None:
        """Starts again from the ledger when an election took records away below a position.

        The start then says whether they had been read before. Within one epoch a log only grows.
        """
        led_by_another = {
            source: (offset, epoch)
            for source, (offset, epoch) in positions.items()
            if epoch is not None and epochs[source] != epoch
        }
        cut_back = self.source.cut_back(led_by_another)
        for source, offset in cut_back.items():
            raise Unavailable(
                f"the log of {source} was cut back to offset {offset} while it was read to "
                f"{positions[source][0]}: an unclean leader election"
            )

    def _refuse_unread(
        self,
        starts: Mapping[SourcePartition, int],
        ends: Mapping[SourcePartition, int],
        receipts: Mapping[tuple[str, int], Receipt],
    ) -> None:
        """Refuses a batch whose plan came back without records that the log holds (SPARK-41375).

        Markers of transactions, aborted records and compaction leave ranges without any record;
        the log itself tells whether it is so.
        """
        empty = {
            source: starts[source]
            for source, end in ends.items()
            if end > starts[source]
            and not receipts.get((source.topic_id, source.partition), Receipt()).read.count
        }
        found = self.source.first_records(empty, isolation=self.pipeline.isolation)
        for source, offset in sorted(found.items()):
            if offset < ends[source]:
                raise Unavailable(
                    f"{source}: Spark handed over no record between offsets {starts[source]} and "
                    f"{ends[source]}, and the log holds one at {offset}: the batch is not committed"
                )

    def _successor(
        self,
        ends: Mapping[SourcePartition, int],
        staged: Staged,
        epochs: Mapping[SourcePartition, int | None],
    ) -> Ledger:
        receipts = staged.receipts
        unplanned = set(receipts) - {(s.topic_id, s.partition) for s in ends}
        if unplanned:
            raise foreign(f"of {', '.join(f'{t}-{p}' for t, p in sorted(unplanned, key=str))}")
        changed = {}
        for source, end in ends.items():
            receipt = receipts.get((source.topic_id, source.partition), Receipt())
            position = self._position(source)
            if receipt.read.count > end - position.next_offset:
                raise PromiseBroken(
                    f"{source}: {receipt.read.count} records between offsets "
                    f"{position.next_offset} and {end}: the source gave some of them twice"
                )
            refuse_foreign_rows(source, position.next_offset, end, receipt)
            if end != position.next_offset or source not in self._head.positions:
                changed[source] = position.advanced(
                    end, receipt, leader_epoch=epochs[source], hashed=bool(staged.columns)
                )
        return self._head.successor(changed, columns=staged.columns)

    def _check_dead_letters(self, successor: Ledger) -> None:
        limit = self.pipeline.dead_letters_max
        dead = sum(position.dead.count for position in successor.positions.values())
        if limit is not None and dead > limit:
            raise PromiseBroken(
                f"{dead} dead letters, and dead_letters_max = {limit}: the batch was not committed",
                hint="look at the records from the ledger's offsets on, mend the schema or the "
                "producer, or raise dead_letters_max",
            )

    def _commit(self, expected: Ledger, successor: Ledger, staged: Staged | None) -> None:
        try:
            self.sink.commit(expected, successor, staged)
        except CommitUnknown:
            stored = self.sink.ledger()
            if stored == successor:
                return
            if stored != expected:
                raise Fenced(
                    f"the ledger of {self.pipeline.name} moved to sequence {stored.sequence} "
                    "while the outcome of our commit was not known: another driver runs it"
                ) from None
            raise

    def _commit_group(self) -> None:
        try:
            self.source.commit_group(self.pipeline.group, self._head)
        except KafkaException as error:
            self._warn(f"offsets of group {self.pipeline.group} not committed to Kafka: {error}")

    def _report_lag(self) -> None:
        sources = [s for s, position in self._head.positions.items() if not position.closed]
        try:
            latest = self.source.latest(sources)
            open_transactions = self.source.open_transactions(sources)
        except LosslessError as error:
            self._warn(str(error))
            return
        lag = {s: max(0, latest[s] - self._head.positions[s].next_offset) for s in sources}
        self.observe(Lag(pipeline=self.pipeline.name, by_partition=lag))
        if self.pipeline.isolation == "read_committed":
            self._report_stuck(open_transactions)

    def _report_stuck(self, open_transactions: Mapping[SourcePartition, tuple[int, int]]) -> None:
        """A transaction that nobody ends holds up every reader of committed records: say so."""
        now = time.monotonic()
        stuck = {}
        for source, (stable, watermark) in open_transactions.items():
            seen, since = self._stuck.get(source, (stable, now))
            if seen != stable:
                since = now
            elif now - since >= self.pipeline.stuck_after_s:
                self._warn(
                    f"{source}: the last stable offset has stood at {stable} for "
                    f"{now - since:.0f} s while the log goes on to {watermark}: a producer left a "
                    "transaction open. kafka-transactions.sh find-hanging names it."
                )
                since = now
            stuck[source] = (stable, since)
        self._stuck = stuck

    def _back_off(self, problem: Exception, wait_s: float) -> None:
        without_progress_s = time.monotonic() - self._last_progress
        if without_progress_s + wait_s > self.pipeline.retry_max_s:
            if isinstance(problem, LosslessError):
                raise problem
            failure = describe_failure(problem)
            raise Unavailable(
                f"{self.pipeline.name}: no progress for {without_progress_s:.0f} s: "
                f"{failure.exception}: {failure.message}"
            ) from problem
        self.observe(
            Retrying(
                pipeline=self.pipeline.name, why=str(problem).partition("\n")[0], wait_s=wait_s
            )
        )
        self._stop.wait(wait_s)

    def _warn(self, message: str) -> None:
        self.observe(Warned(pipeline=self.pipeline.name, message=message))


def _worth_retrying(error: LosslessError) -> bool:
    return isinstance(error, Unavailable) and not isinstance(error, Fenced | ClusterManagerLost)


def _committed(
    pipeline: str,
    before: Ledger,
    after: Ledger,
    *,
    staging_s: float,
    commit_s: float,
    batch_s: float,
) -> Committed:
    nothing = Position(start_offset=0, next_offset=0)
    read, dead, filtered, rows = Tally(), Tally(), Tally(), 0
    for source, position in after.positions.items():
        earlier = before.positions.get(source, nothing)
        read += position.read - earlier.read
        dead += position.dead - earlier.dead
        filtered += position.filtered - earlier.filtered
        rows += position.rows - earlier.rows
    return Committed(
        pipeline=pipeline,
        ledger=after,
        records=read.count,
        rows=rows,
        dead_letters=dead.count,
        filtered=filtered.count,
        staging_s=staging_s,
        commit_s=commit_s,
        batch_s=batch_s,
    )
