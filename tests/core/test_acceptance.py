"""What a leader takes from a producer, by the settings of the topic."""

from __future__ import annotations

import struct

import cramjam
import pytest
from machines import PARTITION, led_by

from default_batches import DEFAULT_HEADERS, sealed, sent_by
from lossless.core import acceptance
from lossless.core.messages import Error
from lossless.core.replica import Replica
from lossless.core.settings.broker_settings import BrokerSettings
from lossless.core.settings.machines import topic_config
from lossless.log import compression, record_structure
from lossless.log.batch import (
    NO_TIMESTAMP,
    Marker,
    MarkerKind,
    Record,
    build,
    build_marker,
)
from lossless.log.compression import Compression, compressed
from lossless.log.log import Log
from lossless.log.memory import MemoryStore

NOW_MS = 1_000_000_000


def a_leader(**settings: str) -> Replica:
    overrides = {name.replace("_", "."): value for name, value in settings.items()}
    config = topic_config(overrides, BrokerSettings.from_properties({})[0])
    replica = Replica(
        PARTITION,
        1,
        Log(MemoryStore(), config.log),
        config=config.replica,
        is_eligible=lambda _broker, _epoch: True,
        policy=config.policy,
    )
    replica.on_partition_state(led_by(1, 1, isr=(1,), replicas=(1,)), 1, NOW_MS)
    return replica


def sent(
    *values: bytes,
    key: bytes | None = b"k",
    timestamp_ms: int = NOW_MS,
    compression: Compression = Compression.NONE,
) -> bytes:
    records = [Record(n, timestamp_ms, key, value) for n, value in enumerate(values)]
    return build(records, compression=compression).data


def error_of(replica: Replica, data: bytes) -> Error:
    return replica.append(data, 1, NOW_MS).produced.error


def test_a_batch_that_is_too_large_is_refused_and_nothing_is_written() -> None:
    leader = a_leader(max_message_bytes="200")
    assert error_of(leader, sent(bytes(300))) is Error.MESSAGE_TOO_LARGE
    assert leader.log.log_end_offset == 0
    assert error_of(leader, sent(bytes(50))) is Error.NONE


@pytest.mark.parametrize(
    ("timestamp_ms", "error"),
    [
        (NOW_MS, Error.NONE),
        (NOW_MS + 1000, Error.NONE),
        (NOW_MS + 1001, Error.INVALID_TIMESTAMP),
        (NOW_MS - 500, Error.NONE),
        (NOW_MS - 501, Error.INVALID_TIMESTAMP),
    ],
)
def test_a_time_that_is_too_far_away_is_refused(timestamp_ms: int, error: Error) -> None:
    leader = a_leader(message_timestamp_after_max_ms="1000", message_timestamp_before_max_ms="500")
    assert error_of(leader, sent(b"v", timestamp_ms=timestamp_ms)) is error


def test_where_the_broker_gives_the_time_the_senders_does_not_matter() -> None:
    leader = a_leader(message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms="1")
    produced = leader.append(sent(b"v", timestamp_ms=NOW_MS * 2), 1, NOW_MS).produced
    assert (produced.error, produced.append_time_ms) == (Error.NONE, NOW_MS)
    (batch,) = leader.log.batches()
    assert [record.timestamp_ms for record in batch.records()] == [NOW_MS]
    usual = a_leader().append(sent(b"v"), 1, NOW_MS).produced
    assert usual.append_time_ms == NO_TIMESTAMP


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    leader = a_leader(cleanup_policy="compact")
    assert error_of(leader, sent(b"v", key=None)) is Error.INVALID_RECORD
    assert error_of(leader, sent(b"v")) is Error.NONE
    assert error_of(a_leader(), sent(b"v", key=None)) is Error.NONE


