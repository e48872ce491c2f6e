"""What the log and its replicas promise (R1 to R18)."""

from __future__ import annotations

from collections.abc import Mapping

from claim import ENGINES, NOTHING, claim
from confluent_kafka import KafkaError
from observing import Seen, fresh, in_sync, led_by, reachable, topic_of, watermarks
from steering import configure, elect

from lossless.core.error_codes import Error
from lossless.engines.local.planned import PlannedCluster
from lossless.proxy import Proxy
from lossless.verifier.anomaly import Kind
from lossless.verifier.history import History
from one_request import ask, error_of

CREATE_TOPICS = 19


@claim(
    "R6",
    "R4",
    "B8",
    provoked="both followers are paused, the leader acknowledges and is killed, the followers "
    "go on (min.insync.replicas=2 keeps them eligible); others write; the old leader returns and "
    "is elected again",
    shows={"acks=1": (Kind.LOST, Kind.INCONSISTENT_OFFSET), "acks=all": NOTHING},
    often=ENGINES,
)
def test_what_only_the_leader_has_dies_with_it_and_nobody_has_read_it(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    topics = [topic_of(kafka, "r6", min_insync_replicas="2") for _ in range(2)]
    careless, careful = (Seen(kafka, topic) for topic in topics)
    one = careless.producer(acks="1")
    every = careful.producer(acks="all")
    # Each has asked who leads by then: a broker that is paused would not answer.
    one.stored(topics[0])
    careless.producer("p0", acks="all").stored(topics[0], 3)
    every.stored(topics[1], 3)

    for follower in (2, 3):
        kafka.pause(follower)
    # By then their last fetches were answered, and what comes next is not in their sockets either.
    in_sync(kafka, topics[0], 1)
    lost = one.stored(topics[0], 2)
    every.send(topics[1], 2)
    assert watermarks(reachable(kafka), topics[0])[1] == 4
    assert careless.read("c1", topics[0]) == ["p1-0", "p0-0", "p0-1", "p0-2"]
    kafka.kill(1)
    for follower in (2, 3):
        kafka.resume(follower)
    for topic in topics:
        led_by(kafka, topic, 2, 3)
    every.told()

    # The new leader decides what stands there.
    careless.producer("p2", acks="all").stored(topics[0], 3)
    successor = kafka.leader_of(topics[0], 0)
    assert not set(lost) & set(careless.read("c2", topics[0]))
    kafka.restart(1)
    in_sync(kafka, topics[0], 1, 2, 3)
    assert kafka.leader_of(topics[0], 0) == successor
    elect(kafka, topics[0])
    led_by(kafka, topics[0], 1)
    return {"acks=1": careless.history(), "acks=all": careful.history()}


@claim(
    "R2",
    "R4",
    "B4",
    provoked="both followers are paused until the leader alone is in sync, with "
    "min.insync.replicas=2; one of them goes on",
    shows={"acks=0, 1 and all": NOTHING},
    often=ENGINES,
)
def test_below_min_insync_replicas_nothing_is_committed_and_what_was_stays_readable(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    topic = topic_of(kafka, "r2", min_insync_replicas="2")
    seen = Seen(kafka, topic)
    committed = seen.producer("p1", acks="all").stored(topic, 3)
    for follower in (2, 3):
        kafka.pause(follower)
    in_sync(kafka, topic, 1)

    one, none = seen.producer("p2", acks="1"), seen.producer("p3", acks="0")
    (alone,) = one.stored(topic)
    assert one.offsets[alone] == 3
    (unheard,) = none.stored(topic)
    assert none.offsets[unheard] is None
    hasty = seen.producer("p4", acks="all", retries=0)
    (refused,) = hasty.send(topic)
    hasty.told()
    assert hasty.errors[refused].code() == KafkaError.NOT_ENOUGH_REPLICAS
    patient = seen.producer("p5", acks="all")
    (waiting,) = patient.send(topic)
    # Accepted, and not committed: the leader has it, and no reader.
    assert watermarks(reachable(kafka), topic)[1] == 3
    assert seen.read("c1", topic) == committed
    assert patient.untold == {waiting}

    kafka.resume(2)
    in_sync(kafka, topic, 1, 2)
    patient.told()
    assert waiting in patient.offsets
    assert set(seen.read("c2", topic)) == {*committed, alone, unheard, waiting}
    return {"acks=0, 1 and all": seen.history()}


@claim(
    "R17",
    "R7",
    provoked="one follower of two is paused until its session with the controller ends; "
    "min.insync.replicas=2 would do without it",
    shows={"acks=all": NOTHING},
)
def test_an_acknowledgement_waits_for_everybody_who_is_in_sync_not_for_as_many_as_must_be(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    topic = topic_of(kafka, "r17", min_insync_replicas="2")
    seen = Seen(kafka, topic)
    every = seen.producer(acks="all")
    every.stored(topic, 3)
    kafka.pause(3)
    every.send(topic)
    every.told()
    # Told a moment ago, and by then the paused one was no longer waited for.
    assert kafka.in_sync_replicas(topic, 0) == [1, 2]
    assert 3 not in kafka.metadata().brokers
    assert not every.errors
    kafka.resume(3)
    in_sync(kafka, topic, 1, 2, 3)
    return {"acks=all": seen.history()}


@claim(
    "R18",
    provoked="the leader is paused until another leads; then the others and the controller are "
    "paused, and it goes on, hearing of nobody but its clients",
    shows={"acks=1": (Kind.LOST, Kind.INCONSISTENT_OFFSET), "acks=all": NOTHING},
)
def test_a_leader_that_hears_of_nobody_goes_on_acknowledging_alone(
    kafka: PlannedCluster, controller: int
) -> Mapping[str, History]:
    topics = [topic_of(kafka, "r18") for _ in range(2)]
    careless, careful = (Seen(kafka, topic) for topic in topics)
    for seen, topic in zip((careless, careful), topics, strict=True):
        seen.producer("p0", acks="all").stored(topic, 3)

    kafka.pause(1)
    # What answers its waiting fetch of metadata is news of this topic, not of the election. It is
    # asked of a broker that runs: Kafka may tell a client to ask the one that is paused.
    news = {
        "name": fresh("news"),
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": 0, "broker_ids": [2, 3]}],
        "configs": (),
    }
    (made,) = ask(kafka.plan.address(kafka.node(2)), CREATE_TOPICS, 7, topics=[news]).topics
    assert error_of(made) is Error.NONE
    for topic in topics:
        led_by(kafka, topic, 2, 3)
    careless.producer("p2", acks="all").stored(topics[0], 3)
    for other in (2, 3, controller):
        kafka.pause(other)
    kafka.resume(1)

    isolated = kafka.plan.address(kafka.node(1))
    one = careless.producer("p1", acks="1", bootstrap_servers=isolated)
    every = careful.producer("p1", acks="all", bootstrap_servers=isolated)
    (waiting,) = every.send(topics[1])
    alone = one.stored(topics[0], 2)
    assert [one.offsets[value] for value in alone] == [3, 4]  # where others stand by now
    assert every.untold == {waiting}

    for other in (controller, 2, 3):
        kafka.resume(other)
    for topic in topics:
        in_sync(kafka, topic, 1, 2, 3)
    every.told()
    assert waiting in every.offsets
    return {"acks=1": careless.history(), "acks=all": careful.history()}


@claim(
    "R1",
    provoked="one request finds too few in sync; while the refusal is on its way back (a proxy "
    "delays it) a second one is sent, which finds enough; the first is sent again",
    shows={"without idempotence": (Kind.REORDERED,), "with idempotence": NOTHING},
)
def test_a_retry_reorders_without_idempotence_when_more_than_one_request_is_under_way(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    topics = [topic_of(kafka, "r1", min_insync_replicas="3") for _ in range(2)]
    loose, strict = (Seen(kafka, topic) for topic in topics)
    with Proxy(kafka.bootstrap_servers) as proxy:
        at = proxy.bootstrap_servers
        plain = loose.producer(acks="all", bootstrap_servers=at)
        idempotent = strict.producer(acks="all", bootstrap_servers=at, enable_idempotence=True)
        both = list(zip((plain, idempotent), topics, strict=True))
        for producer, topic in both:
            producer.stored(topic)
        kafka.pause(3)
        for topic in topics:
            in_sync(kafka, topic, 1, 2)

        proxy.delay(2000)
        answered = proxy.counters.answers["produce"]
        for producer, topic in both:
            producer.send(topic)
        proxy.wait_until(lambda counters: counters.answers["produce"] == answered + 2)
        proxy.delay(60_000)  # both are refused, and hear of it once the delay is over
        for seen, topic in zip((loose, strict), topics, strict=True):
            configure(kafka, topic, min_insync_replicas="2")
            seen.producer("p2", acks="all").stored(topic)
        for producer, _ in both:
            assert len(producer.untold) == 1
            assert not producer.errors
        asked = proxy.counters.requests["produce"]
        for producer, topic in both:
            producer.send(topic)
        proxy.wait_until(lambda counters: counters.requests["produce"] == asked + 2)
        proxy.mend()
        for producer, _ in both:
            producer.told()
            assert not producer.errors
        return {
            "without idempotence": loose.history(),
            "with idempotence": strict.history(),
        }


@claim(
    "R1",
    provoked="the leader is killed while a producer has requests under way",
    shows={"with idempotence": NOTHING},
)
def test_order_is_kept_across_a_failover(kafka: PlannedCluster) -> Mapping[str, History]:
    topic = topic_of(kafka, "r1-failover", replicas=[3, 1, 2])
    seen = Seen(kafka, topic)
    producer = seen.producer(acks="all", enable_idempotence=True)
    producer.stored(topic, 5)
    producer.send(topic, 20)
    kafka.kill(3)
    producer.send(topic, 20)
    led_by(kafka, topic, 1, 2)
    producer.told()
    assert not producer.errors
    assert len(seen.read("c1", topic)) == 45
    return {"with idempotence": seen.history()}
