"""Fetch (1), versions 4 to 18: consumers and followers ask for what comes next.

From 7 on in sessions, which name only what has changed; 11 tells a consumer's rack; 12 is flexible
and tells where histories part; 13 names topics by their ids; 15 a follower tells its broker epoch;
18 which high watermark it knows.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lossless.core.messages import (
    CONSUMER,
    UNKNOWN_EPOCH,
    Error,
    Fetch,
    FetchAnswer,
    Fetched,
    FetchPartition,
    TopicPartition,
)
from lossless.log.leader_epochs import EpochEnd
from lossless.wire.codec import Fields
from lossless.wire.encoding import INT32, INT64, array, string, varint
from lossless.wire.reading import Reader

KEY, VERSION = 1, 17
SESSIONS, WITH_RACKS, FLEXIBLE, WITH_TOPIC_IDS, WITH_REPLICA_STATE = 7, 11, 12, 13, 15
REPLICA_STATE = 1  # a tagged field
READ_COMMITTED = 1

_WAITS = struct.Struct(">iiib")  # wait, bytes at least and at most, isolation
_SESSION_OF = struct.Struct(">ii")
# partition, leader epoch, offset, last epoch, log start, bytes at most
_FLEXIBLE_PARTITION = struct.Struct(">iiqiqi")
_STATE = struct.Struct(">iq")  # replica, broker epoch
_START = struct.Struct(">ii")  # length, correlation id
_SESSION = struct.Struct(">ihi")  # throttle, error, session id
_PARTITION = struct.Struct(">ihqq")  # index, error, high watermark, last stable offset
_ABORTED = struct.Struct(">qq")
_LOG_START = struct.Struct(">q")
# A follower's request: wait, bytes at least and at most, isolation, session id and epoch
_LIMITS = struct.Struct(">iiibii")
_ASKED = struct.Struct(">iiqiqib")  # the fields of a partition, and that no tags follow
_REPLICA = struct.Struct(">bbbiqb")  # count, tag and size; id and epoch, and that no tags follow
_NO_READ_REPLICA = INT32.pack(-1)

TopicKey = str | bytes  # as the request names it: its name, or the bytes of its id


class Asked(NamedTuple):
    """One partition of a request; `name` is None if nobody knows the topic's id."""

    topic: TopicKey
    name: str | None
    partition: FetchPartition


class Message(NamedTuple):
    """A request, as far as it is of interest here."""

    replica: int
    broker_epoch: int
    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    read_committed: bool
    session_id: int
    session_epoch: int
    named: list[Asked]
    forgotten: list[tuple[TopicKey, int]]
    rack_id: str


def read(frame: bytes, at: int, version: int, topic_names: Mapping[int, str]) -> Message:
    """By hand. BadMessage if it is none."""
    reader = Reader(frame, at, is_flexible=version >= FLEXIBLE)
    replica = CONSUMER if version >= WITH_REPLICA_STATE else reader.fixed(INT32)[0]
    wait_ms, bytes_min, bytes_max, isolation = reader.fixed(_WAITS)
    session_id, session_epoch = reader.fixed(_SESSION_OF) if version >= SESSIONS else (0, -1)
    named: list[Asked] = []
    for _ in range(reader.count()):
        key, name = _topic(reader, version, topic_names)
        named += [
            Asked(key, name, _partition(reader, version, name or "")) for _ in range(reader.count())
        ]
        reader.tags()
    forgotten: list[tuple[TopicKey, int]] = []
    for _ in range(reader.count() if version >= SESSIONS else 0):
        key, _name = _topic(reader, version, topic_names)
        forgotten += [(key, reader.fixed(INT32)[0]) for _ in range(reader.count())]
        reader.tags()
    rack_id = reader.name() if version >= WITH_RACKS else ""
    broker_epoch = -1
    state = reader.tags().get(REPLICA_STATE)
    if version >= WITH_REPLICA_STATE and state is not None:
        replica, broker_epoch = Reader(state, 0, is_flexible=True).fixed(_STATE)
    return Message(
        CONSUMER if replica < 0 else replica,
        broker_epoch,
        wait_ms,
        bytes_min,
        bytes_max,
        isolation == READ_COMMITTED,
        session_id,
        session_epoch,
        named,
        forgotten,
        rack_id,
    )


def _topic(
    reader: Reader, version: int, topic_names: Mapping[int, str]
) -> tuple[TopicKey, str | None]:
    if version < WITH_TOPIC_IDS:
        name = reader.name()
        return name, name
    topic_id = reader.raw(16)
    return topic_id, topic_names.get(int.from_bytes(topic_id, "big"))


def _partition(reader: Reader, version: int, name: str) -> FetchPartition:
    if version >= FLEXIBLE:
        index, epoch, offset, last_epoch, log_start, bytes_max = reader.fixed(_FLEXIBLE_PARTITION)
        reader.tags()
        at = TopicPartition(name, index)
        return FetchPartition(at, offset, epoch, last_epoch, log_start, bytes_max)
    (index,) = reader.fixed(INT32)
    epoch = reader.fixed(INT32)[0] if version >= 9 else UNKNOWN_EPOCH
    (offset,) = reader.fixed(INT64)
    log_start = reader.fixed(INT64)[0] if version >= 5 else -1
    (bytes_max,) = reader.fixed(INT32)
    at = TopicPartition(name, index)
    return FetchPartition(at, offset, epoch, UNKNOWN_EPOCH, log_start, bytes_max)


def understood(message: Message, partitions: Sequence[FetchPartition]) -> Fetch:
    return Fetch(
        message.replica,
        message.broker_epoch,
        message.wait_ms_max,
        message.bytes_min,
        tuple(partitions),
        message.read_committed,
        message.bytes_max,
    )


