"""The database goes away: in the COMMIT, between units, at the beginning."""

from __future__ import annotations

import importlib
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from store_databases import Database
from store_worker import GROUP, ORDERS, apply, apply_all

from cutting_proxy import CuttingProxy
from lossless.client.errors import PartitionLost, StoreUnavailable
from lossless.client.stores.postgres import PostgresDialect, PostgresStore
from lossless.client.stores.sqlite import SqliteStore
from lossless.errors import BadInput, Unavailable
from postgres_server import PostgresServer, running_postgres


@pytest.fixture
def postgres(make_database: Callable[[str], Database]) -> Database:
    return make_database("postgres")


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[CuttingProxy]:
    with CuttingProxy(postgres_server.port) as proxy:
        yield proxy


@pytest.fixture
def store(
    postgres: Database, postgres_server: PostgresServer, proxy: CuttingProxy
) -> Iterator[PostgresStore]:
    """Through the proxy, with something stored already."""
    with PostgresStore(_through(proxy, postgres, postgres_server)) as store:
        apply_all(store, end=4)
        yield store


def _through(proxy: CuttingProxy, database: Database, server: PostgresServer) -> str:
    name = database.target.rpartition("dbname=")[2].split()[0]
    return server.dsn(name, port=proxy.port)


def test_a_commit_that_was_done_and_not_answered_is_stored(
    store: PostgresStore, postgres: Database, proxy: CuttingProxy
) -> None:
    unit = store.begin()
    apply(unit, 4, "%s")
    proxy.arm("after")
    unit.commit()

    assert proxy.fired == 1
    assert postgres.offsets() == [0, 1, 2, 3, 4]
    with store.begin() as after:
        assert after.next_offset(ORDERS) == 5
        assert after.state(ORDERS)["count"] == 5
        apply(after, 5, "%s")
    assert postgres.offsets() == [0, 1, 2, 3, 4, 5]


def test_a_commit_that_was_never_seen_is_not_stored(
    store: PostgresStore, postgres: Database, proxy: CuttingProxy
) -> None:
    unit = store.begin()
    apply(unit, 4, "%s")
    proxy.arm("before")
    with pytest.raises(StoreUnavailable):
        unit.commit()

    assert proxy.fired == 1
    assert postgres.offsets() == [0, 1, 2, 3]
    assert store.positions() == {ORDERS: 4}
    with store.begin() as again:
        assert again.state(ORDERS) == {"count": 4}
        apply(again, 4, "%s")
    assert postgres.offsets() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_commit_without_an_answer_and_without_a_server_is_decided_later(
    store: PostgresStore, postgres: Database, proxy: CuttingProxy, cut: Literal["before", "after"]
) -> None:
    unit = store.begin()
    apply(unit, 4, "%s")
    proxy.arm(cut)
    proxy._listener.shutdown(socket.SHUT_RDWR)  # nobody is let in any more
    proxy._listener.close()
    with pytest.raises(StoreUnavailable):
        unit.commit()
    with pytest.raises(StoreUnavailable):
        store.begin()

    stored = 5 if cut == "after" else 4
    assert postgres.offsets() == list(range(stored))
    assert isinstance(store.dialect, PostgresDialect)
    store.dialect._dsn = postgres.target  # the way is open again
    with store.begin() as after:
        assert after.next_offset(ORDERS) == stored
        assert after.state(ORDERS) == {"count": stored}


def test_a_commit_without_an_answer_of_who_has_lost_the_partition_says_that(
    store: PostgresStore, postgres: Database, proxy: CuttingProxy
) -> None:
    unit = store.begin()
    apply(unit, 4, "%s")
    proxy.arm("after")
    was_stored = store.was_stored
    store.was_stored = lambda *given: apply_all(postgres.open()) or was_stored(*given)  # type: ignore[method-assign,func-returns-value]
    with pytest.raises(PartitionLost):
        unit.commit()
    assert postgres.offsets() == list(range(10))


class HalfOpenProxy(CuttingProxy):
    """The server's end stays open: it has not noticed, and keeps what it has locked."""

    def _close(self, *ends: socket.socket) -> None:
        client, server = ends
        super()._close(client)
        self.kept = [*getattr(self, "kept", []), server]

    def __exit__(self, *error: object) -> None:
        for server in self.kept:
            CuttingProxy._close(self, server)
        super().__exit__(*error)


def test_a_server_that_still_waits_for_the_commit_is_not_waited_for(
    postgres: Database, postgres_server: PostgresServer
) -> None:
    with (
        HalfOpenProxy(postgres_server.port) as proxy,
        PostgresStore(_through(proxy, postgres, postgres_server)) as store,
    ):
        apply_all(store, end=4)
        unit = store.begin()
        apply(unit, 4, "%s")
        proxy.arm("before")
        with pytest.raises(StoreUnavailable, match="storing a unit"):
            unit.commit()
        assert store.positions() == {ORDERS: 4}
        apply_all(store)
    assert postgres.offsets() == list(range(10))


