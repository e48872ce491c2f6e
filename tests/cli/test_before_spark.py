"""Mistakes in a pipeline are reported before Spark starts: these tests hide Java from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import types as T

from cli.command import lossless
from lossless.pipeline.before_spark import check_master
from lossless.pipeline.ledger import Ledger, LedgerEntry
from lossless.pipeline.outcomes import PROVENANCE, PROVENANCE_TYPE
from lossless.pipeline.sinks.parquet_log import LEDGER_FILE, CommitRecord, commit_name
from lossless.pipeline.sinks.postgres_types import PROVENANCE_COLUMNS

if TYPE_CHECKING:
    from postgres_server import PostgresServer

PIPELINES = """
[cluster]
client.bootstrap.servers = "127.0.0.1:1"
[pipelines.good]
topics = ["orders"]
format = "raw"
sink = {{ type = "delta", path = "good" }}
[pipelines.orders]
topics = ["orders"]
schema = "orders.json"
{line}
sink = {{ type = "delta", path = "orders" }}
"""
SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}}}


@pytest.mark.parametrize("names", [("orders",), ("good", "orders")], ids=" ".join)
@pytest.mark.parametrize(
    ("schema", "line", "message"),
    [
        ({**SCHEMA, "oneOf": []}, "", "oneOf"),
        (SCHEMA, 'transform = "no_such_module:clean"', "no module 'no_such_module'"),
        (SCHEMA, 'transform = "json.no_such:clean"', "no module 'json.no_such'"),
    ],
)
def test_a_mistake_in_a_pipeline_is_found_before_spark_starts(
    tmp_path: Path, schema: dict[str, object], line: str, message: str, names: tuple[str, ...]
) -> None:
    (tmp_path / "lossless.toml").write_text(PIPELINES.format(line=line))
    (tmp_path / "orders.json").write_text(json.dumps(schema))
    answer = lossless(tmp_path, "run", "--once", *names, PATH="", JAVA_HOME="")
    assert answer.returncode == 2, answer.stderr
    assert message in answer.stderr
    assert "Java" not in answer.stderr


@pytest.mark.parametrize("names", [("orders",), ("good", "orders")], ids=" ".join)
def test_a_transform_module_is_found_without_being_executed(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    """The module may define UDFs, which need a session. Kafka is then the first thing missing."""
    (tmp_path / "lossless.toml").write_text(PIPELINES.format(line='transform = "orders_:clean"'))
    (tmp_path / "orders.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "orders_.py").write_text("raise SystemExit('it was executed')")
    answer = lossless(tmp_path, "run", "--once", *names, PATH="", JAVA_HOME="")
    assert answer.returncode == 4
    assert "127.0.0.1:1" in answer.stderr
    assert "it was executed" not in answer.stderr


SINK = """
[cluster]
client.bootstrap.servers = "127.0.0.1:1"
[pipelines.orders]
topics = ["orders"]
schema = "number BIGINT, text STRING"
[pipelines.orders.sink]
{sink}
"""
COLUMNS = T.StructType([T.StructField("number", T.LongType())])
WITH_PROVENANCE = T.StructType([*COLUMNS.fields, T.StructField(PROVENANCE, PROVENANCE_TYPE)])


def run_into(folder: Path, sink: str, *arguments: str) -> CompletedProcess[str]:
    (folder / "lossless.toml").write_text(SINK.format(sink=sink))
    return lossless(folder, "run", "--once", *arguments, PATH="", JAVA_HOME="")


def test_an_unreachable_master_is_found_before_spark_starts(tmp_path: Path) -> None:
    sink = 'type = "delta"\npath = "orders"'
    answer = run_into(tmp_path, sink, "--master", "spark://127.0.0.1:1")
    assert answer.returncode == 4
    assert "no Spark master answers at spark://127.0.0.1:1" in answer.stderr
    malformed = run_into(tmp_path, sink, "--master", "spark://somewhere")
    assert malformed.returncode == 2


@pytest.mark.parametrize("command", [("run",), ("audit",), ("rename", "old", "orders")])
@pytest.mark.parametrize("master", ["nonsense", "local[many]", "spark:/host:7077"])
def test_a_master_that_spark_does_not_know_needs_no_spark_to_be_refused(
    tmp_path: Path, command: tuple[str, ...], master: str
) -> None:
    (tmp_path / "lossless.toml").write_text(SINK.format(sink='type = "delta"\npath = "orders"'))
    answer = lossless(tmp_path, *command, "--master", master, PATH="", JAVA_HOME="")
    assert answer.returncode == 2
    assert f"--master {master} is not an address of a Spark master" in answer.stderr


@pytest.mark.parametrize("master", ["local", "local[4]", "local[*, 2]", "yarn", "k8s://host:443"])
def test_a_master_that_needs_no_connection_is_taken_as_it_is(master: str) -> None:
    check_master(master)


@pytest.mark.parametrize("command", ["run", "audit"])
def test_a_path_that_the_locale_cannot_express_is_refused_before_spark_starts(
    tmp_path: Path, command: str
) -> None:
    (tmp_path / "lossless.toml").write_text(SINK.format(sink='type = "delta"\npath = "Größe"'))
    answer = lossless(tmp_path, command, PATH="", JAVA_HOME="", LC_ALL="C")
    assert answer.returncode == 2, answer.stderr
    assert "cannot express" in answer.stderr
    assert "set LC_ALL=C.UTF-8" in answer.stderr
    doctor = lossless(tmp_path, "doctor", LC_ALL="C")
    assert "cannot express" in doctor.stdout
    answer = lossless(tmp_path, command, PATH="", JAVA_HOME="", LC_ALL="C.UTF-8")
    assert "127.0.0.1:1" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--acknowledged", "nosuch.jsonl"), "nosuch.jsonl cannot be read: No such file"),
        (("--acknowledged", "."), ". cannot be read: Is a directory"),
        (("--html", "nosuch/audit.html"), "there is no folder nosuch"),
    ],
)
def test_a_file_that_an_audit_cannot_use_needs_no_spark_to_be_found(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "lossless.toml").write_text(SINK.format(sink='type = "delta"\npath = "orders"'))
    answer = lossless(tmp_path, "audit", *arguments, PATH="", JAVA_HOME="")
    assert answer.returncode == 2, answer.stderr
    assert said in answer.stderr


@pytest.mark.parametrize("command", ["run", "audit"])
def test_an_unreachable_server_is_found_before_spark_starts(tmp_path: Path, command: str) -> None:
    sink = 'type = "postgres"\ndsn = "host=127.0.0.1 port=1 dbname=shop"\ntable = "orders"'
    (tmp_path / "lossless.toml").write_text(SINK.format(sink=sink))
    answer = lossless(tmp_path, command, PATH="", JAVA_HOME="")
    assert answer.returncode == 4
    assert "127.0.0.1:1/shop" in answer.stderr


def delta_table(folder: Path, _server: PostgresServer) -> str:
    log = folder / "orders" / "_delta_log"
    log.mkdir(parents=True)
    metadata = {"metaData": {"schemaString": json.dumps(WITH_PROVENANCE.jsonValue())}}
    text = json.dumps(metadata, separators=(",", ":"))
    (log / f"{0:020}.json").write_text('{"protocol":{}}\n' + text)
    (log / f"{1:020}.json").write_text('{"commitInfo":{}}')
    return 'type = "delta"\npath = "orders"'


def parquet_table(folder: Path, _server: PostgresServer) -> str:
    ledger = Ledger(sequence=1)
    record = CommitRecord(
        pipeline="orders",
        attempt="a",
        ledger=ledger,
        entry=LedgerEntry.between(Ledger(), ledger, committed_at_ms=0),
        schema=WITH_PROVENANCE,
        files=(),
    )
    commit = folder / "orders" / commit_name(1)
    commit.mkdir(parents=True)
    (commit / LEDGER_FILE).write_text(record.to_json())
    return 'type = "parquet"\npath = "orders"'


def postgres_table(_folder: Path, server: PostgresServer) -> str:
    dsn = server.dsn(server.create_database())
    columns = ", ".join(f"{name} {kind}" for name, kind in PROVENANCE_COLUMNS.items())
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL(f"CREATE TABLE orders (number bigint, {columns})"))
    return f'type = "postgres"\ndsn = "{dsn}"\ntable = "orders"'


@pytest.mark.parametrize("table", [delta_table, parquet_table, postgres_table])
def test_columns_missing_from_the_table_are_found_before_spark_starts(
    tmp_path: Path,
    postgres_server: PostgresServer,
    table: Callable[[Path, PostgresServer], str],
) -> None:
    sink = table(tmp_path, postgres_server)
    answer = run_into(tmp_path, sink)
    assert answer.returncode == 2, answer.stderr
    assert "text" in answer.stderr
    assert "add_columns = true in [pipelines.orders]" in answer.stderr
