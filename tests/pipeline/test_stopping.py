"""A run that is stopped reports how far it came, and a stop counts for one run."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from cli.command import LOSSLESS
from lossless.engines.waiting import wait_until
from lossless.errors import Interrupted
from lossless.pipeline.events import Committed, Event, Started, Stopped
from lossless.pipeline.pipeline import Pipeline
from shop import MakeShop, Shop

if TYPE_CHECKING:
    from postgres_server import PostgresServer

PATIENCE_S = 120


def test_a_run_stopped_before_its_ledger_was_read_reports_no_ledger(shop: MakeShop) -> None:
    orders = shop()
    orders.produce(range(5))
    pipeline = orders.pipeline()
    stopped: list[Event] = []
    pipeline.stop()
    with pytest.raises(Interrupted, match="stopped before its ledger was read; nothing was writte"):
        pipeline.run(once=True, observe=stopped.append)
    (event,) = stopped
    assert isinstance(event, Stopped)
    assert (event.ledger, event.complete) == (None, False)
    # That stop is used up.
    pipeline.run(once=True, observe=stopped.append)
    assert orders.numbers() == list(range(5))
    assert isinstance(stopped[-1], Stopped)
    assert stopped[-1].complete


def test_a_pipeline_that_was_stopped_runs_again(shop: MakeShop) -> None:
    orders = shop()
    orders.produce(range(5))
    pipeline = orders.pipeline("trigger_s = 0.1")
    events: list[Event] = []

    def observe(event: Event) -> None:
        events.append(event)
        if isinstance(event, Committed):
            pipeline.stop()

    run = threading.Thread(target=lambda: pipeline.run(observe=observe))
    run.start()
    run.join(PATIENCE_S)
    assert isinstance(events[-1], Stopped)
    assert (events[-1].why, events[-1].complete) == ("the batch under way was finished", False)
    orders.produce(range(5, 8))
    pipeline.run(once=True)
    assert orders.numbers() == list(range(8))


def test_a_run_with_once_that_leaves_records_unread_is_not_complete(shop: MakeShop) -> None:
    orders = shop()
    orders.produce(range(30))
    pipeline = orders.pipeline("records_per_batch_max = 10")
    events: list[Event] = []

    def observe(event: Event) -> None:
        events.append(event)
        if isinstance(event, Committed):
            pipeline.stop()

    pipeline.run(once=True, observe=observe)
    assert orders.numbers() == list(range(10))
    assert isinstance(events[-1], Stopped)
    assert not events[-1].complete


def test_a_stop_during_the_start_reads_nothing(shop: MakeShop) -> None:
    orders = shop()
    orders.produce(range(5))
    pipeline = orders.pipeline()
    events: list[Event] = []

    def observe(event: Event) -> None:
        events.append(event)
        if isinstance(event, Started):
            pipeline.stop()

    ledger = pipeline.run(once=True, observe=observe)
    assert ledger.sequence == 1  # where it begins
    assert isinstance(events[-1], Stopped)
    assert (events[-1].why, events[-1].complete) == ("before the first batch", False)


def test_a_start_that_a_server_holds_up_ends_after_a_stop(
    shop: MakeShop, postgres_server: PostgresServer
) -> None:
    orders = shop()
    orders.produce(range(5))
    dsn = postgres_server.dsn(postgres_server.create_database())
    in_postgres(orders, "first", dsn).run(once=True)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN PERFORM pg_sleep(1000); RETURN NEW; END'"
        )
        connection.execute(
            "CREATE TRIGGER hold BEFORE INSERT ON lossless_ledger "
            "FOR EACH ROW EXECUTE FUNCTION hold()"
        )

        def sleeps() -> bool:
            found = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
            ).fetchone()
            return found is not None and found[0] == 1

        held_up = in_postgres(orders, "second", dsn)
        events: list[Event] = []
        run = threading.Thread(target=lambda: held_up.run(observe=events.append), daemon=True)
        run.start()
        assert wait_until(sleeps, timeout_s=PATIENCE_S)
        held_up.stop()
        run.join(PATIENCE_S)
        assert not run.is_alive()
        assert isinstance(events[-1], Stopped)
        assert events[-1].why == "during its start, which was given up"
        stored = connection.execute("SELECT pipeline FROM lossless_ledger").fetchall()
        assert stored == [("first",)]


def in_postgres(orders: Shop, name: str, dsn: str) -> Pipeline:
    path = orders.folder / f"{name}.toml"
    path.write_text(
        f"""
[cluster]
client.bootstrap.servers = "{orders.bootstrap_servers}"
[pipelines.{name}]
topics = ["{orders.topic}"]
format = "json"
schema = "number BIGINT NOT NULL, text STRING"
sink = {{ type = "postgres", dsn = "{dsn}", table = "{name}" }}
"""
    )
    return Pipeline(name, contract=path, spark=orders.spark)


def test_the_command_reports_no_totals_if_it_is_stopped_while_spark_starts(
    shop: MakeShop, tmp_path: Path
) -> None:
    orders = shop()
    orders.contract()
    arguments = ["run", "orders", "--once", "--format", "json"]
    with subprocess.Popen(
        [*LOSSLESS, *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        log = tmp_path / ".lossless" / "spark.log"
        assert wait_until(log.exists, timeout_s=PATIENCE_S)
        process.send_signal(signal.SIGTERM)
        output, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    result = json.loads(output)
    assert (result["pipeline"], result["complete"]) == ("orders", False)
    assert result["sequence"] is None
    assert result["records"] is None
    assert "stopped: before its ledger was read; nothing was written" in said
