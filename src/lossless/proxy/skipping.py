"""Where Fetch and ShareFetch answers name brokers, found without looking at their records.

It is the last thing in the answer, and almost always empty. From behind it cannot be found: an
answer that names no brokers ends in zeros, and one that names a broker without a rack may too. So
we walk from the front, over the records of each partition; that costs a microsecond for each.

    Fetch 16+    throttle 4 │ error 2 │ session 4 │ topics │ tags (of which 0: the brokers)
      topic      id 16 │ partitions │ tags
      partition  index 4 │ error 2 │ high watermark 8 │ last stable offset 8 │ log start offset 8
                 │ aborted transactions │ preferred read replica 4 │ records │ tags
      aborted    producer id 8 │ first offset 8 │ tags

    ShareFetch   throttle 4 │ error 2 │ message │ lock timeout 4 │ topics │ brokers │ tags
      topic      id 16 │ partitions │ tags
      partition  index 4 │ error 2 │ message │ acknowledge error 2 │ message
                 │ leader: id 4 │ epoch 4 │ tags │ records │ acquired records │ tags
      acquired   first offset 8 │ last offset 8 │ deliveries 2 │ tags

Reading ShareFetch whole is no way either: kio does not take the null that Kafka writes where a
partition has no records.
"""

from __future__ import annotations

from collections.abc import Callable

Data = bytes | memoryview


def after_fetch_topics(data: Data, at: int) -> int:
    """Where the tags are. `at`: where the message begins, behind its header.

    Raises IndexError if the answer is cut short, as do all here.
    """
    return _after_topics(data, at + 10, _after_fetch_partition)


def after_share_fetch_topics(data: Data, at: int) -> int:
    """Where the brokers are."""
    return _after_topics(data, after_bytes(data, at + 6) + 4, _after_share_fetch_partition)


def _after_topics(data: Data, at: int, after_partition: Callable[[Data, int], int]) -> int:
    topics, at = number(data, at)
    for _ in range(topics - 1):
        partitions, at = number(data, at + 16)
        for _ in range(partitions - 1):
            at = after_partition(data, at)
        at = after_tags(data, at)
    return at


def _after_fetch_partition(data: Data, at: int) -> int:
    aborted, at = number(data, at + 30)
    for _ in range(aborted - 1):
        at = after_tags(data, at + 16)
    return after_tags(data, after_bytes(data, at + 4))


def _after_share_fetch_partition(data: Data, at: int) -> int:
    at = after_bytes(data, at + 6)
    at = after_bytes(data, at + 2)
    at = after_tags(data, at + 8)
    acquired, at = number(data, after_bytes(data, at))
    for _ in range(acquired - 1):
        at = after_tags(data, at + 18)
    return after_tags(data, at)


def after_bytes(data: Data, at: int) -> int:
    """A string or records, or null."""
    size, at = number(data, at)
    return at + size - 1 if size else at


def after_tags(data: Data, at: int) -> int:
    count, at = number(data, at)
    for _ in range(count):
        _, at = number(data, at)
        size, at = number(data, at)
        at += size
    return at


def number(data: Data, at: int) -> tuple[int, int]:
    """An unsigned number of variable length, and where it ends."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
