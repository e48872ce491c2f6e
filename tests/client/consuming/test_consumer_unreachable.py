"""A consumer without brokers says why, and ends if it has never reached one."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest
from consumed import Kafka, Seen, running

from lossless.client.consuming import Consumer, reaching
from lossless.client.errors import ClientFailed
from lossless.errors import BadInput

SETTINGS = {
    "bootstrap.servers": "127.0.0.1:1,127.0.0.1:2",
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 50,
}


@pytest.fixture
def _asked_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "ASK_S", 0.1)


@pytest.mark.usefixtures("_asked_briefly")
def test_a_consumer_that_never_reaches_a_broker_fails_and_names_the_addresses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        Consumer("orders", SETTINGS, group="g", connect_timeout_s=2) as consumer,
        pytest.raises(ClientFailed) as raised,
    ):
        next(iter(consumer))
    assert "no broker has answered within 2 s: no connection" in raised.value.what
    for port in (1, 2):
        assert f"127.0.0.1:{port} (Connection refused)" in raised.value.what
    assert "bootstrap.servers" in (raised.value.hint or "")
    failures = [line for line in caplog.messages if line.startswith("FAIL")]
    assert len(failures) == 1  # of dozens of attempts


def test_a_member_without_partitions_has_reached_the_cluster(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(3)
    seen = Seen()
    idle = kafka.consumer(connect_timeout_s=0.01)  # less than the group needs to admit it
    with running(kafka.consumer(connect_timeout_s=0.01), seen):
        seen.wait_for(range(3))
        ending = threading.Timer(0.5, idle.stop)
        ending.start()
        assert list(idle) == []
        ending.join()
        idle.close()


def test_a_consumer_names_a_truststore_that_is_missing(tmp_path: Path) -> None:
    settings = {
        **SETTINGS,
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "missing.pem"),
    }
    with pytest.raises(BadInput, match=r"missing\.pem cannot be read: No such file"):
        Consumer("orders", settings, group="g")


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_time_to_connect_that_is_over_at_once_is_refused(seconds: float) -> None:
    with pytest.raises(BadInput, match=r"connect_timeout_s=.*: not a time to wait"):
        Consumer("orders", SETTINGS, group="g", connect_timeout_s=seconds)


@pytest.mark.usefixtures("_asked_briefly")
def test_lines_of_librdkafka_go_to_the_logger_that_is_given(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = {**SETTINGS, "logger": logging.getLogger("shop.kafka")}
    with (
        Consumer("orders", settings, group="g", connect_timeout_s=0.2) as consumer,
        pytest.raises(ClientFailed),
    ):
        next(iter(consumer))
    assert "shop.kafka" in {line.name for line in caplog.records}
