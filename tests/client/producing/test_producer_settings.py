"""Settings that cannot be meant are refused, and settings without an effect are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lossless.client.errors import NotDelivered
from lossless.client.producing.giving_up import Park
from lossless.client.producing.producer import Producer
from lossless.errors import BadInput

NOBODY = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.mark.parametrize("bytes_max", [-1, 0, 1.5, "1g"])
def test_a_spool_without_room_for_any_record_is_refused(tmp_path: Path, bytes_max: Any) -> None:
    with pytest.raises(BadInput, match="leaves no room") as refused:
        Park(tmp_path, bytes_max=bytes_max)
    assert refused.value.hint


@pytest.mark.parametrize("name", ["pause_max_s", "buffer_wait_s"])
@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "2", True])
def test_a_time_below_zero_is_refused(name: str, seconds: Any) -> None:
    with pytest.raises(BadInput, match=rf"{name} = .* is no time to wait"):
        Producer(NOBODY, audit=False, **{name: seconds})


@pytest.mark.parametrize("policy", [True, False])
def test_a_delivery_timeout_below_zero_is_refused_with_every_policy(
    tmp_path: Path, policy: bool
) -> None:
    settings = {**NOBODY, "delivery.timeout.ms": -5}
    with pytest.raises(BadInput, match=r"delivery\.timeout\.ms = -5"):
        Producer(settings, audit=False, giving_up=Park(tmp_path) if policy else None)


def test_calls_that_wait_refuse_a_time_below_zero() -> None:
    with Producer(NOBODY, audit=False) as producer:
        delivery = producer.send("orders", b"v", on_delivery=lambda _: None)
        for call in (producer.flush, producer.close, delivery.result):
            with pytest.raises(BadInput, match="timeout_s = inf is no time to wait"):
                call(float("inf"))
            with pytest.raises(BadInput, match="timeout_s = -1 is no time to wait"):
                call(-1)  # type: ignore[operator]
        producer.close(0)


def test_settings_without_an_effect_are_named(caplog: pytest.LogCaptureFixture) -> None:
    settings = {**NOBODY, "max.block.ms": 500, "interceptor.classes": "shop.Auditor"}
    Producer(settings, audit=False).close()
    assert "have no effect here: interceptor.classes, max.block.ms" in caplog.text
    assert "buffer_wait_s" in caplog.text


def test_a_producer_says_whether_it_parks(tmp_path: Path) -> None:
    with Producer(NOBODY, audit=False) as producer:
        assert not producer.parks
    with Producer(NOBODY, audit=False, giving_up=Park(tmp_path)) as producer:
        assert producer.parks


def test_an_error_names_the_addresses_that_were_tried(caplog: pytest.LogCaptureFixture) -> None:
    settings = {
        "bootstrap.servers": "127.0.0.1:1,127.0.0.1:2",
        "delivery.timeout.ms": 2_000,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 50,
    }
    with Producer(settings, audit=False) as producer, pytest.raises(NotDelivered) as raised:
        producer.send("orders", b"v").result(30)
    assert "no connection to a broker was ever made: tried" in raised.value.what
    for port in (1, 2):
        assert f"127.0.0.1:{port} (Connection refused)" in raised.value.what
    failures = [line for line in caplog.messages if "Connection refused" in line]
    assert len(failures) == 1  # of dozens of attempts


@pytest.mark.parametrize("settings", ["127.0.0.1:9092", None, ["127.0.0.1:9092"]])
def test_an_address_in_place_of_settings_is_refused_with_the_right_call(settings: Any) -> None:
    with pytest.raises(BadInput, match="takes its settings as a mapping") as refused:
        Producer(settings, audit=False)
    if isinstance(settings, str):
        assert refused.value.hint == 'Producer({"bootstrap.servers": "127.0.0.1:9092"})'


def test_a_producer_shows_applications_what_is_theirs() -> None:
    shown = {name for name in dir(Producer) if not name.startswith("_")}
    assert shown == {
        "close",
        "flush",
        "from_contract",
        "parks",
        "send",
        "send_async",
        "transaction",
    }
    with Producer(NOBODY, audit=False) as producer:
        attributes = {name for name in vars(producer) if not name.startswith("_")}
    assert attributes == {"application", "metrics"}
