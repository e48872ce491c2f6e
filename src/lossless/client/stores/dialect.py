"""What the SQL store asks of a database, beyond DB-API: `sqlite.py` and `postgres.py` give it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from lossless.errors import LosslessError

# DB-API's connection; drivers agree on the methods and not on the types.
Connection = Any
CREATING_TABLES = "creating its tables"


class Dialect(Protocol):
    describe: str  # which database, for people; no secrets
    for_update: str  # what makes a SELECT wait for whoever is changing the rows
    skip_locked: str  # what makes it leave out the rows that others are changing
    errors: tuple[type[Exception], ...]  # every error of the driver

    def sql(self, statement: str) -> str:
        """The statement with the driver's placeholders, where we write question marks."""

    def connect(self) -> Connection:
        """A new connection, outside of a transaction. Raises our errors."""

    def create_tables(self, connection: Connection) -> None:
        """Those of ours that are missing, in a transaction of its own."""

    def begin(self, connection: Connection, instance: str) -> None:
        """A transaction that a dead or stopped `instance` can be made to let go of."""

    def run_all(self, connection: Connection, statements: Sequence[str]) -> None:
        """Statements without parameters or results, in one exchange where that can be had."""

    def in_transaction(self, connection: Connection) -> bool:
        """Whether it is, still the one that was begun, and not failed."""

    def is_broken(self, connection: Connection) -> bool:
        """Whether nothing more can be done on it."""

    def is_undecided(self, connection: Connection) -> bool:
        """Whether a COMMIT that has just failed on it may have been done all the same."""

    def end_transactions_of(self, connection: Connection, instances: Iterable[str]) -> None:
        """Whatever those instances have open is rolled back, so that its locks are in nobody's way.
        Called outside of a transaction."""

    def failure(self, error: Exception, doing: str, *, broken: bool) -> LosslessError | None:
        """Ours for a failure of the database; None when it is the statement that is wrong."""
