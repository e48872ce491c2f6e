"""Whether everything is decided, and what closing does until it is.

A record is *decided* when it is acknowledged, parked or given up. The producer is *idle* when
nothing is on its way either, not even what was parked before and is being sent again.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from lossless.client.producing.deliveries import Deliveries
from lossless.client.producing.failing import Failing
from lossless.client.producing.parking import Parking
from lossless.client.producing.reporting import Reporting
from lossless.client.producing.serving import Serving
from lossless.client.producing.standing import LAST_WORDS_S

if TYPE_CHECKING:
    from confluent_kafka import Producer as Client

logger = logging.getLogger("lossless.client.producer")

REPORT_S_MIN = 0.5  # even if there is no time left


class Settling:
    """Asked in the serving thread whether something is so; waits in others."""

    def __init__(
        self,
        client: Client,
        serving: Serving,
        deliveries: Deliveries,
        failing: Failing,
        parking: Parking | None,
        reporting: Reporting | None,
    ) -> None:
        self._client = client
        self._serving = serving
        self._deliveries = deliveries
        self._failing = failing
        self._parking = parking
        self._reporting = reporting
        self._close_by = math.inf

    def is_settled(self, reached: int) -> bool:
        """Whether every record up to this number is decided."""
        oldest = self._deliveries.oldest()
        return (
            (oldest is None or oldest > reached)
            and self._deliveries.is_served
            and self._failing.is_settled(reached)
            and (self._parking is None or self._parking.is_committed)
        )

    def is_decided(self) -> bool:
        return (
            not self._deliveries.outstanding
            and self._deliveries.is_served
            and self._failing.is_idle
            and (self._parking is None or self._parking.is_committed)
        )

    def is_idle(self) -> bool:
        return self.is_decided() and (self._parking is None or self._parking.is_idle)

    def wait_until_idle(self, timeout_s: float) -> None:
        if not self._serving.is_over:
            self._serving.wait_until(self.is_idle, time.monotonic() + timeout_s)

    def end(self) -> None:
        """Drops what keeps librdkafka's client alive."""
        del self._client, self._failing, self._parking, self._reporting

    def hurry(self, deadline: float) -> None:
        """Closing ends by then, if it does not end before anyway."""
        self._close_by = min(self._close_by, deadline)

    def deliver_or_give_up(self, wait_s: float) -> None:
        """Returns when everything is decided: by the cluster, or because time is up."""
        parking = self._parking
        try:
            if parking is not None and self._wait_until(self.is_decided):
                # A cluster that answers gets what is parked; for another one nobody waits.
                since = time.monotonic()
                self._wait_until(lambda: parking.is_drained(since, time.monotonic()))
                parking.end()
                # What is being sent again and has not left yet may as well stay where it is.
                self._client.purge(in_queue=True, in_flight=False, blocking=False)
            self._wait_until(self.is_idle)
        finally:
            # Out of time, or interrupted: whatever is left is decided now.
            if parking is not None:
                parking.end()
            self._failing.end()
            if not self.is_idle():
                left = len(self._deliveries.outstanding)
                were = "record was" if left == 1 else "records were"
                logger.warning("%d %s not acknowledged within %g s", left, were, wait_s)
                if parking is not None:
                    parking.hold()
                self._client.purge(blocking=False)
                self._wait_while_it_proceeds()

    def report(self) -> None:
        """The last counts of what was acknowledged, to the audit topic."""
        reporting = self._reporting
        if reporting is None:
            return
        reporting.finish()
        self._close_by = max(self._close_by, time.monotonic() + REPORT_S_MIN)
        if not self._wait_until(lambda: reporting.is_finished):
            logger.warning(
                "the last counts of acknowledged records could not be reported to the audit topic"
            )

    def _wait_while_it_proceeds(self) -> None:
        """Until everything is decided. Callbacks may take their time, but each has to return."""
        left = math.inf
        while self._deliveries.undecided < left:
            left = self._deliveries.undecided
            if self._serving.wait_until(self.is_idle, time.monotonic() + LAST_WORDS_S):
                return

    def _wait_until(self, is_true: Callable[[], bool]) -> bool:
        """Until it is true, or closing has to end, which may become earlier meanwhile."""

        def is_over() -> bool:
            return is_true() or time.monotonic() >= self._close_by

        self._serving.wait_until(is_over, self._close_by)
        return is_true()
