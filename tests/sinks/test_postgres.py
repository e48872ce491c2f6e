"""The PostgreSQL sink on a real server: what sinks/interface.py promises, fault by fault."""

from __future__ import annotations

import datetime
import json
import math
import threading
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import psycopg
import pytest
from psycopg import sql
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cutting_proxy import CuttingProxy
from lossless.errors import BadInput, Fenced, LosslessError, PromiseBroken
from lossless.pipeline.ledger import Ledger, Position, SourcePartition, Tally
from lossless.pipeline.outcomes import (
    DEAD_LETTER,
    DEAD_LETTER_TYPE,
    PROVENANCE,
    PROVENANCE_TYPE,
    row_schema,
)
from lossless.pipeline.sinks.interface import CommitUnknown, SinkUnavailable, Staged
from lossless.pipeline.sinks.postgres import PostgresSink
from lossless.tally import record_hash
from outcomes_from import outcomes_from

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from postgres_server import PostgresServer

# PySpark leaves the sockets that collect() reads from to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

TOPIC_ID = "kZ3vQ0m1T0uYl2Qb7Xw9Aw"
NOON = datetime.datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=datetime.UTC)
ORDERS = "order_id long, note string"

Order = tuple[int, str | None]


@pytest.fixture
def dsn(postgres_server: PostgresServer) -> str:
    return postgres_server.dsn(postgres_server.create_database())


@pytest.fixture
def sink(spark: SparkSession, dsn: str) -> PostgresSink:
    sink = PostgresSink(spark, "orders", dsn, "orders")
    sink.prepare(orders_schema(), add_columns=False)
    return sink


def orders_schema(columns: str = ORDERS) -> T.StructType:
    fields = T.StructType.fromDDL(columns).fields
    return T.StructType([*fields, T.StructField(PROVENANCE, PROVENANCE_TYPE)])


def outcomes(
    spark: SparkSession,
    rows: Sequence[tuple[Any, ...]],
    *,
    columns: str = ORDERS,
    start: int = 0,
    dead: Sequence[int] = (),
    timestamp: datetime.datetime = NOON,
) -> DataFrame:
    """Rows at offsets from `start`, then dead letters at the offsets in `dead`."""
    schema = T.StructType(
        [*orders_schema(columns).fields, T.StructField(DEAD_LETTER, DEAD_LETTER_TYPE)]
    )
    width = len(schema.fields) - 2
    data = [
        (*row, (TOPIC_ID, 0, offset, timestamp), None) for offset, row in enumerate(rows, start)
    ]
    data += [(*[None] * width, (TOPIC_ID, 0, offset, timestamp), letter(offset)) for offset in dead]
    return outcomes_from(spark.createDataFrame(data, schema))


def letter(offset: int) -> tuple[Any, ...]:
    headers = {"kafka_dlt-exception-message": f"bad\0record {offset}"}
    return (b"k\x00", b'\xff{"', [("trace", b"\x01\x02"), ("none", None)], headers)


def tally(*offsets: int) -> Tally:
    return Tally(len(offsets), sum(record_hash(TOPIC_ID, 0, o) for o in offsets) % 2**64)


def after(expected: Ledger, next_offset: int, staged: Staged | None = None) -> Ledger:
    source = SourcePartition("shop.orders", TOPIC_ID, 0)
    position = expected.positions.get(source, Position(start_offset=0, next_offset=0))
    if staged is not None and (receipt := staged.receipts.get((TOPIC_ID, 0))):
        position = position.advanced(next_offset, receipt)
    return expected.successor({source: position})


def write(
    sink: PostgresSink, frame: DataFrame, next_offset: int, *, may_expand: bool = False
) -> Staged:
    """One batch, staged and committed on what the ledger says now."""
    expected = sink.ledger()
    staged = sink.stage(frame, may_expand=may_expand)
    sink.commit(expected, after(expected, next_offset, staged), staged)
    return staged


