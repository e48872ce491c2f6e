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
from lossless.log.batch import Data, new
from lossless.log.leader_epochs import EpochEnd
from lossless.wire.bounds import ELEMENTS_MAX, BadMessage
from lossless.wire.codec import Fields
from lossless.wire.encoding import INT32, INT64, array, string, varint
from lossless.wire.reading import Reader, after_tags, array_at, varint_at

KEY, VERSION = 1, 17
SESSIONS, WITH_RACKS, FLEXIBLE, WITH_TOPIC_IDS, WITH_REPLICA_STATE = 7, 11, 12, 13, 15
REPLICA_STATE = 1  # a tagged field
DIVERGING_EPOCH = 0  # a tagged field of a partition in an answer
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
_NOTHING_FORGOTTEN_AND_NO_RACK = b"\1\1"
_NO_READ_REPLICA = INT32.pack(-1)
# What is told of a partition: index, error, high watermark, last stable offset, log start; how many
# aborted transactions there are, and one more; whom to ask rather. The last two again, if there are
# any in between.
_FETCHED = struct.Struct(">ihqqqBi")
_ABORTED_AND_REPLICA_SIZE = 5
_EPOCH_END = struct.Struct(">iq")
_NO_ERROR = Error.NONE  # looking up a member takes its time

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


def read_plain(
    frame: bytes, at: int, version: int, topic_names: Mapping[int, str], bytes_max: int
) -> tuple[Fetch, dict[str, bytes]] | None:
    """What followers and librdkafka ask: without a session everything is named, by ids of topics
    that are known, and nothing else is said. With the ids, by which the answer names the topics.

    None if it is another request, or none at all: `read` tells which."""
    if version < WITH_REPLICA_STATE:
        return None
    try:
        wait_ms, bytes_min, bytes_wanted, isolation, session_id, session_epoch = (
            _LIMITS.unpack_from(frame, at)
        )
        if session_id or session_epoch != -1:
            return None
        topics, at = varint_at(frame, at + _LIMITS.size)
        elements = topics
        if not 0 < topics <= ELEMENTS_MAX:
            return None
        topic_ids: dict[str, bytes] = {}
        partitions: list[FetchPartition] = []
        for _ in range(topics - 1):
            topic_id = frame[at : at + 16]
            name = topic_names[int.from_bytes(topic_id, "big")]
            topic_ids[name] = topic_id
            count, at = varint_at(frame, at + 16)
            elements += count
            if count <= 0 or elements > ELEMENTS_MAX:
                return None
            for _ in range(count - 1):
                index, epoch, offset, last_epoch, log_start, size, tags = _ASKED.unpack_from(
                    frame, at
                )
                if tags:
                    return None
                at += _ASKED.size
                where = new(TopicPartition, (name, index))
                partitions.append(
                    new(FetchPartition, (where, offset, epoch, last_epoch, log_start, size))
                )
            if frame[at]:
                return None
            at += 1
        if not frame.startswith(_NOTHING_FORGOTTEN_AND_NO_RACK, at):
            return None
        at += len(_NOTHING_FORGOTTEN_AND_NO_RACK)
        replica, broker_epoch = CONSUMER, -1
        if frame[at]:
            tags, tag, size, replica, broker_epoch, more = _REPLICA.unpack_from(frame, at)
            if tags != 1 or tag != REPLICA_STATE or size != 13 or more or replica < 0:
                return None
    except (struct.error, IndexError, KeyError, BadMessage):
        return None
    return (
        new(
            Fetch,
            (
                replica,
                broker_epoch,
                wait_ms,
                bytes_min,
                tuple(partitions),
                isolation == READ_COMMITTED,
                bytes_wanted if bytes_wanted < bytes_max else bytes_max,
            ),
        ),
        topic_ids,
    )


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
        at = new(TopicPartition, (name, index))
        return new(FetchPartition, (at, offset, epoch, last_epoch, log_start, bytes_max))
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
) -> list[Data]:
    """The whole answer's frame as buffers, if no partition has an error or a divergence."""
    flexible = version >= FLEXIBLE
    tags = b"\0" if flexible else b""
    topics: dict[str, list[Fetched]] = {}
    for fetched in partitions:
        topics.setdefault(fetched.partition.topic, []).append(fetched)
    out: list[Data] = []
    size = 4
    parts = [
        tags,
        _SESSION.pack(0, 0, session_id) if version >= SESSIONS else INT32.pack(0),
        array(len(topics), flexible),
    ]
    for name, group in topics.items():
        if version >= WITH_TOPIC_IDS:
            parts.append(topic_ids.get(name, 0).to_bytes(16, "big"))
        else:
            parts.append(string(name, flexible))
        parts.append(array(len(group), flexible))
        for fetched in group:
            data = fetched.data
            if flexible and not fetched.aborted:
                parts.append(
                    _FETCHED.pack(
                        fetched.partition.partition,
                        0,
                        fetched.high_watermark,
                        fetched.last_stable_offset,
                        fetched.log_start_offset,
                        read_committed,  # of aborted ones, and one more: none, or nothing is told
                        -1,
                    )
                )
                parts.append(varint(len(data) + 1))
            else:
                _add_partition(parts, fetched, version, read_committed)
            if data:
                head = b"".join(parts)
                out += (head, data)
                size += len(head) + len(data)
                parts = []
            parts.append(tags)
        parts.append(tags)
    parts.append(tags)
    end = b"".join(parts)
    out.append(end)
    out[0] = b"".join((_START.pack(size + len(end), correlation_id), out[0]))
    return out