def all_well(
    correlation_id: int,
    version: int,
    session_id: int,
    partitions: Sequence[Fetched],
    topic_ids: Mapping[str, int],
    read_committed: bool,
) -> list[bytes]:
    """The whole answer's frame as buffers, if no partition has an error or a divergence."""
    flexible = version >= FLEXIBLE
    tags = b"\0" if flexible else b""
    out: list[bytes] = []
    head = bytearray(tags)
    head += _SESSION.pack(0, 0, session_id) if version >= SESSIONS else INT32.pack(0)
    topics: dict[str, list[Fetched]] = {}
    for fetched in partitions:
        topics.setdefault(fetched.partition.topic, []).append(fetched)
    head += array(len(topics), flexible)
    size = 4
    for name, group in topics.items():
        if version >= WITH_TOPIC_IDS:
            head += topic_ids.get(name, 0).to_bytes(16, "big")
        else:
            head += string(name, flexible)
        head += array(len(group), flexible)
        for fetched in group:
            head += _PARTITION.pack(
                fetched.partition.partition,
                0,
                fetched.high_watermark,
                fetched.last_stable_offset,
            )
            if version >= 5:
                head += _LOG_START.pack(fetched.log_start_offset)
            # Nobody who reads everything is told what was aborted.
            head += array(len(fetched.aborted) if read_committed else -1, flexible)
            for aborted in fetched.aborted:
                head += _ABORTED.pack(aborted.producer_id, aborted.first_offset) + tags
            if version >= 11:
                head += _NO_READ_REPLICA
            data = fetched.data
            head += varint(len(data) + 1) if flexible else INT32.pack(len(data))
            if data:
                out += (bytes(head), data)
                size += len(head) + len(data)
                head = bytearray()
            head += tags
        head += tags
    head += tags
    size += len(head)
    out.append(bytes(head))
    out.insert(0, _START.pack(size, correlation_id))
    return out


class Told(NamedTuple):
    """One partition of an answer, under the name that the request has for its topic."""

    topic: TopicKey
    fetched: Fetched
    leader: Fields | None = None  # who leads, if this broker does not
    read_replica: int = -1  # whom the consumer should rather ask (KIP-392)


def told(
    session_id: int, partitions: Sequence[Told], endpoints: Sequence[Fields], read_committed: bool
) -> Fields:
    """When something is to be said beyond records, by kio."""
    topics: dict[TopicKey, dict[str, Any]] = {}
    for key, fetched, leader, read_replica in partitions:
        name = {"topic": key} if isinstance(key, str) else {"topic_id": uuid.UUID(bytes=key)}
        topic = topics.setdefault(key, {**name, "partitions": []})
        said: dict[str, Any] = {
            "partition_index": fetched.partition.partition,
            "error_code": fetched.error,
            "high_watermark": fetched.high_watermark,
            "last_stable_offset": fetched.last_stable_offset,
            "log_start_offset": fetched.log_start_offset,
            "aborted_transactions": [
                {"producer_id": aborted.producer_id, "first_offset": aborted.first_offset}
                for aborted in fetched.aborted
            ]
            if read_committed
            else None,
            "preferred_read_replica": read_replica,
            "records": fetched.data,
        }
        if fetched.diverging is not None:
            said["diverging_epoch"] = {
                "epoch": fetched.diverging.epoch,
                "end_offset": fetched.diverging.end_offset,
            }
        if leader is not None:
            said["current_leader"] = leader
        topic["partitions"].append(said)
    return {
        "session_id": session_id,
        "responses": list(topics.values()),
        "node_endpoints": endpoints,
    }


# What followers ask leaders


def asked(request: Fetch, topic_ids: Mapping[str, int]) -> bytes:
    """By hand: a follower asks for every batch that is written."""
    topics: dict[str, list[bytes]] = {}
    for said in request.partitions:
        topics.setdefault(said.partition.topic, []).append(
            _ASKED.pack(
                said.partition.partition,
                said.leader_epoch,
                said.offset,
                said.last_fetched_epoch,
                said.log_start_offset,
                said.bytes_max,
                0,
            )
        )
    bytes_max = min(request.bytes_max, 0x7FFFFFFF)
    parts = [_LIMITS.pack(request.wait_ms_max, request.bytes_min, bytes_max, 0, 0, -1)]
    parts.append(array(len(topics), True))
    for name, partitions in topics.items():
        parts += (topic_ids.get(name, 0).to_bytes(16, "big"), array(len(partitions), True))
        parts += partitions
        parts.append(b"\0")
    # Nothing forgotten, no rack; one tagged field, the replica's state.
    parts += (b"\1\1", _REPLICA.pack(1, 1, 13, request.replica, request.broker_epoch, 0))
    return b"".join(parts)


def answered(message: Any, request: Fetch, topic_names: Mapping[int, str]) -> FetchAnswer:
    """In the order of the request. What the answer does not mention has not changed."""
    if message.error_code.value:
        raise ValueError(f"a fetch was refused: {message.error_code.name}")
    found: dict[TopicPartition, Fetched] = {}
    for topic in message.responses:
        name = topic_names.get(topic.topic_id.int if topic.topic_id else 0, "")
        for said in topic.partitions:
            partition = TopicPartition(name, said.partition_index)
            diverging = said.diverging_epoch
            found[partition] = Fetched(
                partition,
                Error(said.error_code.value),
                said.high_watermark,
                said.last_stable_offset,
                said.log_start_offset,
                EpochEnd(diverging.epoch, diverging.end_offset)
                if diverging.end_offset >= 0
                else None,
                (),
                said.records or b"",
            )
    missing = Error.UNKNOWN_TOPIC_ID
    return FetchAnswer(
        tuple(
            found.get(asked.partition) or Fetched(asked.partition, missing)
            for asked in request.partitions
        )
    )