def query(dsn: str, text: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(sql.SQL(text))
        return cursor.fetchall() if cursor.description else []


def stored(dsn: str) -> list[Order]:
    return [(a, b) for a, b in query(dsn, "SELECT order_id, note FROM orders ORDER BY 1")]


def staging_tables(dsn: str) -> int:
    found = query(
        dsn, "SELECT relname FROM pg_class WHERE relname ~ '^lossless_staging.*(rows|dead)$'"
    )
    return len(found)


# --- what a commit is


def test_a_commit_shows_rows_dead_letters_and_ledger_together(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    expected = sink.ledger()
    staged = sink.stage(outcomes(spark, [(1, "a"), (2, "b")], dead=[2]), may_expand=False)
    assert stored(dsn) == []
    assert sink.dead_letters().count() == 0
    assert sink.ledger() == Ledger()

    successor = after(expected, 3, staged)
    sink.commit(expected, successor, staged)

    assert stored(dsn) == [(1, "a"), (2, "b")]
    assert sink.ledger() == successor
    assert sorted(row[PROVENANCE]["offset"] for row in sink.rows().collect()) == [0, 1]
    assert [row[PROVENANCE]["offset"] for row in sink.dead_letters().collect()] == [2]
    (entry,) = sink.history()
    assert entry.sequence == 1
    assert entry.after == successor.positions
    assert staging_tables(dsn) == 0


def test_receipts_count_and_hash_what_was_staged(spark: SparkSession, sink: PostgresSink) -> None:
    frame = outcomes(spark, [(n, "x") for n in range(50)], start=7, dead=[100, 101]).repartition(3)
    staged = sink.stage(frame, may_expand=False)
    (receipt,) = staged.receipts.values()
    assert receipt.stored == tally(*range(7, 57))
    assert receipt.dead == tally(100, 101)
    assert receipt.rows == 50


def test_an_expanded_record_is_stored_once_and_has_all_its_rows(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    frame = outcomes(spark, [(1, "a"), (2, "b")], dead=[9])
    twice = frame.union(frame.where(f"{DEAD_LETTER} IS NULL")).repartition(4)
    staged = write(sink, twice, 10, may_expand=True)
    (receipt,) = staged.receipts.values()
    assert (receipt.stored, receipt.dead, receipt.rows) == (tally(0, 1), tally(9), 4)
    assert stored(dsn) == [(1, "a"), (1, "a"), (2, "b"), (2, "b")]


def test_a_commit_can_move_the_ledger_alone(sink: PostgresSink) -> None:
    successor = after(Ledger(), 0)
    sink.commit(Ledger(), successor, None)
    assert sink.ledger() == successor


def test_an_empty_batch_moves_the_ledger(spark: SparkSession, sink: PostgresSink, dsn: str) -> None:
    staged = write(sink, outcomes(spark, []), 5)
    assert staged.receipts == {}
    assert sink.ledger().sequence == 1
    assert stored(dsn) == []


# --- once, whoever tries again


def test_a_committed_batch_that_is_replayed_changes_nothing(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    frame = outcomes(spark, [(1, "a")], dead=[1])
    write(sink, frame, 2)
    ledger = sink.ledger()
    again = sink.stage(frame, may_expand=False)
    with pytest.raises(Fenced, match="at commit 1, this one counted on 0"):
        sink.commit(Ledger(), after(Ledger(), 2, again), again)
    assert stored(dsn) == [(1, "a")]
    assert sink.dead_letters().count() == 1
    assert sink.ledger() == ledger
    assert len(sink.history()) == 1


@pytest.mark.parametrize("first_to_stage", ["zombie", "successor"])
def test_a_zombie_driver_loses(
    spark: SparkSession, sink: PostgresSink, dsn: str, first_to_stage: str
) -> None:
    write(sink, outcomes(spark, [(1, "a")]), 1)
    expected = sink.ledger()
    zombie, successor = sink, PostgresSink(spark, "orders", dsn, "orders")
    frame = outcomes(spark, [(2, "b")], start=1)
    drivers = [zombie, successor] if first_to_stage == "zombie" else [successor, zombie]
    batches = {driver: driver.stage(frame, may_expand=False) for driver in drivers}

    successor.commit(expected, after(expected, 2, batches[successor]), batches[successor])
    with pytest.raises(Fenced):
        zombie.commit(expected, after(expected, 2, batches[zombie]), batches[zombie])
    assert stored(dsn) == [(1, "a"), (2, "b")]
    successor.sweep()
    assert staging_tables(dsn) == 0


def test_a_zombie_whose_staging_was_swept_writes_nothing(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    staged = sink.stage(outcomes(spark, [(1, "a")]), may_expand=False)
    PostgresSink(spark, "orders", dsn, "orders").sweep()
    with pytest.raises(SinkUnavailable, match="its staging tables were dropped"):
        sink.commit(Ledger(), after(Ledger(), 1, staged), staged)
    assert stored(dsn) == []
    assert sink.ledger() == Ledger()


def test_of_two_first_drivers_one_commits(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    drivers = [sink, PostgresSink(spark, "orders", dsn, "orders")]
    batches = [d.stage(outcomes(spark, [(1, "a")]), may_expand=False) for d in drivers]
    together(
        *(
            lambda d=driver, s=staged: d.commit(Ledger(), after(Ledger(), 1, s), s)  # type: ignore[misc]
            for driver, staged in zip(drivers, batches, strict=True)
        ),
        failing_with=Fenced,
    )
    assert stored(dsn) == [(1, "a")]
    assert sink.ledger().sequence == 1


def together(*actions: Callable[[], None], failing_with: type[LosslessError] | None = None) -> None:
    """Runs all at the same time; all but one must fail as named, or all succeed."""
    ready = threading.Barrier(len(actions))
    failures: list[BaseException] = []

    def run(action: Callable[[], None]) -> None:
        ready.wait(30)
        try:
            action()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    expected = [failing_with] * (len(actions) - 1) if failing_with else []
    assert [type(failure) for failure in failures] == expected, failures


def test_rows_of_an_attempt_without_a_receipt_are_never_inserted(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    expected = sink.ledger()
    staged = sink.stage(outcomes(spark, [(1, "a")], dead=[1]), may_expand=False)
    for table in staged.handle.tables.names:
        # A speculative twin of the attempt that counts: the same content under another number.
        query(dsn, f"CREATE TABLE twin AS SELECT * FROM {table}")
        query(dsn, "UPDATE twin SET _lossless_attempt = -1")
        query(dsn, f"INSERT INTO {table} SELECT * FROM twin")
        query(dsn, "DROP TABLE twin")
    sink.commit(expected, after(expected, 2, staged), staged)
    assert stored(dsn) == [(1, "a")]
    assert sink.dead_letters().count() == 1


def test_a_batch_whose_tasks_fail_leaves_nothing_that_is_seen(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    frame = outcomes(spark, [(n, "x") for n in range(20)]).repartition(4)
    poisoned = frame.withColumn(
        "note",
        F.when(F.col("order_id") == 7, F.raise_error(F.lit("boom"))).otherwise(F.col("note")),
    )
    # The transform's failure reaches the runner as it is: it is not the sink's.
    with pytest.raises(PySparkException, match="boom"):
        sink.stage(poisoned, may_expand=False)
    assert stored(dsn) == []
    deadline = time.monotonic() + 60
    # A task of the failed job may still be at it, and what it holds is left to a later sweep.
    while staging_tables(dsn) and time.monotonic() < deadline:
        sink.sweep()
    assert staging_tables(dsn) == 0
    write(sink, frame, 20)
    assert len(stored(dsn)) == 20


def test_sweeping_leaves_what_may_still_be_committed_and_what_is_in_use(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    mine = sink.stage(outcomes(spark, [(1, "a")]), may_expand=False)
    zombie = PostgresSink(spark, "orders", dsn, "orders")
    other = PostgresSink(spark, "other", dsn, "orders")
    staging = zombie.stage(outcomes(spark, [(2, "b")]), may_expand=False)
    others = other.stage(outcomes(spark, [(3, "c")]), may_expand=False)
    with psycopg.connect(dsn) as connection:
        # The zombie is in the middle of a COPY into one of its two tables.
        busy = sql.Identifier(staging.handle.tables.names[0])
        connection.execute(sql.SQL("INSERT INTO {0} SELECT * FROM {0}").format(busy))
        sink.sweep()
    assert staging_tables(dsn) == 2 + 1 + 2
    sink.commit(Ledger(), after(Ledger(), 1, mine), mine)
    other.commit(Ledger(), after(Ledger(), 1, others), others)
    assert stored(dsn) == [(1, "a"), (3, "c")]


# --- faults


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


# --- what cannot be used as it stands


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
    write(sink, outcomes(spark, [(1, "a")]), 1)
    query(dsn, "DROP TABLE orders")
    with pytest.raises(PromiseBroken, match=r"the table public\.orders they went to is gone"):
        sink.ledger()


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


def test_a_row_that_breaks_a_rule_of_the_table_stops_the_batch_and_names_the_rule(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    query(dsn, "CREATE UNIQUE INDEX one_order_each ON orders (order_id)")
    write(sink, outcomes(spark, [(1, "a")]), 1)
    with pytest.raises(BadInput, match=r"one_order_each.*\(order_id\)=\(1\)"):
        write(sink, outcomes(spark, [(2, "b"), (1, "c")], start=1), 3)
    assert stored(dsn) == [(1, "a")]
    assert sink.ledger().sequence == 1


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


# --- values


def test_every_type_comes_back_as_it_was(spark: SparkSession, dsn: str) -> None:
    columns = (
        "n long, bool boolean, tiny byte, small short, whole int, big long, single float, "
        "real double, price decimal(38,10), text string, bytes binary, day date, at timestamp, "
        "local timestamp_ntz, tags array<string>, counts map<string,int>, "
        "place struct<lat:double,at:timestamp,raw:binary>"
    )
    local = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)
    price = Decimal("-1234567890123456789012345678.0123456789")
    full = (
        *(1, True, -128, 32767, -(2**31), 2**63 - 1, 0.1, 1e-300, price),
        *('quote " comma , tab\t\nline\\.\n\\.\n\r\\N ünï 🦜', b"\x00\xff\\x", local.date()),
        *(NOON, local, ["a", None, ""], {"k": 1}, (1.5, NOON, b"\x01")),
    )
    none = (2, *[None] * 16)
    empty = (3, False, 0, 0, 0, 0, math.nan, math.nan, Decimal(0), "", b"")
    empty += (datetime.date(1, 1, 1), NOON, local, [], {}, (None, None, None))
    infinite = (4, None, None, None, None, None, -math.inf, math.inf, None, r"\N", b"", None)
    infinite += (None, None, None, None, None)
    sink = PostgresSink(spark, "types", dsn, "types")
    sink.prepare(orders_schema(columns), add_columns=False)
    # A second time, now against the table that the first made: its own types fit.
    sink.prepare(orders_schema(columns), add_columns=False)
    write(sink, outcomes(spark, [full, none, empty, infinite], columns=columns), 4)

    read = query(dsn, "SELECT * FROM types ORDER BY n")
    found = dict(zip((f.name for f in T.StructType.fromDDL(columns)), read[0], strict=False))
    place = {"lat": 1.5, "at": "2026-03-01T12:00:00.123456Z", "raw": "AQ=="}
    assert found == {**dict(zip(found, full, strict=True)), "place": place, "single": 0.1}
    assert read[1][:17] == none
    assert read[2][:6] == empty[:6]
    assert [math.isnan(value) for value in read[2][6:8]] == [True, True]
    nulls = {"lat": None, "at": None, "raw": None}
    assert read[2][8:17] == (*empty[8:16], nulls)
    assert read[3][6:8] == (-math.inf, math.inf)
    assert read[3][9:11] == (r"\N", b"")
    assert read[0][17:] == (TOPIC_ID, 0, 0, NOON)


def test_a_table_with_wider_types_takes_every_value_unchanged(
    spark: SparkSession, dsn: str
) -> None:
    query(dsn, "CREATE EXTENSION citext")
    query(
        dsn,
        "CREATE TABLE wider (n numeric, tiny bigint, single double precision, price numeric, "
        "exact numeric(20,6), name varchar(5), word citext, place json)",
    )
    columns = (
        "n long, tiny byte, single float, price decimal(38,10), exact decimal(10,4), name string, "
        "word string, place struct<b:int,a:int>"
    )
    prices = Decimal("-0.0000000001"), Decimal("1234.5678")
    rows = [(2**63 - 1, -128, 0.5, *prices, "äöü  ", "Word", (1, 2)), (2, *[None] * 7)]
    sink = PostgresSink(spark, "wider", dsn, "wider")
    sink.prepare(orders_schema(columns), add_columns=True)
    write(sink, outcomes(spark, rows, columns=columns), 2)

    names = "n, tiny, single, price, exact, name, word::text, place::text"
    first, second = query(dsn, f"SELECT {names} FROM wider ORDER BY n DESC")
    # The members of `place` in their order: json keeps the text as it is.
    assert first == (*rows[0][:7], '{"b":1,"a":2}')
    assert second == rows[1]


def test_text_is_stored_as_it_is_whatever_encoding_the_dsn_asks_for(
    spark: SparkSession, dsn: str
) -> None:
    sink = PostgresSink(spark, "orders", f"{dsn} client_encoding=LATIN1", "orders")
    sink.prepare(orders_schema(), add_columns=False)
    write(sink, outcomes(spark, [(1, "ünï")], dead=[1]), 2)
    assert stored(dsn) == [(1, "ünï")]


def test_a_timestamp_before_the_calendar_is_refused_and_does_not_wrap_around(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    first = F.timestamp_micros(F.lit(-(2**63)))  # 2^63 below 2000 would be the year 294246
    frame = outcomes(spark, [(1, "a")])
    frame = frame.withColumn(PROVENANCE, F.col(PROVENANCE).withField("timestamp", first))
    with pytest.raises(BadInput, match="timestamp out of range"):
        write(sink, frame, 1)
    assert stored(dsn) == []
    assert sink.ledger() == Ledger()


def test_a_row_that_postgres_cannot_store_becomes_a_dead_letter_that_says_why(
    spark: SparkSession, dsn: str
) -> None:
    query(dsn, "CREATE TABLE orders (n bigint NOT NULL, code varchar(3), old date)")
    columns = "n long, text string, tags array<string>, code string, old date"
    early = F.expr("CASE WHEN n = 6 THEN date_add(DATE'0001-01-01', -2000000) ELSE old END")
    day = datetime.date(2026, 1, 1)
    rows = [
        (1, "fine", ["\\u0000"], "äöü", day),
        (2, "nul \0 in text", ["x"], None, day),
        (3, "x", ["nul \0 in json"], None, day),
        (4, "x", None, "long", day),
        (None, "x", None, None, day),
        (6, "x", None, None, day),
        (7, "not utf-8", None, None, day),
    ]
    frame = outcomes(spark, rows, columns=columns, dead=[90])
    broken = F.expr("CASE WHEN n = 7 THEN CAST(X'61FF62' AS STRING) ELSE text END")
    frame = frame.withColumn("old", early).withColumn("text", broken)
    sink = PostgresSink(spark, "orders", dsn, "orders")
    sink.prepare(orders_schema(columns), add_columns=True)
    staged = write(sink, frame, 91)

    assert query(dsn, "SELECT n, text, tags FROM orders") == [(1, "fine", ["\\u0000"])]
    (receipt,) = staged.receipts.values()
    assert receipt.stored == tally(0)
    assert receipt.dead == tally(1, 2, 3, 4, 5, 6, 90)
    letters = {row[PROVENANCE]["offset"]: row for row in sink.dead_letters().collect()}
    reasons = {
        offset: letters[offset]["headers"]["kafka_dlt-exception-message"] for offset in letters
    }
    for offset, words in (
        (1, "column text holds a NUL character"),
        (2, "column tags holds a NUL character"),
        (3, "column code has more than the 3 characters"),
        (4, "column n is null"),
        (5, "column old is before 4714 BC"),
        (6, "column text is not valid UTF-8"),
    ):
        assert words in reasons[offset]
        assert letters[offset]["headers"]["kafka_dlt-original-offset"] == str(offset)
    assert json.loads(letters[1]["value"])["text"] == "nul \0 in text"
    assert json.loads(letters[6]["value"])["text"] == "a\\xffb"


def test_a_record_of_which_one_row_cannot_be_stored_is_dead_as_a_whole(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    frame = outcomes(spark, [(1, "a"), (2, "b")])
    rows = F.when(F.col("order_id") == 2, F.array(*map(F.lit, ["ok", "\0", "\0 again"])))
    expanded = frame.withColumn("note", F.explode(F.coalesce(rows, F.array("note"))))
    staged = write(sink, expanded.repartition(3), 2, may_expand=True)
    (receipt,) = staged.receipts.values()
    assert (receipt.stored, receipt.dead, receipt.rows) == (tally(0), tally(1), 1)
    assert stored(dsn) == [(1, "a")]
    assert [row[PROVENANCE]["offset"] for row in sink.dead_letters().collect()] == [1]


def test_a_dead_letter_comes_back_with_its_bytes_and_headers(
    spark: SparkSession, sink: PostgresSink
) -> None:
    write(sink, outcomes(spark, [], dead=[5]), 6)
    (found,) = sink.dead_letters().collect()
    topic_id, partition, offset, timestamp = found[PROVENANCE]
    assert (topic_id, partition, offset) == (TOPIC_ID, 0, 5)
    assert timestamp.astimezone(datetime.UTC) == NOON
    key, value, record_headers, _ = letter(5)
    assert (found["key"], found["value"]) == (key, value)
    assert [tuple(header) for header in found["record_headers"]] == record_headers
    # jsonb has no NUL: what is for people to read gets the replacement character.
    assert found["headers"] == {"kafka_dlt-exception-message": "bad\ufffdrecord 5"}


def test_a_kafka_timestamp_far_in_the_future_is_stored(
    spark: SparkSession, sink: PostgresSink
) -> None:
    frame = outcomes(spark, [(1, "a")], dead=[1])
    far = F.timestamp_micros(F.lit(1_772_366_400_000_000_000))  # milliseconds given in microseconds
    frame = frame.withColumn(PROVENANCE, F.col(PROVENANCE).withField("timestamp", far))
    write(sink, frame, 2)
    micros = F.unix_micros(f"{PROVENANCE}.timestamp")
    for found in (sink.rows(), sink.dead_letters()):
        assert [row[0] for row in found.select(micros).collect()] == [1_772_366_400_000_000_000]


# --- tables people have


@pytest.mark.parametrize(
    ("table", "schema", "name"),
    [
        ("Order", "public", "Order"),
        ('"a.b"', "public", "a.b"),
        ("select.table", "select", "table"),
        ('"My ""Schema"""."%s {} ü"', 'My "Schema"', "%s {} ü"),
    ],
)
def test_odd_names_are_taken_as_they_are(
    spark: SparkSession, dsn: str, table: str, schema: str, name: str
) -> None:
    with psycopg.connect(dsn) as connection:
        create = sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema))
        connection.execute(create)
    columns = '`Select` long, `a "b" %s {}` string'
    sink = PostgresSink(spark, 'o\'dd "pipeline" %s', dsn, table)
    sink.prepare(orders_schema(columns), add_columns=False)
    write(sink, outcomes(spark, [(1, "a")], columns=columns, dead=[1]), 2)
    with psycopg.connect(dsn) as connection:
        read = sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, name))
        assert connection.execute(read).fetchall() == [(1, "a", TOPIC_ID, 0, 0, NOON)]
    assert sink.rows().count() == 1
    assert sink.dead_letters().count() == 1
    assert PostgresSink(spark, 'o\'dd "pipeline" %s', dsn, table).ledger().sequence == 1


@pytest.mark.parametrize("table", ["", "a.b.c", 'a"b', "t" * 60])
def test_what_is_no_table_name_is_bad_input(spark: SparkSession, dsn: str, table: str) -> None:
    with pytest.raises(BadInput, match="table"):
        PostgresSink(spark, "p", dsn, table)


def test_two_pipelines_share_a_table_and_keep_their_own_ledgers(
    spark: SparkSession, sink: PostgresSink, dsn: str
) -> None:
    other = PostgresSink(spark, "refunds", dsn, "orders")
    other.prepare(orders_schema(), add_columns=False)
    write(sink, outcomes(spark, [(1, "a")], dead=[1]), 2)
    write(sink, outcomes(spark, [(2, "b")], start=2), 3)
    write(other, outcomes(spark, [(3, "c")]), 1)
    assert (sink.ledger().sequence, other.ledger().sequence) == (2, 1)
    assert stored(dsn) == [(1, "a"), (2, "b"), (3, "c")]
    assert (sink.dead_letters().count(), other.dead_letters().count()) == (1, 0)


def test_rows_reads_partitions_and_skips_rows_that_were_there_before(
    spark: SparkSession, dsn: str
) -> None:
    query(dsn, "CREATE TABLE orders (order_id bigint, note text) PARTITION BY RANGE (order_id)")
    query(dsn, "CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (10)")
    query(dsn, "CREATE TABLE high PARTITION OF orders FOR VALUES FROM (10) TO (100)")
    query(dsn, "INSERT INTO orders VALUES (5, 'old')")
    sink = PostgresSink(spark, "orders", dsn, "orders")
    sink.prepare(orders_schema(), add_columns=True)
    assert sink.rows().count() == 0
    write(sink, outcomes(spark, [(1, "a"), (11, "b")]), 2)
    assert sorted(row[PROVENANCE]["offset"] for row in sink.rows().collect()) == [0, 1]
    (first, _) = sink.rows().orderBy(f"{PROVENANCE}.offset").collect()
    assert first[PROVENANCE]["timestamp"].astimezone(datetime.UTC) == NOON


def test_rows_reads_every_page_once_in_one_snapshot(
    spark: SparkSession, sink: PostgresSink, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lossless.pipeline.sinks.postgres_scan.PROVENANCE_PAGES", 2)
    write(sink, outcomes(spark, [(n, "x" * 100) for n in range(1000)]), 1000)
    frame = sink.rows()
    # Every row moves to another page after the snapshot was taken, before it is read.
    query(dsn, "UPDATE orders SET note = 'y'")
    query(dsn, "DELETE FROM orders WHERE order_id < 10")
    assert sorted(row[0] for row in frame.select(f"{PROVENANCE}.offset").collect()) == list(
        range(1000)
    )
    assert sink.rows().count() == 990
    sink.close()


def test_before_the_first_run_there_is_nothing_to_read(spark: SparkSession, dsn: str) -> None:
    sink = PostgresSink(spark, "orders", dsn, "orders")
    assert sink.ledger() == Ledger()
    assert sink.history() == ()
    sink.sweep()
    assert not sink.schema_difference(orders_schema()).exists
    assert sink.rows().count() == 0
    assert sink.dead_letters().count() == 0


def test_the_rows_schema_of_outcomes_is_what_prepare_takes(
    spark: SparkSession, sink: PostgresSink
) -> None:
    assert sink.schema_difference(row_schema(outcomes(spark, []).schema)).added == []
