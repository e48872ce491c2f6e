"""Whether a consumer has ever reached a broker; one that has not fails after a while.

Settings that lead to no broker are a mistake, and waiting does not correct it. An outage is not: a
consumer that has reached a broker once waits until the cluster is back.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from lossless.client.connecting import Connections
from lossless.client.errors import ClientFailed

if TYPE_CHECKING:
    from confluent_kafka import Consumer

ASK_S = 5.0


class Reaching:
    """Of the poll thread."""

    def __init__(self, connections: Connections, *, timeout_s: float | None) -> None:
        """timeout_s: None waits without end."""
        self._connections = connections
        self._timeout_s = timeout_s
        self._began_at = time.monotonic()
        self.is_reached = timeout_s is None

    def check(self, consumer: Consumer, *, has_partitions: bool) -> None:
        """Raises ClientFailed if time is up and no broker answers."""
        if has_partitions:
            self._reached()
            return
        if self._timeout_s is None:
            return
        is_late = time.monotonic() - self._began_at >= self._timeout_s
        if not is_late and not self._connections.is_login_refused:
            return
        try:
            consumer.list_topics(timeout=ASK_S)  # a group may have more members than partitions
        except KafkaException as raised:
            explanation = self._connections.explanation()
            what = explanation.what if explanation is not None else raised.args[0].str()
            problem = (
                f"no broker has answered within {self._timeout_s:g} s"
                if is_late
                else "no broker accepts the login"
            )
            raise ClientFailed(
                f"{problem}: {what}",
                hint=(explanation and explanation.hint)
                or "correct bootstrap.servers, or raise connect_timeout_s",
                code=raised.args[0].code(),
            ) from raised
        self._reached()

    def _reached(self) -> None:
        self.is_reached = True
        self._connections.made()