def test_a_server_that_was_restarted_between_units_is_not_noticed() -> None:
    with running_postgres(fsync="off") as server:
        database = Database("postgres", server.dsn(server.create_database()))
        database.change("CREATE TABLE applied (record_offset BIGINT)")
        database.change("CREATE TABLE totals (name TEXT PRIMARY KEY, total BIGINT)")
        with PostgresStore(database.target) as store, PostgresStore(database.target) as other:
            apply_all(store, end=4)
            other.claim(GROUP, [("orders", 2)])
            unit = store.begin()
            apply(unit, 4, "%s")

            server.kill()
            with pytest.raises(StoreUnavailable):
                apply(unit, 5, "%s")
            unit.rollback()
            with pytest.raises(StoreUnavailable, match="connecting"):
                store.begin()
            with pytest.raises(StoreUnavailable):
                store.positions()
            with pytest.raises(StoreUnavailable):
                other.claim(GROUP, [("orders", 1)])
            other.release([("orders", 2)])  # a courtesy: nobody waits for it

            server.start()
            assert store.positions() == {ORDERS: 4}
            assert other.positions() == {}
            with store.begin() as again:
                assert again.state(ORDERS) == {"count": 4}
                apply(again, 4, "%s")
            server.stop()
            server.start()
            with store.begin() as after:
                apply(after, 5, "%s")
        assert database.offsets() == [0, 1, 2, 3, 4, 5]
        for opened in database.stores:
            opened.close()


def test_a_wrong_password_is_not_an_outage(postgres_server: PostgresServer) -> None:
    with (
        PostgresStore(postgres_server.dsn("postgres", password="wrong")) as store,
        pytest.raises(BadInput, match="password authentication failed") as refused,
    ):
        store.claim(GROUP, [ORDERS])
    assert "wrong" not in str(refused.value)


def test_a_dsn_that_cannot_be_read_is_not_quoted() -> None:
    with pytest.raises(BadInput) as refused:
        PostgresStore("postgresql://user:se cret@ho st/db")
    assert "cret" not in str(refused.value)


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    module = importlib.import_module("lossless.client.stores.postgres")
    with pytest.raises(Unavailable) as missing:
        module.PostgresStore("dbname=orders")
    assert missing.value.hint == "pip install 'lossless[postgres]'"


def test_a_user_who_may_not_create_tables_is_told(
    postgres_server: PostgresServer, postgres: Database
) -> None:
    user = f"reader_{postgres.target.rpartition('dbname=')[2].split()[0]}"
    postgres.change(f"CREATE ROLE {user} LOGIN PASSWORD 'p'")
    name = postgres_server.create_database()
    with (
        PostgresStore(postgres_server.dsn(name, user=user, password="p")) as store,
        pytest.raises(BadInput, match="permission denied") as refused,
    ):
        store.claim(GROUP, [ORDERS])
    assert refused.value.hint is not None
    assert "lossless_offsets" in refused.value.hint
    # Tables that somebody else has made are enough.
    postgres.change(
        f"GRANT SELECT, INSERT, UPDATE ON lossless_offsets, lossless_state, lossless_seen TO {user}"
    )
    own = postgres.target.replace("user=lossless_tests", f"user={user}")
    with PostgresStore(own.replace(postgres_server.password, "p")) as store:
        assert store.claim(GROUP, [ORDERS]) == {ORDERS: None}


# --- SQLite


def test_a_file_that_another_process_keeps_locked_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with SqliteStore(path, busy_timeout_s=0.05) as store:
        store.claim(GROUP, [ORDERS])
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            store.begin()
        other.close()
        with store.begin() as unit:
            unit.position(ORDERS, 1)
        assert store.positions() == {ORDERS: 1}


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_that_was_deleted_or_replaced_is_not_written_to(
    tmp_path: Path, is_replaced: bool
) -> None:
    """SQLite would write to it until it is closed, and nobody could read that."""
    path = tmp_path / "store.db"
    with SqliteStore(path) as store:
        store.claim(GROUP, [ORDERS])
        with store.begin() as unit:
            unit.position(ORDERS, 1)
        if is_replaced:
            (tmp_path / "other.db").touch()
            (tmp_path / "other.db").replace(path)
        else:
            path.unlink()
        with pytest.raises(BadInput, match="deleted or replaced"):
            store.begin()


def test_a_file_is_kept_safe_from_power_cuts(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store.db") as store:
        connection = store.dialect.connect()
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        connection.close()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database " * 100)
    with SqliteStore(path) as store, pytest.raises(BadInput, match="not a database"):
        store.claim(GROUP, [ORDERS])


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with (
        SqliteStore(tmp_path / "missing" / "store.db") as store,
        pytest.raises(StoreUnavailable, match="missing"),
    ):
        store.claim(GROUP, [ORDERS])


def test_memory_is_no_store() -> None:
    with pytest.raises(BadInput, match="gone with the process"):
        SqliteStore(":memory:")


def test_a_full_disk_stores_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with SqliteStore(path) as store:
        store.claim(GROUP, [ORDERS])
        unit = store.begin()
        unit.execute("CREATE TABLE rows (data BLOB)")
        unit.execute("PRAGMA max_page_count = 20")
        unit.position(ORDERS, 1)
        with pytest.raises(StoreUnavailable, match="full") as failed:
            unit.execute("INSERT INTO rows VALUES (zeroblob(400000))")
        assert failed.value.hint == "make room on the disk"
        unit.rollback()
        assert store.positions() == {ORDERS: None}
