"""What the proxy's tests share: a cluster of embedded brokers, and a proxy in front of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from embedded_brokers import Embedded, running

from lossless.proxy import Proxy

_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with running(tmp_path_factory.mktemp("embedded")) as cluster:
        yield cluster


@pytest.fixture
def proxy(embedded: Embedded) -> Iterator[Proxy]:
    with Proxy(embedded.bootstrap_servers, seed=1) as started:
        yield started
        assert started.troubles == ()


@pytest.fixture
def topic(embedded: Embedded) -> str:
    name = f"topic-{next(_numbers)}"
    embedded.create_topic(name)
    return name


@pytest.fixture
def leader(embedded: Embedded, topic: str) -> int:
    return embedded.leader_of(topic)
