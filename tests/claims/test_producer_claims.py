"""What producers can rely on (P1, P4, P5)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from claim import ENGINES, NOTHING, claim
from confluent_kafka import KafkaError, KafkaException, Producer
from observing import QUICK, Seen, led_by, reachable, topic_of, until, watermarks

from lossless.engines.local.planned import PlannedCluster
from lossless.proxy import Proxy
from lossless.verifier.anomaly import Kind
from lossless.verifier.history import History


@claim(
    "P1",
    provoked="the leader is paused, records are sent, it is killed, and another is elected",
    shows={"acks=0": (Kind.LOST,), "acks=all": NOTHING},
)
def test_with_acks_0_an_election_loses_what_the_producer_believes_to_be_stored(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    topics = [topic_of(kafka, "p1", replicas=[2, 3, 1]) for _ in range(2)]
    careless, careful = (Seen(kafka, topic) for topic in topics)
    none, every = careless.producer(acks="0"), careful.producer(acks="all")
    none.stored(topics[0], 3)
    every.stored(topics[1], 3)
    kafka.pause(2)
    lost = none.stored(topics[0], 3)
    waiting = every.send(topics[1], 3)
    assert every.untold == set(waiting)
    kafka.kill(2)
    for topic in topics:
        led_by(kafka, topic, 1, 3)
    every.told()
    assert not none.errors
    assert not every.errors
    assert not set(lost) & set(careless.read("c1", topics[0]))
    return {"acks=0": careless.history(), "acks=all": careful.history()}


@claim(
    "P1",
    provoked="a record larger than message.max.bytes; more records than fit into memory",
    shows={"acks=0": NOTHING},
)
def test_with_acks_0_errors_before_the_send_still_surface(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    topic = topic_of(kafka, "p1-local")
    small = Producer(
        {
            "bootstrap.servers": "127.0.0.1:1",  # nobody: nothing leaves its memory
            **QUICK,
            "acks": "0",
            "message.max.bytes": 1000,
            "queue.buffering.max.messages": 1,
        }
    )
    with pytest.raises(KafkaException) as raised:
        small.produce(topic, b"x" * 2000)
    assert raised.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    small.produce(topic, b"fits")
    with pytest.raises(BufferError):
        small.produce(topic, b"one too many")
    small.purge()
    seen = Seen(kafka, topic)
    seen.producer(acks="0").stored(topic)
    until(lambda: watermarks(reachable(kafka), topic) == (0, 1), "committed")
    return {"acks=0": seen.history()}


@claim(
    "P4",
    provoked="a proxy loses the acknowledgement, and the connection with it",
    shows={"without idempotence": (Kind.DUPLICATE,), "with idempotence": NOTHING},
    often=ENGINES,
)
def test_a_lost_acknowledgement_makes_the_retry_a_duplicate(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    topics = [topic_of(kafka, "p4") for _ in range(2)]
    loose, strict = (Seen(kafka, topic) for topic in topics)
    with Proxy(kafka.bootstrap_servers) as proxy:
        at = proxy.bootstrap_servers
        plain = loose.producer(acks="all", bootstrap_servers=at, client_id="plain")
        idempotent = strict.producer(
            acks="all", bootstrap_servers=at, client_id="idempotent", enable_idempotence=True
        )
        for name, producer, topic in (
            ("plain", plain, topics[0]),
            ("idempotent", idempotent, topics[1]),
        ):
            producer.stored(topic, 2)
            proxy.drop_after("produce", client_id=name)
            producer.stored(topic, 2)
        assert proxy.counters.dropped == {"produce": 2}
        return {
            "without idempotence": loose.history(),
            "with idempotence": strict.history(),
        }


@claim(
    "P5",
    "P4",
    provoked="a proxy loses the answers of the leader, which has stored what was sent; it is "
    "paused, sent what needs no answer, and killed; another is elected",
    shows={
        "at most once: acks=0": (Kind.LOST,),
        "at least once: acks=all, retries": (Kind.DUPLICATE,),
        "exactly once: and idempotence": NOTHING,
    },
)
def test_delivery_is_at_most_once_at_least_once_or_exactly_once_by_settings(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    topics = [topic_of(kafka, "p5", replicas=[1, 2, 3]) for _ in range(3)]
    most, least, exactly = (Seen(kafka, topic) for topic in topics)
    with Proxy(kafka.bootstrap_servers) as proxy:
        at = proxy.bootstrap_servers
        senders = [
            most.producer(acks="0"),
            least.producer(acks="all", bootstrap_servers=at),
            exactly.producer(acks="all", bootstrap_servers=at, enable_idempotence=True),
        ]
        for sender, topic in zip(senders, topics, strict=True):
            sender.stored(topic, 2)
        proxy.half_open("answers", broker=1)
        for sender, topic in zip(senders[1:], topics[1:], strict=True):
            sender.send(topic)
        proxy.wait_until(lambda counters: counters.swallowed_answers.get("produce", 0) >= 2)
        assert all(len(sender.untold) == 1 for sender in senders[1:])
        kafka.pause(1)
        senders[0].stored(topics[0])
        kafka.kill(1)
        for topic in topics:
            led_by(kafka, topic, 2, 3)
        proxy.mend()
        for sender in senders:
            sender.told()
            assert not sender.errors
        return {
            "at most once: acks=0": most.history(),
            "at least once: acks=all, retries": least.history(),
            "exactly once: and idempotence": exactly.history(),
        }
