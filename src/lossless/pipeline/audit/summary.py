"""Adds up examinations and findings into the lines of the report. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from lossless.pipeline.audit.balance import (
    NOTHING,
    AcknowledgedBalance,
    Examination,
    logged_by_bucket,
    witnessed_without_bucket,
)
from lossless.pipeline.audit.model import (
    DUPLICATED_KINDS,
    Bucket,
    Finding,
    FindingKind,
    Groups,
    PartitionSummary,
    Region,
    Reported,
    Verdict,
)

BucketStart = int | None

MISSING_KINDS = frozenset(
    {
        FindingKind.MISSING,
        FindingKind.LETTER_MISSING,
        FindingKind.MISSING_EITHER,
        FindingKind.REPLACED,
    }
)
# Copies too many that stand among the dead letters, not among the rows.
LETTER_KINDS = frozenset({FindingKind.LETTER_DUPLICATED, FindingKind.STORED_AND_DEAD})
# Rows that were scanned as settled and should not be there.
SETTLED_UNEXPECTED = frozenset({FindingKind.NOT_IN_LOG, FindingKind.NOT_FILTERED})
UNEXPECTED_KINDS = SETTLED_UNEXPECTED | {
    FindingKind.BEYOND_LEDGER,
    FindingKind.BEFORE_START,
    FindingKind.UNKNOWN_SOURCE,
    FindingKind.ROWS_DUPLICATED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedPartition:
    examination: Examination
    acknowledged: AcknowledgedBalance | None  # None: nobody reported
    findings: Sequence[Finding] = field(default_factory=tuple)

    @property
    def balanced(self) -> bool:
        return self.examination.balanced and not self.findings


def buckets_of(partition: AuditedPartition) -> dict[BucketStart, Bucket]:
    """The lines of one partition, by bucket."""
    evidence = partition.examination.evidence
    counted = _FindingCounts(partition.findings)
    logged = logged_by_bucket(evidence)
    starts: set[BucketStart] = {
        *logged,
        *(bucket for bucket, region in evidence.stored if region is not Region.AHEAD),
        *(bucket for bucket, region in evidence.letters if region is not Region.AHEAD),
        *counted.starts(),
    }
    if (balance := partition.acknowledged) is not None:
        starts |= {
            *balance.by_bucket,
            *balance.lost,
            *balance.aborted,
            *balance.open,
            *balance.given_up,
        }
        starts |= {None} if balance.without_bucket else set()
    lines = {
        start: _line(partition, start, counted, logged[start].count if start in logged else 0)
        for start in starts
    }
    remainder = witnessed_without_bucket(partition.examination).count
    if remainder > 0 and not evidence.compacted:
        nameless = lines.get(None, Bucket(start_ms=None))
        lines[None] = replace(
            nameless,
            logged=nameless.logged + remainder,
            filtered=nameless.filtered + remainder,
        )
    return lines


def _line(
    partition: AuditedPartition, start: BucketStart, counted: _FindingCounts, logged: int
) -> Bucket:
    evidence = partition.examination.evidence
    duplicated_rows = counted.duplicated_rows[start]
    stored = _count(evidence.stored, start) - duplicated_rows - counted.unexpected_settled[start]
    dead = _count(evidence.letters, start) - counted.duplicated_letters[start]
    missing = counted.missing[start]
    in_flight = _count(evidence.logged, start, Region.AHEAD)
    before = _count(evidence.logged, start, Region.BEFORE)
    settled = logged - in_flight - before
    # What compaction removed after it was read is in the table, though no longer in the log.
    settled = max(settled, stored + dead + missing)
    filtered = settled - stored - dead - missing
    explained = before
    lost = 0
    acknowledged = None
    if (balance := partition.acknowledged) is not None:
        lost = balance.lost.get(start, NOTHING).count
        explained += balance.given_up.get(start, 0)
        if start is None:
            acknowledged = balance.without_bucket
        else:
            acknowledged = balance.by_bucket.get(start, 0)
            explained += balance.aborted.get(start, 0)
            in_flight += balance.open.get(start, 0)
    return Bucket(
        start_ms=start,
        acknowledged=acknowledged,
        logged=settled + in_flight + explained,
        stored=stored,
        filtered=filtered,
        dead=dead,
        in_flight=in_flight,
        explained=explained,
        missing=missing,
        lost_before_log=lost + counted.lost_before_log[start],
        duplicated=duplicated_rows
        + counted.duplicated_letters[start]
        + counted.duplicated_in_log[start],
        unexpected=counted.unexpected[start],
        altered=counted.altered[start],
        balanced=start not in counted.starts(),
    )


def _count(groups: Groups, start: BucketStart, *regions: Region) -> int:
    if start is None:
        return 0
    wanted = regions or (Region.SETTLED, Region.PURGED)
    return sum(groups[start, r].tally.count for r in wanted if (start, r) in groups)


class _FindingCounts:
    """Findings of one partition, counted by bucket and by the column they belong to."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.missing: Counter[BucketStart] = Counter()
        self.lost_before_log: Counter[BucketStart] = Counter()
        self.duplicated_rows: Counter[BucketStart] = Counter()
        self.duplicated_letters: Counter[BucketStart] = Counter()
        self.duplicated_in_log: Counter[BucketStart] = Counter()
        self.unexpected: Counter[BucketStart] = Counter()
        self.altered: Counter[BucketStart] = Counter()
        self.unexpected_settled: Counter[BucketStart] = Counter()
        self._starts: set[BucketStart] = set()
        for finding in findings:
            start = finding.bucket_ms
            self._starts.add(start)
            if finding.kind in MISSING_KINDS:
                self.missing[start] += finding.records
            elif finding.kind is FindingKind.DELETED_UNREAD:
                self.lost_before_log[start] += finding.records
            elif finding.kind in (FindingKind.ALTERED, FindingKind.OTHER_RECORD):
                self.altered[start] += finding.records
            elif finding.kind is FindingKind.DUPLICATED_IN_LOG:
                self.duplicated_in_log[start] += finding.records
            elif finding.kind in LETTER_KINDS:
                self.duplicated_letters[start] += finding.records
            elif finding.kind in DUPLICATED_KINDS:
                self.duplicated_rows[start] += finding.records
            elif finding.kind in UNEXPECTED_KINDS:
                self.unexpected[start] += finding.records
                if finding.kind in SETTLED_UNEXPECTED:
                    self.unexpected_settled[start] += finding.records

    def starts(self) -> set[BucketStart]:
        return self._starts


