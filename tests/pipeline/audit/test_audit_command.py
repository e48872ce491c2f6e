"""`lossless audit` from a contract to an exit code, on the sinks that people use."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from audited_topic import AuditedTopic, Delivered, ListSink, tally
from click.testing import CliRunner, Result
from pyspark.sql import functions as F

from lossless.cli.audit import _audit_each, _exit_code, _show, command
from lossless.contract import load_contract
from lossless.errors import BadInput, LosslessError, PromiseBroken, Unavailable, Undecided
from lossless.pipeline.audit import AuditReport, Verdict
from lossless.pipeline.ledger import Ledger, Position
from lossless.pipeline.outcomes import DEAD_LETTER, marked
from lossless.pipeline.sinks import open_sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lossless.contract import PipelineContract
    from lossless.pipeline.sinks.interface import Sink
    from postgres_server import PostgresServer

CONTRACT = """
[cluster]
client.bootstrap.servers = "{servers}"

[pipelines.orders]
topics = ["{topic}"]
format = "raw"
[pipelines.orders.sink]
type = "{kind}"
{place}
"""


def write_contract(folder: Path, topic: AuditedTopic, kind: str, *, dsn: str = "") -> Path:
    path = folder / "lossless.toml"
    servers = topic.settings["bootstrap.servers"]
    place = f'dsn = "{dsn}"\ntable = "orders"' if dsn else 'path = "./warehouse/orders"'
    path.write_text(CONTRACT.format(servers=servers, topic=topic.name, kind=kind, place=place))
    return path


def store(spark: SparkSession, sink: Sink, delivered: list[Delivered]) -> None:
    """What the runner does with one batch."""
    before = sink.ledger()
    rows = ListSink(spark)
    rows.rows_ = delivered
    outcomes = marked(rows.rows().withColumn(DEAD_LETTER, F.lit(None).cast("string")))
    sink.prepare(rows.rows().schema, add_columns=False)
    staged = sink.stage(outcomes, may_expand=False)
    changed = {}
    for source in {r.source for r in delivered}:
        mine = [r for r in delivered if r.source == source]
        receipt = replace(staged.receipts[source.topic_id, source.partition], read=tally(mine))
        position = before.positions.get(source, Position(start_offset=0, next_offset=0))
        changed[source] = position.advanced(max(r.offset for r in mine) + 1, receipt)
    sink.commit(before, before.successor(changed), staged)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(a) for a in arguments])


@pytest.mark.parametrize(
    "kind",
    ["delta", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("postgres", "parquet"))],
)
def test_the_command_balances_writes_its_reports_and_fails_when_a_commit_is_damaged(
    spark: SparkSession,
    client_settings: Mapping[str, str],
    postgres_server: PostgresServer,
    tmp_path: Path,
    kind: str,
) -> None:
    topic = AuditedTopic(client_settings)
    dsn = postgres_server.dsn(postgres_server.create_database()) if kind == "postgres" else ""
    path = write_contract(tmp_path, topic, kind, dsn=dsn)
    sink = open_sink(spark, load_contract(path).pipelines["orders"])
    first, second = topic.send(0, 30), topic.send(30, 30)
    store(spark, sink, first)
    store(spark, sink, second)
    page, tables = tmp_path / "audit.html", tmp_path / "audit"

    good = invoke("orders", "--contract", path, "--html", page, "--parquet", tables)
    assert good.exit_code == 0, good.output
    assert "acknowledged not reported, 60 stored, 0 missing, 0 duplicated" in good.stdout
    assert "✓ balanced" in page.read_text()
    assert (tables / "buckets.parquet").exists()
    assert "scanning" in good.stderr

    # Somebody moved the ledger on by hand: two records will never be read.
    skipped = topic.send(60, 4)
    ledger = sink.ledger()
    moved = {
        source: replace(position, next_offset=position.next_offset + 1)
        for source, position in ledger.positions.items()
    }
    sink.commit(ledger, Ledger(sequence=ledger.sequence + 1, positions=moved), None)
    bad = invoke("--contract", path, "--format", "json", "--bucket", "10s")
    assert bad.exit_code == 1, bad.output
    (audit,) = json.loads(bad.stdout)["audits"]
    missing = {
        (f["partition"], f["offset"], f["key"])
        for f in audit["findings"]
        if f["kind"] == "missing from the table"
    }
    assert missing == {
        (r.partition, r.offset, r.key.decode())
        for r in skipped
        if r.key in (b"order-60", b"order-61")
    }
    assert audit["bucket_ms"] == 10_000


def test_a_width_that_is_none_and_a_pipeline_that_is_not_there_are_refused(
    client_settings: Mapping[str, str], tmp_path: Path
) -> None:
    path = write_contract(tmp_path, AuditedTopic(client_settings), "parquet")
    assert isinstance(invoke("--bucket", "ten", "--contract", path).exception, BadInput)
    unknown = invoke("payments", "--contract", path).exception
    assert isinstance(unknown, BadInput)
    assert "orders" in str(unknown)


def reports_of(*verdicts: Verdict) -> list[AuditReport]:
    return [SimpleNamespace(verdict=verdict) for verdict in verdicts]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("verdicts", "errors", "code"),
    [
        ([Verdict.BALANCED], [], 0),
        ([Verdict.UNDECIDED], [], 3),
        ([Verdict.BALANCED, Verdict.NOT_BALANCED], [], 1),
        ([Verdict.NOT_BALANCED], [Unavailable("the sink is down")], 1),
        ([Verdict.BALANCED], [Unavailable("the sink is down")], 4),
        ([Verdict.BALANCED], [BadInput("no such topic")], 2),
        ([Verdict.BALANCED], [Undecided("restored"), Unavailable("down")], 4),
        ([Verdict.UNDECIDED], [ValueError("a defect")], 70),
        ([], [PromiseBroken("a commit is missing"), ValueError("a defect")], 1),
    ],
)
def test_a_broken_promise_decides_the_exit_code_and_a_failure_is_never_one(
    verdicts: Sequence[Verdict], errors: Sequence[Exception], code: int
) -> None:
    failures = {f"pipeline {number}": error for number, error in enumerate(errors)}
    assert _exit_code(reports_of(*verdicts), failures) == code


@pytest.mark.parametrize("failure", [Unavailable("the sink is down"), ValueError("a defect")])
def test_a_pipeline_that_cannot_be_audited_does_not_hide_the_others(
    failure: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    pipelines: list[PipelineContract] = [
        SimpleNamespace(name=name)  # type: ignore[misc]
        for name in ("orders", "payments", "returns")
    ]
    found = {"orders": Verdict.BALANCED, "returns": Verdict.NOT_BALANCED}

    def audited(pipeline: PipelineContract) -> AuditReport:
        if pipeline.name == "payments":
            raise failure
        return reports_of(found[pipeline.name])[0]

    reports, failures = _audit_each(pipelines, audited)
    assert [report.verdict for report in reports] == list(found.values())
    assert failures == {"payments": failure}
    _show([], failures, "json")
    shown = capsys.readouterr()
    assert json.loads(shown.out)["verdict"] == "cannot tell"
    assert json.loads(shown.out)["failures"] == [{"pipeline": "payments", "error": str(failure)}]
    assert "payments" in shown.err
    assert str(failure) in shown.err


def test_a_pipeline_alone_fails_with_its_own_error() -> None:
    def audited(_: PipelineContract) -> AuditReport:
        raise Unavailable("the sink is down")

    alone: list[PipelineContract] = [SimpleNamespace(name="orders")]  # type: ignore[list-item]
    with pytest.raises(LosslessError, match="the sink is down"):
        _audit_each(alone, audited)
