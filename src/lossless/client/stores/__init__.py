"""Data and offsets together, so that what was stored is known by what was stored.

    SqliteStore  PostgresStore     rows, state, seen ids and offsets in one transaction
    FileSink                       files that appear whole, with the offsets in their names
    RedisSink                      idempotent put, not a transaction: an older record never
                                   replaces a newer one
    Deduplicator                   operations that were seen, within a bounded window

`interface.py` says what a consumer asks of a store.
"""

from lossless.client.stores.deduplication import Deduplicator
from lossless.client.stores.files import FileSink, FileUnit
from lossless.client.stores.interface import (
    JSON,
    Position,
    SqlUnit,
    Store,
    TopicPartition,
    Unit,
)
from lossless.client.stores.postgres import PostgresStore
from lossless.client.stores.redis import RedisSink
from lossless.client.stores.sqlite import SqliteStore

__all__ = [
    "JSON",
    "Deduplicator",
    "FileSink",
    "FileUnit",
    "Position",
    "PostgresStore",
    "RedisSink",
    "SqlUnit",
    "SqliteStore",
    "Store",
    "TopicPartition",
    "Unit",
]
