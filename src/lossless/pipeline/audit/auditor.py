"""The course of an audit: ledger, log ends, one scan, ledger again; then, only where needed, names.

A live pipeline may commit while the audit runs. The ledger that is read first says what must
balance; the one read after the scan says how far rows may reach: rows between the two are simply
newer, rows beyond the second are a finding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lossless.acknowledged import AcknowledgedCount, latest_revisions
from lossless.errors import LosslessError, Unavailable, Undecided
from lossless.pipeline.audit.acknowledged_file import (
    AcknowledgedRecord,
    PartitionAcknowledged,
    compare_with_log,
    read_acknowledged_file,
)
from lossless.pipeline.audit.balance import (
    NEVER_READ,
    AcknowledgedBalance,
    Examination,
    balance_acknowledged,
    examine,
    expands,
    logged_by_bucket,
    tally_of,
)
from lossless.pipeline.audit.contents import (
    COUNTED_ONLY,
    NOT_COMPARED,
    compare_contents,
    compare_sums,
)
from lossless.pipeline.audit.differences import (
    DIFFERENCES_MAX,
    DifferenceSearch,
    unknown_sources,
)
from lossless.pipeline.audit.identity import find_other_records, note_on_timestamps
from lossless.pipeline.audit.log import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    AuditedLog,
    TopicSelection,
)
from lossless.pipeline.audit.model import (
    AuditReport,
    Difference,
    Finding,
    FindingKind,
    HiddenRecords,
    LogBounds,
    PartitionEvidence,
    Region,
    Reported,
    Side,
)
from lossless.pipeline.audit.naming import in_bucket, name_lost, name_records
from lossless.pipeline.audit.reports import choose_bucket_ms, gather
from lossless.pipeline.audit.scan import Limits, Scan, UnknownGroup, scan
from lossless.pipeline.audit.summary import (
    MISSING_KINDS,
    AuditedPartition,
    add_buckets,
    buckets_of,
    how_reported,
    merge,
    summarise,
    verdict_of,
)
from lossless.pipeline.contents import Uncoverings, uncoverings
from lossless.pipeline.continuation import refuse_other_name
from lossless.pipeline.direct_source import is_timestamp_overflow
from lossless.pipeline.ledger import (
    Ledger,
    LedgerEntry,
    Position,
    SourcePartition,
    place_losses,
)
from lossless.pipeline.session import check_settings
from lossless.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

from lossless.pipeline.sinks.unreadable_files import UnreadableFile

FILES_NAMED_MAX = 10
Progress = Callable[[str], None]


class Audited(Protocol):
    """What an audit needs of a sink; every `Sink` has it."""

    def describe(self) -> str: ...

    def ledger(self) -> Ledger | None:
        """None: a table that nobody keeps a ledger for."""

    def history(self) -> Sequence[LedgerEntry]: ...

    def other_ledgers(self) -> Mapping[str, Ledger]:
        """Of other pipelines that write into the same table, by their names."""

    def rows(self) -> DataFrame: ...

    def contents(self, covered: Sequence[str], uncovered: Uncoverings) -> DataFrame: ...

    def content_hashes(self) -> DataFrame:
        """PROVENANCE, field by field, and CONTENT_HASH of every row that has one."""

    def unreadable_files(self, *, read: bool) -> Sequence[UnreadableFile]:
        """Data files of the table that are gone or damaged."""

    def leave_out(self, files: Sequence[UnreadableFile]) -> None: ...

    def dead_letters(self) -> DataFrame: ...


class AuditedPipeline(Protocol):
    """What an audit needs of a pipeline's contract."""

    @property
    def name(self) -> str: ...

    @property
    def topics(self) -> tuple[str, ...]: ...

    @property
    def topic_pattern(self) -> str | None: ...

    @property
    def isolation(self) -> str: ...


