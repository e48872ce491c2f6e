"""What lossless.Consumer promises with a store: state and results in step with offsets (C8, C10,
C13)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from claims.observing import fresh, topic_of
from client.claims.client_claim import ENGINES, NOTHING, Fault, client_claim
from client.claims.client_clusters import until
from client.claims.client_seen import JOINING, Seen, make_table, rows_of
from lossless.client.stores import FileSink, PostgresStore
from lossless.engines.local.planned import PlannedCluster
from lossless.verifier.anomaly import Kind
from lossless.verifier.history import History
from postgres_server import PostgresServer

Rows = list[tuple[str, int, int, str]]


class Database:
    def __init__(self, server: PostgresServer) -> None:
        self.dsn = server.dsn(server.create_database())
        self._ask("CREATE TABLE stored (topic text, part int, off bigint, value text)")

    def rows(self) -> Rows:
        return self._ask("SELECT * FROM stored ORDER BY topic, part, off")

    def position(self, topic: str) -> int | None:
        found = self._ask(f"SELECT next_offset FROM lossless_offsets WHERE topic = '{topic}'")
        return found[0][0] if found else None

    def _ask(self, statement: str) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


def insert(message: Any, unit: Any) -> None:
    row = (message.topic(), message.partition(), message.offset(), message.value().decode())
    unit.execute("INSERT INTO stored VALUES (%s, %s, %s, %s)", row)


@client_claim(
    "C8",
    fault=Fault.KILLED_BEFORE_COMMIT,
    provoked="a moving average of three records is kept in the state of a SQLite store; the "
    "process is killed in the middle of a unit, twice",
    shows={"moving average": NOTHING},
)
def test_state_across_records_survives_a_kill_in_step_with_the_offset(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    topic, group = topic_of(kafka, "c8"), fresh("c8")
    seen = Seen(kafka, tmp_path, topic)
    path = make_table(tmp_path / "averages.db")
    with seen.producer() as sending:
        sending.send_numbers(topic, range(30))
    task = {
        "store": ["sqlite", str(path)],
        "sink": "averages",
        "in_order": False,
        "options": {"commit_every_records": 5},
    }
    for number, hold in enumerate(("7", "22")):
        with seen.remote(f"c{number}", group, hold_after=hold, **task) as killed:
            killed.wait_to_say("holding", hold)
            killed.kill()
    with seen.remote("c3", group, **task) as member:
        member.wait_for(lambda: len(rows_of(path)) == 30, "everything")
        member.end()
    rows = rows_of(path)
    averages = [sum(range(max(0, n - 2), n + 1)) / min(3, n + 1) for n in range(30)]
    assert [float(value) for *_, value in rows] == averages
    stored = [(at, partition, offset, str(offset)) for at, partition, offset, _ in rows]
    return {"moving average": seen.history({group: stored})}


@client_claim(
    "C10",
    fault=Fault.KILLED_BEFORE_COMMIT,
    provoked="processes that write files by atomic rename, and rows by (topic, partition, offset), "
    "are killed when records are written and nothing is committed",
    shows={"files": NOTHING, "upsert by (topic, partition, offset)": NOTHING},
)
def test_files_and_upserts_hold_each_record_once_after_a_kill(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    topic = topic_of(kafka, "c10")
    files, upserts = Seen(kafka, tmp_path, topic), Seen(kafka, tmp_path, topic)
    groups = fresh("c10-files"), fresh("c10-upserts")
    folder, path = tmp_path / "files", make_table(tmp_path / "upserts.db", unique=True)
    with files.producer() as sending:
        sending.send_numbers(topic, range(30))
    upserts.shares_sends_with(files)
    options = {"commit_every_records": 5}
    writing = {"store": ["files", str(folder)], "sink": "file", "in_order": False}
    upserting = {"sink": str(path)}
    for name, hold in (("c1", "17"), ("c2", "")):
        with (
            files.remote(name, groups[0], hold_after=hold, options=options, **writing) as writer,
            upserts.remote(name, groups[1], hold_after=hold, options=options, **upserting) as other,
        ):
            if hold:
                for process in (writer, other):
                    process.wait_to_say("holding", hold)
                    process.kill()
                continue
            writer.wait_for(lambda: len(_lines(folder, topic)) == 30, "all files")
            other.wait_for(lambda: len(rows_of(path)) == 30, "all rows")
            writer.end()
            other.end()
    lines = _lines(folder, topic)
    assert lines == [str(number) for number in range(30)]
    stored = [(topic, 0, offset, value) for offset, value in enumerate(lines)]
    return {
        "files": files.history({groups[0]: stored}),
        "upsert by (topic, partition, offset)": upserts.history({groups[1]: rows_of(path)}),
    }


def _lines(folder: Path, topic: str) -> list[str]:
    sink = FileSink(folder)
    return [line for _, path in sink.files((topic, 0)) for line in path.read_text().splitlines()]


@client_claim(
    "C10",
    fault=Fault.DATABASE_DOWN,
    provoked="PostgreSQL is killed while records are stored, and comes back; it is stopped in "
    "order, and a second member joins before it is started",
    shows={"rows and offsets in one transaction": NOTHING},
)
def test_rows_and_offsets_in_one_transaction_are_there_once_when_the_database_comes_back(
    kafka: PlannedCluster, tmp_path: Path, database_server: PostgresServer
) -> Mapping[str, History]:
    topic, group = topic_of(kafka, "c10-database", partitions=2), fresh("c10")
    seen, database = Seen(kafka, tmp_path, topic), Database(database_server)
    with ExitStack() as stack:
        sending = stack.enter_context(seen.producer())
        stores = [stack.enter_context(PostgresStore(database.dsn)) for _ in range(2)]
        sending.send_numbers(topic, range(100))
        first = stack.enter_context(
            seen.member("c1", group, insert, store=stores[0], in_order=False)
        )
        until(lambda: len(database.rows()) == 100, "stored")
        with _down(database_server, database, database_server.kill):
            sending.send_numbers(topic, range(100, 300))
            until(lambda: first.consumer.metrics.received > 100, "some are read, and not stored")
        until(lambda: len(database.rows()) == 300, "stored")
        with _down(database_server, database, database_server.stop):
            second = stack.enter_context(
                seen.member("c2", group, insert, store=stores[1], in_order=False)
            )
            # Both have to claim what they are assigned, of a database that does not answer.
            until(lambda: not first.owned, "partitions are being given out anew")
            sending.send_numbers(topic, range(300, 400), partition=0)
            sending.send_numbers(topic, range(400, 500), partition=1)
        until(lambda: len(database.rows()) == 500, "everything stored")
        assert first.owned | second.owned == {0, 1}
    return {"rows and offsets in one transaction": seen.history({group: database.rows()})}


@contextmanager
def _down(server: PostgresServer, database: Database, fall: Callable[[], None]) -> Iterator[None]:
    fall()
    try:
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(database.dsn, connect_timeout=5)
        yield
    finally:
        server.start()


@client_claim(
    "C13",
    fault=Fault.STOPPED,
    provoked="a process is stopped when it has processed ten records in a unit that is open; "
    "another member gets its partition, and stores everything; then it goes on",
    shows={"PostgreSQL": NOTHING},
    often=ENGINES,
)
def test_a_zombie_that_wakes_writes_nothing_into_the_store(
    kafka: PlannedCluster, tmp_path: Path, database_server: PostgresServer
) -> Mapping[str, History]:
    topic, group = topic_of(kafka, "c13"), fresh("c13")
    seen, database = Seen(kafka, tmp_path, topic), Database(database_server)
    with seen.producer() as sending, PostgresStore(database.dsn) as store:
        sending.send_numbers(topic, range(20))
        with seen.remote(
            "zombie",
            group,
            hold_after="9",
            store=["postgres", database.dsn],
            sink="rows",
            in_order=False,
        ) as zombie:
            zombie.wait_to_say("holding", "9")
            zombie.pause()
            with seen.member(
                "c2", group, insert, store=store, settings=JOINING, in_order=False
            ) as member:
                member.wait_for(lambda: len(database.rows()) == 20, "everything stored")
                zombie.resume()
                zombie.go_on()
                zombie.wait_to_say("going on", "9")
                # It has lost its partition, and joins again as anybody would.
                zombie.wait_for(lambda: len(zombie.heard("lost")) > 0, "told that it has lost")
                sending.send_numbers(topic, range(20, 30))
                until(lambda: len(database.rows()) == 30, "everything stored")
            sending.send_numbers(topic, range(30, 40))
            zombie.wait_for(lambda: len(database.rows()) == 40, "stored what is its own again")
            zombie.end()
    return {"PostgreSQL": seen.history({group: database.rows()})}


@client_claim(
    "C13",
    fault=Fault.STOPPED,
    provoked="a process is stopped between processing and commit; another member gets its "
    "partition, and commits everything; then it goes on",
    shows={"group offsets": (Kind.REPEATED,)},
)
def test_a_zombie_that_wakes_commits_nothing(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    topic, group = topic_of(kafka, "c13-offsets"), fresh("c13")
    seen = Seen(kafka, tmp_path, topic)
    with seen.producer() as sending:
        sending.send_numbers(topic, range(20))
    with seen.remote(
        "zombie", group, hold_after="9", options={"commit_every_records": 1}, in_order=False
    ) as zombie:
        zombie.wait_to_say("holding", "9")
        seen.wait_for_commit(group, 9)
        zombie.pause()
        with seen.member("c2", group, settings=JOINING, commit_every_records=1) as member:
            member.wait_for(lambda: "19" in member.values, "everything")
            assert member.values == [str(number) for number in range(9, 20)]
            seen.wait_for_commit(group, 20)
            zombie.resume()
            zombie.go_on()
            zombie.wait_to_say("going on", "9")
            zombie.wait_for(lambda: len(zombie.heard("lost")) > 0, "told that it has lost")
            assert seen.committed(group) == [20]
        zombie.end()
    assert seen.committed(group) == [20]
    return {"group offsets": seen.history()}
