"""Compares acknowledged orders with the table: which are missing, and which are duplicated.

Used by the careless variant, which has no ledger and no audit. Input is the producers' log of
acknowledgements, and the number of rows per order in the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lossless.demo.orders import order_number


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class JudgedOrder:
    """An order that is not in the table exactly once, and its acknowledged offset."""

    order: int
    partition: int | None  # None: it was never acknowledged
    offset: int | None
    copies: int  # in the table


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result of `compare`."""

    acknowledged: int  # orders that Kafka acknowledged
    stored: int  # distinct orders in the table
    lost: Sequence[JudgedOrder]  # acknowledged, but not in the table
    duplicated: Sequence[JudgedOrder]  # in the table more than once

    @property
    def copies_too_many(self) -> int:
        """Rows beyond the first of each order."""
        return sum(judged.copies - 1 for judged in self.duplicated)


# The acknowledged (partition, offset) of each order.
Places = Mapping[int, tuple[int, int]]


def compare(acknowledged: Places, copies: Mapping[int, int]) -> Comparison:
    """Compares acknowledged orders with `copies`, the number of rows per order in the table."""
    return Comparison(
        acknowledged=len(acknowledged),
        stored=len(copies),
        lost=sorted(
            JudgedOrder(order=order, partition=partition, offset=offset, copies=0)
            for order, (partition, offset) in acknowledged.items()
            if order not in copies
        ),
        duplicated=[
            JudgedOrder(order=order, partition=partition, offset=offset, copies=count)
            for order, count in sorted(copies.items())
            if count > 1
            for partition, offset in [acknowledged.get(order, (None, None))]
        ],
    )


def read_acknowledged(files: Iterable[Path]) -> dict[int, tuple[int, int]]:
    """Reads the partition and offset of each acknowledged order from the producers' events."""
    places = {}
    for file in files:
        with file.open() as events:
            for line in events:
                event = json.loads(line)
                if event["name"] == "producer_send_success":
                    places[order_number(event["key"])] = (event["partition"], event["offset"])
    return places


def read_copies(file: Path) -> dict[int, int]:
    """Reads the number of rows per order, as the careless job counted them."""
    return {int(order): copies for order, copies in json.loads(file.read_text()).items()}
