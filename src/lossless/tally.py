"""A count and a checksum of a set of records, identical in Python and in Spark.

The checksum is the sum modulo 2^64 of one hash per record. It does not depend on the order of the
records, and the checksums of partitions, minutes and batches can be added. If one record is lost
and another duplicated, the count stays the same but the checksum changes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat

import xxhash

HASH_MODULUS = 1 << 64
SPARK_HASH_SEED = 42  # the seed of Spark's xxhash64()


_pack_offset = struct.Struct("<q").pack


def record_hash(topic_id: str, partition: int, offset: int) -> int:
    """Returns Spark's `xxhash64(topic_id, partition, offset)` as an unsigned integer.

    Spark chains the columns: each is hashed with the hash of the one before it as the seed.
    """
    return offset_hash(offset, partition_seed(topic_id, partition))


def partition_seed(topic_id: str, partition: int) -> int:
    """Returns the seed of `offset_hash` for all records of a partition."""
    digest = xxhash.xxh64_intdigest(topic_id.encode(), SPARK_HASH_SEED)
    return xxhash.xxh64_intdigest(struct.pack("<i", partition), digest)


def name_hash(name: str) -> int:
    """Returns the hash of a name, signed like the bigint of Spark and PostgreSQL."""
    digest = xxhash.xxh64_intdigest(name.encode(), SPARK_HASH_SEED)
    return digest - HASH_MODULUS if digest >= HASH_MODULUS // 2 else digest


def offset_hash(offset: int, seed: int) -> int:
    """Returns the `record_hash` of an offset, given the `partition_seed`."""
    return xxhash.xxh64_intdigest(_pack_offset(offset), seed)


def offset_hashes(offsets: Iterable[int], seed: int) -> int:
    """Returns the sum of the hashes, without modulus. Runs without a Python loop, for speed."""
    return sum(map(xxhash.xxh64_intdigest, map(_pack_offset, offsets), repeat(seed)))


@dataclass(frozen=True, slots=True)
class Tally:
    """A number of records, and the sum of their hashes modulo 2^64."""

    count: int = 0
    hash: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.count + other.count, (self.hash + other.hash) % HASH_MODULUS)

    def __sub__(self, other: Tally) -> Tally:
        return Tally(self.count - other.count, (self.hash - other.hash) % HASH_MODULUS)
