"""What an audit shows: terminal, JSON, Parquet and HTML, from one report."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from audited_world import BUCKET_MS, STORED, World
from rich.console import Console

from lossless.errors import BadInput
from lossless.pipeline.audit import AuditReport, Finding, FindingKind, Reported, Verdict
from lossless.pipeline.audit.balance import balance_acknowledged
from lossless.pipeline.audit.export import to_json, worst, write_parquet
from lossless.pipeline.audit.html import _ticks, to_html
from lossless.pipeline.audit.naming import in_bucket, name_records
from lossless.pipeline.audit.reports import choose_bucket_ms
from lossless.pipeline.audit.summary import (
    AuditedPartition,
    add_buckets,
    buckets_of,
    coalesce,
    how_reported,
    merge,
    summarise,
    verdict_of,
)
from lossless.pipeline.audit.terminal import FINDINGS_MAX, LINES_MAX, render
from lossless.pipeline.audit.wording import conclusion, key_of


def report_of(world: World) -> AuditReport:
    examination = world.examine()
    balance = balance_acknowledged(examination) if world.acknowledged is not None else None
    findings = [
        in_bucket(f, BUCKET_MS) for f in name_records(examination, world.differences(examination))
    ]
    partition = AuditedPartition(examination=examination, acknowledged=balance, findings=findings)
    lines = merge([buckets_of(partition)])
    return AuditReport(
        pipeline="orders",
        sink="delta table ./warehouse/orders",
        audited_at_ms=1_700_000_000_000,
        sequence=3,
        bucket_ms=BUCKET_MS,
        reported=how_reported([partition]),
        verdict=verdict_of(findings, ()),
        buckets=lines,
        partitions=[summarise(partition)],
        total=add_buckets(lines),
        findings=findings,
        notes=["a note"],
        undecided=(),
    )


@pytest.fixture
def world() -> World:
    made = World(fate=dict.fromkeys(range(100), STORED), commits=[50, 100])
    made.acknowledged = list(range(100))
    return made


@pytest.fixture
def damaged(world: World) -> AuditReport:
    world.rows.remove(17)
    world.rows.append(55)
    return report_of(world)


def terminal(report: AuditReport, columns: int = 200) -> str:
    console = Console(file=io.StringIO(), width=columns, soft_wrap=True)
    for part in render(report):
        console.print(part)
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue()


def test_the_last_line_says_what_was_acknowledged_stored_lost_and_duplicated(
    world: World,
) -> None:
    report = report_of(world)
    last = terminal(report).splitlines()[-1].strip()
    assert last == "100 acknowledged, 100 stored, 0 lost, 0 duplicated"


def test_the_terminal_marks_the_buckets_that_do_not_balance_and_names_the_records(
    damaged: AuditReport,
) -> None:
    lines = terminal(damaged).splitlines()
    assert sum("✗" in line for line in lines) == 2 + 1  # two buckets and the total
    assert any("missing from the table" in line and "key-17" in line for line in lines)
    assert any("duplicated in the table" in line and "key-55" in line for line in lines)
    assert lines[-1].strip() == "100 acknowledged, 99 stored, 1 lost, 1 duplicated"


@pytest.mark.parametrize(
    ("reported", "says"),
    [
        (Reported.NO, "acknowledged not reported, 100 stored, 0 missing, 0 duplicated"),
        (
            Reported.PARTLY,
            "100 acknowledged (partially reported), 100 stored, 0 missing, 0 duplicated",
        ),
    ],
)
def test_nothing_is_called_not_lost_that_nobody_reported(
    world: World, reported: Reported, says: str
) -> None:
    report = replace(report_of(world), reported=reported)
    assert conclusion(report) == says
    assert "lost" not in terminal(report)


def test_every_line_of_the_balance_adds_up(damaged: AuditReport) -> None:
    for line in (*damaged.buckets, damaged.total):
        outcomes = line.stored + line.filtered + line.dead + line.in_flight + line.explained
        assert line.logged == outcomes + line.missing
        assert line.acknowledged == line.logged + line.lost_before_log


def test_many_buckets_are_added_up_into_a_readable_number(damaged: AuditReport) -> None:
    one = damaged.buckets[0]
    many = [replace(one, start_ms=i * 1_000) for i in range(1_000)]
    few = coalesce(many, LINES_MAX)
    assert len(few) <= LINES_MAX
    assert sum(b.logged for b in few) == sum(b.logged for b in many)
    shown = terminal(replace(damaged, buckets=many, bucket_ms=1_000))
    assert "by 25s" in shown


def test_no_figure_is_cut_off_where_the_terminal_is_narrow(damaged: AuditReport) -> None:
    large = replace(damaged.total, logged=123_456_789, stored=987_654_321, in_flight=1, explained=1)
    report = replace(damaged, total=large, buckets=[large], findings=[])
    narrow, wide = (terminal(report, columns).splitlines() for columns in (40, 200))
    assert narrow == wide
    assert "…" not in "".join(narrow)
    assert any("123456789" in line and "987654321" in line for line in narrow)


def header_of_balance(report: AuditReport) -> str:
    return next(line for line in terminal(report).splitlines() if line.startswith("by "))


def test_what_is_nothing_as_expected_takes_no_column(damaged: AuditReport) -> None:
    headers = header_of_balance(damaged).split()[3:]
    assert headers == ["acknowledged", "logged", "stored", "lost", "duplicated"]
    assert "acknowledged" not in header_of_balance(replace(damaged, reported=Reported.NO))
    everything = replace(damaged.total, filtered=1, dead=1, in_flight=1, explained=1, unexpected=1)
    header = header_of_balance(replace(damaged, total=everything))
    for name in ("filtered", "dead", "in flight", "explained", "unexpected"):
        assert name in header


def test_a_failed_audit_begins_with_its_verdict_and_its_findings(damaged: AuditReport) -> None:
    lines = [line.strip() for line in terminal(damaged).splitlines()]
    assert lines[1] == "not balanced: 100 acknowledged, 99 stored, 1 lost, 1 duplicated"
    assert lines[2] == "2 findings"
    one = replace(damaged, findings=damaged.findings[:1])
    assert terminal(one).splitlines()[2].strip() == "1 finding"


def test_every_finding_is_shown_on_request(damaged: AuditReport) -> None:
    many = replace(damaged, findings=[damaged.findings[0]] * 500)
    console = Console(file=io.StringIO(), width=200)
    for part in render(many, findings_max=None):
        console.print(part)
    output = console.file
    assert isinstance(output, io.StringIO)
    assert output.getvalue().count(key_of(damaged.findings[0])) == 500


def test_many_findings_are_cut_short_in_the_terminal_and_complete_in_json(
    damaged: AuditReport,
) -> None:
    many = replace(damaged, findings=[damaged.findings[0]] * 500)
    assert f"500 findings, the first {FINDINGS_MAX} of them" in terminal(many)
    assert len(json.loads(to_json([many]))["audits"][0]["findings"]) == 500


def test_json_has_everything(damaged: AuditReport) -> None:
    document = json.loads(to_json([damaged]))
    assert document["verdict"] == "not balanced"
    (audit,) = document["audits"]
    assert audit["conclusion"] == conclusion(damaged)
    assert audit["total"]["lost"] == 1
    assert len(audit["buckets"]) == len(damaged.buckets)
    missing = next(f for f in audit["findings"] if f["kind"] == "missing from the table")
    assert (missing["topic"], missing["partition"], missing["offset"]) == ("orders", 0, 17)
    assert missing["key"] == "key-17"
    assert audit["partitions"][0]["next_offset"] == 100


def test_parquet_has_buckets_and_findings(damaged: AuditReport, tmp_path: Path) -> None:
    write_parquet([damaged], tmp_path / "audit")
    buckets = pq.read_table(tmp_path / "audit" / "buckets.parquet").to_pylist()
    findings = pq.read_table(tmp_path / "audit" / "findings.parquet").to_pylist()
    assert sum(b["stored"] for b in buckets) == 99
    assert {(f["kind"], f["offset"]) for f in findings} == {
        (FindingKind.MISSING.value, 17),
        (FindingKind.DUPLICATED.value, 55),
    }
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        write_parquet([damaged], tmp_path / "file" / "audit")


class Page(HTMLParser):
    """Collects what a page refers to, and checks that its tags close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [v or "" for name, v in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [v or "" for name, v in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_html_is_one_file_that_fetches_nothing_and_has_plots_and_findings(
    damaged: AuditReport,
) -> None:
    strange = Finding(
        kind=FindingKind.MISSING,
        topic="<script>alert(1)</script>",
        topic_id="id",
        partition=0,
        offset=1,
        key=b"\xff\x00",
    )
    text = to_html([replace(damaged, findings=[*damaged.findings, strange])])
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.fetched == []
    assert "script" not in page.tags
    assert page.tags.count("svg") == 2
    assert conclusion(damaged) in text
    assert "key-17" in text
    assert "0xff00" in text
    assert "@import" not in text
    assert "url(" not in text
    assert "prefers-color-scheme: dark" in text


def test_html_shows_topics_period_and_partitions(damaged: AuditReport) -> None:
    text = to_html([damaged])
    assert "Topic orders against delta table ./warehouse/orders" in text
    assert "Records from 2023-11-14 22:13:20 to 2023-11-14 22:14:50 UTC." in text
    row = text[text.index("Balance by partition") :]
    assert "<td>orders-0</td>" in row
    assert row.index("<td>orders-0</td>") < row.index("Balance by bucket")


@pytest.mark.parametrize(
    ("top", "ticks"),
    [
        (1, [0, 1]),
        (5, [0, 1, 2, 3, 4, 5]),
        (11, [0, 2, 4, 6, 8, 10]),
        (99, [0, 20, 40, 60, 80]),
        (1_234_567, [0, 500_000, 1_000_000]),
    ],
)
def test_the_ticks_of_an_axis_are_round_numbers(top: int, ticks: list[int]) -> None:
    assert _ticks(top) == ticks


def test_html_of_a_balanced_audit_says_that_there_is_no_gap(world: World) -> None:
    text = to_html([report_of(world)])
    assert "✓ balanced" in text
    assert "every record is stored" in text
    assert "Findings" not in text


def test_html_of_an_audit_without_records_can_be_written() -> None:
    assert "orders" in to_html([report_of(World(fate={}, commits=[0]))])


def test_one_pipeline_out_of_balance_decides_for_all() -> None:
    assert worst([Verdict.BALANCED, Verdict.UNDECIDED]) is Verdict.UNDECIDED
    assert worst([Verdict.UNDECIDED, Verdict.NOT_BALANCED]) is Verdict.NOT_BALANCED
    assert worst([Verdict.BALANCED]) is Verdict.BALANCED


def test_a_key_is_shown_as_text_where_it_is_text() -> None:
    finding = Finding(kind=FindingKind.MISSING, topic="t", topic_id="i", partition=0)
    assert key_of(finding) == ""
    assert key_of(replace(finding, key=b"order-1")) == "order-1"
    assert key_of(replace(finding, key=b"\x00\x01")) == "0x0001"


@pytest.mark.parametrize("timestamp_ms", [1_700_000_000_000_000, -(10**15), 2**63 - 1])
def test_a_timestamp_outside_the_calendar_is_shown_as_a_number(
    damaged: AuditReport, timestamp_ms: int
) -> None:
    bucket = replace(damaged.buckets[0], start_ms=timestamp_ms)
    finding = replace(damaged.findings[0], timestamp_ms=timestamp_ms)
    report = replace(damaged, buckets=[bucket], findings=[finding])
    assert terminal(report).count(f"{timestamp_ms} ms") == 2
    assert f"{timestamp_ms} ms" in to_html([report])


def test_the_width_of_a_bucket_is_chosen_by_the_span_and_by_the_reports() -> None:
    def width(wanted: int | None, unit: int | None, span: tuple[int, int] | None) -> int:
        return choose_bucket_ms(wanted, unit, lambda: span)[0]

    assert width(None, None, (0, 35_000)) == 1_000
    assert width(None, None, (0, 3_600_000)) == 300_000
    assert width(None, 60_000, (0, 35_000)) == 60_000
    assert width(None, None, (0, 400 * 86_400_000)) == 10 * 86_400_000
    assert width(None, None, None) == 60_000
    assert width(90, None, None) == 90_000
    assert width(90, 60_000, None) == 120_000
    with pytest.raises(BadInput):
        width(0, None, None)
