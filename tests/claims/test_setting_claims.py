"""What the settings of brokers and topics promise (B1 to B7), on three brokers and a controller."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import pytest
from claim import NOTHING, claim
from clusters import restart
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic
from observing import WAIT_S_MAX, Seen, fresh, in_sync, led_by, topic_of, until
from steering import admin_of

from lossless.contract.faults import Fault, FaultKind, Fired
from lossless.engines.local.planned import PlannedCluster
from lossless.verifier.anomaly import Kind
from lossless.verifier.history import History


@claim(
    "B1",
    "R3",
    provoked="two brokers of three are killed, one after the other, each time the leader",
    shows={
        "replication factor 1": NOTHING,
        "replication factor 2": NOTHING,
        "replication factor 3": NOTHING,
    },
)
def test_n_replicas_survive_the_loss_of_all_but_one(kafka: PlannedCluster) -> Mapping[str, History]:
    single, double, triple = (
        topic_of(kafka, "b1", replicas=replicas) for replicas in ([1], [1, 2], [1, 2, 3])
    )
    alone, pair, trio = Seen(kafka, single), Seen(kafka, double), Seen(kafka, triple)
    producers = {
        topic: seen.producer(acks="all")
        for topic, seen in ((single, alone), (double, pair), (triple, trio))
    }
    for topic, producer in producers.items():
        producer.stored(topic, 3)

    kafka.kill(1)
    led_by(kafka, single, -1)
    led_by(kafka, double, 2)
    led_by(kafka, triple, 2)
    (waiting,) = producers[single].send(single)
    for topic, seen in ((double, pair), (triple, trio)):
        producers[topic].stored(topic, 3)
        assert len(seen.read("c1", topic)) == 6
    kafka.kill(2)
    led_by(kafka, double, -1)
    led_by(kafka, triple, 3)
    producers[triple].stored(triple, 3)
    assert len(trio.read("c2", triple)) == 9
    assert producers[single].untold == {waiting}

    restart(kafka, 1, 2)
    led_by(kafka, single, 1)
    led_by(kafka, double, 2)
    return {
        "replication factor 1": alone.history(),
        "replication factor 2": pair.history(),
        "replication factor 3": trio.history(),
    }


UNCLEAN = {
    "unclean.leader.election.enable=true": (
        Kind.LOST,
        Kind.INCONSISTENT_OFFSET,
        Kind.PRECOMMITTED_READ,
    ),
    "unclean.leader.election.enable=false": NOTHING,
}


@claim(
    "B3",
    provoked="the followers are paused until they are out of sync, the leader writes on and is "
    "killed, the followers go on",
    shows=UNCLEAN,
)
def test_an_unclean_election_of_who_lagged_loses_what_was_committed(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    def out_of_sync() -> None:
        for follower in (2, 3):
            kafka.pause(follower)

    def back() -> None:
        for follower in (2, 3):
            kafka.resume(follower)

    return unclean(kafka, out_of_sync, back)


@claim(
    "B3",
    provoked="the followers are killed, the leader writes on and is killed, one follower returns",
    shows=UNCLEAN,
    often=(),
)
def test_an_unclean_election_of_who_had_crashed_loses_what_was_committed(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    def out_of_sync() -> None:
        for follower in (2, 3):
            kafka.kill(follower)

    return unclean(kafka, out_of_sync, lambda: kafka.restart(2))


def unclean(
    kafka: PlannedCluster, out_of_sync: Callable[[], object], back: Callable[[], object]
) -> Mapping[str, History]:
    on = topic_of(kafka, "b3-on", unclean_leader_election_enable="true")
    off = topic_of(kafka, "b3-off", unclean_leader_election_enable="false")
    quick, safe = Seen(kafka, on), Seen(kafka, off)
    first, second = quick.producer(acks="all"), safe.producer(acks="all")
    first.stored(on, 3)
    second.stored(off, 3)
    out_of_sync()
    in_sync(kafka, on, 1)
    in_sync(kafka, off, 1)
    first.stored(on, 3)
    second.stored(off, 3)
    for seen, topic in ((quick, on), (safe, off)):
        assert len(seen.read("c1", topic)) == 6

    kafka.kill(1)
    back()
    led_by(kafka, on, 2, 3)
    # Who could be elected is there, and is not.
    until(lambda: kafka.leader_of(on, 0) in kafka.metadata().brokers, "the elected one is listed")
    led_by(kafka, off, -1)
    quick.producer("p2", acks="all").stored(on, 2)
    assert quick.read("c2", on)[3:] == ["p2-0", "p2-1"]
    (waiting,) = second.send(off)
    assert second.untold == {waiting}
    assert kafka.leader_of(off, 0) == -1

    kafka.restart(1)
    led_by(kafka, off, 1)
    until(lambda: 1 in kafka.in_sync_replicas(on, 0), "the old leader follows")
    assert kafka.leader_of(on, 0) != 1
    second.told()
    assert len(safe.read("c2", off)) == 7
    return {
        "unclean.leader.election.enable=true": quick.history(),
        "unclean.leader.election.enable=false": safe.history(),
    }


@claim(
    "B5",
    provoked="one broker is stopped in order, as in a rolling restart, and started again",
    shows={
        "replication factor 3, min.insync.replicas=3": NOTHING,
        "replication factor 3, min.insync.replicas=2": NOTHING,
        "replication factor 2, min.insync.replicas=3": NOTHING,
    },
)
def test_as_many_in_sync_as_there_are_replicas_block_writes_while_one_restarts(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    equal = topic_of(kafka, "b5-equal", min_insync_replicas="3")
    fewer = topic_of(kafka, "b5-fewer", min_insync_replicas="2")
    capped = topic_of(kafka, "b5-capped", replicas=[1, 2], min_insync_replicas="3")
    blocked, free, short = Seen(kafka, equal), Seen(kafka, fewer), Seen(kafka, capped)
    patient = blocked.producer(acks="all")
    patient.stored(equal)
    # More asked for than there are replicas: counted as if all of them were asked for.
    short.producer(acks="all").stored(capped)

    assert "ended in order" in kafka.stop_broker(3).evidence
    in_sync(kafka, equal, 1, 2)
    free.producer(acks="all").stored(fewer, 3)
    hasty = blocked.producer("p2", acks="all", retries=0)
    (refused,) = hasty.send(equal)
    hasty.told()
    assert hasty.errors[refused].code() == KafkaError.NOT_ENOUGH_REPLICAS
    (waiting,) = patient.send(equal)
    assert patient.untold == {waiting}
    kafka.restart(3)
    in_sync(kafka, equal, 1, 2, 3)
    patient.told()
    assert waiting in patient.offsets
    return {
        "replication factor 3, min.insync.replicas=3": blocked.history(),
        "replication factor 3, min.insync.replicas=2": free.history(),
        "replication factor 2, min.insync.replicas=3": short.history(),
    }


@claim(
    "B6",
    provoked="the only controller is killed, and started again",
    shows={"acks=all": NOTHING},
)
def test_without_a_controller_records_go_on_and_administration_waits(
    kafka: PlannedCluster, controller: int
) -> Mapping[str, History]:
    topic = topic_of(kafka, "b6")
    seen = Seen(kafka, topic)
    producer = seen.producer(acks="all")
    producer.stored(topic, 3)
    kafka.kill(controller)
    producer.stored(topic, 3)
    assert len(seen.read("c1", topic)) == 6
    late = fresh("b6-late")
    admin = admin_of(kafka)
    with pytest.raises(KafkaException):
        admin.create_topics([NewTopic(late, 1, 3)], request_timeout=2.0)[late].result(WAIT_S_MAX)
    kafka.restart(controller)
    topic_of(kafka, "b6-after")
    producer.stored(topic, 3)
    return {"acks=all": seen.history()}


@claim(
    "B7",
    "R1",
    provoked="every broker is restarted in turn, in order, while somebody writes",
    shows={"acks=all": NOTHING},
)
def test_a_rolling_restart_loses_nothing_and_reorders_nothing(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    topic = topic_of(kafka, "b7", min_insync_replicas="2")
    seen = Seen(kafka, topic)
    producer = seen.producer(acks="all", enable_idempotence=True)
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            producer.stored(topic, 5)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        struck = kafka.inject(Fault(kind=FaultKind.ROLLING_RESTART))
    finally:
        done.set()
        writer.join()
    assert isinstance(struck, Fired)
    assert "3 brokers restarted in turn" in struck.evidence
    assert len(seen.read("c1", topic)) == len(producer.offsets) >= 5
    assert not producer.errors
    return {"acks=all": seen.history()}