def _add_partition(
    parts: list[bytes], fetched: Fetched, version: int, read_committed: bool
) -> None:
    """Field by field, up to its records."""
    flexible = version >= FLEXIBLE
    parts.append(
        _PARTITION.pack(
            fetched.partition.partition, 0, fetched.high_watermark, fetched.last_stable_offset
        )
    )
    if version >= 5:
        parts.append(_LOG_START.pack(fetched.log_start_offset))
    # Nobody who reads everything is told what was aborted.
    parts.append(array(len(fetched.aborted) if read_committed else -1, flexible))
    for aborted in fetched.aborted:
        parts.append(_ABORTED.pack(aborted.producer_id, aborted.first_offset))
        parts.append(b"\0" if flexible else b"")
    if version >= 11:
        parts.append(_NO_READ_REPLICA)
    size = len(fetched.data)
    parts.append(varint(size + 1) if flexible else INT32.pack(size))


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
    parts.append(_NOTHING_FORGOTTEN_AND_NO_RACK)
    parts.append(_REPLICA.pack(1, REPLICA_STATE, 13, request.replica, request.broker_epoch, 0))
    return b"".join(parts)


def answered(frame: Data, at: int, request: Fetch, topic_names: Mapping[int, str]) -> FetchAnswer:
    """By hand, in the order of the request. What the answer does not mention its leader does not
    know. ValueError if it is no answer, or if everything is refused."""
    try:
        found = _found(frame, at, topic_names)
    except (struct.error, IndexError) as error:
        raise BadMessage("the message ends too early") from error
    partitions = [
        found.get(asked.partition) or Fetched(asked.partition, Error.UNKNOWN_TOPIC_ID)
        for asked in request.partitions
    ]
    return new(FetchAnswer, (tuple(partitions),))


def _found(frame: Data, at: int, topic_names: Mapping[int, str]) -> dict[tuple[str, int], Fetched]:
    """Without a Reader but for what is rare: a call costs as much as everything that is done here
    with a partition. struct.error or IndexError where the message ends too early."""
    _throttle_ms, error, _session_id = _SESSION.unpack_from(frame, at)
    if error:
        raise ValueError(f"a fetch was refused: {Error(error).name}")
    topics, at = array_at(frame, at + _SESSION.size)
    found: dict[tuple[str, int], Fetched] = {}
    whole = memoryview(frame)  # records are large, and not copied
    for _ in range(topics):
        name = topic_names.get(int.from_bytes(frame[at : at + 16], "big"), "")
        partitions, at = array_at(frame, at + 16)
        for _ in range(partitions):
            index, code, high_watermark, last_stable, log_start, aborted, _ = _FETCHED.unpack_from(
                frame, at
            )
            at += _FETCHED.size
            if aborted > 1:
                at = _after_aborted(frame, at - _ABORTED_AND_REPLICA_SIZE)
            size, start = varint_at(frame, at)
            at = start
            if size:  # of the records, and one more; or there are none
                at += size - 1
            diverging = None
            if frame[at]:
                diverging, end = _diverging(frame, at)
            else:
                end = at + 1
            found[name, index] = new(
                Fetched,
                (
                    new(TopicPartition, (name, index)),
                    Error(code) if code else _NO_ERROR,
                    high_watermark,
                    last_stable,
                    log_start,
                    diverging,
                    (),
                    whole[start:at],
                ),
            )
            at = end
        at = after_tags(frame, at)
    after_tags(frame, at)
    return found


def _after_aborted(frame: Data, at: int) -> int:
    reader = Reader(bytes(frame), at, is_flexible=True)
    for _ in range(reader.count()):
        reader.fixed(_ABORTED)
        reader.tags()
    reader.fixed(INT32)
    return reader.at


def _diverging(frame: Data, at: int) -> tuple[EpochEnd | None, int]:
    """From a partition's tagged fields; and what follows them."""
    reader = Reader(bytes(frame), at, is_flexible=True)
    told = reader.tags().get(DIVERGING_EPOCH)
    if told is None:
        return None, reader.at
    epoch, end_offset = _EPOCH_END.unpack_from(told)
    return (EpochEnd(epoch, end_offset) if end_offset >= 0 else None), reader.at
