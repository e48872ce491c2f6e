"""Brokers die, are stopped for a while, or come back: a transaction is whole or is not."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from raw_requests import RawProducer
from transactional_clients import COMMITTED, TIMEOUT_S, UNCOMMITTED, Clients, send

from lossless.core.messages import Error
from lossless.engines.local.cluster import LocalCluster
from lossless.engines.waiting import wait_until

VALUES = [str(number) for number in range(9)]


def meanwhile(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


def retried(end: Callable[[float], None]) -> None:
    """As the client's documentation has it: what can be tried again is."""
    while True:
        try:
            end(TIMEOUT_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


def controller_first(cluster: LocalCluster) -> list[int]:
    """All brokers; the first one is the active controller too."""
    active = cluster.controller()
    return sorted((node.id for node in cluster.plan.brokers), key=lambda broker: broker != active)


def name_coordinated_by(clients: Clients, broker: int, what: str) -> str:
    clients.producer("anybody")  # so that there are coordinators
    names = (f"{what}-{number}" for number in range(1000))
    return next(name for name in names if clients.coordinator_of(name) == broker)


@pytest.mark.parametrize("committed", [True, False])
def test_the_coordinators_death_while_it_ends_a_transaction_leaves_it_whole(
    cluster: LocalCluster, clients: Clients, committed: bool
) -> None:
    topic = clients.topic()
    name = f"dies-{committed}"
    producer = clients.producer(name)
    producer.begin_transaction()
    send(producer, topic, VALUES)
    coordinator = clients.coordinator_of(name)
    killing = meanwhile(lambda: cluster.kill(coordinator))
    retried(producer.commit_transaction if committed else producer.abort_transaction)
    killing.join()
    assert clients.becomes_stable(topic)
    assert clients.values(topic, COMMITTED) == (VALUES if committed else [])
    assert clients.values(topic, UNCOMMITTED) == VALUES
    assert clients.coordinator_of(name) != coordinator
    producer.begin_transaction()
    send(producer, topic, ["next"] * 3)
    retried(producer.commit_transaction)
    assert clients.becomes_stable(topic)
    assert clients.values(topic, COMMITTED)[-3:] == ["next"] * 3


def test_what_was_decided_before_the_coordinators_death_is_done_after_it(
    cluster: LocalCluster, clients: Clients
) -> None:
    """A partition whose only replica is down gets no marker, so the coordinator dies in between."""
    down, coordinator = (node.id for node in cluster.plan.brokers[:2])
    single, replicated = clients.topic(assignment=[[down]]), clients.topic(1)
    name = name_coordinated_by(clients, coordinator, "decided")
    producer = clients.producer(name)
    producer.begin_transaction()
    send(producer, single, VALUES, partitions=1)
    send(producer, replicated, VALUES, partitions=1)
    cluster.kill(down)
    assert wait_until(lambda: cluster.leader_of(single, 0) == -1, timeout_s=TIMEOUT_S)
    retried(producer.commit_transaction)
    assert clients.becomes_stable(replicated, [0])
    cluster.kill(coordinator)
    cluster.restart(down)
    assert clients.becomes_stable(single, [0])
    assert clients.coordinator_of(name) != coordinator
    assert clients.values(single, COMMITTED, [0]) == VALUES
    assert clients.values(replicated, COMMITTED, [0]) == VALUES


@pytest.mark.parametrize("committed", [True, False])
def test_a_leaders_death_within_a_transaction_leaves_it_whole(
    cluster: LocalCluster, clients: Clients, committed: bool
) -> None:
    topic = clients.topic()
    producer = clients.producer(f"leader-dies-{committed}")
    producer.begin_transaction()
    send(producer, topic, VALUES)
    leader = cluster.leader_of(topic, 0)
    killing = meanwhile(lambda: cluster.kill(leader))
    retried(producer.commit_transaction if committed else producer.abort_transaction)
    killing.join()
    assert clients.becomes_stable(topic)
    assert wait_until(lambda: cluster.leader_of(topic, 0) != leader, timeout_s=TIMEOUT_S)
    assert clients.values(topic, COMMITTED) == (VALUES if committed else [])


def test_a_transaction_goes_on_after_the_death_of_a_leader_that_has_part_of_it(
    cluster: LocalCluster, clients: Clients
) -> None:
    topic = clients.topic()
    producer = clients.producer("goes-on")
    producer.begin_transaction()
    send(producer, topic, VALUES)
    cluster.kill(cluster.leader_of(topic, 1))
    send(producer, topic, VALUES)
    retried(producer.commit_transaction)
    assert clients.becomes_stable(topic)
    assert clients.values(topic, COMMITTED) == sorted(VALUES * 2)


def test_a_leader_that_is_frozen_does_not_keep_a_transaction_from_ending(
    cluster: LocalCluster, clients: Clients
) -> None:
    """It keeps its connections and answers nothing; its partitions move to others."""
    coordinator, other, frozen = controller_first(cluster)
    topic = clients.topic(assignment=[[frozen, other, coordinator]] * 3)
    producer = clients.producer(name_coordinated_by(clients, coordinator, "frozen"))
    producer.begin_transaction()
    send(producer, topic, VALUES)
    cluster.pause(frozen)
    retried(producer.commit_transaction)
    assert clients.becomes_stable(topic)
    assert clients.values(topic, COMMITTED) == VALUES


def test_a_coordinator_that_is_frozen_does_not_keep_a_leader_waiting(
    cluster: LocalCluster, clients: Clients
) -> None:
    leader, frozen = controller_first(cluster)[:2]
    topic = clients.topic(assignment=[[leader]])
    name = name_coordinated_by(clients, frozen, "waits")
    producer = RawProducer(cluster, name, frozen)
    producer.init()
    cluster.pause(frozen)
    produced = lambda: producer.produce(topic, 0, version=12) is Error.NONE  # noqa: E731
    assert wait_until(produced, timeout_s=TIMEOUT_S)
    producer.broker = clients.coordinator_of(name)
    assert producer.broker != frozen
    assert producer.end(committed=True, version=5) is Error.NONE
    assert clients.becomes_stable(topic, [0])
    assert clients.values(topic, COMMITTED, [0]) == ["raw"]


def test_a_timeout_is_not_forgotten_when_the_coordinator_dies(
    cluster: LocalCluster, clients: Clients
) -> None:
    topic = clients.topic()
    producer = clients.producer("forgotten", transaction_timeout_ms=3000)
    producer.begin_transaction()
    send(producer, topic, VALUES)
    cluster.kill(clients.coordinator_of("forgotten"))
    assert clients.becomes_stable(topic)
    assert clients.values(topic, COMMITTED) == []
    assert clients.values(topic, UNCOMMITTED) == VALUES


def test_offsets_in_a_transaction_survive_the_death_of_the_groups_coordinator(
    cluster: LocalCluster, clients: Clients
) -> None:
    source, target = clients.topic(1), clients.topic()
    group = f"survives-{source}"
    producer = clients.producer("offsets-survive")
    nobody = clients.nobody_of(group)
    producer.begin_transaction()
    send(producer, target, VALUES)
    position = TopicPartition(source, 0, 5)
    producer.send_offsets_to_transaction([position], nobody, TIMEOUT_S)
    cluster.kill(clients.group_coordinator_of(group))
    retried(producer.commit_transaction)
    assert clients.becomes_stable(target)
    assert wait_until(lambda: clients.group_offset(group, source, 0) == 5, timeout_s=TIMEOUT_S)


def test_every_transaction_is_whole_when_brokers_die_one_after_the_other(
    cluster: LocalCluster, clients: Clients
) -> None:
    topic = clients.topic()
    name = "chaos"
    producer = clients.producer(name)
    outcomes: dict[str, str] = {}  # of each transaction
    stop = threading.Event()

    def work() -> None:
        nonlocal producer
        number = 0
        while not stop.is_set():
            number += 1
            value = f"{number:06}"
            outcomes[value] = "unknown"
            try:
                outcomes[value] = _transaction(producer, topic, value, committed=number % 5 != 0)
            except KafkaException:
                producer = clients.producer(name)

    working = meanwhile(work)
    try:
        for which in (name, "leader", name):
            before = len(outcomes)
            victim = clients.coordinator_of(name) if which == name else cluster.leader_of(topic, 0)
            cluster.kill(victim)
            assert wait_until(lambda: len(outcomes) > before + 3, timeout_s=TIMEOUT_S)  # noqa: B023
            cluster.restart(victim)
            assert wait_until(cluster.in_sync, timeout_s=TIMEOUT_S)
    finally:
        stop.set()
        working.join()
    assert clients.becomes_stable(topic)
    found = clients.values(topic, COMMITTED)
    times = {value: found.count(value) for value in outcomes}
    assert set(found) <= set(outcomes)
    torn = {value: count for value, count in times.items() if count not in (0, 3)}
    assert torn == {}
    by_outcome = {
        outcome: {times[value] for value in outcomes if outcomes[value] == outcome}
        for outcome in ("committed", "aborted")
    }
    assert by_outcome == {"committed": {3}, "aborted": {0}}


def _transaction(producer: Producer, topic: str, value: str, *, committed: bool) -> str:
    producer.begin_transaction()
    for partition in range(3):
        producer.produce(topic, value.encode(), partition=partition)
    producer.flush(TIMEOUT_S)
    if committed:
        try:
            retried(producer.commit_transaction)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
        else:
            return "committed"
    retried(producer.abort_transaction)
    return "aborted"