@pytest.mark.parametrize("by_client", list(Compression))
@pytest.mark.parametrize("by_topic", ["uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"])
def test_records_are_stored_as_the_topic_wants_them(by_client: Compression, by_topic: str) -> None:
    leader = a_leader(compression_type=by_topic)
    values = [b"a" * 100, b"b" * 100]
    assert error_of(leader, sent(*values, compression=by_client)) is Error.NONE
    (batch,) = leader.log.batches()
    wanted = {"uncompressed": "NONE", "producer": by_client.name}.get(by_topic, by_topic.upper())
    assert batch.compression.name == wanted
    assert [record.value for record in batch.records()] == values


def with_body(body: bytes, count: int, kind: int = Compression.NONE) -> bytes:
    """A batch of these records, with a right length and checksum, whatever they are."""
    data = bytearray(sent(b"v")[:61] + body)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">hi", data, 21, kind, count - 1)
    struct.pack_into(">i", data, 57, count)
    return bytes(sealed(data).data)


FIVE = bytes(build([Record(n, NOW_MS, b"k", b"v%d" % n) for n in range(5)]).data[61:])
POISON = {
    **{f"garbage under {kind.name.lower()}": (b"\xff" * 99, 1, kind) for kind in Compression},
    **{f"nothing under {kind.name.lower()}": (b"", 1, kind) for kind in Compression},
    **{
        f"{said} records that are 5, {kind.name.lower()}": (compressed(kind, FIVE), said, kind)
        for kind in Compression
        for said in (1, 4, 6)
    },
    "a compression that there is not": (FIVE, 5, 5),
    "a record that is too short": (b"\x04" + FIVE[1:], 5, Compression.NONE),
    "the end is missing": (FIVE[:-1], 5, Compression.NONE),
    "all at the first offset": (FIVE[: len(FIVE) // 5] * 5, 5, Compression.NONE),
    "lz4 blocks that depend on each other": (
        bytes(cramjam.lz4.compress(FIVE * 1000)),
        5,
        Compression.LZ4,
    ),
    "a second lz4 frame": (
        compressed(Compression.LZ4, FIVE[:3]) + compressed(Compression.LZ4, FIVE[3:]),
        5,
        Compression.LZ4,
    ),
}


@pytest.mark.parametrize(("body", "count", "kind"), POISON.values(), ids=POISON)
@pytest.mark.parametrize("compression_type", ["producer", "zstd", "uncompressed"])
def test_records_that_no_consumer_can_read_are_refused(
    compression_type: str, body: bytes, count: int, kind: int
) -> None:
    leader = a_leader(compression_type=compression_type)
    assert error_of(leader, with_body(FIVE, 5)) is Error.NONE
    refused = leader.append(with_body(body, count, kind), 1, NOW_MS).produced
    assert refused.error is Error.INVALID_RECORD
    assert refused.reason
    assert leader.log.log_end_offset == 5


def test_records_that_decompress_to_too_much_are_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compression, "BODY_BYTES_MAX", 100_000)
    fits, too_much = (
        sent(bytes(99_000), compression=Compression.ZSTD),
        sent(bytes(100_000), compression=Compression.ZSTD),
    )
    assert error_of(a_leader(), fits) is Error.NONE
    assert error_of(a_leader(), too_much) is Error.MESSAGE_TOO_LARGE


def test_more_records_than_a_batch_may_have_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_structure, "ELEMENTS_MAX", 3)
    assert error_of(a_leader(), sent(b"1", b"2", b"3")) is Error.NONE
    assert error_of(a_leader(), sent(b"1", b"2", b"3", b"4")) is Error.MESSAGE_TOO_LARGE


def test_a_refusal_names_the_records_at_fault() -> None:
    """A producer then fails these for good, and knows that the others may be sent again."""
    keys = [b"k", None, b"k", None, b"k"]
    keyless = build([Record(n, NOW_MS, key, b"v") for n, key in enumerate(keys)]).data
    refused = a_leader(cleanup_policy="compact").append(keyless, 1, NOW_MS).produced
    assert refused.error is Error.INVALID_RECORD
    assert [one.place for one in refused.record_errors] == [1, 3]
    assert refused.reason is not None
    times = [NOW_MS, NOW_MS - 501, NO_TIMESTAMP, NOW_MS + 1001, NOW_MS]
    late = build([Record(n, time, b"k", b"v") for n, time in enumerate(times)]).data
    leader = a_leader(message_timestamp_after_max_ms="1000", message_timestamp_before_max_ms="500")
    refused = leader.append(late, 1, NOW_MS).produced
    assert refused.error is Error.INVALID_TIMESTAMP
    assert [one.place for one in refused.record_errors] == [1, 3]
    assert leader.log.log_end_offset == 0


