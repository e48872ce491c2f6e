"""What a replica has stored: the values that clients sent, and where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lossless.core.replica import Replica


class Stored(NamedTuple):
    offset: int
    leader_epoch: int
    value: str


def stored(replica: Replica) -> Iterator[Stored]:
    start = replica.log.log_start_offset
    for batch in replica.log.batches(start):
        if not batch.is_control:
            for record in batch.records():
                yield Stored(record.offset, batch.leader_epoch, (record.value or b"").decode())
