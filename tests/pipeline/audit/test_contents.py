"""What rows hold: every alteration is named, and no lawful operation raises an alarm.

One table is written for each sink; every case works on a copy of it. Record n is at offset n of the
topic's only partition.
"""

from __future__ import annotations

import datetime
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import psycopg
import pytest
from audited_topic import AuditedTopic, Delivered, tally
from psycopg import sql
from pyspark.sql import types as T

from lossless.contract import (
    DeltaSinkContract,
    ParquetSinkContract,
    PipelineContract,
    PostgresSinkContract,
)
from lossless.pipeline.audit import AuditReport, FindingKind, Verdict
from lossless.pipeline.audit.contents import NOT_COMPARED
from lossless.pipeline.audit.wording import conclusion
from lossless.pipeline.contents import content_hash, uncoverings
from lossless.pipeline.ledger import Ledger, Position, Uncovered
from lossless.pipeline.outcomes import (
    CONTENT_HASH,
    DEAD_LETTER,
    DEAD_LETTER_TYPE,
    PROVENANCE,
    PROVENANCE_TYPE,
)
from lossless.pipeline.session import setting
from lossless.pipeline.sinks import open_sink
from outcomes_from import outcomes_from

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lossless.pipeline.sinks.interface import Sink
    from postgres_server import PostgresServer

COLUMNS = (
    "number BIGINT, small SMALLINT, price DECIMAL(10,2), ratio FLOAT, note STRING, other STRING, "
    "at TIMESTAMP, day DATE, open BOOLEAN, raw BINARY, tags ARRAY<STRING>, "
    "place STRUCT<city: STRING, zip: INT>, total DECIMAL(30,10)"
)
COUNT = 15


def values(number: int) -> tuple[Any, ...]:
    noon = datetime.datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=datetime.UTC)
    return (
        number,
        number,
        Decimal(number) / 4,
        number / 4,
        f"note {number}",
        None,
        noon + datetime.timedelta(hours=number),
        datetime.date(2026, 3, 1 + number),
        number % 2 == 0,
        bytes([number]),
        ["a", None, f"tag {number}"],
        (f"city {number}", None if number % 2 else number),
        Decimal("12345678901234567890.1234567891"),
    )


def store(
    spark: SparkSession, sink: Sink, delivered: list[Delivered], columns: str = COLUMNS
) -> None:
    """What the runner does with one batch."""
    before = sink.ledger()
    rows = T.StructType(
        [*T.StructType.fromDDL(columns).fields, T.StructField(PROVENANCE, PROVENANCE_TYPE)]
    )
    schema = T.StructType([*rows.fields, T.StructField(DEAD_LETTER, DEAD_LETTER_TYPE)])
    width = len(rows.fields) - 1
    data = [
        (
            *(*values(r.offset), f"extra {r.offset}")[:width],
            (
                r.topic_id,
                r.partition,
                r.offset,
                datetime.datetime.fromtimestamp(r.timestamp_ms / 1000, datetime.UTC),
            ),
            None,
        )
        for r in delivered
    ]
    sink.prepare(rows, add_columns=True)
    staged = sink.stage(outcomes_from(spark.createDataFrame(data, schema)), may_expand=False)
    source = delivered[0].source
    receipt = replace(staged.receipts[source.topic_id, source.partition], read=tally(delivered))
    position = before.positions.get(source, Position(start_offset=0, next_offset=0))
    after = position.advanced(delivered[-1].offset + 1, receipt, hashed=bool(staged.columns))
    sink.commit(before, before.successor({source: after}, columns=staged.columns), staged)


@dataclass(frozen=True)
class Written:
    """A table with COUNT rows, of which every case takes a copy."""

    topic: AuditedTopic
    records: list[Delivered]
    delta: Path
    parquet: Path
    database: str


