"""Every test of this folder runs twice: on the embedded engine, then on Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from subject import Subject

from lossless.engines import cluster

CONFIG = {
    "broker.session.timeout.ms": "1000",
    # Kafka's own: nobody is killed here, and a controller that waits for a busy disk is not to be
    # replaced in the middle of a request, which its successor would be asked again.
    "controller.quorum.fetch.timeout.ms": "2000",
    # Readers are sent to a replica in their rack.
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    # Members of the new protocol hear of a new assignment with their next heartbeat.
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
}


@pytest.fixture(scope="package", params=["embedded", "apache"])
def kafka(request: pytest.FixtureRequest) -> Iterator[Subject]:
    with cluster(
        kafka=request.param, brokers=3, racks=("a", "b", "c"), config=CONFIG, processes=True
    ) as started:
        yield Subject(request.param, started)
