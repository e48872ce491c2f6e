"""Every fault, and its effect on a real client of a real cluster."""

from __future__ import annotations

import socket
import time

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.error import KafkaError
from embedded_brokers import Embedded
from kafka_clients import Sending, stored
from scripted_broker import read_frame, request_of

from lossless.errors import BadInput
from lossless.proxy import Proxy


def connect(proxy: Proxy, broker: int) -> socket.socket:
    return socket.create_connection(proxy.brokers[broker][0], timeout=10)


def warm(proxy: Proxy, topic: str, **settings: object) -> Sending:
    """A producer that has its connections."""
    sending = Sending(proxy.bootstrap_servers, topic, **settings)
    sending.send("first")
    sending.finish()
    assert sending.delivered == ["first"]
    return sending


def test_a_delay_is_added_each_way_and_keeps_the_order(
    proxy: Proxy, topic: str, leader: int
) -> None:
    sending = warm(proxy, topic, enable_idempotence=True)
    evidence = proxy.delay(100, jitter_ms=30, broker=leader)
    assert f"to broker {leader} are struck" in evidence
    assert "100 ms longer each way" in evidence
    before = time.monotonic()
    values = [str(number) for number in range(200)]
    for value in values:
        sending.send(value)
    sending.finish()
    assert time.monotonic() - before >= 0.2
    assert proxy.counters_of(leader).chunks_delayed >= 2
    proxy.mend()
    assert stored(proxy.bootstrap_servers, topic) == ["first", *values]


def test_a_throttled_connection_carries_no_more_than_told(
    proxy: Proxy, topic: str, leader: int
) -> None:
    sending = warm(proxy, topic)
    evidence = proxy.throttle(100_000, broker=leader)
    assert "100000 bytes/s" in evidence
    before = time.monotonic()
    for _ in range(10):
        sending.send("x" * 10_000)
    sending.finish()
    # The first step goes out at once, and the last one is not waited for.
    assert time.monotonic() - before >= 0.9
    assert proxy.counters_of(leader).chunks_throttled >= 40
    proxy.mend()
    assert len(stored(proxy.bootstrap_servers, topic)) == 11


def test_mending_a_throttle_lets_what_waits_go(proxy: Proxy, topic: str, leader: int) -> None:
    sending = warm(proxy, topic)
    proxy.throttle(10, broker=leader)
    sending.send("x" * 10_000)  # a quarter of an hour
    proxy.wait_until(lambda counters: counters.chunks_throttled > 1, broker=leader)
    proxy.mend()
    sending.finish()
    assert len(sending.delivered) == 2


def test_a_cut_resets_connections_and_refuses_new_ones_until_it_is_mended(
    proxy: Proxy, topic: str, leader: int
) -> None:
    other = leader % 3 + 1
    at = proxy.brokers[leader][0]
    sending = warm(proxy, topic, enable_idempotence=True)
    with connect(proxy, leader) as idle:
        proxy.wait_until(lambda counters: counters.open >= 2, broker=leader)
        evidence = proxy.cut(broker=leader)
        assert evidence.endswith("new ones are refused")
        assert int(evidence.split()[0]) >= 2
        with pytest.raises(ConnectionResetError):
            idle.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy, leader)
    connect(proxy, other).close()
    sending.send("while it is cut")
    assert proxy.counters_of(leader).open == 0
    told = proxy.mend()
    assert told == "mended to all brokers: cut"
    sending.finish()
    assert sending.delivered == ["first", "while it is cut"]
    assert proxy.brokers[leader][0] == at
    assert stored(proxy.bootstrap_servers, topic) == ["first", "while it is cut"]


def test_a_cut_of_all_brokers_reaches_those_with_which_clients_begin(proxy: Proxy) -> None:
    proxy.cut()
    for address in proxy.bootstrap_servers.split(","):
        host, port = address.split(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))
    proxy.mend()
    client = AdminClient({"bootstrap.servers": proxy.bootstrap_servers, "log_level": 0})
    assert set(client.list_topics(timeout=10).brokers) == {1, 2, 3}


def test_a_cut_of_one_client_leaves_the_others(proxy: Proxy, topic: str) -> None:
    struck = warm(proxy, topic, client_id="struck", message_timeout_ms=1000)
    spared = warm(proxy, topic, client_id="spared")
    evidence = proxy.cut(client_id="struck")
    assert "of client 'struck' to all brokers were reset" in evidence
    resets = proxy.counters.resets
    assert resets >= 1
    struck.send("never")
    spared.send("spared")
    spared.finish()
    assert spared.delivered == ["first", "spared"]
    # It comes back, says who it is, and is reset before anything reaches a broker.
    proxy.wait_until(lambda counters: counters.resets > resets)
    struck.finish()
    assert [error.code() for error in struck.errors] == [KafkaError._MSG_TIMED_OUT]
    assert stored(proxy.bootstrap_servers, topic) == ["first", "first", "spared"]


def test_half_open_for_requests_nothing_arrives_and_the_connection_stays(
    embedded: Embedded, proxy: Proxy, topic: str, leader: int
) -> None:
    sending = warm(proxy, topic, message_timeout_ms=1500)
    resets = proxy.counters.resets
    evidence = proxy.half_open("requests", broker=leader)
    assert "requests vanish" in evidence
    sending.send("never")
    proxy.wait_until(lambda counters: counters.swallowed_requests.get("produce", 0) == 1)
    counters = proxy.counters_of(leader)
    assert counters.bytes_swallowed > 0
    assert counters.resets == resets
    assert counters.open >= 1
    sending.finish()
    assert [error.code() for error in sending.errors] == [KafkaError._MSG_TIMED_OUT]
    assert stored(embedded.bootstrap_servers, topic) == ["first"]


