"""Values in Redis: replays in any order end with the newest one."""

from __future__ import annotations

import random
import secrets
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from lossless.client.errors import Refused, StoreUnavailable
from lossless.client.stores.redis import RedisSink
from lossless.engines.waiting import wait_until
from lossless.errors import BadInput, Unavailable
from redis_server import RedisServer


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis_server.client() as client:
        yield client


def topic_id(_topic: str) -> str:
    return "vcCNd7aNSXS0yqbhGOTMJQ"


@pytest.fixture
def sink(client: redis.Redis) -> RedisSink:
    return RedisSink(client, kafka=topic_id, prefix=f"{secrets.token_hex(4)}:")


def _record(offset: int, value: bytes | None, key: bytes | None = b"k", partition: int = 0) -> Any:
    return Message(topic="orders", partition=partition, offset=offset, key=key, value=value)


def test_a_record_is_applied_once(sink: RedisSink) -> None:
    assert sink.write(_record(0, b"a"))
    assert not sink.write(_record(0, b"a"))
    assert sink.get(b"k") == b"a"
    assert sink.get("another") is None


def test_an_older_record_never_replaces_a_newer_one(sink: RedisSink) -> None:
    sink.write(_record(9, b"new"))
    assert not sink.write(_record(8, b"old"))
    assert sink.get("k") == b"new"
    assert sink.write(_record(10, b"newer"))


@given(
    records=st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.binary()), max_size=12),
    seed=st.integers(),
)
def test_replays_in_any_order_end_with_the_newest(
    redis_server: RedisServer, records: list[tuple[str, bytes | None]], seed: int
) -> None:
    log = [_record(offset, value, key.encode()) for offset, (key, value) in enumerate(records)]
    replayed = log * 2
    random.Random(seed).shuffle(replayed)
    with redis_server.client() as client:
        sink = RedisSink(client, kafka=topic_id, prefix=f"{secrets.token_hex(8)}:")
        for record in replayed:
            sink.write(record)
        newest = dict(records)
        assert {key: sink.get(key) for key in newest} == newest


def test_offsets_beyond_what_lua_can_count_are_told_apart(sink: RedisSink) -> None:
    sink.write(_record(2**53, b"old"))
    assert sink.write(_record(2**53 + 1, b"new"))
    assert not sink.write(_record(2**53, b"old"))
    assert sink.get("k") == b"new"


def test_a_key_that_moved_to_another_partition_keeps_its_history(sink: RedisSink) -> None:
    sink.write(_record(100, b"before", partition=0))
    sink.write(_record(3, b"after", partition=1))
    assert not sink.write(_record(99, b"replayed", partition=0))
    assert sink.get("k") == b"after"


def test_a_deleted_value_does_not_come_back(sink: RedisSink, client: redis.Redis) -> None:
    sink.write(_record(0, b"a"))
    sink.write(_record(1, None))
    assert sink.get("k") is None
    assert not sink.write(_record(0, b"a"))
    assert sink.get("k") is None
    sink.write(_record(2, b"again"))
    assert sink.get("k") == b"again"
    assert client.ttl(sink._key("k")) == -1


def test_a_tombstone_is_gone_after_its_time(client: redis.Redis) -> None:
    sink = RedisSink(client, kafka=topic_id, prefix=f"{secrets.token_hex(4)}:", tombstone_s=0.05)
    sink.write(_record(1, None))
    assert wait_until(lambda: not client.exists(sink._key("k")), timeout_s=30)


def test_records_of_a_topic_created_again_are_newer(client: redis.Redis) -> None:
    prefix = f"{secrets.token_hex(4)}:"
    RedisSink(client, kafka=topic_id, prefix=prefix).write(_record(99, b"old topic"))
    sink = RedisSink(client, kafka=lambda _: "4M3yXo2cQMGfZQGBvJYwNA", prefix=prefix)
    assert sink.write(_record(0, b"new topic"))
    assert sink.get("k") == b"new topic"


def test_many_are_written_in_one_exchange(sink: RedisSink) -> None:
    records = [_record(offset, b"%d" % offset) for offset in range(100)]
    assert sink.write_many(records) == 100
    assert sink.write_many(records) == 0
    assert sink.get("k") == b"99"


def test_a_server_that_lost_the_script_is_given_it_again(
    sink: RedisSink, client: redis.Redis
) -> None:
    sink.write(_record(0, b"a"))
    client.script_flush()
    assert sink.write(_record(1, b"b"))
    client.script_flush()
    assert sink.write_many([_record(2, b"c")]) == 1


def test_a_record_without_a_key_is_refused(sink: RedisSink) -> None:
    with pytest.raises(Refused, match="without a key"):
        sink.write(_record(0, b"a", key=None))


def test_a_key_in_use_for_something_else_is_refused(sink: RedisSink, client: redis.Redis) -> None:
    client.set(sink._key("k"), "text")
    with pytest.raises(BadInput, match="in use"):
        sink.write(_record(0, b"a"))
    assert client.get(sink._key("k")) == b"text"


def test_a_server_that_is_down_is_unavailable_and_forgets_nothing(
    redis_server: RedisServer, sink: RedisSink
) -> None:
    sink.write(_record(5, b"a"))
    redis_server.kill()
    try:
        with pytest.raises(StoreUnavailable):
            sink.write(_record(6, b"b"))
    finally:
        redis_server.start()
    assert not sink.write(_record(5, b"a"))
    assert sink.write(_record(6, b"b"))


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(Unavailable) as missing:
        RedisSink(None, kafka=topic_id)
    assert missing.value.hint == "pip install 'lossless[redis]'"


def test_a_tombstone_of_no_time_is_refused(client: redis.Redis) -> None:
    with pytest.raises(BadInput, match="tombstone_s"):
        RedisSink(client, kafka=topic_id, tombstone_s=0)
