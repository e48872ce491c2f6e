"""Moving the replicas of a partition from some brokers to others while it is written to.

    placed ── asked for ──▶ moving ── everybody who stays is in sync ──▶ placed
       ▲                       │
       └────── cancelled ──────┘

While it moves, a partition has the replicas that it is to have and, after them, those that are to
go. A move that adds nobody is over as soon as it is asked for, if whoever stays is in sync.

Invariants
- Nobody leaves before everybody who stays is in sync: there are never fewer copies than before.
- `replicas` without `adding` is what there was before the first move that is not over yet.

Rules learnt
- Who is being added by one move, and not wanted by the next, is both adding and removing:
  cancelling brings back what was before both (KIP-455).
"""

from __future__ import annotations

from typing import NamedTuple

from lossless.core.metadata import PartitionState


class Assignment(NamedTuple):
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def wanted(self) -> tuple[int, ...]:
        """The replicas once the move is over."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.replicas if broker not in self.adding)


class Placed(NamedTuple):
    assignment: Assignment
    isr: tuple[int, ...]


def assignment_of(state: PartitionState) -> Assignment:
    return Assignment(state.replicas, state.adding, state.removing)


def towards(state: PartitionState, wanted: tuple[int, ...]) -> Assignment:
    """The beginning of a move, or of another one than is under way."""
    original = assignment_of(state).original
    removing = sorted(set(state.replicas) - set(wanted))
    adding = sorted({*state.replicas, *wanted} - set(original))
    return Assignment((*wanted, *removing), tuple(adding), tuple(removing))


def completed(assignment: Assignment, isr: tuple[int, ...]) -> Placed | None:
    """What remains of a move that can end now; None: there is none, or it has to wait."""
    if not assignment.is_moving:
        return None
    wanted = assignment.wanted
    left = tuple(broker for broker in isr if broker not in assignment.removing)
    if not left or not set(wanted) <= set(left):
        return None
    return Placed(Assignment(wanted), left)


def reverted(state: PartitionState) -> Placed:
    """As it was before. An empty in-sync set: nobody of those is in sync any more."""
    isr = tuple(broker for broker in state.isr if broker not in state.adding)
    return Placed(Assignment(assignment_of(state).original), isr)
