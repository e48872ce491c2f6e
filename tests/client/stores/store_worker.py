"""A member of a group in a process of its own, that dies or waits where it is told to.

    python store_worker.py KIND TARGET die POINT UNIT      kill -9 of itself in the given unit
    python store_worker.py KIND TARGET wait POINT          says WAITING, goes on at the next line

Applies the offsets 0 to 9 of orders-0 from where the ledger is, two in each unit: a row for each, a
total by upsert, and the number of records in the state.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from lossless.client.errors import ClientError
from lossless.client.stores.postgres import PostgresStore
from lossless.client.stores.sql import SqlStore
from lossless.client.stores.sqlite import SqliteStore

ORDERS = ("orders", 0)
GROUP = "billing"
END = 10
POINTS = ("before-execute", "before-commit", "within-commit", "after-commit")

_TOTAL = """
    INSERT INTO totals (name, total) VALUES ('orders', 1)
    ON CONFLICT (name) DO UPDATE SET total = totals.total + 1"""


def open_store(kind: str, target: str) -> SqlStore:
    return SqliteStore(target) if kind == "sqlite" else PostgresStore(target)


def apply(unit: Any, offset: int, placeholder: str) -> None:
    unit.execute(f"INSERT INTO applied (record_offset) VALUES ({placeholder})", (offset,))
    unit.execute(_TOTAL)
    state = unit.state(ORDERS)
    state["count"] = state.get("count", 0) + 1
    unit.position(ORDERS, offset + 1)


def placeholder_of(store: SqlStore) -> str:
    return store.dialect.sql("?")


def nothing(point: str, unit: int) -> None:
    """A member that is left alone."""


def apply_all(store: SqlStore, at: Callable[[str, int], None] = nothing, end: int = END) -> None:
    """From where the ledger is to the end."""
    next_offset = store.claim(GROUP, [ORDERS])[ORDERS] or 0
    at("claimed", 0)
    move = store.move

    def moved(*arguments: Any) -> None:
        move(*arguments)
        at("within-commit", number)

    store.move = moved  # type: ignore[method-assign]
    for number, first in enumerate(range(next_offset, end, 2)):
        unit = store.begin()
        at("before-execute", number)
        for offset in range(first, min(first + 2, end)):
            apply(unit, offset, placeholder_of(store))
        at("before-commit", number)
        unit.commit()
        at("after-commit", number)


def main(kind: str, target: str, what: str, point: str, unit: str = "0") -> None:
    def at(here: str, number: int) -> None:
        if (here, number) != (point, int(unit)):
            return
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        print("WAITING", flush=True)
        sys.stdin.readline()

    try:
        apply_all(open_store(kind, target), at)
    except ClientError as error:
        print(type(error).__name__, flush=True)
    else:
        print("DONE", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
