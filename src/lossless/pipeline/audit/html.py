"""The audit as one HTML file: plots drawn here as SVG, no script, nothing fetched from anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files

from lossless.pipeline.audit.model import (
    AuditReport,
    Bucket,
    Finding,
    PartitionSummary,
    Reported,
    Verdict,
)
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

BARS_MAX = 120
FINDINGS_MAX = 2_000
PLOT_WIDTH, PLOT_HEIGHT = 960, 200
LEFT, RIGHT, TOP, BOTTOM = 64, 8, 12, 26

# What a bar is stacked from, bottom to top; the classes have their colours in audit.css.
_PARTS: Sequence[tuple[str, str, Callable[[Bucket], int]]] = (
    ("stored", "stored", lambda b: b.stored),
    ("filtered", "filtered", lambda b: b.filtered),
    ("dead", "dead letters", lambda b: b.dead),
    ("explained", "explained", lambda b: b.explained),
    ("flight", "in flight", lambda b: b.in_flight),
    ("lost", "lost", lambda b: b.lost),
)
_GAP = (
    *_PARTS[1:],
    ("duplicated", "duplicated", lambda b: b.duplicated + b.unexpected + b.altered),
)


def to_html(reports: Sequence[AuditReport]) -> str:
    style = files("lossless.pipeline.audit").joinpath("audit.css").read_text()
    sections = "\n".join(_section(report) for report in reports)
    names = ", ".join(report.pipeline for report in reports)
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Audit of {escape(names)}</title><style>{style}</style></head>\n"
        f"<body><main>{sections}</main></body></html>\n"
    )


def _section(report: AuditReport) -> str:
    bars = coalesce(report.buckets, BARS_MAX)
    mark = {
        Verdict.BALANCED: ("good", "✓ balanced"),
        Verdict.NOT_BALANCED: ("bad", "✗ not balanced"),
        Verdict.UNDECIDED: ("unsure", "? cannot tell"),
    }[report.verdict]
    produced = "logged" if report.reported is Reported.NO else "acknowledged"
    remarks = "".join(f"<li>{escape(text)}</li>" for text in (*report.undecided, *report.notes))
    return f"""<section>