def audit(
    spark: SparkSession,
    *,
    pipeline: AuditedPipeline,
    sink: Audited,
    client_settings: Mapping[str, str],
    bucket_s: int | None = None,
    acknowledged_file: Path | None = None,
    contents: bool = False,
    progress: Progress | None = None,
) -> AuditReport:
    """Topics against table. A finding is in the report; what prevents an answer is raised.

    `contents`: also compare what rows hold with the hashes that they were written with.
    """
    check_settings(spark)
    records = read_acknowledged_file(acknowledged_file) if acknowledged_file else None
    log = AuditedLog(
        client_settings,
        TopicSelection(
            topics=pipeline.topics,
            topic_pattern=pipeline.topic_pattern,
            isolation=pipeline.isolation,
        ),
    )
    auditing = _Audit(
        spark=spark,
        name=pipeline.name,
        sink=sink,
        log=log,
        say=progress or (lambda _: None),
    )

    def run() -> AuditReport:
        try:
            return auditing.run(records, bucket_s, contents=contents)
        except LosslessError as error:
            if log.reads_directly or not is_timestamp_overflow(error):
                raise
        auditing.say("reading the log without Spark's source, which fails on a timestamp in it")
        log.reads_directly = True
        return auditing.run(records, bucket_s, contents=contents)

    try:
        try:
            report = run()
            if not any(finding.kind in MISSING_KINDS for finding in report.findings):
                return report
            # Spark takes an empty file, or one that is not in a folder, for no rows.
            unreadable = sink.unreadable_files(read=False)
        except Unavailable:
            auditing.say("looking for files of the table that cannot be read")
            unreadable = sink.unreadable_files(read=True)
            if not unreadable:
                raise
            auditing.say("reading the table without the files that cannot be read")
            sink.leave_out(unreadable)
            report = run()
        if not unreadable:
            return report
        return replace(report, notes=[_left_out(sink.describe(), unreadable), *report.notes])
    finally:
        log.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Audit:
    spark: SparkSession
    name: str
    sink: Audited
    log: AuditedLog
    say: Progress

    def run(
        self,
        records: Sequence[AcknowledgedRecord] | None,
        bucket_s: int | None,
        *,
        contents: bool,
    ) -> AuditReport:
        started_ms = int(time.time() * 1000)
        self.say("reading the ledger")
        ledger = self.sink.ledger()
        positions = dict(ledger.positions) if ledger else {}
        present = self.log.partitions(positions)
        # What the contract selects is read again, whatever was accepted before.
        for source in present:
            if source in positions and source.topic in self.log.selected:
                positions[source] = replace(positions[source], closed=False)
        if ledger is not None and not ledger.sequence:
            ledgers = self.sink.other_ledgers()
            refuse_other_name(self.name, self.sink.describe(), ledgers, present)
        # Reports before log ends: what was acknowledged by then must be in the log.
        reports: list[AcknowledgedCount] | None = None
        skipped_reports: list[str] = []
        if records is None:
            self.say("reading what producers reported")
            found = self.log.acknowledged_reports()
            if found is not None:
                reports = latest_revisions(found.reports)
                skipped_reports = found.notes
        bounds = self.log.bounds(present)
        if ledger is None:
            # Without a ledger the whole log is what the table must hold.
            positions = {
                s: Position(start_offset=b.start, next_offset=b.end) for s, b in bounds.items()
            }
        elif ledger.sequence:
            # Whatever appears once there is a ledger begins at its first offset, as in `run`.
            positions = {**dict.fromkeys(bounds, NEVER_READ), **positions}
        if any(position.unplaced_losses for position in positions.values()):
            history = self.sink.history()
            positions = {s: place_losses(p, s, history) for s, p in positions.items()}
        cut_back = self.log.cut_back(positions, bounds)
        acknowledged = gather(reports, positions, bounds)
        bucket_ms, bucket_note = choose_bucket_ms(
            bucket_s, acknowledged.width_ms, lambda: self.log.time_span_ms(present)
        )
        ranges = {
            source: (
                max(
                    held.start, acknowledged.scan_from.get(source, _start(positions, source, held))
                ),
                held.end,
            )
            for source, held in bounds.items()
        }
        rows, letters = self.sink.rows(), self.sink.dead_letters()
        self.say(f"scanning {sum(e - s for s, e in ranges.values()):,} offsets and the table")
        scanned = scan(
            log=self.log.frame(self.spark, ranges),
            logged=bounds,
            rows=rows,
            letters=letters,
            limits=_limits(positions, bounds),
            bucket_ms=bucket_ms,
            count_distinct=any(expands(p) for p in positions.values()),
        )
        after = self.sink.ledger()
        if ledger is not None and (after is None or after.sequence < ledger.sequence):
            raise Undecided(
                f"the ledger went back from commit {ledger.sequence} to "
                f"{after.sequence if after else 0} while the audit was reading",
                hint="was the sink being restored? run the audit again",
            )
        evidence = _evidence(
            positions if ledger is not None else None,
            after.positions if after else {},
            bounds,
            cut_back,
            self.log.compacted_topics(sorted({s.topic for s in bounds})),
            scanned,
            acknowledged.by_bucket(bucket_ms),
            acknowledged.offsets_by_bucket(bucket_ms),
        )
        examinations = [examine(each) for each in evidence]
        if records is not None:
            self.say(f"comparing {len(records):,} acknowledged records with the log")
            of_file = compare_with_log(
                self.spark, records, self.log.frame(self.spark, ranges), bounds, bucket_ms
            )
            balances = {e.evidence.source: _balance_of_file(e, of_file) for e in examinations}
        else:
            of_file = {}
            examinations = self._with_hidden(examinations, ranges, bucket_ms)
            balances = {
                e.evidence.source: balance_acknowledged(e)
                for e in examinations
                if e.evidence.acknowledged is not None
            }
        partitions, cut = self._name(examinations, balances, of_file, rows, letters, bucket_ms)
        strangers, newer = _strangers(scanned.unknown, after)
        strangers -= {
            (source.topic_id, source.partition)
            for other in (self.sink.other_ledgers().values() if strangers else ())
            for source in other.positions
        }
        unknown = unknown_sources(rows, letters, strangers) if strangers else []
        notes = [note for note in (bucket_note, *skipped_reports, *acknowledged.notes) if note]
        if not contents:
            notes += [NOT_COMPARED, *note_on_timestamps([p.examination for p in partitions])]
            if any(expands(position) for position in positions.values()):
                notes.append(COUNTED_ONLY)
        elif ledger is not None:
            self.say("comparing the contents of rows")
            compared = compare_contents(
                self.sink.contents(
                    after.columns if after else (),
                    uncoverings(after.positions if after else {}),
                ),
                positions,
            )
            sums = compare_sums(self.sink.content_hashes(), positions)
            notes += [*compared.notes, *sums.notes]
            self.say("comparing timestamps and dead letters with the log")
            others = find_other_records(
                self.spark, self.log, [p.examination for p in partitions], rows, letters
            )
            cut |= compared.cut or sums.cut or others.cut
            partitions = [
                reduce(
                    lambda partition, found: _with_findings(partition, found, bucket_ms),
                    (compared.findings, sums.findings, others.findings),
                    p,
                )
                for p in partitions
            ]
        if newer:
            notes.append(f"{newer} rows came from partitions that the ledger met during the audit")
        never_ran = (
            [f"{self.name} has never run: its ledger is empty, and there is nothing to compare"]
            if ledger is not None and ledger.sequence == 0
            else []
        )
        return self._report(
            started_ms,
            ledger.sequence if ledger else 0,
            bucket_ms,
            partitions,
            unknown,
            notes,
            never_ran,
            cut,
        )

    def _with_hidden(
        self,
        examinations: list[Examination],
        ranges: Mapping[SourcePartition, tuple[int, int]],
        bucket_ms: int,
    ) -> list[Examination]:
        """Looks for aborted and open transactions where more was acknowledged than is readable."""
        if self.log.isolation != READ_COMMITTED:
            return examinations
        doubtful = [
            e.evidence.source
            for e in examinations
            if e.evidence.acknowledged is not None and e.evidence.log is not None and _short(e)
        ]
        if not doubtful:
            return examinations
        self.say("looking for aborted transactions")
        ends = self.log.high_watermarks(doubtful)
        wide = {source: (ranges[source][0], ends[source]) for source in doubtful}
        everything = scan(
            log=self.log.frame(self.spark, wide, isolation=READ_UNCOMMITTED),
            logged=doubtful,
            limits={s: Limits(start=0, log_start=0, next=ranges[s][1]) for s in doubtful},
            bucket_ms=bucket_ms,
        )
        return [
            examine(replace(e.evidence, hidden=_hidden(e.evidence, everything)))
            if e.evidence.source in wide
            else e
            for e in examinations
        ]

    def _name(
        self,
        examinations: Sequence[Examination],
        balances: Mapping[SourcePartition, AcknowledgedBalance],
        of_file: Mapping[SourcePartition, PartitionAcknowledged],
        rows: DataFrame,
        letters: DataFrame,
        bucket_ms: int,
    ) -> tuple[list[AuditedPartition], bool]:
        doubtful = [e for e in examinations if e.needs_comparison]
        differences: Mapping[SourcePartition, Sequence[Difference]] = {}
        cut = False
        if doubtful:
            self.say(f"comparing the records of {len(doubtful)} partitions one by one")
            search = DifferenceSearch(self.spark, self.log, rows, letters)
            differences, cut = search.within(doubtful)
            history = self.sink.history()
            named = {e.evidence.source for e in doubtful}
            examinations = [
                examine(replace(e.evidence, history=history)) if e.evidence.source in named else e
                for e in examinations
            ]
        partitions = []
        for examination in examinations:
            source = examination.evidence.source
            balance = balances.get(source)
            findings = name_records(examination, differences.get(source, ()), complete=not cut)
            if balance is not None and balance.lost:
                # The producers counted what retention deleted: their number is the better one.
                findings = [
                    replace(f, records=0) if f.kind is FindingKind.DELETED_UNREAD else f
                    for f in findings
                ]
            if source in of_file:
                findings += of_file[source].findings
            elif balance is not None:
                findings += name_lost(examination, balance)
            partitions.append(
                AuditedPartition(
                    examination=examination,
                    acknowledged=balance,
                    findings=[in_bucket(f, bucket_ms) for f in findings],
                )
            )
        return partitions, cut

    def _report(
        self,
        started_ms: int,
        sequence: int,
        bucket_ms: int,
        partitions: Sequence[AuditedPartition],
        unknown: Sequence[Finding],
        notes: Sequence[str],
        never_ran: Sequence[str],
        cut: bool,
    ) -> AuditReport:
        findings = [f for p in partitions for f in p.findings] + list(unknown)
        undecided = [*never_ran, *(why for p in partitions for why in p.examination.undecided)]
        undecided += [why for p in partitions if p.acknowledged for why in p.acknowledged.undecided]
        lines = merge(buckets_of(p) for p in partitions)
        total = add_buckets(lines)
        total = replace(
            total,
            unexpected=total.unexpected + sum(f.records for f in unknown),
            balanced=total.balanced and not findings,
        )
        reported = how_reported(partitions)
        all_notes = [*notes, *(note for p in partitions for note in p.examination.notes)]
        if reported is Reported.PARTLY:
            unreported = sum(p.acknowledged.unreported for p in partitions if p.acknowledged)
            all_notes.append(
                f"{unreported} records in the log are in no producer's report: a loss before the "
                "log among their neighbours would not show"
            )
        if cut:
            all_notes.append(f"only the first {DIFFERENCES_MAX} differences were looked at")
        return AuditReport(
            pipeline=self.name,
            sink=self.sink.describe(),
            audited_at_ms=started_ms,
            sequence=sequence,
            bucket_ms=bucket_ms,
            reported=reported,
            verdict=verdict_of(findings, undecided),
            buckets=lines,
            partitions=[summarise(p) for p in partitions],
            total=total,
            findings=findings,
            notes=all_notes,
            undecided=undecided,
        )


