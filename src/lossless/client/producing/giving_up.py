"""What becomes of a record whose retries are exhausted, or that Kafka refuses: a decision.

    Raise()              its delivery fails; `flush` and `close` raise if nobody looked
    Callback(function)   function(record, error) is told; the delivery fails
    Park(folder)         on disk, sent again in order when the cluster answers, or at the next start
    DeadLetter(topic)    to another topic; only if that fails too does the delivery fail
    Drop()               counted and logged; the delivery fails

None of them is silent. A record that is refused is never parked: it would be refused again. One
whose acknowledgement was lost may be stored already, and is then stored twice when it is sent again
from the spool; both copies have the same operation id.
"""

from __future__ import annotations

from collections.abc import Callable as Function
from dataclasses import dataclass
from pathlib import Path

from lossless.client import headers
from lossless.client.errors import ClientError
from lossless.client.record import Record
from lossless.errors import BadInput

GIBIBYTE = 1 << 30


@dataclass(frozen=True, slots=True)
class Raise:
    pass


@dataclass(frozen=True, slots=True)
class Callback:
    function: Function[[Record, ClientError], object]


@dataclass(frozen=True, slots=True)
class Park:
    folder: Path | str
    bytes_max: int = GIBIBYTE

    def __post_init__(self) -> None:
        if not isinstance(self.bytes_max, int) or self.bytes_max < 1:
            raise BadInput(
                f"Park: bytes_max = {self.bytes_max!r} leaves no room for any record",
                hint="give a positive number of bytes; 1 GiB is the default",
            )


@dataclass(frozen=True, slots=True)
class DeadLetter:
    topic: str | None = None  # None: the record's own with -dlt

    def topic_for(self, record: Record) -> str:
        return self.topic or f"{record.topic}-dlt"


@dataclass(frozen=True, slots=True)
class Drop:
    pass


GivingUp = Raise | Callback | Park | DeadLetter | Drop


def dead_letter_headers(record: Record, error: ClientError) -> list[tuple[str, bytes | None]]:
    """The record's own and, as Spring Kafka writes them, where it was meant to go and why not."""
    found: list[tuple[str, bytes | None]] = [
        *record.headers,
        (headers.ORIGINAL_TOPIC, record.topic.encode()),
    ]
    if record.partition is not None:
        found.append((headers.ORIGINAL_PARTITION, record.partition.to_bytes(4, "big")))
    if record.timestamp_ms is not None:
        found.append((headers.ORIGINAL_TIMESTAMP, record.timestamp_ms.to_bytes(8, "big")))
    kind = type(error)
    found.append((headers.EXCEPTION_FQCN, f"{kind.__module__}.{kind.__qualname__}".encode()))
    found.append((headers.EXCEPTION_MESSAGE, error.what.encode()))
    return found
