"""Produce (0), versions 3 to 13: records for partitions, acknowledged or not.

From version 9 on flexible; 10 tells who leads instead when a broker does not; 12 is spoken by
producers of transaction version 2; 13 names topics by their ids.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lossless.core.messages import Error, Produce, Produced, TopicPartition
from lossless.log.batch import Data, new
from lossless.wire.bounds import ELEMENTS_MAX, BadMessage
from lossless.wire.codec import Fields
from lossless.wire.encoding import INT32, array, string
from lossless.wire.reading import (
    Reader,
    after_tags,
    array_at,
    text,
    varint_at,
)

FLEXIBLE, WITH_LEADERS, IMPLICIT_TRANSACTIONS, WITH_TOPIC_IDS = 9, 10, 12, 13
NO_TIMESTAMP = -1

_CORRELATION = struct.Struct(">ii")
_PARTITION = struct.Struct(">ihqq")  # index, error, base offset, append time
_LOG_START = struct.Struct(">q")
_ACKS = struct.Struct(">hi")  # acks, timeout
_NO_THROTTLE = INT32.pack(0)
_INDEX_AND_SIZE = struct.Struct(">ii")
# index, error, base offset, append time, log start; errors of records, a text about them, tags
_FLEXIBLE_PARTITION = struct.Struct(">ihqqqBBB")
_NO_RECORD_ERRORS_OF_OLD = struct.pack(">ih", 0, -1)


class Understood(NamedTuple):
    request: Produce
    unknown: tuple[tuple[bytes, int], ...]  # partitions of topics that nobody knows by this id


def understood(frame: bytes, at: int, version: int, topic_names: Mapping[int, str]) -> Understood:
    """A request, read by hand. BadMessage if it is none."""
    if version < FLEXIBLE:
        return _understood_of_old(frame, at, version)
    try:
        return _understood(frame, at, version, topic_names)
    except (struct.error, IndexError) as error:
        raise BadMessage("the message ends too early") from error


def _understood(frame: bytes, at: int, version: int, topic_names: Mapping[int, str]) -> Understood:
    """Without a Reader but for what is rare: its calls take longer than what they do. struct.error
    or IndexError where the message ends too early; something has to follow everything."""
    transactional_id = None
    size, at = varint_at(frame, at)
    if size:
        start, at = at, at + size - 1
        transactional_id = text(frame[start:at])
    acks, timeout_ms = _ACKS.unpack_from(frame, at)
    topics, at = array_at(frame, at + _ACKS.size)
    batches: list[tuple[TopicPartition, Data]] = []
    unknown: list[tuple[bytes, int]] = []
    whole = memoryview(frame)  # records are large, and not copied
    elements = topics
    for _ in range(topics):
        topic_id = b""
        name: str | None
        if version >= WITH_TOPIC_IDS:
            start, at = at, at + 16
            topic_id = frame[start:at]
            name = topic_names.get(int.from_bytes(topic_id, "big"))
        else:
            size, start = varint_at(frame, at)
            if not size:
                raise BadMessage("a text is missing")
            at = start + size - 1
            name = text(frame[start:at])
        partitions, at = array_at(frame, at)
        elements += partitions
        if elements > ELEMENTS_MAX:
            raise BadMessage(f"more than {ELEMENTS_MAX} elements")
        for _ in range(partitions):
            (index,) = INT32.unpack_from(frame, at)
            size, start = varint_at(frame, at + INT32.size)
            at = start + size - 1 if size else start  # of the records, and one more; or none
            end, at = at, after_tags(frame, at)
            if name is None:
                unknown.append((topic_id, index))
            else:
                batches.append((new(TopicPartition, (name, index)), whole[start:end]))
        at = after_tags(frame, at)
    after_tags(frame, at)
    request = new(Produce, (acks, timeout_ms, tuple(batches), transactional_id, version))
    return new(Understood, (request, tuple(unknown)))


def _understood_of_old(frame: bytes, at: int, version: int) -> Understood:
    reader = Reader(frame, at, is_flexible=False)
    transactional_id = reader.text()
    acks, timeout_ms = reader.fixed(_ACKS)
    batches: list[tuple[TopicPartition, Data]] = []
    for _ in range(reader.count()):
        name = reader.name()
        for _ in range(reader.count()):
            index, size = reader.fixed(_INDEX_AND_SIZE)
            records = reader.raw(size) if size >= 0 else b""
            batches.append((new(TopicPartition, (name, index)), records))
    return Understood(Produce(acks, timeout_ms, tuple(batches), transactional_id, version), ())


def all_well(
    correlation_id: int, version: int, partitions: Sequence[Produced], topic_ids: Mapping[str, int]
) -> bytes:
    """The whole answer's frame, if every partition has no error."""
    flexible = version >= FLEXIBLE
    tags = b"\0" if flexible else b""
    topics: dict[str, list[Produced]] = {}
    for produced in partitions:
        topics.setdefault(produced.partition.topic, []).append(produced)
    parts = [tags, array(len(topics), flexible)]
    for name, group in topics.items():
        if version >= WITH_TOPIC_IDS:
            parts.append(topic_ids.get(name, 0).to_bytes(16, "big"))
        else:
            parts.append(string(name, flexible))
        parts.append(array(len(group), flexible))
        for produced in group:
            if flexible:
                parts.append(
                    _FLEXIBLE_PARTITION.pack(
                        produced.partition.partition,
                        0,
                        produced.base_offset,
                        produced.append_time_ms,
                        produced.log_start_offset,
                        1,  # no errors of records
                        0,  # no text about them
                        0,  # no tags
                    )
                )
                continue
            parts.append(
                _PARTITION.pack(
                    produced.partition.partition, 0, produced.base_offset, produced.append_time_ms
                )
            )
            if version >= 5:
                parts.append(_LOG_START.pack(produced.log_start_offset))
            if version >= 8:
                parts.append(_NO_RECORD_ERRORS_OF_OLD)
        parts.append(tags)
    parts += (_NO_THROTTLE, tags)
    body = b"".join(parts)
    return _CORRELATION.pack(len(body) + 4, correlation_id) + body


def told(
    partitions: Sequence[Produced],
    unknown: Sequence[tuple[bytes, int]],
    topic_ids: Mapping[str, int],
    leaders: Mapping[TopicPartition, Fields],
    endpoints: Sequence[Fields],
) -> Fields:
    """When something went wrong, by kio. `leaders` has who leads what this broker does not."""
    topics: dict[Any, dict[str, Any]] = {}
    for produced in partitions:
        name, index = produced.partition
        topic = topics.setdefault(
            name,
            {
                "name": name,
                "topic_id": uuid.UUID(int=topic_ids.get(name, 0)),
                "partition_responses": [],
            },
        )
        said: dict[str, Any] = {
            "index": index,
            "error_code": produced.error,
            "base_offset": produced.base_offset,
            "log_append_time": None,
            "log_start_offset": produced.log_start_offset,
            "error_message": produced.reason,
            "record_errors": [
                {"batch_index": one.place, "batch_index_error_message": one.reason}
                for one in produced.record_errors
            ],
        }
        if produced.partition in leaders:
            said["current_leader"] = leaders[produced.partition]
        topic["partition_responses"].append(said)
    for topic_id, index in unknown:
        topic = topics.setdefault(
            topic_id,
            {"name": "", "topic_id": uuid.UUID(bytes=topic_id), "partition_responses": []},
        )
        topic["partition_responses"].append(
            {"index": index, "error_code": Error.UNKNOWN_TOPIC_ID, "base_offset": -1}
        )
    return {"responses": list(topics.values()), "node_endpoints": endpoints}
