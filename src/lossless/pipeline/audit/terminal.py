"""The audit in the terminal: a line per bucket, the records that are wrong, and the conclusion."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from lossless.pipeline.audit.model import AuditReport, Bucket, Reported, Verdict
from lossless.pipeline.audit.summary import coalesce
from lossless.pipeline.audit.wording import (
    bucket_label,
    conclusion,
    key_of,
    lost_word,
    moment,
    offsets_of,
    width,
)

LINES_MAX = 40
FINDINGS_MAX = 100


def render(report: AuditReport) -> Iterator[RenderableType]:
    yield Text(f"{report.pipeline}: topics against {report.sink}", style="bold")
    yield _balance(report)
    if report.findings:
        yield _findings(report)
    for note in report.notes:
        yield Text(f"note: {note}", style="dim")
    for why in report.undecided:
        yield Text(f"cannot tell: {why}", style="yellow")
    styles = {
        Verdict.BALANCED: "bold green",
        Verdict.NOT_BALANCED: "bold red",
        Verdict.UNDECIDED: "bold yellow",
    }
    yield Text(conclusion(report), style=styles[report.verdict])


def _balance(report: AuditReport) -> Table:
    lines = coalesce(report.buckets, LINES_MAX)
    timed = [line for line in report.buckets if line.start_ms is not None]
    together = -(-len(timed) // LINES_MAX) if len(timed) > LINES_MAX else 1
    unexpected = bool(report.total.unexpected)
    table = Table(
        box=None, pad_edge=False, header_style="bold", footer_style="bold", show_footer=True
    )
    title = f"by {width(report.bucket_ms * together)}, UTC"
    table.add_column(title, footer="total", no_wrap=True)
    cells = _cells(report, report.total, unexpected)
    headers = ["acknowledged", "logged", "stored", "filtered", "dead", "in flight", "explained"]
    headers += [lost_word(report), "duplicated", *(["unexpected"] if unexpected else []), ""]
    for header, footer in zip(headers, cells, strict=True):
        table.add_column(header, footer=footer, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(bucket_label(line, report.bucket_ms), *_cells(report, line, unexpected))
    return table


def _cells(report: AuditReport, line: Bucket, unexpected: bool) -> list[str]:
    def bad(count: int) -> str:
        return f"[bold red]{count}[/]" if count else "0"

    if report.reported is Reported.NO:
        acknowledged = "not reported"
    else:
        acknowledged = str(line.acknowledged if line.acknowledged is not None else 0)
    cells = [acknowledged]
    cells += [str(n) for n in (line.logged, line.stored, line.filtered, line.dead)]
    cells += [str(line.in_flight), str(line.explained), bad(line.lost), bad(line.duplicated)]
    cells += [bad(line.unexpected)] if unexpected else []
    cells.append("[green]✓[/]" if line.balanced else "[bold red]✗[/]")
    return cells


def _findings(report: AuditReport) -> Table:
    shown = report.findings[:FINDINGS_MAX]
    title = f"{len(report.findings)} findings"
    if len(report.findings) > len(shown):
        title += f", the first {len(shown)} of them (--format json and --parquet have them all)"
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for header in ("what", "topic", "partition", "offset", "key", "timestamp, UTC", ""):
        right = header in ("partition", "offset")
        table.add_column(header, justify="right" if right else "left", overflow="fold")
    for finding in shown:
        table.add_row(
            f"[red]{escape(finding.kind)}[/]",
            escape(finding.topic),
            str(finding.partition),
            offsets_of(finding),
            escape(key_of(finding)),
            moment(finding.timestamp_ms),
            escape(finding.detail),
        )
    return table
