"""Which records of a staged batch the table refuses: values, constraints, missing partitions.

The rows are inserted again by ranges of offsets, each under a savepoint; a range that fails is cut
in half until the record stands alone. What succeeds stays in until the caller rolls back, so that
of two records that cannot both be stored the later offset is refused. All rows of a record are in
one range: it is stored or dead as a whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lossless.errors import BadInput
from lossless.pipeline.sinks.interface import Place
from lossless.pipeline.sinks.postgres_connection import psycopg, speaks_of_a_row, sql, words_of
from lossless.pipeline.sinks.postgres_staging import REFUSED_MAX
from lossless.pipeline.sinks.postgres_tables import StagingTables, staged_by
from lossless.pipeline.sinks.postgres_types import PLACE_COLUMNS

if TYPE_CHECKING:
    from psycopg import Connection
    from pyspark.sql import Row

# Finding a record costs some 2 * log2(records of the batch) statements, or 2 in a dense range.
SEARCHED_MAX = 10_000
# A table that refuses every record of a larger batch is not these records' fault, unless they are
# all there already.
ALL_REFUSED_MAX = 100
_UNIQUE = "23505"
_FOREIGN_KEY = "23503"


@dataclass(frozen=True, slots=True)
class _Part:
    """A half-open range of offsets of one source partition."""

    topic_id: str
    partition: int
    start: int
    end: int

    def halves(self) -> tuple[_Part, _Part]:
        middle = (self.start + self.end) // 2
        return (
            _Part(self.topic_id, self.partition, self.start, middle),
            _Part(self.topic_id, self.partition, middle, self.end),
        )


def refusals(parts: Iterable[Row]) -> dict[Place, str]:
    """What the tasks refused, from their receipts."""
    reasons = {
        Place(part["topic_id"], part["partition"], offset): f"PostgreSQL cannot store it: {reason}"
        for part in parts
        for offset, reason in part["refused"]
    }
    if len(reasons) > REFUSED_MAX:
        place, reason = min(reasons.items())
        raise BadInput(
            f"more than {REFUSED_MAX:,} records of one batch have values that the table cannot "
            f"take; first at offset {place.offset} of partition {place.partition}: {reason}",
            hint="change the transform or the table, or set a smaller records_per_batch_max",
        )
    return reasons


def refused_records(
    connection: Connection[Any], tables: StagingTables, attempts: Sequence[int], where: str
) -> dict[Place, str]:
    """The records whose rows cannot be inserted, with what PostgreSQL said about each.

    Leaves rows in the table: the caller rolls the transaction back.
    """
    search = _Search(connection, tables, attempts, where)
    columns = sql.SQL(", ").join(map(sql.Identifier, PLACE_COLUMNS))
    # Nothing of this outlives the transaction, the index included.
    connection.execute(sql.SQL("CREATE INDEX ON {} ({})").format(tables.rows, columns))
    connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
    for part in search.whole():
        search.run(part)
    search.retry_references()
    found = search.found
    if (
        not search.took_some
        and len(found) > ALL_REFUSED_MAX
        and all(error.sqlstate != _UNIQUE for error in found.values())
    ):
        raise BadInput(
            f"the {where} refuses every record of the batch: {words_of(min(found.items())[1])}",
            hint="nothing was stored; change the rule, or the transform, and run again",
        )
    return {place: f"{words_of(e)} (SQLSTATE {e.sqlstate})" for place, e in found.items()}


class _Search:
    def __init__(
        self,
        connection: Connection[Any],
        tables: StagingTables,
        attempts: Sequence[int],
        where: str,
    ) -> None:
        self.found: dict[Place, psycopg.Error] = {}
        self.took_some = False
        self._connection = connection
        self._tables = tables
        self._attempts = attempts
        self._where = where

    def whole(self) -> list[_Part]:
        """Everything that was staged."""
        topic_id, partition, offset = map(sql.Identifier, PLACE_COLUMNS)
        query = sql.SQL(
            "SELECT {topic_id}, {partition}, min({offset}), max({offset}) + 1 FROM {rows} "
            "WHERE {which} GROUP BY 1, 2 ORDER BY 1, 2"
        ).format(
            topic_id=topic_id,
            partition=partition,
            offset=offset,
            rows=self._tables.rows,
            which=staged_by(self._attempts),
        )
        return [_Part(*row) for row in self._connection.execute(query)]

    def run(self, whole: _Part) -> None:
        """Inserts what can be inserted of this part, in the order of offsets."""
        pending = deque([whole])
        while pending:
            part = pending.popleft()
            error = self._refusal_of(part)
            if error is None:
                continue
            if part.end - part.start > 1:
                pending.extendleft(reversed(part.halves()))
                continue
            self.found[Place(part.topic_id, part.partition, part.start)] = error
            if len(self.found) > SEARCHED_MAX:
                raise BadInput(
                    f"the {self._where} refuses more than {SEARCHED_MAX:,} records of one batch; "
                    f"the last one at offset {part.start} of partition {part.partition}: "
                    f"{words_of(error)}",
                    hint="nothing was stored; change the rule or the transform, or set a smaller "
                    "records_per_batch_max",
                ) from error

    def retry_references(self) -> None:
        """Inserts rows whose foreign key refers to a row of a later offset."""
        while True:
            before = len(self.found)
            for place in sorted(self.found, reverse=True):
                if self.found[place].sqlstate == _FOREIGN_KEY:
                    alone = _Part(*place, place.offset + 1)
                    if self._refusal_of(alone) is None:
                        del self.found[place]
            if len(self.found) == before:
                return

    def _refusal_of(self, part: _Part) -> psycopg.Error | None:
        topic_id, partition, offset = map(sql.Identifier, PLACE_COLUMNS)
        only = sql.SQL("{} = {} AND {} = {} AND {} >= {} AND {} < {}").format(
            *(topic_id, part.topic_id, partition, part.partition),
            *(offset, part.start, offset, part.end),
        )
        try:
            with self._connection.transaction():
                inserted = self._tables.insert_rows(self._connection, self._attempts, only)
        except psycopg.Error as error:
            if not speaks_of_a_row(error):
                raise
            return error
        self.took_some = self.took_some or inserted > 0
        return None
