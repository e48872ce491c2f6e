"""Counting a staged batch in which one record may have become several rows.

Rows of one record can be staged by different tasks (a transform may shuffle), so only the server
sees which offsets are distinct.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lossless.pipeline.ledger import Receipt
from lossless.pipeline.outcomes import greatest, least
from lossless.pipeline.sinks.postgres_connection import sql
from lossless.pipeline.sinks.postgres_staging import HASH
from lossless.pipeline.sinks.postgres_tables import StagingTables, staged_by
from lossless.pipeline.sinks.postgres_types import PROVENANCE_COLUMNS
from lossless.tally import HASH_MODULUS, Tally

if TYPE_CHECKING:
    from psycopg import Connection

_COUNT = """
SELECT {topic_id}, {partition}, sum(rows)::bigint, count(*), sum({hash}),
    sum({hash}::numeric * rows), min({offset}), max({offset}), sum(contents)
FROM (
    SELECT {topic_id}, {partition}, {offset}, {hash}, count(*) AS rows, sum({contents}) AS contents
    FROM {table} WHERE {which} GROUP BY 1, 2, 3, 4
) AS distinct_offsets
GROUP BY 1, 2
"""


def settle(
    connection: Connection[Any], tables: StagingTables, attempts: Sequence[int]
) -> Mapping[tuple[str, int], Receipt]:
    """The receipts of the batch."""
    topic_id, partition, offset, _ = PROVENANCE_COLUMNS
    found: dict[tuple[str, int], Receipt] = defaultdict(Receipt)
    for kind, table in (("rows", tables.rows), ("dead", tables.dead)):
        query = sql.SQL(_COUNT).format(
            topic_id=sql.Identifier(topic_id),
            partition=sql.Identifier(partition),
            offset=sql.Identifier(offset),
            hash=sql.Identifier(HASH),
            which=staged_by(attempts),
            table=table,
            contents=tables.contents if kind == "rows" else sql.SQL("NULL::bigint"),
        )
        for row in connection.execute(query):
            topic, number, rows, offsets, digest, row_digest, first, last, contents = row
            tally = Tally(offsets, int(digest) % HASH_MODULUS)
            receipt = found[topic, number]
            if kind == "dead":
                receipt = replace(receipt, dead=tally)
            else:
                row_hash = int(row_digest) % HASH_MODULUS if rows > offsets else None
                content_sum = None if contents is None else int(contents) % HASH_MODULUS
                receipt = replace(
                    receipt, stored=tally, rows=rows, row_hash=row_hash, content_sum=content_sum
                )
            found[topic, number] = replace(
                receipt,
                first_offset=least(receipt.first_offset, first),
                last_offset=greatest(receipt.last_offset, last),
            )
    return dict(found)
