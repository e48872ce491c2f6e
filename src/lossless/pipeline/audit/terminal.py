"""The audit in the terminal: a line per bucket, the records that are wrong, and the conclusion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rich.cells import cell_len
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
FINDINGS_MAX = 20

_STYLES = {
    Verdict.BALANCED: "bold green",
    Verdict.NOT_BALANCED: "bold red",
    Verdict.UNDECIDED: "bold yellow",
}


def render(
    report: AuditReport, *, findings_max: int | None = FINDINGS_MAX
) -> Iterator[RenderableType]:
    """The report, part by part; what is wrong comes first. `findings_max` None: every finding."""
    yield Text(f"{report.pipeline}: topics against {report.sink}", style="bold")
    if report.findings:
        yield Text(f"{report.verdict}: {conclusion(report)}", style=_STYLES[report.verdict])
        yield _findings(report, findings_max)
    yield _balance(report)
    for note in report.notes:
        yield Text(f"note: {note}", style="dim")
    for why in report.undecided:
        yield Text(f"cannot tell: {why}", style="yellow")
    yield Text(conclusion(report), style=_STYLES[report.verdict])


def _balance(report: AuditReport) -> Table:
    lines = coalesce(report.buckets, LINES_MAX)
    timed = [line for line in report.buckets if line.start_ms is not None]
    together = -(-len(timed) // LINES_MAX) if len(timed) > LINES_MAX else 1
    table = Table(
        box=None, pad_edge=False, header_style="bold", footer_style="bold", show_footer=True
    )
    title = f"by {width(report.bucket_ms * together)}, UTC"
    labels = [bucket_label(line, report.bucket_ms) for line in lines]
    table.add_column(title, footer="total", no_wrap=True)
    widths = [_width([title, "total", *labels])]
    columns = _columns(report)
    for header, cell in columns.items():
        footer = cell(report.total)
        table.add_column(header, footer=footer, justify="right", no_wrap=True)
        widths.append(_width([header, footer, *map(cell, lines)]))
    for label, line in zip(labels, lines, strict=True):
        table.add_row(label, *(cell(line) for cell in columns.values()))
    # Where the terminal is narrower, lines are broken: a figure that is cut off is another one.
    table.width = sum(widths) + 2 * len(columns)
    return table


def _width(cells: Iterable[str]) -> int:
    return max(cell_len(Text.from_markup(cell).plain) for cell in cells)


def _columns(report: AuditReport) -> dict[str, Callable[[Bucket], str]]:
    """By their headers. What is expected to be nothing, and is, has none."""
    total = report.total
    candidates: list[tuple[str, bool, Callable[[Bucket], str]]] = [
        (
            "acknowledged",
            report.reported is not Reported.NO,
            lambda line: str(line.acknowledged or 0),
        ),
        ("logged", True, lambda line: str(line.logged)),
        ("stored", True, lambda line: str(line.stored)),
        ("filtered", total.filtered > 0, lambda line: str(line.filtered)),
        ("dead", total.dead > 0, lambda line: str(line.dead)),
        ("in flight", total.in_flight > 0, lambda line: str(line.in_flight)),
        ("explained", total.explained > 0, lambda line: str(line.explained)),
        (lost_word(report), True, lambda line: _bad(line.lost)),
        ("duplicated", True, lambda line: _bad(line.duplicated)),
        ("unexpected", total.unexpected > 0, lambda line: _bad(line.unexpected)),
        ("altered", total.altered > 0, lambda line: _bad(line.altered)),
        ("", True, lambda line: "[green]✓[/]" if line.balanced else "[bold red]✗[/]"),
    ]
    return {header: cell for header, is_shown, cell in candidates if is_shown}


def _bad(count: int) -> str:
    return f"[bold red]{count}[/]" if count else "0"


def _findings(report: AuditReport, findings_max: int | None) -> Table:
    shown = report.findings[:findings_max]
    title = "1 finding" if len(report.findings) == 1 else f"{len(report.findings)} findings"
    if len(report.findings) > len(shown):
        title += f", the first {len(shown)} of them (--findings all shows the others)"
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
