"""The names of what can be wrong, and what is said when it is."""

from __future__ import annotations

from collections.abc import Hashable
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """Each is defined in the file of its name; they are judged and printed in this order."""

    LOST = "lost"
    UNSEEN = "unseen"
    UNPROCESSED = "unprocessed"
    DUPLICATE = "duplicate"
    INCONSISTENT_OFFSET = "inconsistent offset"
    PRECOMMITTED_READ = "precommitted read"
    ABORTED_READ = "aborted read"
    TORN_TRANSACTION = "torn transaction"
    REORDERED = "reordered"
    STUCK = "stuck"
    INVENTED = "invented"
    REPEATED = "repeated"


class Anomaly(NamedTuple):
    kind: Kind
    partition: Hashable
    value: str | None
    offset: int | None
    what: str  # one sentence: who, when, where
