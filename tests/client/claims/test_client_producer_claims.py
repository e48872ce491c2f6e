"""What lossless.Producer promises (P1 to P7)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from claims.observing import Seen as Careless
from claims.observing import led_by, messages_of, topic_of
from client.claims.client_claim import NOTHING, Fault, client_claim
from client.claims.client_clusters import (
    CONTROLLER,
    reachable,
    restart_in_turn,
    until,
    with_brokers,
    without_brokers,
)
from client.claims.client_journal import now_ms
from client.claims.client_seen import Seen, make_table, rows_of
from lossless.client.errors import (
    BufferFull,
    ClientError,
    Fenced,
    NotDelivered,
    Refused,
    SerializationFailed,
    SpoolFull,
    TransactionAborted,
)
from lossless.client.headers import OPERATION_ID
from lossless.client.producing.giving_up import Callback, DeadLetter, Drop, Park
from lossless.client.record import Record, header
from lossless.client.stores import Deduplicator, SqliteStore
from lossless.engines.local.planned import PlannedCluster
from lossless.engines.waiting import wait_until
from lossless.errors import BadInput
from lossless.proxy import Proxy
from lossless.verifier.anomaly import Kind
from lossless.verifier.history import History, Sent, TransactionEnded

GIVEN_UP_MS = 3_000


@client_claim(
    "P1",
    fault=Fault.LEADER_KILL,
    provoked="the leader is paused, records are sent, it is killed, and another is elected; a "
    "value that cannot be serialised, and more records than memory holds",
    shows={"acks=0, confluent-kafka": (Kind.LOST,), "as it comes": NOTHING},
)
def test_acks_0_which_loses_silently_is_refused_and_errors_before_the_send_surface(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    topics = [topic_of(kafka, "p1", replicas=[2, 3, 1]) for _ in range(2)]
    careless, careful = Careless(kafka, topics[0]), Seen(kafka, tmp_path, topics[1])
    none = careless.producer(acks="0")
    with pytest.raises(BadInput, match="acks = 0"), careful.producer(acks=0):
        pass
    with careful.producer(queue_buffering_max_messages=20, options={"buffer_wait_s": 0.1}) as every:
        none.stored(topics[0], 3)
        every.stored(topics[1], 3)
        kafka.pause(2)
        lost = none.stored(topics[0], 3)
        waiting = every.send(topics[1], 3)
        with pytest.raises(SerializationFailed):
            every.producer.send(topics[1], object())
        with pytest.raises(BufferFull):  # noqa: PT012
            for _ in range(100):
                waiting += every.send(topics[1])
        assert every.untold == set(waiting)
        kafka.kill(2)
        for topic in topics:
            led_by(kafka, topic, 1, 3)
        every.told()
        assert not every.failed()
    found = {m.value() for m in messages_of(reachable(kafka), topics[0])}
    assert not {value.encode() for value in lost} & found
    return {"acks=0, confluent-kafka": careless.history(), "as it comes": careful.history()}


@client_claim(
    "P2",
    fault=Fault.CONTROLLER_KILL,
    provoked="the controller is killed, then the leader: nobody can elect another one until the "
    "controller is back; a topic that refuses large records; a second producer with the same "
    "transactional.id",
    shows={"retriable": NOTHING, "permanent": NOTHING, "abortable and fatal": NOTHING},
)
def test_retriable_errors_are_retried_and_permanent_abortable_and_fatal_ones_are_told_apart(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    leaderless = topic_of(kafka, "p2", replicas=[1, 2, 3])
    strict = topic_of(kafka, "p2-strict", replicas=[2, 3, 1], max_message_bytes="1000")
    retriable, permanent = Seen(kafka, tmp_path, leaderless), Seen(kafka, tmp_path, strict)
    with retriable.producer() as waiting, permanent.producer() as refused:
        waiting.stored(leaderless)
        refused.stored(strict)
        kafka.kill(CONTROLLER)
        kafka.kill(1)
        sent = waiting.send(leaderless, 5)
        with pytest.raises(Refused):  # it is not even sent
            refused.producer.send(strict, b"x" * 10_000_000)
        large = refused.send(strict, 1, headers={"large": b"x" * 2000})
        refused.told(*large)
        assert {type(error) for error in refused.failed(*large).values()} == {Refused}
        assert waiting.untold == set(sent)
        kafka.restart(CONTROLLER)
        led_by(kafka, leaderless, 2, 3)
        waiting.told()
        assert not waiting.failed()
    kafka.restart(1)
    return {
        "retriable": retriable.history(),
        "permanent": permanent.history(),
        "abortable and fatal": _aborted_and_fenced(kafka, tmp_path, strict),
    }


def _aborted_and_fenced(kafka: PlannedCluster, folder: Path, strict: str) -> History:
    topic = topic_of(kafka, "p2-transactions")
    seen = Seen(kafka, folder, topic)
    with ExitStack() as stack:
        first = stack.enter_context(seen.producer("first", transactional_id=topic))
        with first.producer.transaction() as transaction:
            first.send(topic, 2, via=(transaction, "t1"))
        seen.note(TransactionEnded(now_ms(), "first", "t1", True))
        with pytest.raises(TransactionAborted), first.producer.transaction() as transaction:
            transaction.send(strict, b"x" * 2000)
        second = stack.enter_context(seen.producer("second", transactional_id=topic))
        with second.producer.transaction() as transaction:
            second.send(topic, 2, via=(transaction, "t2"))
        seen.note(TransactionEnded(now_ms(), "second", "t2", True))
        with pytest.raises(Fenced), first.producer.transaction() as transaction:
            first.send(topic, 1, via=(transaction, "t3"))
        seen.note(TransactionEnded(now_ms(), "first", "t3", False))
        wait_until(lambda: not first.untold, timeout_s=10)
    return seen.history()


@client_claim(
    "P3",
    fault=Fault.NO_BROKERS,
    provoked="all brokers are killed, and started again after 60 s (5 s in `make test`); records "
    "are given up after 3 s, but for one producer that waits as long as it takes",
    shows={"patient": NOTHING, "park": NOTHING, "raise, callback, drop": NOTHING},
)
def test_giving_up_is_a_decision_and_whatever_is_decided_nothing_is_lost_silently(
    kafka: PlannedCluster, tmp_path: Path, pause_s: float
) -> Mapping[str, History]:
    topics = [topic_of(kafka, "p3") for _ in range(3)]
    patient, parking, giving_up = (Seen(kafka, tmp_path, topic) for topic in topics)
    told: list[tuple[Record, ClientError]] = []
    policies = {
        "raise": {},
        "callback": {"giving_up": Callback(lambda *given: told.append(given))},
        "drop": {"giving_up": Drop()},
    }
    soon = {"delivery_timeout_ms": GIVEN_UP_MS}
    with ExitStack() as stack:
        waits = stack.enter_context(patient.producer())
        parks = stack.enter_context(
            parking.producer(options={"giving_up": Park(tmp_path / "spool")}, **soon)
        )
        others = {
            name: stack.enter_context(giving_up.producer(name, options=policy, **soon))
            for name, policy in policies.items()
        }
        for sending, topic in zip((waits, parks), topics, strict=False):
            sending.stored(topic, 2)
        for sending in others.values():
            sending.stored(topics[2])
        without_brokers(kafka)
        since_ms = now_ms()
        waits.send(topics[0], 5)
        parked = parks.send(topics[1], 5, key="k")
        given_up = {name: sending.send(topics[2], 2) for name, sending in others.items()}
        for name, sending in others.items():
            sending.told(*given_up[name])
            assert {type(error) for error in sending.failed().values()} == {NotDelivered}
        until(lambda: all(parks.deliveries[value].parked for value in parked), "parked")
        parks.send(topics[1], 5, key="k")  # behind what is parked
        until(lambda: parks.producer.metrics.parked == 10, "all of them parked")
        assert {record.value for record, _ in told} == {
            value.encode() for value in given_up["callback"]
        }
        assert others["drop"].producer.metrics.dropped == 2
        unnoticed = others["raise"].producer.send(topics[2], b"raise-unnoticed", partition=0)
        giving_up.note(Sent(now_ms(), "raise", f"{topics[2]}-0", "raise-unnoticed"))
        with pytest.raises(NotDelivered):
            others["raise"].producer.flush(60)
        assert unnoticed.done
        until(lambda: now_ms() - since_ms >= pause_s * 1000, "long enough", timeout_s=120)
        with_brokers(kafka)
        waits.told()
        parks.told()
        assert not waits.failed()
        assert not parks.failed()
        until(lambda: parks.producer.metrics.parked == 0, "nothing parked any more")
    _note_failed(giving_up, "raise", f"{topics[2]}-0", "raise-unnoticed")
    return {
        "patient": patient.history(),
        "park": parking.history(),
        "raise, callback, drop": giving_up.history(),
    }


def _note_failed(seen: Seen, producer: str, at: str, value: str) -> None:
    from lossless.verifier.history import Failed

    seen.note(Failed(now_ms(), producer, at, value, "raised by flush", certain=False))


@client_claim(
    "P3",
    fault=Fault.LEADER_KILL,
    provoked="the only replica of a topic is killed; records are given up after 3 s",
    shows={"dead letter": NOTHING},
)
def test_what_its_topic_does_not_take_is_acknowledged_as_a_dead_letter(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    topic = topic_of(kafka, "p3-alone", replicas=[3])
    # Not on the broker that dies: a letter has as little time as the record had.
    letters = topic_of(kafka, "p3-letters", replicas=[1, 2])
    seen = Seen(kafka, tmp_path, topic)
    policy = {"giving_up": DeadLetter(letters)}
    with seen.producer(options=policy, delivery_timeout_ms=GIVEN_UP_MS) as sending:
        sending.stored(topic, 2)
        kafka.kill(3)
        deliveries = [sending.producer.send(topic, f"late-{n}", key="k") for n in range(3)]
        places = [delivery.result(60) for delivery in deliveries]
        assert {place.topic for place in places} == {letters}
        assert all(isinstance(delivery.error, NotDelivered) for delivery in deliveries)
    found = messages_of(reachable(kafka), letters)
    assert [message.value() for message in found] == [b"late-0", b"late-1", b"late-2"]
    kafka.restart(3)
    led_by(kafka, topic, 3)
    return {"dead letter": seen.history()}


@client_claim(
    "P3",
    fault=Fault.KILLED_WITH_SPOOL,
    provoked="the only replica is killed, a producer in a process of its own sends until its spool "
    "is full, and is killed; the replica returns, and another producer takes the spool over",
    shows={"the next start": NOTHING},
)
def test_what_a_killed_producer_had_parked_is_delivered_in_order_by_the_next_one(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    topic = topic_of(kafka, "p3-spool", replicas=[3])
    seen = Seen(kafka, tmp_path, topic)
    parked = _killed_with_a_full_spool(kafka, seen, tmp_path / "spool")
    kafka.restart(3)
    led_by(kafka, topic, 3)
    with seen.producer("p2", options={"giving_up": Park(tmp_path / "spool")}) as sending:
        sending.send(topic, 3, key="account")
        sending.told()
        until(lambda: sending.producer.metrics.parked == 0, "nothing parked any more")
    stored = [(m.value() or b"").decode() for m in messages_of(reachable(kafka), topic)]
    assert stored == [*parked, "p2-0", "p2-1", "p2-2"]
    return {"the next start": seen.history()}


def _killed_with_a_full_spool(kafka: PlannedCluster, seen: Seen, folder: Path) -> list[str]:
    """What it had parked when it was killed. The leader is down then."""
    kafka.kill(3)
    with seen.remote_producer(
        "p1",
        folder=str(folder),
        bytes_max=5_000,
        count_max=1_000,
        hold_until_parked=3,
        settings={"delivery.timeout.ms": 1_000, "bootstrap.servers": kafka.bootstrap_servers},
    ) as producer:
        producer.wait_to_say("parked")
        ((number,),) = producer.heard("full")
        ((parked,),) = producer.heard("parked")
        producer.kill()
    assert parked == [f"p1-{n}" for n in range(number)]
    return list(parked)


@client_claim(
    "P4",
    fault=Fault.LEADER_KILL,
    provoked="a proxy swallows the answers of the leader, which has stored what was sent; it is "
    "killed, and another is elected",
    shows={"enable.idempotence=false": (Kind.DUPLICATE,), "as it comes": NOTHING},
)
def test_a_lost_acknowledgement_makes_no_duplicate_across_a_failover_unless_told_otherwise(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    topics = [topic_of(kafka, "p4", replicas=[1, 2, 3]) for _ in range(2)]
    loose, strict = (Seen(kafka, tmp_path, topic) for topic in topics)
    with Proxy(kafka.bootstrap_servers) as proxy:
        at = proxy.bootstrap_servers
        with (
            loose.producer(bootstrap_servers=at, enable_idempotence=False) as plain,
            strict.producer(bootstrap_servers=at) as idempotent,
        ):
            senders = ((plain, topics[0]), (idempotent, topics[1]))
            for sender, topic in senders:
                sender.stored(topic, 2)
            proxy.half_open("answers", broker=1)
            for sender, topic in senders:
                sender.send(topic)
            proxy.wait_until(lambda counters: counters.swallowed_answers.get("produce", 0) >= 2)
            assert all(len(sender.untold) == 1 for sender, _ in senders)
            kafka.kill(1)
            for topic in topics:
                led_by(kafka, topic, 2, 3)
            proxy.mend()
            for sender, _ in senders:
                sender.told()
                assert not sender.failed()
    return {"enable.idempotence=false": loose.history(), "as it comes": strict.history()}


@client_claim(
    "P5",
    fault=Fault.ROLLING_RESTART,
    provoked="four producers send while one broker after the other is stopped and started",
    shows={
        "at most once: acks=1, retries=0": NOTHING,
        "at least once: enable.idempotence=false": NOTHING,
        "exactly once: as it comes": NOTHING,
        "exactly once across partitions: transactions": NOTHING,
    },
    may_show={
        "at most once: acks=1, retries=0": (
            Kind.LOST,
            Kind.INCONSISTENT_OFFSET,
            Kind.REORDERED,
        ),
        "at least once: enable.idempotence=false": (Kind.DUPLICATE, Kind.REORDERED),
    },
)
def test_delivery_is_at_most_once_at_least_once_or_exactly_once_as_settings_say(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    topics = [topic_of(kafka, "p5", partitions=2) for _ in range(4)]
    most, least, exactly, together = seen = [Seen(kafka, tmp_path, topic) for topic in topics]
    over = threading.Event()
    with ExitStack() as stack:
        senders = [
            stack.enter_context(most.producer(acks=1, retries=0, enable_idempotence=False)),
            stack.enter_context(least.producer(enable_idempotence=False)),
            stack.enter_context(exactly.producer()),
        ]
        transactional = stack.enter_context(together.producer(transactional_id=topics[3]))
        committed: list[str] = []

        def send() -> None:
            numbers = itertools.count()
            while not over.wait(0.02):
                for sender, topic in zip(senders, topics, strict=False):
                    sender.send(topic, 1, partition=next(numbers) % 2)

        def transact() -> None:
            for number in itertools.count():
                if over.is_set():
                    return
                name = f"t{number}"
                try:
                    with transactional.producer.transaction() as transaction:
                        for partition in (0, 1):
                            transactional.send(topics[3], 1, partition, via=(transaction, name))
                except TransactionAborted:
                    together.note(TransactionEnded(now_ms(), "p1", name, False))
                else:
                    together.note(TransactionEnded(now_ms(), "p1", name, True))
                    committed.append(name)

        threads = [threading.Thread(target=target, daemon=True) for target in (send, transact)]
        for thread in threads:
            thread.start()
        try:
            until(lambda: len(committed) > 3, "transactions committed")
            restart_in_turn(kafka)
            before = len(committed)
            until(lambda: len(committed) > before + 3, "transactions committed afterwards")
        finally:
            over.set()
            for thread in threads:
                thread.join(60)
        for sender in senders:
            sender.told()
        assert not senders[1].failed()
        assert not senders[2].failed()
    return {
        "at most once: acks=1, retries=0": most.history(),
        "at least once: enable.idempotence=false": least.history(),
        "exactly once: as it comes": exactly.history(),
        "exactly once across partitions: transactions": seen[3].history(),
    }


@client_claim(
    "P6",
    fault=Fault.KILLED_WITH_SPOOL,
    provoked="a producer is killed with a full spool; the next one delivers it, and its "
    "application, which cannot know that, sends every operation again with the same operation id",
    shows={"in the log": (Kind.DUPLICATE,), "deduplicated": (Kind.DUPLICATE,)},
)
def test_operation_ids_let_a_consumer_drop_what_was_sent_twice(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    topic = topic_of(kafka, "p6", replicas=[3])
    seen = Seen(kafka, tmp_path, topic)
    operations = _killed_with_a_full_spool(kafka, seen, tmp_path / "spool")
    kafka.restart(3)
    led_by(kafka, topic, 3)
    with seen.producer("p2", options={"giving_up": Park(tmp_path / "spool")}) as sending:
        for operation in operations:
            sending.producer.send(topic, operation, key="account", operation_id=operation)
        until(lambda: sending.producer.metrics.parked == 0, "nothing parked any more")
        sending.producer.flush(60)
    in_the_log = seen.history()
    assert len(in_the_log.final[0].records) == 2 * len(operations)
    balance, said, stored = 0, "", make_table(tmp_path / "p6.db")
    with SqliteStore(stored) as store:
        deduplicator = Deduplicator(store)
        naive = itertools.count(10, 10)

        def add_ten(message: Any, unit: Any) -> None:
            nonlocal balance, said
            next(naive)
            if not deduplicator.first_time(header(message.headers(), OPERATION_ID), unit):
                return
            balance += 10
            said = f"balance is {balance}"
            row = (topic, message.partition(), message.offset(), message.value().decode())
            unit.execute("INSERT INTO stored VALUES (?, ?, ?, ?)", row)

        with seen.member("c1", "p6-group-" + topic, add_ten, store=store, in_order=False) as member:
            wanted = 2 * len(operations)
            member.wait_for(lambda: len(member.values) == wanted, "all of it read")
    assert balance == 10 * len(operations) == (next(naive) - 10) // 2
    assert said == f"balance is {balance}"
    rows = rows_of(stored)
    assert [value for *_, value in rows] == operations
    return {"in the log": in_the_log, "deduplicated": seen.history({"p6-group-" + topic: rows})}


@client_claim(
    "P7",
    fault=Fault.LEADER_KILL,
    provoked="the only replica is killed: what is sent is retried, memory and spool run full, and "
    "time runs out",
    shows={"distinct errors": NOTHING, "spool": NOTHING},
)
def test_memory_full_serialisation_failed_and_retries_exhausted_are_distinct_errors(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    topic = topic_of(kafka, "p7", replicas=[3])
    seen, spooling = Seen(kafka, tmp_path, topic), Seen(kafka, tmp_path, topic)
    spooled = topic_of(kafka, "p7-spool", replicas=[3])
    spooling.topics = (spooled,)
    small = {"queue_buffering_max_messages": 5, "delivery_timeout_ms": GIVEN_UP_MS}
    with ExitStack() as stack:
        sending = stack.enter_context(seen.producer(options={"buffer_wait_s": 0.1}, **small))
        park = {"giving_up": Park(tmp_path / "spool", bytes_max=2_000)}
        parking = stack.enter_context(
            spooling.producer(options=park, delivery_timeout_ms=GIVEN_UP_MS)
        )
        sending.stored(topic, 2)
        parking.stored(spooled, 2)
        kafka.kill(3)
        with pytest.raises(SerializationFailed) as never:
            sending.producer.send(topic, object())
        with pytest.raises(BufferFull) as no_room:  # noqa: PT012
            for _ in range(1_000):
                sending.send(topic)
        sending.told()
        exhausted = sending.failed()
        assert {type(error) for error in exhausted.values()} == {NotDelivered}
        assert all(error.record is not None for error in exhausted.values())
        parked = parking.send(spooled, 2, key="k")
        until(lambda: all(parking.deliveries[value].parked for value in parked), "parked")
        with pytest.raises(SpoolFull) as no_disk:  # noqa: PT012
            for _ in range(1_000):
                parking.send(spooled, key="k")
        kinds = {type(each.value) for each in (never, no_room, no_disk)}
        assert len(kinds) == 3
        kafka.restart(3)
        led_by(kafka, topic, 3)
        parking.told()
        assert not parking.failed()
    return {"distinct errors": seen.history(), "spool": spooling.history()}
