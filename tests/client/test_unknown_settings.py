"""A setting that does not exist is refused with the name that was probably meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from lossless.client.consuming import Consumer
from lossless.client.producing import Producer
from lossless.errors import BadInput

NOBODY = {"bootstrap.servers": "127.0.0.1:1"}


def producer(settings: Mapping[str, object]) -> object:
    return Producer(settings, audit=False)


def consumer(settings: Mapping[str, object]) -> object:
    return Consumer("orders", settings, group="billing")


@pytest.mark.parametrize(
    ("client", "settings", "name", "meant"),
    [
        (producer, {"akcs": 1}, "akcs", "acks"),
        (producer, {"akcs": 1, **NOBODY}, "akcs", "acks"),
        (producer, {"bootstrap.server": "127.0.0.1:1"}, "bootstrap.server", "bootstrap.servers"),
        (producer, {"Linger_ms": 5, **NOBODY}, "Linger_ms", "linger.ms"),
        (consumer, {"sesion.timeout.ms": 9, **NOBODY}, "sesion.timeout.ms", "session.timeout.ms"),
        (consumer, {"bootstrap.server": "127.0.0.1:1"}, "bootstrap.server", "bootstrap.servers"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_name(
    client: Callable[[Any], object], settings: dict[str, object], name: str, meant: str
) -> None:
    with pytest.raises(BadInput, match=name) as refused:
        client(settings)
    assert refused.value.hint == f"did you mean {meant}?"


def test_an_unknown_setting_that_resembles_no_other_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match='"xyzzy"') as refused:
        producer({"xyzzy": 1, **NOBODY})
    assert refused.value.hint is None


def test_without_any_setting_the_missing_one_is_named() -> None:
    with pytest.raises(BadInput, match=r"needs bootstrap\.servers"):
        producer({})


@pytest.mark.parametrize(
    "settings",
    [
        {"client.id": "a\0b", **NOBODY},
        {"client.id\0": "a", **NOBODY},
        {"bootstrap.servers": "127.0.0.1:1\0,127.0.0.1:2"},
    ],
)
@pytest.mark.parametrize("client", [producer, consumer])
def test_text_with_a_nul_is_refused(
    client: Callable[[Any], object], settings: dict[str, object]
) -> None:
    """librdkafka would take what stands before it."""
    with pytest.raises(BadInput, match="has a NUL"):
        client(settings)


@pytest.mark.parametrize("name", ["x\0y", "\0"])
def test_a_group_or_a_topic_with_a_nul_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=r"'group' has a NUL"):
        Consumer("orders", NOBODY, group=name)
    with pytest.raises(BadInput, match=r"'group\.id' has a NUL"):
        Consumer("orders", {"group.id": name, **NOBODY})
    for topics in (name, [name]):
        with pytest.raises(BadInput, match=r"'topics' has a NUL"):
            Consumer(topics, NOBODY, group="billing")


@pytest.mark.parametrize("client", [producer, consumer])
def test_several_servers_are_given_as_text(client: Callable[[Any], object]) -> None:
    with pytest.raises(BadInput, match=r"bootstrap\.servers is given as a list"):
        client({"bootstrap.servers": ["127.0.0.1:1"]})


def test_what_is_not_metrics_is_refused() -> None:
    wrong: Any = 5
    with pytest.raises(BadInput, match="metrics=5"):
        Producer(NOBODY, metrics=wrong)
    with pytest.raises(BadInput, match="metrics=5"):
        Consumer("orders", NOBODY, group="billing", metrics=wrong)


def test_a_topic_that_is_named_twice_is_refused() -> None:
    with pytest.raises(BadInput, match="'orders' is named twice"):
        Consumer(["orders", "orders"], NOBODY, group="billing")