def _left_out(where: str, files: Sequence[UnreadableFile]) -> str:
    count = "1 data file" if len(files) == 1 else f"{len(files)} data files"
    more = f" and {len(files) - FILES_NAMED_MAX} more" if len(files) > FILES_NAMED_MAX else ""
    return (
        f"{count} of the {where} cannot be read, and the records that were stored there are "
        f"missing: {'; '.join(map(str, files[:FILES_NAMED_MAX]))}{more}"
    )


def _with_findings(
    partition: AuditedPartition,
    findings: Mapping[SourcePartition, Sequence[Finding]],
    bucket_ms: int,
) -> AuditedPartition:
    known = {(finding.kind, finding.offset) for finding in partition.findings}
    added = [
        in_bucket(finding, bucket_ms)
        for finding in findings.get(partition.examination.evidence.source, ())
        if (finding.kind, finding.offset) not in known
    ]
    return replace(partition, findings=[*partition.findings, *added])


def _start(
    positions: Mapping[SourcePartition, Position], source: SourcePartition, held: LogBounds
) -> int:
    position = positions.get(source)
    return position.start_offset if position else held.start


def _limits(
    positions: Mapping[SourcePartition, Position], bounds: Mapping[SourcePartition, LogBounds]
) -> dict[SourcePartition, Limits]:
    limits = {}
    for source in {*positions, *bounds}:
        position = positions.get(source, NEVER_READ)
        held = bounds.get(source)
        limits[source] = Limits(
            start=position.start_offset,
            # A topic that is gone holds nothing: all its rows are below its log start.
            log_start=held.start if held else position.next_offset,
            next=position.next_offset,
        )
    return limits