def test_a_connection_that_has_lost_bytes_is_reset_when_it_is_mended(
    proxy: Proxy, leader: int
) -> None:
    with connect(proxy, leader) as torn, connect(proxy, leader) as untouched:
        proxy.wait_until(lambda counters: counters.open == 2, broker=leader)
        proxy.half_open("requests", broker=leader)
        torn.sendall(request_of(18, 0, 1, {}))
        proxy.wait_until(lambda counters: counters.swallowed_requests == {"api_versions": 1})
        assert "1 connections had lost bytes and were reset" in proxy.mend()
        with pytest.raises(ConnectionResetError):
            torn.recv(1)
        untouched.sendall(request_of(18, 0, 2, {}))
        assert read_frame(untouched) is not None


def test_half_open_for_answers_what_is_stored_times_out(
    embedded: Embedded, proxy: Proxy, topic: str, leader: int
) -> None:
    sending = warm(proxy, topic, message_timeout_ms=1500)
    evidence = proxy.half_open("answers", broker=leader)
    assert "answers vanish" in evidence
    sending.send("stored")
    proxy.wait_until(lambda counters: counters.swallowed_answers.get("produce", 0) == 1)
    sending.finish()
    assert [error.code() for error in sending.errors] == [KafkaError._MSG_TIMED_OUT]
    assert sending.delivered == ["first"]
    assert stored(embedded.bootstrap_servers, topic) == ["first", "stored"]


def test_after_a_lost_acknowledgement_an_idempotent_retry_stores_once(
    proxy: Proxy, topic: str, leader: int
) -> None:
    sending = warm(proxy, topic, enable_idempotence=True)
    proxy.half_open("answers", broker=leader)
    sending.send("once")
    proxy.wait_until(lambda counters: counters.swallowed_answers.get("produce", 0) >= 1)
    proxy.mend()
    sending.finish()
    assert sending.delivered == ["first", "once"]
    assert proxy.counters_of(leader).requests["produce"] >= 3
    assert stored(proxy.bootstrap_servers, topic) == ["first", "once"]


@pytest.mark.parametrize(("is_idempotent", "copies"), [(True, 1), (False, 2)])
def test_a_dropped_answer_is_sent_again_and_only_idempotence_stores_it_once(
    proxy: Proxy, topic: str, leader: int, is_idempotent: bool, copies: int
) -> None:
    sending = warm(proxy, topic, enable_idempotence=is_idempotent)
    evidence = proxy.drop_after("Produce", broker=leader)
    assert evidence == (
        f"request 1 of produce to broker {leader} loses its answer and its connection"
    )
    sending.send("again")
    sending.finish()
    counters = proxy.counters_of(leader)
    assert counters.dropped == {"produce": 1}
    assert counters.resets == 1
    assert sending.delivered == ["first", "again"]
    assert stored(proxy.bootstrap_servers, topic) == ["first"] + ["again"] * copies


def test_the_answer_that_is_dropped_can_be_a_later_one(
    proxy: Proxy, topic: str, leader: int
) -> None:
    sending = warm(proxy, topic, enable_idempotence=True)
    proxy.drop_after("produce", 3, broker=leader)
    for number, dropped in ((1, 0), (2, 0), (3, 1), (4, 1)):
        sending.send(str(number))
        sending.finish()
        assert sum(proxy.counters.dropped.values()) == dropped
    assert stored(proxy.bootstrap_servers, topic) == ["first", "1", "2", "3", "4"]


def test_a_dropped_request_without_an_answer_has_arrived(
    proxy: Proxy, topic: str, leader: int
) -> None:
    sending = warm(proxy, topic, acks="0")
    proxy.drop_after("produce", broker=leader)
    sending.send("arrives")
    proxy.wait_until(lambda counters: counters.dropped == {"produce": 1})
    sending.send("arrives too")
    sending.finish()
    proxy.wait_until(lambda counters: counters.requests.get("produce", 0) >= 3)
    deadline = time.monotonic() + 10
    while (found := stored(proxy.bootstrap_servers, topic)) != ["first", "arrives", "arrives too"]:
        assert time.monotonic() < deadline, found


def test_a_fault_for_one_client_does_not_touch_another(
    proxy: Proxy, topic: str, leader: int
) -> None:
    slow = warm(proxy, topic, client_id="slow")
    fast = warm(proxy, topic, client_id="fast")
    proxy.half_open("answers", client_id="slow")
    slow.send("slow")
    proxy.wait_until(lambda counters: counters.swallowed_answers.get("produce", 0) >= 1)
    fast.send("fast")
    fast.finish()
    assert fast.delivered == ["first", "fast"]
    assert slow.delivered == ["first"]
    told = proxy.mend(broker=leader)
    assert told == f"mended to broker {leader}: nothing"
    proxy.mend(client_id="slow")
    slow.finish()
    assert slow.delivered == ["first", "slow"]


def test_a_fault_that_makes_no_sense_is_refused(proxy: Proxy) -> None:
    with pytest.raises(BadInput, match=r"not heard of broker 9\nIt knows 1, 2, 3"):
        proxy.cut(broker=9)
    with pytest.raises(BadInput, match="no API 'produces'"):
        proxy.drop_after("produces")
    with pytest.raises(BadInput, match="counted from 1"):
        proxy.drop_after("produce", 0)
    with pytest.raises(BadInput, match="negative"):
        proxy.delay(-1)
    with pytest.raises(BadInput, match="carries something"):
        proxy.throttle(0)
    with pytest.raises(BadInput, match="half open for requests or answers"):
        proxy.half_open("sideways")  # type: ignore[arg-type]
