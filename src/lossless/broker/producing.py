"""Produce, from frame to frame."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from lossless.broker.connection import Connection, Slot
from lossless.broker.host import Host
from lossless.broker.leaders import Leaders
from lossless.broker.server import encoded
from lossless.core.messages import ProduceAnswer
from lossless.core.metadata import Image
from lossless.wire import produce
from lossless.wire.frames import Header

CLIENT = -1  # as the source of a request


class Served(Protocol):
    host: Host
    leaders: Leaders

    @property
    def image(self) -> Image: ...


class Producing:
    def __init__(self, broker: Served) -> None:
        self._broker = broker

    def take(self, connection: Connection, header: Header, _entity: Any, frame: bytes) -> None:
        names = self._broker.image.topic_names
        at, version = header.message_at, header.version
        request, unknown = produce.understood(frame, at, version, names)
        if request.acks == 0:  # there is no answer to put anywhere
            if unknown:
                connection.close()
            self._broker.host.request(CLIENT, partial(_refused, connection), request)
            return
        token = partial(self._produced, connection.slot(), header, unknown)
        self._broker.host.request(CLIENT, token, request)

    def _produced(
        self, slot: Slot, header: Header, unknown: Sequence[Any], answer: ProduceAnswer | None
    ) -> None:
        if answer is None:
            slot.connection.close()
            return
        topics = self._broker.image.topics
        partitions = answer.partitions
        refused = [produced.partition for produced in partitions if produced.error]
        if not refused and not unknown:
            slot.fill([produce.all_well(header.correlation_id, header.version, partitions, topics)])
            return
        leaders, endpoints = self._broker.leaders.instead(refused, slot)
        fields = produce.told(partitions, unknown, topics, leaders, endpoints)
        slot.fill([encoded(header, fields)])


def _refused(connection: Connection, _answer: Any) -> None:
    """acks=0: whoever sent it has no other way to learn that it should look for the leader."""
    connection.close()
