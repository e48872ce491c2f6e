"""Progress of a demo: the command shows it, a test collects it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedFault:
    """A fault that was injected, and the evidence that it took effect."""

    what: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Orders acknowledged so far, and records stored in the table."""

    orders: int
    acknowledged: int = 0
    stored: int = 0


class Progress(Protocol):
    """Receives the progress of a demo."""

    def step(self, what: str) -> None:
        """Called when a step begins."""

    def fault(self, fault: InjectedFault) -> None:
        """Called when a fault has taken effect."""

    def counts(self, counts: Counts) -> None:
        """Called several times per second."""
