"""A database that a store is tried on, and a look into it that is not the store's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from store_worker import open_store

from lossless.client.stores.sql import SqlStore


@dataclass(slots=True)
class Database:
    kind: str
    target: str  # a path or a DSN
    stores: list[SqlStore] = field(default_factory=list)

    def open(self) -> SqlStore:
        store = open_store(self.kind, self.target)
        self.stores.append(store)
        return store

    def sql(self, statement: str) -> str:
        return statement if self.kind == "sqlite" else statement.replace("?", "%s")

    def query(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.open().execute(self.sql(statement), parameters)

    def change(self, statement: str, *parameters: Any) -> None:
        self.query(statement, *parameters)

    def offsets(self) -> list[int]:
        """Those that were applied, as often as they were."""
        rows = self.query("SELECT record_offset FROM applied ORDER BY record_offset")
        return [offset for (offset,) in rows]
