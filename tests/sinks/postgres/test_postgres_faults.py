"""Faults of a server and of its connection, and what cannot be used as it stands."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import psycopg
import pytest
from postgres_orders import ORDERS, after, orders_schema, outcomes, query, stored, together, write

from cutting_proxy import CuttingProxy
from lossless.errors import BadInput, PromiseBroken
from lossless.pipeline.ledger import Ledger
from lossless.pipeline.sinks.interface import CommitUnknown, SinkUnavailable
from lossless.pipeline.sinks.postgres import PostgresSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from postgres_server import PostgresServer
# PySpark leaves the sockets that collect() reads from to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


# Faults


def test_a_server_crash_after_staging_is_noticed_and_the_batch_is_staged_again(
    spark: SparkSession, sink: PostgresSink, dsn: str, postgres_server: PostgresServer
) -> None:
    write(sink, outcomes(spark, [(1, "a")]), 1)
    expected = sink.ledger()
    frame = outcomes(spark, [(2, "b"), (3, "c")], start=1, dead=[3])
    staged = sink.stage(frame, may_expand=False)
    postgres_server.kill()
    postgres_server.start()
    with pytest.raises(SinkUnavailable, match="of 2 rows and 1 dead letters 0 and 0 are left"):
        sink.commit(expected, after(expected, 4, staged), staged)
    assert sink.ledger() == expected
    write(sink, frame, 4)
    assert stored(dsn) == [(1, "a"), (2, "b"), (3, "c")]
    assert sink.dead_letters().count() == 1


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_connection_cut_during_commit_is_an_unknown_outcome_that_the_ledger_resolves(
    spark: SparkSession,
    sink: PostgresSink,
    dsn: str,
    postgres_server: PostgresServer,
    cut: Literal["before", "after"],
) -> None:
    with CuttingProxy(postgres_server.port) as proxy:
        cut_off = PostgresSink(spark, "orders", f"{dsn} port={proxy.port}", "orders")
        staged = cut_off.stage(outcomes(spark, [(1, "a")], dead=[1]), may_expand=False)
        successor = after(Ledger(), 2, staged)
        proxy.arm(cut)
        with pytest.raises(CommitUnknown, match="may or may not have happened"):
            cut_off.commit(Ledger(), successor, staged)
        assert proxy.fired == 1

        # Reading the ledger needs no lock: it can be before the server noticed the dead client.
        found = cut_off.ledger()
        assert found == (successor if cut == "after" else Ledger())
        if found == Ledger():
            cut_off.commit(Ledger(), successor, staged)
        assert cut_off.ledger() == successor
        assert stored(dsn) == [(1, "a")]
        assert sink.dead_letters().count() == 1


def test_a_server_that_is_down_is_unavailable_until_it_is_back(
    spark: SparkSession, sink: PostgresSink, dsn: str, postgres_server: PostgresServer
) -> None:
    frame = outcomes(spark, [(1, "a")])
    staged = sink.stage(frame, may_expand=False)
    postgres_server.stop()
    try:
        for action in (
            sink.ledger,
            sink.sweep,
            lambda: sink.stage(frame, may_expand=False),
            lambda: sink.commit(Ledger(), after(Ledger(), 1, staged), staged),
        ):
            with pytest.raises(SinkUnavailable, match="is the server running"):
                action()
    finally:
        postgres_server.start()
    # A clean stop keeps what was staged.
    sink.commit(Ledger(), after(Ledger(), 1, staged), staged)
    assert stored(dsn) == [(1, "a")]


def test_a_server_that_goes_away_under_the_tasks_is_unavailable(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    # Every backend but the one that asks is ended: what a task's connection sees in a failover.
    def end_backends(batches: Any) -> Any:
        for batch in batches:
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            yield batch

    frame = outcomes(spark, [(n, "x" * 1000) for n in range(5000)]).coalesce(1)
    frame = frame.mapInArrow(end_backends, frame.schema)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        with pytest.raises(SinkUnavailable):
            sink.stage(frame, may_expand=False)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert stored(dsn) == []


# Other sessions


def test_the_server_ends_sessions_and_waits_of_a_driver_that_is_gone(sink: PostgresSink) -> None:
    with sink._connected("looking at the settings") as (connection, _):
        found = {
            name: connection.execute(f"SHOW {name}").fetchone()
            for name in ("lock_timeout", "idle_in_transaction_session_timeout")
        }
        keepalives = connection.execute(
            "SELECT setting FROM pg_settings WHERE name LIKE 'tcp_%' ORDER BY name"
        ).fetchall()
    assert found == {
        "lock_timeout": ("10s",),
        "idle_in_transaction_session_timeout": ("1min",),
    }
    assert keepalives == [("3",), ("30",), ("10",), ("60000",)]


def test_timeouts_that_somebody_chose_stay(spark: SparkSession, dsn: str) -> None:
    (database,) = query(dsn, "SELECT current_database()")[0]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {database} SET idle_in_transaction_session_timeout = 0")
    chosen = PostgresSink(spark, "orders", f"{dsn} options='-c lock_timeout=3s'", "orders")
    with chosen._connected("looking at the settings") as (connection, _):
        assert connection.execute("SHOW lock_timeout").fetchone() == ("3s",)
        shown = connection.execute("SHOW idle_in_transaction_session_timeout").fetchone()
        assert shown == ("0",)


def test_a_commit_gives_up_on_a_lock_and_names_the_session_that_holds_it(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    impatient = PostgresSink(spark, "orders", f"{dsn} options='-c lock_timeout=200ms'", "orders")
    write(sink, outcomes(spark, [(1, "a")]), 1)
    expected = sink.ledger()
    staged = impatient.stage(outcomes(spark, [(2, "b")], start=1), may_expand=False)
    successor = after(expected, 2, staged)
    with psycopg.connect(dsn, application_name="the dead driver") as other:
        other.execute("SELECT FROM lossless_ledger FOR UPDATE")
        holder = f"process {other.info.backend_pid} .the dead driver at 127.0.0.1., idle in trans"
        with pytest.raises(SinkUnavailable, match=holder):
            impatient.commit(expected, successor, staged)
    impatient.commit(expected, successor, staged)
    assert stored(dsn) == [(1, "a"), (2, "b")]


def test_a_driver_that_stops_in_the_middle_of_its_commit_does_not_hold_up_the_next_one(
    spark: SparkSession, sink: PostgresSink, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = "options='-c idle_in_transaction_session_timeout=200ms'"
    stopped = PostgresSink(spark, "orders", f"{dsn} {idle}", "orders")
    batch = stopped.stage(outcomes(spark, [(1, "stopped")]), may_expand=False)
    successor = after(Ledger(), 1, batch)
    nexts = sink.stage(outcomes(spark, [(1, "next")]), may_expand=False)

    def let_the_next_one_commit(*_: Any) -> None:
        sink.commit(Ledger(), after(Ledger(), 1, nexts), nexts)
        raise psycopg.OperationalError("the connection was found closed")

    # With the ledger's row locked: the server ends the session, and the next driver's wait.
    monkeypatch.setattr(stopped, "_insert", let_the_next_one_commit)
    with pytest.raises(SinkUnavailable):
        stopped.commit(Ledger(), successor, batch)
    assert stored(dsn) == [(1, "next")]


# What cannot be used as it stands


def test_refused_credentials_are_bad_input_and_an_unreachable_server_is_not(
    spark: SparkSession, postgres_server: PostgresServer
) -> None:
    database = postgres_server.create_database()
    secret = "s3cret-and-wrong"
    for changed, words in (
        ({"password": secret}, "password authentication failed"),
        ({"dbname": "nowhere"}, 'database "nowhere" does not exist'),
    ):
        sink = PostgresSink(spark, "p", postgres_server.dsn(database, **changed), "orders")
        with pytest.raises(BadInput, match=words) as refused:
            sink.ledger()
        assert secret not in str(refused.value)
        assert "check user, password and database" in str(refused.value)
    with CuttingProxy(1) as proxy:
        closed = proxy.port
    sink = PostgresSink(spark, "p", postgres_server.dsn(database, port=closed), "orders")
    with pytest.raises(SinkUnavailable) as unreachable:
        sink.ledger()
    assert unreachable.value.exit_code == 4


@pytest.mark.parametrize(
    "dsn", ["postgresql://u:s3cret@[h/db", "host=h s3cret", "postgresql://u:p@s3cret@h/db"]
)
def test_a_dsn_that_cannot_be_read_is_not_quoted(spark: SparkSession, dsn: str) -> None:
    with pytest.raises(BadInput) as refused:
        PostgresSink(spark, "p", dsn, "orders")
    assert "s3cret" not in str(refused.value)


def test_the_password_is_in_no_plan_and_no_description(
    spark: SparkSession, sink: PostgresSink, postgres_server: PostgresServer
) -> None:
    write(sink, outcomes(spark, [(1, "a")]), 1)
    frame = sink.rows()
    shown = [sink.describe(), repr(sink), frame._jdf.queryExecution().toString()]
    assert not [text for text in shown if postgres_server.password in text]
    assert "orders on 127.0.0.1" in sink.describe()


def test_a_table_that_does_not_fit_is_refused_with_every_reason(
    spark: SparkSession, dsn: str
) -> None:
    query(
        dsn,
        "CREATE TABLE orders (order_id integer, note uuid, amount numeric(10,2), "
        "shop text NOT NULL, id bigint GENERATED ALWAYS AS IDENTITY, "
        "made timestamptz NOT NULL DEFAULT now())",
    )
    sink = PostgresSink(spark, "orders", dsn, "orders")
    rows = orders_schema(f"{ORDERS}, amount decimal(12,2), id long, t interval day to second")
    with pytest.raises(BadInput) as refused:
        sink.prepare(rows, add_columns=True)
    message = str(refused.value)
    for column in ("order_id", "note", "amount", "shop", "id", "t"):
        assert f"column {column}" in message
    assert "made" not in message
    assert query(dsn, "SELECT relname FROM pg_class WHERE relname ~ 'lossless|_dlt'") == []
    assert len(sink.schema_difference(rows).incompatible) == 6


def test_a_table_grows_by_nullable_columns_only_when_that_is_allowed(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    write(sink, outcomes(spark, [(1, "a")]), 1)
    grown = f"{ORDERS}, `unit price` decimal(8,2)"
    assert sink.schema_difference(orders_schema(grown)).added == ["unit price numeric(8,2)"]
    with pytest.raises(BadInput, match="column unit price numeric"):
        sink.prepare(orders_schema(grown), add_columns=False)
    sink.prepare(orders_schema(grown), add_columns=True)
    assert sink.schema_difference(orders_schema(grown)).added == []
    write(sink, outcomes(spark, [(2, "b", Decimal("1.50"))], columns=grown, start=1), 2)
    # Rows without the new column still fit.
    write(sink, outcomes(spark, [(3, "c")], start=2), 3)
    assert query(dsn, 'SELECT order_id, "unit price" FROM orders ORDER BY 1') == [
        (1, None),
        (2, Decimal("1.50")),
        (3, None),
    ]


def test_drivers_that_prepare_at_once_do_not_disturb_each_other(
    spark: SparkSession, dsn: str
) -> None:
    drivers = [PostgresSink(spark, f"p{n}", dsn, f"t{n}") for n in (1, 1, 2, 2)]
    together(*(lambda d=d: d.prepare(orders_schema(), add_columns=False) for d in drivers))  # type: ignore[misc]
    assert [d.schema_difference(orders_schema()).exists for d in drivers] == [True] * 4


def test_a_table_dropped_under_its_ledger_breaks_the_promise(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    write(sink, outcomes(spark, [(1, "a")], dead=[1]), 2)
    query(dsn, "DROP TABLE orders")
    with pytest.raises(
        PromiseBroken, match=r"the table public\.orders they went to is gone"
    ) as gone:
        sink.ledger()
    # The way back that it names works.
    advice = gone.value.hint or ""
    query(dsn, advice[advice.index("BEGIN;") :])
    assert sink.ledger() == Ledger()
    sink.prepare(orders_schema(), add_columns=False)
    write(sink, outcomes(spark, [(1, "a")], dead=[1]), 2)
    assert stored(dsn) == [(1, "a")]
    assert sink.dead_letters().count() == 1


def test_a_pipeline_cannot_take_its_ledger_to_another_table(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    write(sink, outcomes(spark, [(1, "a")]), 1)
    with pytest.raises(BadInput, match="has so far written to the table orders"):
        PostgresSink(spark, "orders", dsn, "elsewhere").ledger()


def test_a_user_who_may_not_create_is_told_what_to_grant(
    spark: SparkSession, postgres_server: PostgresServer
) -> None:
    database = postgres_server.create_database()
    dsn = postgres_server.dsn(database)
    query(dsn, "DROP ROLE IF EXISTS reader")
    query(dsn, "CREATE ROLE reader LOGIN PASSWORD 'read'")
    query(dsn, "CREATE SCHEMA closed")
    query(dsn, "GRANT USAGE ON SCHEMA closed TO reader")
    limited = postgres_server.dsn(database, user="reader", password="read")
    sink = PostgresSink(spark, "p", limited, "closed.orders")
    with pytest.raises(BadInput, match="permission denied for schema closed") as refused:
        sink.prepare(orders_schema(), add_columns=False)
    assert "GRANT USAGE, CREATE ON SCHEMA" in str(refused.value)


def test_a_schema_that_is_missing_and_a_database_that_is_not_unicode_are_bad_input(
    spark: SparkSession, dsn: str, postgres_server: PostgresServer
) -> None:
    with pytest.raises(BadInput, match='schema "nowhere" does not exist'):
        PostgresSink(spark, "p", dsn, "nowhere.t").prepare(orders_schema(), add_columns=False)
    latin = postgres_server.create_database(TEMPLATE="template0", ENCODING="'LATIN1'")
    sink = PostgresSink(spark, "p", postgres_server.dsn(latin), "orders")
    with pytest.raises(BadInput, match="encoded in LATIN1"):
        sink.prepare(orders_schema(), add_columns=False)


def test_a_trigger_that_keeps_rows_out_is_refused(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    query(
        dsn,
        "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    )
    query(dsn, "CREATE TRIGGER t BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION nothing()")
    with pytest.raises(BadInput, match="a trigger or a rule"):
        write(sink, outcomes(spark, [(1, "a")]), 1)
    assert sink.ledger() == Ledger()
