"""How progress reaches whoever watches: the command shows it, a test collects it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTold:
    """A fault that was fired, and how we know that it took effect."""

    what: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How far it is: orders acknowledged to the producers, and records in the table."""

    orders: int
    acknowledged: int = 0
    stored: int = 0


class Teller(Protocol):
    def step(self, what: str) -> None:
        """What happens now."""

    def fault(self, fault: FaultTold) -> None: ...

    def counts(self, counts: Counts) -> None:
        """Called often: several times a second."""
