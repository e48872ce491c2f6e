"""What needs racks, and more than one controller (B2, B6): four brokers, three of them voters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from claim import NOTHING, claim
from clusters import CONFIG, whole_again
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic
from observing import WAIT_S_MAX, Seen, fresh, led_by, topic_of, until
from steering import admin_of, elect

from lossless.contract.faults import Fault, FaultKind, Fired
from lossless.engines import cluster
from lossless.engines.local.planned import PlannedCluster
from lossless.verifier.history import History
from topics import create_new

RACKS = {1: "a", 2: "b", 3: "a", 4: "b"}


@pytest.fixture(scope="module")
def four_brokers(engine: str) -> Iterator[PlannedCluster]:
    with cluster(
        kafka=engine, brokers=4, racks=("a", "b"), config=CONFIG, processes=True
    ) as started:
        yield started


@pytest.fixture
def kafka(four_brokers: PlannedCluster) -> Iterator[PlannedCluster]:
    yield four_brokers
    whole_again(four_brokers)


@claim(
    "B2",
    provoked="both brokers of a rack are killed",
    shows={"replication factor 2": NOTHING},
)
def test_replicas_spread_over_racks_so_that_losing_one_loses_nothing(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    admin = admin_of(kafka)
    twice = fresh("twice")
    for refused, code in (
        (NewTopic(twice, 1, 5), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic(twice, 1, replica_assignment=[[1, 1]]), KafkaError.INVALID_REPLICA_ASSIGNMENT),
    ):
        with pytest.raises(KafkaException) as raised:
            admin.create_topics([refused])[twice].result(WAIT_S_MAX)
        assert raised.value.args[0].code() == code

    topic = fresh("racks")
    create_new(admin, NewTopic(topic, 6, 2))
    partitions = range(6)
    placed: dict[int, list[int]] = {}

    def are_in_sync() -> bool:
        placed.update((at, kafka.in_sync_replicas(topic, at)) for at in partitions)
        return all(len(replicas) == 2 for replicas in placed.values())

    # Kept as they are told here: the next broker may not have heard of the topic yet.
    until(are_in_sync, "in sync")
    for replicas in placed.values():
        assert {RACKS[broker] for broker in replicas} == {"a", "b"}
    seen = Seen(kafka, topic)
    producer = seen.producer(acks="all")
    for partition in partitions:
        producer.stored(topic, 2, partition)

    for broker in (2, 4):
        kafka.kill(broker)
    for partition in partitions:
        until(lambda at=partition: kafka.leader_of(topic, at) in (1, 3), "led by rack a")
        producer.stored(topic, 2, partition)
    return {"replication factor 2": seen.history()}


@claim(
    "B6",
    provoked="the active controller of three, a broker too, is killed",
    shows={"acks=all": NOTHING},
)
def test_another_controller_takes_over_and_nothing_is_lost(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    active = kafka.controller()
    elsewhere = [broker for broker in RACKS if broker != active]
    led_here = topic_of(kafka, "led-here", replicas=[active, *elsewhere[:2]])
    led_elsewhere = topic_of(kafka, "led-elsewhere", replicas=elsewhere)
    seen = Seen(kafka, led_here, led_elsewhere)
    producers = [seen.producer(f"p{number}", acks="all") for number in (1, 2)]
    for producer, topic in zip(producers, seen.topics, strict=True):
        producer.stored(topic, 3)
        producer.send(topic, 3)
    struck = kafka.inject(Fault(kind=FaultKind.CONTROLLER_CRASH))
    assert isinstance(struck, Fired)
    assert f"controller {kafka.controller()} is active now" in struck.evidence
    for producer, topic in zip(producers, seen.topics, strict=True):
        producer.stored(topic, 3)
        assert not producer.errors
    led_by(kafka, led_here, *elsewhere)
    topic_of(kafka, "after", replicas=elsewhere)
    kafka.restart(active)
    until(kafka.in_sync, "in sync again")
    elect(kafka, led_here)
    led_by(kafka, led_here, active)
    return {"acks=all": seen.history()}
