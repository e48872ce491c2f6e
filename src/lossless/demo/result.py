"""What came out of a demo, and the line that says it.

acknowledged   orders that Kafka told a producer it had
stored         distinct orders in the table
lost           acknowledged, and not in the table
duplicated     rows in the table beyond the first of their order
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lossless.demo.comparison import Comparison
from lossless.demo.telling import FaultTold

if TYPE_CHECKING:
    from lossless.pipeline.audit import AuditReport


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    variant: str  # careful | careless
    orders: int
    acknowledged: int
    stored: int
    lost: int
    duplicated: int
    balanced: bool  # whatever else the judge looks at agrees too
    faults: Sequence[FaultTold]
    seconds: float
    audit: AuditReport | None = None  # the judge of the careful variant
    comparison: Comparison | None = None  # and of the careless one

    @property
    def kept(self) -> bool:
        """Every order was acknowledged and is in the table, once."""
        return (
            self.balanced
            and self.lost == 0
            and self.duplicated == 0
            and self.orders == self.acknowledged == self.stored
        )

    @property
    def last_line(self) -> str:
        return (
            f"{self.acknowledged} acknowledged, {self.stored} stored, "
            f"{self.lost} lost, {self.duplicated} duplicated"
        )