_COUNTS = tuple(
    f.name for f in fields(Bucket) if f.name not in ("start_ms", "acknowledged", "balanced")
)


def add_buckets(lines: Iterable[Bucket], start_ms: BucketStart = None) -> Bucket:
    together = list(lines)
    acknowledged = [line.acknowledged for line in together if line.acknowledged is not None]
    counts = {name: sum(getattr(line, name) for line in together) for name in _COUNTS}
    return Bucket(
        start_ms=start_ms,
        acknowledged=sum(acknowledged) if acknowledged else None,
        balanced=all(line.balanced for line in together),
        **counts,
    )


def merge(partitions: Iterable[Mapping[BucketStart, Bucket]]) -> list[Bucket]:
    """The lines of all partitions, added up by bucket, in order; the nameless bucket last."""
    by_start: dict[BucketStart, list[Bucket]] = {}
    for lines in partitions:
        for start, line in lines.items():
            by_start.setdefault(start, []).append(line)
    ordered = sorted(by_start, key=lambda start: (start is None, start or 0))
    return [add_buckets(by_start[start], start) for start in ordered]


def coalesce(buckets: Sequence[Bucket], most: int) -> list[Bucket]:
    """Neighbouring lines added up until there are few enough to read."""
    timed = [b for b in buckets if b.start_ms is not None]
    nameless = [b for b in buckets if b.start_ms is None]
    if len(timed) <= most:
        return [*timed, *nameless]
    step = -(-len(timed) // most)
    together = [
        add_buckets(timed[i : i + step], timed[i].start_ms) for i in range(0, len(timed), step)
    ]
    return [*together, *nameless]


def summarise(partition: AuditedPartition) -> PartitionSummary:
    evidence = partition.examination.evidence
    position = evidence.position
    return PartitionSummary(
        source=evidence.source,
        start_offset=position.start_offset if position else None,
        next_offset=position.next_offset if position else None,
        log_start=evidence.log.start if evidence.log else None,
        log_end=evidence.log.end if evidence.log else None,
        balanced=partition.balanced,
        total=add_buckets(buckets_of(partition).values()),
    )


def how_reported(partitions: Sequence[AuditedPartition]) -> Reported:
    """Fully only when everything in the log is in some report."""
    if all(p.acknowledged is None for p in partitions):
        return Reported.NO
    logged_unreported = any(
        p.acknowledged.unreported if p.acknowledged else bool(p.examination.evidence.logged)
        for p in partitions
    )
    return Reported.PARTLY if logged_unreported else Reported.FULLY


def verdict_of(findings: Sequence[Finding], undecided: Sequence[str]) -> Verdict:
    if findings:
        return Verdict.NOT_BALANCED
    return Verdict.UNDECIDED if undecided else Verdict.BALANCED
