"""The result of a demo, and its last line.

acknowledged   orders that Kafka acknowledged
stored         distinct orders in the table
lost           acknowledged orders that are not in the table
duplicated     rows in the table beyond the first of each order
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lossless.demo.comparison import Comparison
from lossless.demo.progress import InjectedFault

if TYPE_CHECKING:
    from lossless.pipeline.audit import AuditReport


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """The counts of a demo, with the report that they come from."""

    variant: str  # careful | careless
    orders: int
    acknowledged: int
    stored: int
    lost: int
    duplicated: int
    balanced: bool  # whether all other checks of the audit agree
    faults: Sequence[InjectedFault]
    seconds: float
    audit: AuditReport | None = None  # of the careful variant
    comparison: Comparison | None = None  # of the careless variant

    @property
    def kept(self) -> bool:
        """Whether every order was acknowledged and is in the table exactly once."""
        return (
            self.balanced
            and self.lost == 0
            and self.duplicated == 0
            and self.orders == self.acknowledged == self.stored
        )

    @property
    def last_line(self) -> str:
        """The line that the command prints last."""
        return (
            f"{self.acknowledged} acknowledged, {self.stored} stored, "
            f"{self.lost} lost, {self.duplicated} duplicated"
        )
