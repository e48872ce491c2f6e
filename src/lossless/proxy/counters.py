"""What went through the proxy: the evidence that a fault took effect."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """At one moment; of one broker or of all. By API: under kio's names, `find_coordinator`."""

    connections: int = 0  # that clients have opened
    open: int = 0  # of which are there now
    resets: int = 0  # cut by a fault
    unreachable: int = 0  # closed because the broker could not be reached
    bytes_to_broker: int = 0
    bytes_to_client: int = 0
    bytes_swallowed: int = 0
    chunks_delayed: int = 0
    chunks_throttled: int = 0
    requests: Mapping[str, int] = field(default_factory=dict)  # handed on
    answers: Mapping[str, int] = field(default_factory=dict)  # handed on
    rewritten: Mapping[str, int] = field(default_factory=dict)
    swallowed_requests: Mapping[str, int] = field(default_factory=dict)  # half open
    swallowed_answers: Mapping[str, int] = field(default_factory=dict)  # half open
    dropped: Mapping[str, int] = field(default_factory=dict)  # drop after


class Tally:
    """The same, while it counts."""

    def __init__(self) -> None:
        self.connections = 0
        self.open = 0
        self.resets = 0
        self.unreachable = 0
        self.bytes_to_broker = 0
        self.bytes_to_client = 0
        self.bytes_swallowed = 0
        self.chunks_delayed = 0
        self.chunks_throttled = 0
        self.requests: collections.Counter[str] = collections.Counter()
        self.answers: collections.Counter[str] = collections.Counter()
        self.rewritten: collections.Counter[str] = collections.Counter()
        self.swallowed_requests: collections.Counter[str] = collections.Counter()
        self.swallowed_answers: collections.Counter[str] = collections.Counter()
        self.dropped: collections.Counter[str] = collections.Counter()


def total(tallies: Iterable[Tally]) -> Counters:
    sums: dict[str, int] = collections.Counter()
    by_api: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for tally in tallies:
        for name, value in vars(tally).items():
            if isinstance(value, int):
                sums[name] += value
            else:
                by_api[name].update(value)
    return Counters(**sums, **by_api)  # type: ignore[arg-type]
