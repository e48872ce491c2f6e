"""Databases that stores are tried on: every test that asks for `database` runs on both kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from store_databases import Database


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_database(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[str], Database]]:
    made: list[Database] = []

    def make(kind: str) -> Database:
        if kind == "sqlite":
            target = str(tmp_path / f"store-{len(made)}.db")
        else:
            server = request.getfixturevalue("postgres_server")
            target = server.dsn(server.create_database())
        database = Database(kind, target)
        made.append(database)
        # No key: the ledger alone keeps an offset from being there twice.
        database.change("CREATE TABLE applied (record_offset BIGINT)")
        database.change("CREATE TABLE totals (name TEXT PRIMARY KEY, total BIGINT)")
        return database

    yield make
    for database in made:
        for store in database.stores:
            store.close()


@pytest.fixture
def database(make_database: Callable[[str], Database], kind: str) -> Database:
    return make_database(kind)