@pytest.fixture(scope="module")
def written(
    spark: SparkSession,
    client_settings: Mapping[str, str],
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Written:
    topic = AuditedTopic(client_settings, partitions=1)
    records = topic.send(0, COUNT)
    folder = tmp_path_factory.mktemp("written")
    made = Written(
        topic, records, folder / "delta", folder / "parquet", postgres_server.create_database()
    )
    for sink in (
        delta_sink(spark, made.delta),
        parquet_sink(spark, made.parquet),
        postgres_sink(spark, postgres_server.dsn(made.database)),
    ):
        # Two commits, so that there is something to compact.
        store(spark, sink, records[: COUNT // 2])
        store(spark, sink, records[COUNT // 2 :])
    return made


def delta_sink(spark: SparkSession, path: Path) -> Sink:
    return opened(spark, DeltaSinkContract(path=str(path)))


def parquet_sink(spark: SparkSession, path: Path) -> Sink:
    return opened(spark, ParquetSinkContract(path=str(path)))


def postgres_sink(spark: SparkSession, dsn: str) -> Sink:
    return opened(spark, PostgresSinkContract(dsn=dsn, table="orders"))


def opened(spark: SparkSession, contract: Any) -> Sink:
    return open_sink(
        spark, PipelineContract(name="orders", sink=contract, topics=("unused",), group="unused")
    )


@dataclass(frozen=True)
class Copy:
    """A copy of the written table, with SQL for it."""

    spark: SparkSession
    written: Written
    sink: Sink
    run: Callable[[str], None]
    place: str  # a path or a DSN


@pytest.fixture
def delta(spark: SparkSession, written: Written, tmp_path: Path) -> Copy:
    path = tmp_path / "delta"
    shutil.copytree(written.delta, path)

    def run(statement: str) -> None:
        spark.sql(statement.replace("orders", f"delta.`{path}`"))

    return Copy(spark, written, delta_sink(spark, path), run, str(path))


@pytest.fixture
def parquet(spark: SparkSession, written: Written, tmp_path: Path) -> Copy:
    path = tmp_path / "parquet"
    shutil.copytree(written.parquet, path)

    def run(statement: str) -> None:
        raise NotImplementedError(statement)

    return Copy(spark, written, parquet_sink(spark, path), run, str(path))


@pytest.fixture
def postgres(spark: SparkSession, written: Written, postgres_server: PostgresServer) -> Copy:
    copy = postgres_server.create_database(TEMPLATE=written.database)
    dsn = postgres_server.dsn(copy)

    def run(statement: str) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(sql.SQL(statement))

    return Copy(spark, written, postgres_sink(spark, dsn), run, dsn)


Auditor = Callable[..., AuditReport]

# One row for each fault, in SQL that both sinks take. Row 0 stays as it is.
FAULTS: dict[int, dict[str, str]] = {
    1: {"note": "'forged'"},
    2: {"price": "price + 0.01"},
    3: {"note": "null"},
    4: {"other": "'a value in place of a null'"},
    5: {"other": "note", "note": "null"},
    6: {"at": "at + INTERVAL '0.000001' SECOND"},
    7: {"open": "NOT open"},
    8: {"raw": "null"},
    9: {"day": "DATE '2026-04-01'"},
    10: {"note": "'forged'", CONTENT_HASH: "null"},
    11: {CONTENT_HASH: f"{CONTENT_HASH} + 1"},
    12: {"total": "total + 0.0000000001"},
}
NESTED = {
    "delta": {
        13: {"tags": "array('a', 'b')"},
        14: {"place": "named_struct('city', 'forged', 'zip', place.zip)"},
    },
    "postgres": {
        13: {"tags": """'["a", "b"]'::jsonb"""},
        14: {"place": """jsonb_set(place, '{city}', '"forged"')"""},
    },
}


def one_update(faults: Mapping[int, Mapping[str, str]]) -> str:
    cases: dict[str, str] = {}
    for number, changes in faults.items():
        for column, value in changes.items():
            cases[column] = f"{cases.get(column, '')} WHEN {number} THEN {value}"
    changed = (f"{column} = CASE number{when} ELSE {column} END" for column, when in cases.items())
    return f"UPDATE orders SET {', '.join(changed)}"


@pytest.mark.parametrize("kind", ["delta", "postgres"])
def test_every_altered_row_is_named(
    request: pytest.FixtureRequest, audited: Auditor, kind: str
) -> None:
    copy: Copy = request.getfixturevalue(kind)
    faults = FAULTS | NESTED[kind]
    copy.run(one_update(faults))
    report = audited(copy.written.topic, copy.sink, contents=True)
    assert {f.kind for f in report.findings} == {FindingKind.ALTERED}
    assert [f.offset for f in report.findings] == list(faults)
    removed = [f.offset for f in report.findings if "removed" in f.detail]
    assert removed == [10]
    assert report.verdict is Verdict.NOT_BALANCED
    assert report.total.altered == len(faults)
    assert f"{len(faults)} altered" in conclusion(report)

    # Without --contents the records are all there, and the report says what was compared.
    report = audited(copy.written.topic, copy.sink)
    assert report.verdict is Verdict.BALANCED
    assert NOT_COMPARED in report.notes


def test_lawful_operations_on_delta_raise_no_alarm(
    spark: SparkSession, audited: Auditor, delta: Copy
) -> None:
    for statement in (
        "OPTIMIZE orders",
        "ALTER TABLE orders ADD COLUMN seen BOOLEAN FIRST",
        "UPDATE orders SET seen = true",
        "ALTER TABLE orders SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
        "ALTER TABLE orders ALTER COLUMN small TYPE BIGINT",
        "ALTER TABLE orders ALTER COLUMN price TYPE DECIMAL(18,4)",
        "ALTER TABLE orders ALTER COLUMN total TYPE DECIMAL(32,12)",
        "ALTER TABLE orders ALTER COLUMN ratio TYPE DOUBLE",
    ):
        delta.run(statement)
    with setting(spark, "spark.databricks.delta.retentionDurationCheck.enabled", "false"):
        delta.run("VACUUM orders RETAIN 0 HOURS")
    with setting(spark, "spark.sql.session.timeZone", "Asia/Tokyo"):
        check_sound(audited, delta)


def test_lawful_operations_on_postgres_raise_no_alarm(
    spark: SparkSession, audited: Auditor, postgres: Copy, postgres_server: PostgresServer
) -> None:
    for statement in (
        "ALTER TABLE orders ADD COLUMN seen timestamptz DEFAULT now()",
        "UPDATE orders SET seen = now() WHERE number = 1",
        "ALTER TABLE orders ALTER COLUMN small TYPE numeric",
        "ALTER TABLE orders ALTER COLUMN price TYPE numeric(18,4)",
        "ALTER TABLE orders ALTER COLUMN total TYPE numeric(32,12)",
        "ALTER TABLE orders ALTER COLUMN ratio TYPE double precision",
        "ALTER TABLE orders ALTER COLUMN note TYPE varchar(100)",
        "DELETE FROM orders WHERE false",
        "VACUUM FULL orders",
    ):
        postgres.run(statement)
    check_sound(audited, postgres)

    restored = postgres_server.dsn(postgres_server.create_database())
    dump = subprocess.run(["pg_dump", "--dbname", postgres.place], check=True, capture_output=True)
    subprocess.run(
        ["psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--dbname", restored],
        input=dump.stdout,
        check=True,
        capture_output=True,
    )
    check_sound(audited, replace(postgres, sink=postgres_sink(spark, restored)))


def check_sound(audited: Auditor, copy: Copy) -> None:
    report = audited(copy.written.topic, copy.sink, contents=True)
    assert report.findings == []
    assert report.verdict is Verdict.BALANCED
    assert report.notes == []


@pytest.mark.parametrize("kind", ["delta", "postgres", "parquet"])
def test_a_column_that_came_later_leaves_older_hashes_as_they_are(
    request: pytest.FixtureRequest, kind: str
) -> None:
    copy: Copy = request.getfixturevalue(kind)
    more = [replace(copy.written.records[-1], offset=COUNT)]
    store(copy.spark, copy.sink, more, f"{COLUMNS}, extra STRING")
    ledger = copy.sink.ledger()
    assert "extra" in ledger.columns
    assert copy.sink.contents(ledger.columns, uncoverings(ledger.positions)).collect() == []


@pytest.mark.parametrize("kind", ["delta", "postgres"])
def test_what_others_fill_in_a_column_that_the_pipeline_does_not_write_is_no_alteration(
    request: pytest.FixtureRequest, kind: str
) -> None:
    """The column is theirs at first, then the pipeline's too, and theirs again."""
    copy: Copy = request.getfixturevalue(kind)
    kind_of_text = "STRING" if kind == "delta" else "text"
    copy.run(f"ALTER TABLE orders ADD COLUMN extra {kind_of_text}")
    if kind == "postgres":  # a Delta table with defaults is refused
        copy.run("ALTER TABLE orders ALTER COLUMN extra SET DEFAULT 'n/a'")
    copy.run("UPDATE orders SET extra = 'n/a'")
    last = copy.written.records[-1]
    store(copy.spark, copy.sink, [replace(last, offset=COUNT)], f"{COLUMNS}, extra STRING")
    for offset in (COUNT + 1, COUNT + 2):
        store(copy.spark, copy.sink, [replace(last, offset=offset)])
    copy.run(f"UPDATE orders SET extra = 'n/a' WHERE number > {COUNT}")
    ledger = copy.sink.ledger()
    (position,) = ledger.positions.values()
    assert position.uncovered == (
        Uncovered("extra", 0, COUNT),
        Uncovered("extra", COUNT + 1, COUNT + 3),
    )
    assert Ledger.from_json(ledger.to_json()) == ledger
    assert copy.sink.contents(ledger.columns, uncoverings(ledger.positions)).collect() == []
    copy.run(f"UPDATE orders SET extra = 'forged' WHERE number = {COUNT}")
    altered = copy.sink.contents(ledger.columns, uncoverings(ledger.positions)).collect()
    assert [row["offset"] for row in altered] == [COUNT]


def test_a_wider_number_within_a_nested_value_is_no_alteration(spark: SparkSession) -> None:
    narrow = (
        "s STRUCT<d: DECIMAL(10,2), f: FLOAT, n: INT>, a ARRAY<STRUCT<d: DECIMAL(10,2)>>, "
        "m MAP<STRING, DECIMAL(10,2)>"
    )
    wide = narrow.replace("DECIMAL(10,2)", "DECIMAL(22,8)").replace("FLOAT", "DOUBLE")
    cents = Decimal("1.25")
    for amount in (Decimal("12.30"), None):
        row = ((amount, 0.5, 7), [(cents,), None], {"k": None, "l": cents})
        other = ((amount, 0.5, 7), [(cents + 1,), None], {"k": None, "l": cents})
        hashes = [
            hash_of(spark, values, schema)
            for values, schema in ((row, narrow), (row, wide), (other, wide))
        ]
        assert hashes[0] == hashes[1] != hashes[2]


def hash_of(spark: SparkSession, row: tuple[Any, ...], columns: str) -> int:
    schema = T.StructType(
        [*T.StructType.fromDDL(columns).fields, T.StructField(PROVENANCE, PROVENANCE_TYPE)]
    )
    noon = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
    frame = spark.createDataFrame([(*row, ("id", 0, 0, noon))], schema)
    (found,) = frame.selectExpr(content_hash(schema.fields[:-1])).collect()
    return int(found[0])


@pytest.mark.parametrize("kind", ["delta", "postgres"])
def test_rows_of_an_earlier_release_are_called_not_hashed_and_not_altered(
    request: pytest.FixtureRequest, audited: Auditor, kind: str
) -> None:
    copy: Copy = request.getfixturevalue(kind)
    ledger = copy.sink.ledger()
    copy.run(f"UPDATE orders SET {CONTENT_HASH} = null WHERE number < 5")
    upgraded = {s: replace(p, hashed_from=5) for s, p in ledger.positions.items()}
    copy.sink.commit(ledger, ledger.successor(upgraded), None)
    report = audited(copy.written.topic, copy.sink, contents=True)
    assert report.findings == []
    (note,) = report.notes
    assert "from offset 0 on, were written by an earlier release" in note


def truncate(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def flip_bytes(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-12:] = bytes(byte ^ 0xFF for byte in data[-12:])
    file.write_bytes(data)
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


def flip_bytes_of_every_page(file: Path) -> None:
    data = bytearray(file.read_bytes())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for at in range(4, footer):
        data[at] ^= 0xFF
    file.write_bytes(data)
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


def flip_bytes_under_a_checksum(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)


DAMAGE = [
    (Path.unlink, "is gone"),
    (truncate, "bytes are left"),
    (empty, "0 of "),
    (flip_bytes, "reading it fails"),
    (flip_bytes_of_every_page, "reading it fails"),
    (flip_bytes_under_a_checksum, "reading it fails (ChecksumException)"),
]


@pytest.mark.parametrize("kind", ["delta", "parquet"])
@pytest.mark.parametrize(
    ("damage", "reason"), DAMAGE, ids=[damage.__name__ for damage, _ in DAMAGE]
)
def test_an_unreadable_data_file_is_named_with_the_records_in_it(
    request: pytest.FixtureRequest,
    audited: Auditor,
    kind: str,
    damage: Callable[[Path], None],
    reason: str,
) -> None:
    copy: Copy = request.getfixturevalue(kind)
    rows = copy.sink.rows().selectExpr(f"{PROVENANCE}.offset", "input_file_name() AS file")
    files = {row["offset"]: unquote(urlsplit(row["file"]).path) for row in rows.collect()}
    damaged = files[3]
    damage(Path(damaged))
    report = audited(copy.written.topic, copy.sink)
    assert report.verdict is Verdict.NOT_BALANCED
    assert {f.kind for f in report.findings} == {FindingKind.MISSING}
    assert [f.offset for f in report.findings] == [o for o in sorted(files) if files[o] == damaged]
    (note,) = (n for n in report.notes if "cannot be read" in n)
    assert note.startswith("1 data file of the ")
    assert damaged.rpartition("/")[2] in note
    assert reason in note


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_files_that_are_as_they_were_written_are_not_called_damaged(
    request: pytest.FixtureRequest, kind: str
) -> None:
    copy: Copy = request.getfixturevalue(kind)
    assert list(copy.sink.unreadable_files(read=True)) == []


def test_a_damaged_file_is_named_when_contents_are_compared(audited: Auditor, delta: Copy) -> None:
    rows = delta.sink.rows().selectExpr("input_file_name() AS file").distinct().collect()
    damaged = Path(unquote(urlsplit(rows[0]["file"]).path))
    truncate(damaged)
    report = audited(delta.written.topic, delta.sink, contents=True)
    assert {f.kind for f in report.findings} == {FindingKind.MISSING}
    assert damaged.name in report.notes[0]