def _evidence(
    positions: Mapping[SourcePartition, Position] | None,
    after: Mapping[SourcePartition, Position],
    bounds: Mapping[SourcePartition, LogBounds],
    cut_back: Mapping[SourcePartition, int],
    compacted: set[str],
    scanned: Scan,
    acknowledged: Mapping[SourcePartition, Mapping[int, Tally]] | None,
    acknowledged_offsets: Mapping[SourcePartition, Mapping[int, tuple[int, int]]],
) -> list[PartitionEvidence]:
    evidence = []
    for source in sorted({*(positions or {}), *bounds}):
        key = (source.topic_id, source.partition)
        one = PartitionEvidence(
            source=source,
            position=positions.get(source) if positions is not None else None,
            position_after=after.get(source),
            log=bounds.get(source),
            cut_back_to=cut_back.get(source),
            compacted=source.topic in compacted,
            logged=scanned.groups.get((Side.LOG, *key), {}),
            stored=scanned.groups.get((Side.TABLE, *key), {}),
            letters=scanned.groups.get((Side.LETTERS, *key), {}),
            acknowledged=acknowledged.get(source, {}) if acknowledged is not None else None,
            acknowledged_offsets=acknowledged_offsets.get(source, {}),
        )
        if positions is None:
            one = replace(one, position=_position_by_log(one))
        evidence.append(one)
    return evidence


