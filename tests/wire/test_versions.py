"""The table of APIs: each in the versions that Apache Kafka 4.1 offers, or listed as left out."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.index import api_key_map, schema_name_map

from lossless.engines.interface import ClusterSpec
from lossless.engines.local.start import start_cluster
from lossless.wire import frames
from lossless.wire.api_versions import FINALIZED, SUPPORTED, spoken
from lossless.wire.codec import make, read, request_class, response_class, write
from lossless.wire.document import render
from lossless.wire.versions import APIS, BROKER, CONTROLLER, LEFT_OUT, Api, Listener

PAGE = Path(__file__).parents[2] / "docs" / "unsupported.md"
API_VERSIONS = 18
# Share groups are left out, and with them the feature.
FEATURES_LEFT_OUT = {"share.version"}


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_kio_has_every_version_that_is_spoken(api: Api) -> None:
    assert api_key_map[api.key] == api.name
    assert set(range(api.lowest, api.highest + 1)) <= set(schema_name_map[api.name])


def test_an_api_is_spoken_or_left_out_and_not_both() -> None:
    for left_out in LEFT_OUT:
        assert api_key_map[left_out.key] == left_out.name
        api = APIS.get(left_out.key)
        assert api is None or not api.listeners & left_out.listeners, left_out.name
        assert left_out.why.endswith(".")


def test_the_page_of_what_is_left_out_is_current() -> None:
    assert PAGE.read_text() == render(), "run scripts/document-unsupported"


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Listener, int]]:
    """The ports of one broker of Apache Kafka."""
    folder = tmp_path_factory.mktemp("apache")
    cluster = start_cluster(ClusterSpec(brokers=1), folder, engine="apache", temporary=True)
    try:
        properties = (folder / "broker-1" / "server.properties").read_text()
        ports = dict(re.findall(r"(PLAINTEXT|CONTROLLER)://127\.0\.0\.1:(\d+)", properties))
        yield {BROKER: int(ports["PLAINTEXT"]), CONTROLLER: int(ports["CONTROLLER"])}
    finally:
        cluster.stop()


@pytest.mark.parametrize("listener", [BROKER, CONTROLLER])
def test_what_is_spoken_is_what_apache_kafka_speaks_but_for_what_is_left_out(
    apache: dict[Listener, int], listener: Listener
) -> None:
    answer = _asked(apache[listener])
    theirs = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    ours = {api["api_key"]: (api["min_version"], api["max_version"]) for api in spoken(listener)}
    left_out = {one.key for one in LEFT_OUT if one.listeners & listener}
    assert ours == {key: versions for key, versions in theirs.items() if key not in left_out}
    assert left_out <= theirs.keys()
    features = {
        feature.name: (feature.min_version, feature.max_version)
        for feature in answer.supported_features
        if feature.name not in FEATURES_LEFT_OUT
    }
    assert features == SUPPORTED
    finalized = {one.name: one.max_version_level for one in answer.finalized_features}
    assert {name: finalized.get(name) for name in FINALIZED} == FINALIZED


def _asked(port: int) -> Any:
    entity = request_class(API_VERSIONS, 4)
    fields = {"client_software_name": "lossless", "client_software_version": "1"}
    message = write(make(entity, fields))
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(frames.request(API_VERSIONS, 4, 1, "test", message, tagged=True))
        with client.makefile("rb") as stream:
            (length,) = frames.LENGTH.unpack(stream.read(4))
            return read(response_class(API_VERSIONS, 4), stream.read(length), 4)
