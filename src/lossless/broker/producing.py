"""Produce, from frame to frame.

The records of a request are checked before they are stored. With clients' defaults that takes a
millisecond or two; a request may have 100 MB and take seconds. One that is large is dealt with in
parts, so that everybody else is served in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from lossless.broker.beside import encoded
from lossless.broker.connection import Connection, Slot
from lossless.broker.host import Host, resolving
from lossless.broker.leaders import Leaders
from lossless.core.messages import Produce, ProduceAnswer, Produced, TopicPartition
from lossless.core.metadata import Image
from lossless.log.batch import Data
from lossless.wire import produce
from lossless.wire.frames import Header

CLIENT = -1  # as the source of a request
PART_BYTES = 1 << 20  # as much as Java's producer sends at most by default
PART_BATCHES = 1000


class Served(Protocol):
    host: Host
    leaders: Leaders

    @property
    def image(self) -> Image: ...


class Producing:
    def __init__(self, broker: Served) -> None:
        self._broker = broker
        self._in_parts: set[asyncio.Task[None]] = set()

    def take(self, connection: Connection, header: Header, _entity: Any, frame: bytes) -> None:
        names = self._broker.image.topic_names
        at, version = header.message_at, header.version
        request, unknown = produce.understood(frame, at, version, names)
        if len(frame) > PART_BYTES or len(request.batches) > PART_BATCHES:
            self._take_in_parts(connection, header, request, unknown)
            return
        if request.acks == 0:  # there is no answer to put anywhere
            if unknown:
                connection.close()
            self._broker.host.request(CLIENT, partial(_refused, connection), request)
            return
        token = partial(self._produced, connection.slot(), header, unknown)
        self._broker.host.request(CLIENT, token, request)

    def _take_in_parts(
        self, connection: Connection, header: Header, request: Produce, unknown: Sequence[Any]
    ) -> None:
        """Others are served between two parts, but for later requests of this connection: what a
        producer sends to a partition stays in order."""
        slot = connection.slot()
        connection.wait_for_answers()
        task = asyncio.get_running_loop().create_task(
            self._produce_in_parts(slot, header, request, unknown)
        )
        self._in_parts.add(task)
        task.add_done_callback(self._in_parts.discard)

    async def _produce_in_parts(
        self, slot: Slot, header: Header, request: Produce, unknown: Sequence[Any]
    ) -> None:
        connection, host = slot.connection, self._broker.host
        if request.acks == 0:
            if unknown:
                connection.close()
            for part in _parts(request):
                host.request(CLIENT, partial(_refused, connection), part)
                await host.told()
            slot.fill([])
            return
        answers: list[asyncio.Future[ProduceAnswer | None]] = []
        for part in _parts(request):
            answers.append(asyncio.get_running_loop().create_future())
            host.request(CLIENT, resolving(answers[-1]), part)
            await host.told()
        produced: list[Produced] = []
        for answer in answers:
            found = await answer
            if found is None:
                connection.close()
                return
            produced += found.partitions
        self._produced(slot, header, unknown, ProduceAnswer(tuple(produced)))

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


def _parts(request: Produce) -> Iterator[Produce]:
    part: list[tuple[TopicPartition, Data]] = []
    size = 0
    for batch in request.batches:
        part.append(batch)
        size += len(batch[1])
        if size >= PART_BYTES or len(part) >= PART_BATCHES:
            yield request._replace(batches=tuple(part))
            part, size = [], 0
    if part:
        yield request._replace(batches=tuple(part))


def _refused(connection: Connection, _answer: Any) -> None:
    """acks=0: whoever sent it has no other way to learn that it should look for the leader."""
    connection.close()
