"""How an audit is put into words and numbers, the same in the terminal and in the HTML report."""

from __future__ import annotations

from datetime import UTC, datetime

from lossless.pipeline.audit.model import AuditReport, Bucket, Finding, Reported

DAY_MS = 86_400_000


def conclusion(report: AuditReport) -> str:
    """The last line. It never says "0 lost" where nobody reported what was acknowledged."""
    total = report.total
    if report.reported is Reported.NO:
        parts = ["acknowledged not reported"]
    elif report.reported is Reported.PARTLY:
        parts = [f"{total.acknowledged or 0} acknowledged (partially reported)"]
    else:
        parts = [f"{total.acknowledged or 0} acknowledged"]
    parts.append(f"{total.stored} stored")
    for count, word in (
        (total.dead, "dead-lettered"),
        (total.filtered, "filtered"),
        (total.in_flight, "in flight"),
        (total.explained, "explained"),
    ):
        if count:
            parts.append(f"{count} {word}")
    parts.append(f"{total.lost} {lost_word(report)}")
    parts.append(f"{total.duplicated} duplicated")
    if total.altered:
        parts.append(f"{total.altered} altered")
    if total.unexpected:
        parts.append(f"{total.unexpected} that should not be there")
    return ", ".join(parts)


def lost_word(report: AuditReport) -> str:
    """Without full reports only what is missing between log and table can be counted."""
    return "lost" if report.reported is Reported.FULLY or report.total.lost else "missing"


def bucket_label(bucket: Bucket, bucket_ms: int) -> str:
    if bucket.start_ms is None:
        return "time not known"
    at = _utc(bucket.start_ms)
    if at is None:
        return _outside_the_calendar(bucket.start_ms)
    return at.strftime("%Y-%m-%d" if bucket_ms % DAY_MS == 0 else "%Y-%m-%d %H:%M:%S")


def moment(timestamp_ms: int | None) -> str:
    if timestamp_ms is None:
        return ""
    at = _utc(timestamp_ms)
    if at is None:
        return _outside_the_calendar(timestamp_ms)
    return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}"


def _utc(timestamp_ms: int) -> datetime | None:
    """The moment in UTC; None for a timestamp outside the years 1 to 9999.

    A producer can set any number: microseconds in place of milliseconds are the year 55,000.
    """
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _outside_the_calendar(timestamp_ms: int) -> str:
    return f"{timestamp_ms} ms"


def offsets_of(finding: Finding) -> str:
    if finding.offset is None:
        return ""
    if finding.last_offset is None:
        return str(finding.offset)
    return f"{finding.offset}–{finding.last_offset}"  # noqa: RUF001 - a range, for people


def key_of(finding: Finding) -> str:
    """The key as text where it is text, else in hexadecimal."""
    if finding.key is None:
        return ""
    try:
        text = finding.key.decode()
    except UnicodeDecodeError:
        return "0x" + finding.key.hex()
    return text if text.isprintable() else "0x" + finding.key.hex()


def width(bucket_ms: int) -> str:
    for unit_ms, letter in ((DAY_MS, "d"), (3_600_000, "h"), (60_000, "m")):
        if bucket_ms % unit_ms == 0:
            return f"{bucket_ms // unit_ms}{letter}"
    return f"{bucket_ms // 1000}s"
