"""What an application gives by mistake: an error of a known kind, and nothing is left in flight."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from lossless.client.errors import ClientError, Kind, Refused, SerializationFailed
from lossless.client.producing.giving_up import Park
from lossless.client.producing.producer import Producer

NOBODY = "127.0.0.1:1"  # where nothing listens

BAD: list[tuple[dict[str, Any], str]] = [
    ({"headers": {"a": 5}}, "the value of the header 'a' is 5, of type int"),
    ({"headers": {"a": {}}}, "of type dict"),
    ({"headers": {"a": "\ud800"}}, "the value of the header 'a'"),
    ({"headers": {7: b"v"}}, "the header name 7"),
    ({"headers": [("a", b"b", "c")]}, "not pairs of a name and a value"),
    ({"headers": 5}, "headers of type int"),
    ({"timestamp_ms": "now"}, "timestamp_ms = 'now'"),
    ({"timestamp_ms": 1.5}, r"timestamp_ms = 1\.5"),
    ({"timestamp_ms": 0}, "timestamp_ms = 0"),  # librdkafka would send the current time
    ({"timestamp_ms": -1}, "timestamp_ms = -1"),
    ({"timestamp_ms": 1 << 63}, "timestamp_ms = 9223372036854775808"),
    ({"partition": "0"}, "partition = '0'"),
    ({"partition": -2}, "partition = -2"),
    ({"partition": 1 << 31}, "partition = 2147483648"),
    ({"event_time_ms": "now"}, "event_time_ms = 'now'"),
    ({"event_time_ms": math.nan}, "event_time_ms = nan"),
    ({"operation_id": 5}, "operation_id = 5"),
    ({"on_delivery": 5}, "on_delivery = 5"),
    ({"event_time_ms": 10**5000}, "event_time_ms = an integer of 16610 bits"),
    ({"headers": ["ab", "cd"]}, "headers of type list are not pairs"),
    ({"headers": {"a\0b": b"v"}}, "has a NUL"),
    ({"timestamp": 5}, "no option 'timestamp'"),
    ({"header": {}}, "no option 'header'"),
    ({"xyzzy": 1}, "no option 'xyzzy'"),
]


@pytest.mark.parametrize(("options", "said"), BAD, ids=[said for _, said in BAD])
def test_a_bad_option_is_refused_and_leaves_nothing_in_flight(
    options: dict[str, Any], said: str
) -> None:
    with Producer({"bootstrap.servers": NOBODY}, audit=False) as producer:
        with pytest.raises(Refused, match=said) as raised:
            producer.send("orders", b"v", key=b"k", **options)
        assert raised.value.kind is Kind.PERMANENT
        assert raised.value.hint
        producer.flush(5)
        producer.close(0)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("timestamp", "timestamp_ms"), ("header", "headers"), ("on_deliver", "on_delivery")],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(given: str, meant: str) -> None:
    unknown: Any = {given: None}
    settings = {"bootstrap.servers": NOBODY}
    with Producer(settings, audit=False) as producer:
        with pytest.raises(Refused, match=f"no option '{given}'") as raised:
            producer.send("orders", b"v", b"k", **unknown)
        assert raised.value.hint == f"did you mean {meant}?"
        with pytest.raises(Refused, match=f"no option '{given}'"):
            asyncio.run(producer.send_async("orders", b"v", b"k", **unknown))


@pytest.mark.parametrize("topic", [None, 5, b"orders", "", "a\0b"])
def test_a_topic_that_is_no_text_is_refused(topic: Any) -> None:
    with Producer({"bootstrap.servers": NOBODY}, audit=False) as producer:
        for more in ({}, {"headers": {"a": "b"}}):
            with pytest.raises(ClientError) as raised:
                producer.send(topic, b"v", b"k", **more)  # type: ignore[arg-type]
            assert raised.value.kind is Kind.PERMANENT
        producer.flush(5)


def test_a_bad_header_is_not_parked(tmp_path: Path) -> None:
    with Producer({"bootstrap.servers": NOBODY}, giving_up=Park(tmp_path), audit=False) as producer:
        with pytest.raises(SerializationFailed, match="of type int"):
            producer.send("orders", b"v", headers={"a": 5})  # type: ignore[dict-item]
        producer.flush(5)
        assert producer.metrics.parked == 0


def test_a_bad_header_that_a_serializer_adds_is_refused() -> None:
    def add(_: object, context: Any) -> bytes:
        context.headers.append(("schema", 7))
        return b"v"

    settings = {"bootstrap.servers": NOBODY}
    with Producer(settings, serialize_value=add, audit=False) as producer:
        with pytest.raises(SerializationFailed, match="the header 'schema' is 7"):
            producer.send("orders", {})
        producer.flush(5)


def test_minus_one_is_no_partition_in_particular() -> None:
    with Producer({"bootstrap.servers": NOBODY}, audit=False) as producer:
        delivery = producer.send("orders", b"v", partition=-1, on_delivery=lambda _: None)
        assert delivery.partition is None
        producer.close(0)