def test_a_maximum_timestamp_that_no_record_has_is_refused() -> None:
    leader = a_leader(message_timestamp_after_max_ms="1000")
    data = bytearray(sent(b"v"))
    struct.pack_into(">q", data, 35, NOW_MS + 1001)
    refused = leader.append(bytes(sealed(data).data), 1, NOW_MS).produced
    assert (refused.error, refused.record_errors) == (Error.INVALID_TIMESTAMP, ())


def test_the_records_named_in_a_refusal_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptance, "RECORD_ERRORS_MAX", 3)
    refused = a_leader(cleanup_policy="compact").append(sent(*[b"v"] * 9, key=None), 1, NOW_MS)
    assert [one.place for one in refused.produced.record_errors] == [0, 1, 2]


def test_a_batch_whose_count_lies_is_refused() -> None:
    batch = build([Record(0, NOW_MS, b"k", b"v")], last_offset=5)
    assert error_of(a_leader(), batch.data) is Error.INVALID_RECORD


def test_tidying_compacts_what_is_closed_where_the_topic_says_so() -> None:
    leader = a_leader(cleanup_policy="compact", internal_segment_bytes="300")
    for number in range(12):
        assert error_of(leader, sent(b"%d" % number)) is Error.NONE
    leader.tidy(NOW_MS)
    kept = [r.value for batch in leader.log.batches() for r in batch.records()]
    assert kept[-1] == b"11"
    assert len(kept) < 12
    size = leader.log.size
    leader.tidy(NOW_MS)  # nothing was closed since
    assert leader.log.size == size
    deleting = a_leader(cleanup_policy="delete", internal_segment_bytes="300")
    for number in range(12):
        error_of(deleting, sent(b"%d" % number))
    deleting.tidy(NOW_MS)
    assert sum(batch.records_count for batch in deleting.log.batches()) == 12


def test_a_client_cannot_write_a_marker_nor_a_batch_of_an_id_without_a_sequence() -> None:
    leader = a_leader()
    marker = build_marker(
        Marker(MarkerKind.COMMIT, 0), offset=0, timestamp_ms=0, producer_id=1, producer_epoch=0
    )
    uncounted = build([Record(0, NOW_MS, b"k", b"v")], producer_id=1, producer_epoch=0)
    for batch in (marker, uncounted):
        assert error_of(leader, batch.data) is Error.INVALID_RECORD
    assert leader.log.log_end_offset == 0


@pytest.mark.parametrize("client", DEFAULT_HEADERS)
def test_the_default_producer_of_every_client_library_is_accepted(client: str) -> None:
    leader = a_leader()
    batch = sent_by(client, Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS, b"k", b"w"))
    assert error_of(leader, batch.data) is Error.NONE
    assert leader.log.log_end_offset == 2
    is_remembered = batch.producer_id >= 0
    assert (leader.log.producers.get(batch.producer_id) is not None) is is_remembered


@pytest.mark.parametrize("base_sequence", [-1, -2, -0x80000000])
def test_a_producer_with_an_id_needs_a_sequence_of_at_least_zero(base_sequence: int) -> None:
    leader = a_leader()
    batch = build(
        [Record(0, NOW_MS, b"k", b"v")],
        producer_id=1,
        producer_epoch=0,
        base_sequence=base_sequence,
    )
    assert error_of(leader, batch.data) is Error.INVALID_RECORD


def test_an_id_below_zero_is_no_producer() -> None:
    leader = a_leader()
    batch = build([Record(0, NOW_MS, b"k", b"v")], producer_id=-7, base_sequence=-7)
    assert error_of(leader, batch.data) is Error.NONE
    assert leader.log.producers.get(-7) is None
