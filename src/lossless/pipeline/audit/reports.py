"""Producers' reports, sorted by partition and bucket, as far as they concern a pipeline. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lossless.acknowledged import AcknowledgedCount
from lossless.errors import BadInput
from lossless.pipeline.audit.model import LogBounds
from lossless.pipeline.ledger import Position, SourcePartition
from lossless.pipeline.outcomes import EARLIEST_MS
from lossless.tally import Tally

SECOND_MS = 1_000
# Widths that people read without counting on their fingers.
WIDTHS_S = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400)
BUCKETS_MAX = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    reports: Mapping[SourcePartition, Sequence[AcknowledgedCount]] | None  # None: nobody reported
    # Where the scan of the log must begin so that it covers a minute that a report begins earlier.
    scan_from: Mapping[SourcePartition, int] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def width_ms(self) -> int | None:
        widths = [r.width_ms for reports in (self.reports or {}).values() for r in reports]
        return max(widths, default=None)

    def by_bucket(self, bucket_ms: int) -> dict[SourcePartition, dict[int, Tally]] | None:
        if self.reports is None:
            return None
        tallies: dict[SourcePartition, dict[int, Tally]] = {}
        for source, reports in self.reports.items():
            of_source = tallies.setdefault(source, {})
            for report in reports:
                bucket = _bucket_of(report, bucket_ms)
                of_source[bucket] = of_source.get(bucket, Tally()) + report.tally
        return tallies

    def offsets_by_bucket(
        self, bucket_ms: int
    ) -> dict[SourcePartition, dict[int, tuple[int, int]]]:
        offsets: dict[SourcePartition, dict[int, tuple[int, int]]] = {}
        for source, reports in (self.reports or {}).items():
            of_source = offsets.setdefault(source, {})
            for report in reports:
                bucket = _bucket_of(report, bucket_ms)
                first, last = of_source.get(bucket, (report.first_offset, report.last_offset))
                of_source[bucket] = min(first, report.first_offset), max(last, report.last_offset)
        return offsets


def _bucket_of(report: AcknowledgedCount, bucket_ms: int) -> int:
    start_ms = max(report.start_ms, EARLIEST_MS)
    return start_ms - start_ms % bucket_ms


def gather(
    reports: Sequence[AcknowledgedCount] | None,
    positions: Mapping[SourcePartition, Position],
    bounds: Mapping[SourcePartition, LogBounds],
) -> Acknowledged:
    """The reports about these partitions, without what the pipeline never was responsible for."""
    sources = {(s.topic_id, s.partition): s for s in {*positions, *bounds}}
    kept: dict[SourcePartition, list[AcknowledgedCount]] = {}
    scan_from: dict[SourcePartition, int] = {}
    dropped = 0
    for report in reports or ():
        source = sources.get((report.topic_id, report.partition))
        if source is None:
            continue
        position, held = positions.get(source), bounds.get(source)
        start = position.start_offset if position else (held.start if held else 0)
        if report.last_offset < start:
            continue
        if report.first_offset < start:
            if held is None or report.first_offset < held.start:
                # Part of what it counts is gone from the log and was never the pipeline's.
                dropped += 1
                continue
            scan_from[source] = min(report.first_offset, scan_from.get(source, start))
        kept.setdefault(source, []).append(report)
    notes = []
    if dropped:
        notes.append(
            f"{dropped} reports count records from before the pipeline's start that are no longer "
            "in the log; they were left out"
        )
    return Acknowledged(reports=kept or None, scan_from=scan_from, notes=notes)


def choose_bucket_ms(
    wanted_s: int | None,
    report_width_ms: int | None,
    time_span_ms: Callable[[], tuple[int, int] | None],
) -> tuple[int, str | None]:
    """The width of a bucket: as wanted, or so that there are few enough to read.

    Reports come by the minute, so with reports a bucket is a whole number of minutes.
    """
    unit_ms = report_width_ms or SECOND_MS
    if wanted_s is not None:
        if wanted_s <= 0:
            raise BadInput("a bucket must be at least a second wide")
        wanted_ms = wanted_s * SECOND_MS
        width_ms = -(-wanted_ms // unit_ms) * unit_ms
        if width_ms != wanted_ms:
            return width_ms, (
                f"producers report by {unit_ms // SECOND_MS} s, so buckets are "
                f"{width_ms // SECOND_MS} s wide, not {wanted_s} s"
            )
        return width_ms, None
    span = time_span_ms()
    if span is None:
        return max(unit_ms, 60 * SECOND_MS), None
    for width_s in WIDTHS_S:
        width_ms = width_s * SECOND_MS
        if width_ms % unit_ms == 0 and (span[1] - span[0]) // width_ms < BUCKETS_MAX:
            return width_ms, None
    days = -(-(span[1] - span[0]) // (86_400 * SECOND_MS * BUCKETS_MAX))
    return days * 86_400 * SECOND_MS, None
