"""The in-sync set, as the leader of a partition sees it between two words from the controller.

    settled      the controller has written down this set
    expanding    a replica has caught up, and the controller was asked to add it
    shrinking    a replica lags, and the controller was asked to remove it

    settled ── caught up ──▶ expanding ─┐
       ▲  └─── lagging ────▶ shrinking ─┤
       └─ confirmed, refused or told ◀──┘

Invariants
- `MaximalIsr`: what has to have a record before it counts as committed is the largest set that the
  controller may have written down by now: with a replica that is to join, and still with one that
  is to leave (R13, KIP-497). Acting on a shrunk set before it is confirmed acknowledges records
  that only the leader has, and then the change is refused.
- One change is under way at a time, and names the partition epoch that it changes.

Rules learnt
- In sync is who reached, within the allowed time, what was the leader's log end at its previous
  fetch (R7). Fetching alone is not enough, and standing at the very end is not needed.
- A replica joins when it has the high watermark and the start of the leader's own epoch (R10).
- A replica joins as the process that fetched: with its broker epoch (KIP-903), and not while it is
  fenced or stopping (KIP-841).
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from lossless.core.messages import InSyncReplica
from lossless.log.rules import RULES, Rules


class Phase(enum.Enum):
    SETTLED = "settled"
    EXPANDING = "expanding"
    SHRINKING = "shrinking"


class Proposal(NamedTuple):
    """A change that the controller is to make."""

    isr: tuple[InSyncReplica, ...]
    partition_epoch: int


class Progress:
    """How far a follower has come, from what it fetched."""

    __slots__ = (
        "broker_epoch",
        "last_caught_up_ms",
        "last_fetch_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, now_ms: int) -> None:
        self.log_end_offset: int | None = None  # unknown until it fetches
        self.log_start_offset = -1
        self.last_fetch_ms = now_ms
        self.last_fetch_end_offset = -1  # the leader's log end at that time
        self.last_caught_up_ms = now_ms
        self.broker_epoch = -1

    def on_fetch(
        self, offset: int, log_start_offset: int, end_offset: int, broker_epoch: int, now_ms: int
    ) -> None:
        if offset >= end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif self.last_fetch_end_offset >= 0 and offset >= self.last_fetch_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.last_fetch_end_offset = end_offset
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def is_caught_up(self, end_offset: int, now_ms: int, lag_ms_max: int, rules: Rules) -> bool:
        if not rules.caught_up_to_previous_end:
            return now_ms - self.last_fetch_ms <= lag_ms_max
        return self.log_end_offset == end_offset or now_ms - self.last_caught_up_ms <= lag_ms_max


class InSyncSet:
    __slots__ = ("_rules", "isr", "partition_epoch", "pending", "phase")

    def __init__(self, isr: tuple[int, ...], partition_epoch: int, rules: Rules = RULES) -> None:
        self._rules = rules
        self.isr = isr  # as the controller has it
        self.partition_epoch = partition_epoch
        self.phase = Phase.SETTLED
        self.pending = isr  # as it would be after the change

    @property
    def maximal(self) -> tuple[int, ...]:
        if self.phase is Phase.EXPANDING:
            return self.pending
        if self.phase is Phase.SHRINKING and not self._rules.shrink_when_confirmed:
            return self.pending
        return self.isr

    def expand(self, broker: int, epochs: dict[int, int]) -> Proposal | None:
        if self.phase is not Phase.SETTLED or broker in self.isr:
            return None
        return self._propose(Phase.EXPANDING, (*self.isr, broker), epochs)

    def shrink(self, brokers: set[int], epochs: dict[int, int]) -> Proposal | None:
        left = tuple(broker for broker in self.isr if broker not in brokers)
        if self.phase is not Phase.SETTLED or left == self.isr:
            return None
        return self._propose(Phase.SHRINKING, left, epochs)

    def _propose(self, phase: Phase, isr: tuple[int, ...], epochs: dict[int, int]) -> Proposal:
        self.phase, self.pending = phase, isr
        replicas = tuple(InSyncReplica(broker, epochs.get(broker, -1)) for broker in isr)
        return Proposal(replicas, self.partition_epoch)

    def on_confirmed(self, isr: tuple[int, ...], partition_epoch: int) -> bool:
        """The controller has written this down; False if something later is known already."""
        if partition_epoch < self.partition_epoch:
            return False
        self.isr = self.pending = isr
        self.partition_epoch = partition_epoch
        self.phase = Phase.SETTLED
        return True

    def on_refused(self) -> None:
        """Everything is as it was before the proposal."""
        self.pending = self.isr
        self.phase = Phase.SETTLED
