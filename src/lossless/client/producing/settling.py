"""Whether everything is decided, and what closing does until it is.

A record is *decided* when it is acknowledged, parked or given up. The producer is *idle* when
nothing is on its way either, not even what was parked before and is being sent again.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from lossless.client.producing.deliveries import Deliveries
from lossless.client.producing.failing import Failing
from lossless.client.producing.parking import Parking
from lossless.client.producing.reporting import Reporting
from lossless.client.producing.serving import Serving

if TYPE_CHECKING:
    from confluent_kafka import Producer as Client

logger = logging.getLogger("lossless.client.producer")

LAST_WORDS_S = 5.0  # for what must be said after the deadline of `close`: what was not delivered
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

    def deliver_or_give_up(self, deadline: float, wait_s: float) -> None:
        """Returns when everything is decided: by the cluster, or because time is up."""
        parking = self._parking
        try:
            if parking is not None and self._serving.wait_until(self.is_decided, deadline):
                # A cluster that answers gets what is parked; for another one nobody waits.
                since = time.monotonic()
                self._serving.wait_until(
                    lambda: parking.is_drained(since, time.monotonic()), deadline
                )
                parking.end()
                # What is being sent again and has not left yet may as well stay where it is.
                self._client.purge(in_queue=True, in_flight=False, blocking=False)
            self._serving.wait_until(self.is_idle, deadline)
        finally:
            # Out of time, or interrupted: whatever is left is decided now.
            if parking is not None:
                parking.end()
            self._failing.end()
            if not self.is_idle():
                logger.warning(
                    "%d records were not acknowledged within %g s",
                    len(self._deliveries.outstanding),
                    wait_s,
                )
                if parking is not None:
                    parking.hold()
                self._client.purge(blocking=False)
                self._serving.wait_until(self.is_idle, time.monotonic() + LAST_WORDS_S)

    def report(self, deadline: float) -> None:
        """The last counts of what was acknowledged, to the audit topic."""
        reporting = self._reporting
        if reporting is None:
            return
        reporting.finish()
        deadline = max(deadline, time.monotonic() + REPORT_S_MIN)
        if not self._serving.wait_until(lambda: reporting.is_finished, deadline):
            logger.warning(
                "the last counts of acknowledged records could not be reported to the audit topic"
            )
