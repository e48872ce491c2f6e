"""What needs long sessions (R7, B7): a broker that lags for seconds is still in the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from claim import NOTHING, claim
from clusters import CONFIG, whole_again
from observing import Seen, in_sync, led_by, now_ms, topic_of
from steering import elect

from lossless.engines import cluster
from lossless.engines.local.planned import PlannedCluster
from lossless.verifier.anomaly import Kind
from lossless.verifier.history import History

PATIENT = {
    **CONFIG,
    "broker.session.timeout.ms": "12000",
    "broker.heartbeat.interval.ms": "200",
    "replica.lag.time.max.ms": "5000",
}


@pytest.fixture(scope="module")
def patient_brokers(engine: str) -> Iterator[PlannedCluster]:
    with cluster(kafka=engine, brokers=3, controllers=1, config=PATIENT, processes=True) as started:
        yield started


@pytest.fixture
def kafka(patient_brokers: PlannedCluster) -> Iterator[PlannedCluster]:
    yield patient_brokers
    whole_again(patient_brokers)


@claim(
    "R7",
    provoked="a follower is paused for longer than replica.lag.time.max.ms, and far shorter than "
    "its session",
    shows={"acks=all": NOTHING},
)
def test_who_has_not_caught_up_in_time_is_out_of_sync_though_its_session_lives(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    topic = topic_of(kafka, "r7")
    seen = Seen(kafka, topic)
    producer = seen.producer(acks="all")
    producer.stored(topic, 3)
    kafka.pause(3)
    producer.stored(topic)
    # A leader may act on the controller's answer before it reads of it in the metadata.
    in_sync(kafka, topic, 1, 2)
    assert 3 in kafka.metadata().brokers
    kafka.resume(3)
    in_sync(kafka, topic, 1, 2, 3)
    return {"acks=all": seen.history()}


@claim(
    "B7",
    provoked="leadership is moved by hand (preferred election) to a replica that is in sync and "
    "paused, which then goes on",
    shows={"acks=1": (Kind.LOST,), "acks=all": NOTHING},
)
def test_with_acks_1_even_a_planned_move_can_lose(kafka: PlannedCluster) -> Mapping[str, History]:
    topics = [topic_of(kafka, "b7", replicas=[3, 1, 2]) for _ in range(2)]
    careless, careful = (Seen(kafka, topic) for topic in topics)
    one, every = careless.producer("p1", acks="1"), careful.producer("p1", acks="all")
    careless.producer("p0", acks="all").stored(topics[0], 3)
    every.stored(topics[1], 3)
    kafka.restart(3)
    for topic in topics:
        led_by(kafka, topic, 1, 2)
        in_sync(kafka, topic, 1, 2, 3)
    one.stored(topics[0])  # it knows who leads: whom it would ask later may stand still

    kafka.pause(3)
    # What answers a fetch that was waiting (half a second at most) is in the follower's socket;
    # what is written later is not.
    paused_ms = now_ms()
    while now_ms() - paused_ms < 1000:
        (lost,) = one.stored(topics[0])
    (waiting,) = every.send(topics[1])
    for topic in topics:
        elect(kafka, topic)
        led_by(kafka, topic, 3)
    assert every.untold == {waiting}
    kafka.resume(3)
    for topic in topics:
        in_sync(kafka, topic, 1, 2, 3)
    every.told()
    assert waiting in every.offsets
    assert lost not in careless.read("c1", topics[0])
    return {"acks=1": careless.history(), "acks=all": careful.history()}
