"""What a leader takes from a producer, by the settings of the topic."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from machines import PARTITION, led_by

from default_batches import DEFAULT_HEADERS, sent_by
from lossless.core.messages import Error
from lossless.core.replica import Replica
from lossless.core.settings.broker_settings import BrokerSettings
from lossless.core.settings.machines import topic_config
from lossless.log.batch import (
    NO_TIMESTAMP,
    Marker,
    MarkerKind,
    Record,
    build,
    build_marker,
    parse,
)
from lossless.log.compression import Compression
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


def test_what_cannot_be_unpacked_is_corrupt_where_it_has_to_be_looked_into() -> None:
    data = sent(b"v")
    checked = struct.pack(">h", Compression.GZIP) + data[23:]
    lying = data[:17] + struct.pack(">I", crc32c(checked)) + checked
    assert parse(lying).compression is Compression.GZIP
    assert error_of(a_leader(compression_type="zstd"), lying) is Error.CORRUPT_MESSAGE
    assert error_of(a_leader(cleanup_policy="compact"), lying) is Error.CORRUPT_MESSAGE
    assert error_of(a_leader(), lying) is Error.NONE  # nobody looks


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
