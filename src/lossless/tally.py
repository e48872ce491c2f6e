"""A count with a checksum over a set of records, the same in Python and in Spark.

The checksum is the sum modulo 2^64 of a hash per record, so it does not depend on order, can be
added up over partitions, minutes and batches, and one record lost and another one duplicated,
which leaves the count as it was, still changes it.
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
    """What Spark's `xxhash64(topic_id, partition, offset)` gives, as an unsigned number.

    Spark chains the columns: each is hashed with the hash of the one before it as the seed.
    """
    return offset_hash(offset, partition_seed(topic_id, partition))


def partition_seed(topic_id: str, partition: int) -> int:
    """The part of `record_hash` that is the same for all records of a partition."""
    digest = xxhash.xxh64_intdigest(topic_id.encode(), SPARK_HASH_SEED)
    return xxhash.xxh64_intdigest(struct.pack("<i", partition), digest)


def name_hash(name: str) -> int:
    """A number that stands for a name in hashes, signed as Spark's and PostgreSQL's bigint."""
    digest = xxhash.xxh64_intdigest(name.encode(), SPARK_HASH_SEED)
    return digest - HASH_MODULUS if digest >= HASH_MODULUS // 2 else digest


def offset_hash(offset: int, seed: int) -> int:
    return xxhash.xxh64_intdigest(_pack_offset(offset), seed)


def offset_hashes(offsets: Iterable[int], seed: int) -> int:
    """Their sum, not yet modulo anything. No step of it is ours, so it is quick."""
    return sum(map(xxhash.xxh64_intdigest, map(_pack_offset, offsets), repeat(seed)))


@dataclass(frozen=True, slots=True)
class Tally:
    """How many records, and the sum of their hashes modulo 2^64: an order-free set checksum."""

    count: int = 0
    hash: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.count + other.count, (self.hash + other.hash) % HASH_MODULUS)

    def __sub__(self, other: Tally) -> Tally:
        return Tally(self.count - other.count, (self.hash - other.hash) % HASH_MODULUS)
