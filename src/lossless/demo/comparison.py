"""Acknowledged orders against the table: which are missing, and which are there more than once.

The judge of the careless variant, which has no ledger and no audit: it knows only what the
producers wrote down and how often each order number occurs in the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lossless.demo.orders import order_number


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class JudgedOrder:
    """One order that is not in the table exactly once, and where Kafka said that it was."""

    order: int
    partition: int | None  # None: it was never acknowledged
    offset: int | None
    copies: int  # in the table


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    acknowledged: int  # orders that Kafka said it had
    stored: int  # distinct orders in the table
    lost: Sequence[JudgedOrder]  # acknowledged, and not in the table
    duplicated: Sequence[JudgedOrder]  # in the table more than once

    @property
    def copies_too_many(self) -> int:
        return sum(judged.copies - 1 for judged in self.duplicated)


# Where Kafka said that an order is: (partition, offset).
Places = Mapping[int, tuple[int, int]]


def compare(acknowledged: Places, copies: Mapping[int, int]) -> Comparison:
    """`copies`: how often each order number occurs in the table."""
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
    """The places of all acknowledged orders, from the producers' events."""
    places = {}
    for file in files:
        with file.open() as events:
            for line in events:
                event = json.loads(line)
                if event["name"] == "producer_send_success":
                    places[order_number(event["key"])] = (event["partition"], event["offset"])
    return places


def read_copies(file: Path) -> dict[int, int]:
    """What the careless job counted: order number → rows."""
    return {int(order): copies for order, copies in json.loads(file.read_text()).items()}
