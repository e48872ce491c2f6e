"""Fetch, from frame to frame: sessions, whom to ask instead, and the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from lossless.broker.beside import encoded
from lossless.broker.connection import Connection, Slot
from lossless.broker.fetch_sessions import NO_SESSION, FetchSessions, Opened
from lossless.broker.host import Clock, Host
from lossless.broker.leaders import Leaders
from lossless.broker.unsent import Unsent
from lossless.core.messages import CONSUMER, Error, FetchAnswer, Fetched, TopicPartition
from lossless.core.metadata import Image
from lossless.core.replica import Replica, Role
from lossless.wire import fetch
from lossless.wire.fetch import Asked, Message, Told, TopicKey
from lossless.wire.frames import Header


class Served(Protocol):
    """What the broker that serves has."""

    number: int
    host: Host
    leaders: Leaders

    @property
    def image(self) -> Image: ...

    def replica(self, asked: Asked) -> Replica | None: ...


class Fetching:
    def __init__(
        self,
        broker: Served,
        clock: Clock,
        draw: Callable[[int], int],
        *,
        sessions_max: int,
        bytes_max: int,
        by_rack: bool,
        unsent: Unsent,
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._sessions = FetchSessions(sessions_max, draw)
        self._bytes_max = bytes_max
        self._by_rack = by_rack
        self._unsent = unsent

    def take(self, connection: Connection, header: Header, _entity: Any, frame: bytes) -> None:
        version, at = header.version, header.message_at
        names = self._broker.image.topic_names
        bytes_max = self._unsent.fetch_bytes(self._bytes_max)
        plain = fetch.read_plain(frame, at, version, names, bytes_max)
        if plain is not None:
            request, topic_ids = plain
            token = partial(
                self._fetched_plain, connection.slot(), header, topic_ids, request.read_committed
            )
            self._broker.host.request(request.replica, token, request)
            return
        message = fetch.read(frame, at, version, names)
        named = message.named
        slot = connection.slot()
        opened = Opened()
        if version >= fetch.SESSIONS:
            opened = self._sessions.open(
                message.session_id,
                message.session_epoch,
                named,
                message.forgotten,
                self._clock.now_ms(),
            )
            if opened.error is not Error.NONE:
                slot.fill([encoded(header, {"error_code": opened.error})])
                return
        asked = named
        if opened.is_incremental and opened.session is not None:
            asked = [self._renamed(one) for one in opened.session.partitions.values()]
        request = fetch.understood(message, [one.partition for one in asked if one.name])
        if request.bytes_max > bytes_max:
            request = request._replace(bytes_max=bytes_max)
        settled = self._settled(asked, message)
        if settled:
            partitions = [
                one.partition
                for one in asked
                if one.name and one.partition.partition not in settled
            ]
            request = request._replace(partitions=tuple(partitions), wait_ms_max=0)
        token = partial(self._fetched, slot, header, opened, asked, settled, request.read_committed)
        self._broker.host.request(request.replica, token, request)

    def _renamed(self, asked: Asked) -> Asked:
        """A session may have begun before its topic was known here."""
        if asked.name is not None or isinstance(asked.topic, str):
            return asked
        name = self._broker.image.topic_names.get(int.from_bytes(asked.topic, "big"))
        if name is None:
            return asked
        at = asked.partition.partition._replace(topic=name)
        return Asked(asked.topic, name, asked.partition._replace(partition=at))

    def _settled(self, asked: list[Asked], message: Message) -> dict[Any, Told]:
        """Partitions whose answer needs no records."""
        found: dict[Any, Told] = {}
        is_consumer = message.replica == CONSUMER
        rack = message.rack_id if self._by_rack and is_consumer else ""
        for one in asked:
            at = one.partition.partition
            if one.name is None:
                key = (one.topic, at.partition)
                found[key] = Told(one.topic, Fetched(at, Error.UNKNOWN_TOPIC_ID))
            elif rack and (nearer := self._nearer(one, rack)) is not None:
                leader = self._broker.replica(one)
                high_watermark = -1 if leader is None else leader.high_watermark
                fetched = Fetched(at, Error.NONE, high_watermark)
                found[at] = Told(one.topic, fetched, read_replica=nearer)
        return found

    def _nearer(self, asked: Asked, rack: str) -> int | None:
        """A follower in the consumer's rack that has what it asks for, unless the leader is there
        itself (KIP-392)."""
        replica = self._broker.replica(asked)
        brokers = self._broker.image.brokers
        if replica is None or replica.role is not Role.LEADER:
            return None
        own = brokers.get(self._broker.number)
        if own is None or own.rack == rack:
            return None
        offset = asked.partition.offset
        near = [
            (progress.log_end_offset, broker)
            for broker, progress in replica.progress.items()
            if broker in replica.in_sync.isr
            and brokers[broker].is_active
            and brokers[broker].rack == rack
            and progress.log_end_offset is not None
            and progress.log_end_offset >= offset >= replica.log.log_start_offset
        ]
        return max(near)[1] if near else None

    def _fetched(
        self,
        slot: Slot,
        header: Header,
        opened: Opened,
        asked: list[Asked],
        settled: dict[Any, Told],
        read_committed: bool,
        answer: FetchAnswer | None,
    ) -> None:
        if answer is None:
            slot.connection.close()
            return
        session, partitions = opened.session, answer.partitions
        session_id = NO_SESSION if session is None else session.id
        keys: dict[TopicPartition, TopicKey] = {one.partition.partition: one.topic for one in asked}
        if session is not None:
            news = [
                session.is_news((keys[fetched.partition], fetched.partition.partition), fetched)
                for fetched in partitions
            ]
            if opened.is_incremental:
                partitions = tuple(
                    fetched for fetched, is_news in zip(partitions, news, strict=True) if is_news
                )
        if settled or not _is_well(partitions):
            self._tell(slot, header, session_id, partitions, keys, settled, read_committed)
        else:
            self._tell_well(slot, header, session_id, partitions, read_committed)

    def _fetched_plain(
        self,
        slot: Slot,
        header: Header,
        topic_ids: Mapping[str, bytes],
        read_committed: bool,
        answer: FetchAnswer | None,
    ) -> None:
        if answer is None:
            slot.connection.close()
            return
        partitions = answer.partitions
        if _is_well(partitions):
            self._tell_well(slot, header, NO_SESSION, partitions, read_committed)
            return
        keys: dict[TopicPartition, TopicKey] = {
            fetched.partition: topic_ids[fetched.partition.topic] for fetched in partitions
        }
        self._tell(slot, header, NO_SESSION, partitions, keys, {}, read_committed)

    def _tell_well(
        self,
        slot: Slot,
        header: Header,
        session_id: int,
        partitions: Sequence[Fetched],
        read_committed: bool,
    ) -> None:
        topic_ids = self._broker.image.topics
        slot.fill(
            fetch.all_well(
                header.correlation_id,
                header.version,
                session_id,
                partitions,
                topic_ids,
                read_committed,
            )
        )

    def _tell(
        self,
        slot: Slot,
        header: Header,
        session_id: int,
        partitions: Sequence[Fetched],
        keys: Mapping[TopicPartition, TopicKey],
        settled: Mapping[Any, Told],
        read_committed: bool,
    ) -> None:
        """When something is to be said beyond records."""
        leaders, endpoints = self._broker.leaders.instead(
            [fetched.partition for fetched in partitions if fetched.error], slot
        )
        told = [
            Told(keys[fetched.partition], fetched, leaders.get(fetched.partition))
            for fetched in partitions
        ]
        fields = fetch.told(session_id, [*told, *settled.values()], endpoints, read_committed)
        slot.fill([encoded(header, fields)])


def _is_well(partitions: Sequence[Fetched]) -> bool:
    # A list, because a generator takes longer than what it looks at.
    return not [one for one in partitions if one.error or one.diverging]