<h1>{escape(report.pipeline)} <span class="verdict {mark[0]}">{mark[1]}</span></h1>
<p class="where">{_topics(report)} against {escape(report.sink)}, at commit {report.sequence},
audited {moment(report.audited_at_ms)} UTC.{_period(report)}</p>
<p class="conclusion">{escape(conclusion(report))}</p>
{_findings_table(report)}
<h2>Produced against stored, by {width(report.bucket_ms)} of the Kafka timestamp</h2>
{_plot(bars, report, _PARTS, line=produced)}
<h2>The gap: everything but what was stored</h2>
{_plot(bars, report, _GAP, line=None)}
{f"<h2>Evidence and remarks</h2><ul>{remarks}</ul>" if remarks else ""}
<h2>Balance by partition</h2>
{_partition_table(report)}
<h2>Balance by bucket</h2>
{_balance_table(report)}
</section>"""


def _topics(report: AuditReport) -> str:
    names = sorted({partition.source.topic for partition in report.partitions})
    if not names:
        return "No topic"
    return f"Topic{'' if len(names) == 1 else 's'} {escape(', '.join(names))}"


def _period(report: AuditReport) -> str:
    """From the first to the last bucket, by the Kafka timestamps of their records."""
    timed = [bucket for bucket in report.buckets if bucket.start_ms is not None]
    if not timed:
        return ""
    first, last = (bucket_label(bucket, report.bucket_ms) for bucket in (timed[0], timed[-1]))
    if first == last:
        return f" Records of {first} UTC."
    return f" Records from {first} to {last} UTC."


def _ticks(top: int) -> list[int]:
    """Round numbers from 0 up to `top`, at most six of them."""
    step = 1
    while top // step > 5:
        # 1, 2, 5, 10, 20, 50 …
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return list(range(0, top + 1, step))


def _plot(
    bars: Sequence[Bucket],
    report: AuditReport,
    parts: Sequence[tuple[str, str, Callable[[Bucket], int]]],
    *,
    line: str | None,
) -> str:
    shown = [part for part in parts if any(part[2](bar) for bar in bars)]
    if not shown:
        return '<p class="nothing">Nothing: every record is stored.</p>'

    def produced(bar: Bucket) -> int:
        return bar.logged if line == "logged" else (bar.acknowledged or 0)

    top = max(max(sum(part[2](b) for part in shown), produced(b) if line else 0) for b in bars)
    step = (PLOT_WIDTH - LEFT - RIGHT) / len(bars)
    inner = PLOT_HEIGHT - TOP - BOTTOM

    def y(value: float) -> float:
        return TOP + inner * (1 - value / top)

    drawn = [
        f'<line class="grid" x1="{LEFT}" x2="{PLOT_WIDTH - RIGHT}" '
        f'y1="{y(count):.1f}" y2="{y(count):.1f}"/>'
        f'<text class="axis" x="{LEFT - 6}" y="{y(count) + 4:.1f}" '
        f'text-anchor="end">{count:,}</text>'
        for count in _ticks(top)
    ]
    for i, bar in enumerate(bars):
        x, below = LEFT + i * step, 0
        label = escape(bucket_label(bar, report.bucket_ms))
        for name, words, count_of in shown:
            count = count_of(bar)
            if not count:
                continue
            height = max(y(below) - y(below + count), 1.5)  # one record in a million shows, too
            drawn.append(
                f'<rect class="{name}" x="{x + step * 0.1:.1f}" y="{y(below) - height:.1f}" '
                f'width="{max(step * 0.8, 1):.1f}" height="{height:.1f}">'
                f"<title>{label}: {count:,} {words}</title></rect>"
            )
            below += count
        if line:
            drawn.append(
                f'<line class="produced" x1="{x:.1f}" x2="{x + step:.1f}" '
                f'y1="{y(produced(bar)):.1f}" y2="{y(produced(bar)):.1f}">'
                f"<title>{label}: {produced(bar):,} {line}</title></line>"
            )
    for i in sorted({0, len(bars) // 2, len(bars) - 1}):
        anchor = "start" if i == 0 else "end" if i == len(bars) - 1 else "middle"
        x = LEFT + (i + {"start": 0, "middle": 0.5, "end": 1}[anchor]) * step
        label = escape(bucket_label(bars[i], report.bucket_ms))
        drawn.append(
            f'<text class="axis" x="{x:.1f}" y="{PLOT_HEIGHT - 6}" text-anchor="{anchor}">'
            f"{label}</text>"
        )
    legend = [f'<span><i class="{name}"></i>{words}</span>' for name, words, _ in shown]
    if line:
        legend.append(f'<span><i class="produced"></i>{line}</span>')
    return (
        f'<div class="legend">{"".join(legend)}</div>'
        f'<svg viewBox="0 0 {PLOT_WIDTH} {PLOT_HEIGHT}" role="img">{"".join(drawn)}</svg>'
    )


def _findings_table(report: AuditReport) -> str:
    if not report.findings:
        return ""
    shown = report.findings[:FINDINGS_MAX]
    more = (
        f"<p>The first {len(shown):,} of {len(report.findings):,}; JSON and Parquet have all.</p>"
        if len(shown) < len(report.findings)
        else ""
    )
    rows = "".join(_finding_row(finding) for finding in shown)
    return (
        f"<h2>Findings ({len(report.findings):,})</h2>{more}"
        '<div class="scroll"><table><thead><tr><th>what</th><th>topic</th>'
        '<th class="n">partition</th><th class="n">offset</th><th>key</th>'
        "<th>timestamp, UTC</th><th></th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _finding_row(finding: Finding) -> str:
    detail = finding.detail
    if finding.candidates:
        some = ", ".join(str(offset) for offset in finding.candidates[:50])
        detail += f": {some}" + (" …" if len(finding.candidates) > 50 else "")
    return (
        f'<tr><td class="what">{escape(finding.kind)}</td><td>{escape(finding.topic)}</td>'
        f'<td class="n">{finding.partition}</td><td class="n">{offsets_of(finding)}</td>'
        f"<td><code>{escape(key_of(finding))}</code></td><td>{moment(finding.timestamp_ms)}</td>"
        f"<td>{escape(detail)}</td></tr>"
    )


def _partition_table(report: AuditReport) -> str:
    heads = ["begins at", "read up to", "log from", "log to", "logged", "stored", "filtered"]
    heads += ["dead", "in flight", "explained", lost_word(report), "duplicated", "unexpected"]
    heads += ["altered"]
    head = "".join(f'<th class="n">{name}</th>' for name in heads)
    rows = "".join(_partition_row(partition) for partition in report.partitions)
    return (
        f'<div class="scroll"><table><thead><tr><th>partition</th>{head}<th></th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _partition_row(partition: PartitionSummary) -> str:
    offsets = (
        partition.start_offset,
        partition.next_offset,
        partition.log_start,
        partition.log_end,
    )
    cells = [f'<td class="n">{"" if at is None else f"{at:,}"}</td>' for at in offsets]
    cells += _count_cells(partition.total)
    source = escape(str(partition.source))
    return f"<tr><td>{source}</td>{''.join(cells)}{_mark(partition.balanced)}</tr>"


def _count_cells(bucket: Bucket) -> list[str]:
    expected = (
        bucket.logged,
        bucket.stored,
        bucket.filtered,
        bucket.dead,
        bucket.in_flight,
        bucket.explained,
    )
    unwanted = (bucket.lost, bucket.duplicated, bucket.unexpected, bucket.altered)
    return [
        *(f'<td class="n">{count:,}</td>' for count in expected),
        *(f'<td class="n{" what" if count else ""}">{count:,}</td>' for count in unwanted),
    ]


def _mark(balanced: bool) -> str:
    return '<td class="good">✓</td>' if balanced else '<td class="bad">✗</td>'


def _balance_table(report: AuditReport) -> str:
    heads = ["acknowledged", "logged", "stored", "filtered", "dead", "in flight", "explained"]
    heads += [lost_word(report), "duplicated", "unexpected", "altered"]
    head = "".join(f'<th class="n">{name}</th>' for name in heads)
    lines = coalesce(report.buckets, BARS_MAX)
    rows = "".join(_balance_row(report, b, bucket_label(b, report.bucket_ms)) for b in lines)
    return (
        f'<div class="scroll"><table><thead><tr><th>bucket, UTC</th>{head}<th></th></tr></thead>'
        f"<tbody>{rows}</tbody><tfoot>{_balance_row(report, report.total, 'total')}</tfoot>"
        "</table></div>"
    )


def _balance_row(report: AuditReport, bucket: Bucket, label: str) -> str:
    if report.reported is Reported.NO:
        cells = ['<td class="n">not reported</td>']
    else:
        cells = [f'<td class="n">{bucket.acknowledged or 0:,}</td>']
    cells += _count_cells(bucket)
    return f"<tr><td>{label}</td>{''.join(cells)}{_mark(bucket.balanced)}</tr>"
