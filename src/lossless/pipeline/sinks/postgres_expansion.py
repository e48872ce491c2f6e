"""Counting a staged batch in which one record may have become several rows.

Rows of one record can be staged by different tasks (a transform may shuffle), so only the server
sees which offsets are distinct. And a record is stored or dead, never both: if one of its rows
cannot be stored, the others are not stored either, and one dead letter stands for the record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lossless.pipeline.ledger import Receipt
from lossless.pipeline.sinks.postgres_connection import sql
from lossless.pipeline.sinks.postgres_staging import HASH
from lossless.pipeline.sinks.postgres_tables import StagingTables, staged_by
from lossless.pipeline.sinks.postgres_types import PROVENANCE_COLUMNS
from lossless.tally import HASH_MODULUS, Tally

if TYPE_CHECKING:
    from psycopg import Connection

_ONE_LETTER_EACH = """
DELETE FROM {dead} AS later USING {dead} AS earlier
WHERE ({later_source}) = ({earlier_source}) AND {later} AND {earlier} AND later.ctid > earlier.ctid
"""
_NO_ROW_OF_THE_DEAD = """
DELETE FROM {rows} AS later USING {dead} AS earlier
WHERE ({later_source}) = ({earlier_source}) AND {later} AND {earlier}
"""
_COUNT = """
SELECT {topic_id}, {partition}, sum(rows)::bigint, count(*), sum({hash})
FROM (
    SELECT {topic_id}, {partition}, {offset}, {hash}, count(*) AS rows FROM {table}
    WHERE {which} GROUP BY 1, 2, 3, 4
) AS distinct_offsets
GROUP BY 1, 2
"""


def settle(
    connection: Connection[Any], tables: StagingTables, attempts: Sequence[int], *, refused: bool
) -> Mapping[tuple[str, int], Receipt]:
    """The receipts of the batch. `refused`: a task made a dead letter of a row."""
    topic_id, partition, offset, _ = PROVENANCE_COLUMNS
    source = (topic_id, partition, offset)
    parts = {
        "rows": tables.rows,
        "dead": tables.dead,
        "later": staged_by(attempts, "later"),
        "earlier": staged_by(attempts, "earlier"),
        "later_source": sql.SQL(", ").join(sql.Identifier("later", name) for name in source),
        "earlier_source": sql.SQL(", ").join(sql.Identifier("earlier", name) for name in source),
    }
    if refused:
        connection.execute(sql.SQL(_ONE_LETTER_EACH).format(**parts))
        connection.execute(sql.SQL(_NO_ROW_OF_THE_DEAD).format(**parts))
    counted: dict[tuple[str, int], dict[str, tuple[int, Tally]]] = defaultdict(dict)
    for kind, table in (("rows", tables.rows), ("dead", tables.dead)):
        query = sql.SQL(_COUNT).format(
            topic_id=sql.Identifier(topic_id),
            partition=sql.Identifier(partition),
            offset=sql.Identifier(offset),
            hash=sql.Identifier(HASH),
            which=staged_by(attempts),
            table=table,
        )
        for topic, number, rows, offsets, digest in connection.execute(query):
            tally = Tally(offsets, int(digest) % HASH_MODULUS)
            counted[topic, number][kind] = (rows, tally)
    nothing = (0, Tally())
    return {
        place: Receipt(
            stored=kinds.get("rows", nothing)[1],
            dead=kinds.get("dead", nothing)[1],
            rows=kinds.get("rows", nothing)[0],
        )
        for place, kinds in counted.items()
    }