def _position_by_log(evidence: PartitionEvidence) -> Position:
    """The ledger that a table without one should have: every record of the log, once."""
    logged = tally_of(evidence.logged, Region.SETTLED)
    log = evidence.log or LogBounds(start=0, end=0)
    return Position(
        start_offset=log.start,
        next_offset=log.end,
        read=logged,
        stored=logged,
        rows=logged.count,
    )


def _short(examination: Examination) -> bool:
    balance = balance_acknowledged(examination)
    return bool(balance.lost or balance.given_up or balance.undecided)


def _hidden(evidence: PartitionEvidence, everything: Scan) -> dict[int, HiddenRecords]:
    source = evidence.source
    hidden: dict[int, HiddenRecords] = {}
    groups = everything.groups.get((Side.LOG, source.topic_id, source.partition), {})
    readable: dict[int, Tally] = {}
    for (bucket, _), group in evidence.logged.items():
        readable[bucket] = readable.get(bucket, Tally()) + group.tally
    for (bucket, region), group in groups.items():
        before = hidden.get(bucket, HiddenRecords())
        if region is Region.AHEAD:
            hidden[bucket] = replace(before, open=group.tally)
        else:
            hidden[bucket] = replace(before, aborted=group.tally - readable.get(bucket, Tally()))
    return hidden


def _balance_of_file(
    examination: Examination, of_file: Mapping[SourcePartition, PartitionAcknowledged]
) -> AcknowledgedBalance:
    found = of_file.get(examination.evidence.source, PartitionAcknowledged())
    logged = sum(tally.count for tally in logged_by_bucket(examination.evidence).values())
    in_log = sum(found.by_bucket.values())
    return AcknowledgedBalance(
        lost={None: Tally(found.lost)} if found.lost else {},
        aborted={},
        open={},
        given_up={},
        unreported=max(0, logged - (found.acknowledged - found.lost)),
        by_bucket=found.by_bucket,
        without_bucket=found.acknowledged - in_log,
    )


def _strangers(
    unknown: Sequence[UnknownGroup], after: Ledger | None
) -> tuple[set[tuple[str | None, int | None]], int]:
    """Topic ids and partitions that nobody knows, and the rows of those met during the audit."""
    known = {(s.topic_id, s.partition) for s in after.positions} if after else set()
    newer = sum(g.group.rows for g in unknown if (g.topic_id, g.partition) in known)
    return {(g.topic_id, g.partition) for g in unknown} - known, newer
