"""What transactions of a producer and a consumer promise from topic to topic (C13, P5)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from claims.observing import fresh, reachable, topic_of
from client.claims.client_claim import NOTHING, Fault, client_claim
from client.claims.client_clusters import until
from client.claims.client_journal import Reading
from client.claims.client_process import is_fatal
from client.claims.client_seen import JOINING, SENDING, STAYING, Seen
from lossless.client.consuming.consumer import Consumer
from lossless.client.errors import ClientError
from lossless.client.producing.producer import Producer
from lossless.engines.local.planned import PlannedCluster
from lossless.verifier.history import History
from topics import read_all

COUNT = 20
HELD = 5
KIP_848 = {"group.protocol": "consumer", "fetch.wait.max.ms": 100}
TRANSACTIONS = "__transaction_state"


def copies(kafka: PlannedCluster, topic: str, copied: str) -> list[tuple[str, int, int, str]]:
    """The output as read_committed readers see it, each record at the offset it came from."""
    values = [(each.value() or b"").decode() for each in read_all(reachable(kafka), copied)]
    return [(topic, 0, int(value), value) for value in values]


class Copier:
    """The member that takes over, in this process."""

    def __init__(
        self, seen: Seen, name: str, group: str, to: str, *, transactional_id: str
    ) -> None:
        servers = reachable(seen.kafka)
        seen.joins(name, group)
        self.reading = Reading(seen, name, group, topics=seen.topics, in_order=False)
        settings = {"bootstrap.servers": servers, **SENDING, "transactional.id": transactional_id}
        self.producer = Producer(settings, audit=False)
        self._to = to
        self._group = group
        self._servers = servers
        self.copied: list[str] = []
        self.failure: BaseException | None = None

    def copy_all(self, topic: str, settings: Mapping[str, Any], count: int) -> None:
        consumer = Consumer(
            topic, {"bootstrap.servers": self._servers, **settings}, group=self._group
        )
        with consumer, self.producer:
            for message in consumer:
                self.reading.read(message)
                value = (message.value() or b"").decode()
                try:
                    with self.producer.transaction(consumer) as transaction:
                        transaction.send(self._to, value)
                except ClientError as error:
                    if is_fatal(error):
                        raise
                    self.failure = error
                    continue
                self.copied.append(value)
                if value == str(count - 1):
                    return


@client_claim(
    "C13",
    fault=Fault.STOPPED,
    provoked="a process that copies each record in a transaction with its offset is stopped inside "
    "the transaction; another member gets the partition and copies the rest, with a "
    "transactional.id of its own or with the same one; then the process resumes and commits",
    shows={
        "classic groups": NOTHING,
        "group.protocol=consumer": NOTHING,
        "the same transactional.id": NOTHING,
    },
)
def test_a_zombie_that_wakes_inside_a_transaction_commits_nothing(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    return {
        "classic groups": _copied_beside_a_zombie(kafka, tmp_path, JOINING, "own"),
        "group.protocol=consumer": _copied_beside_a_zombie(kafka, tmp_path, KIP_848, "own"),
        "the same transactional.id": _copied_beside_a_zombie(kafka, tmp_path, JOINING, "same"),
    }


def _copied_beside_a_zombie(
    kafka: PlannedCluster, folder: Path, settings: Mapping[str, Any], ids: str
) -> History:
    topic, group = topic_of(kafka, "zombie"), fresh("zombie")
    copied = topic_of(kafka, "zombie-copied")
    seen = Seen(kafka, folder, topic)
    with seen.producer() as sending:
        sending.send_numbers(topic, range(COUNT))
    zombie_id = fresh("zombie")
    with seen.remote(
        "zombie",
        group,
        settings=settings,
        role="copier",
        to=copied,
        sending={"bootstrap.servers": reachable(kafka), **SENDING},
        transactional_id=zombie_id,
        hold_in=str(HELD),
    ) as zombie:
        zombie.wait_to_say("holding", str(HELD))
        zombie.pause()
        heir_id = zombie_id if ids == "same" else fresh("heir")
        heir = Copier(seen, "heir", group, copied, transactional_id=heir_id)
        heir.copy_all(topic, settings, COUNT)
        assert heir.copied == [str(number) for number in range(HELD, COUNT)]
        zombie.resume()
        zombie.go_on()
        zombie.wait_for(lambda: bool(zombie.heard("aborted")), "aborted")
        # Until the poll thread has learnt that the partition is gone, the record may come again.
        assert {value for value, _error in zombie.heard("aborted")} == {str(HELD)}
        zombie.end()
    assert seen.committed(group) == [COUNT]
    return seen.history({group: copies(kafka, topic, copied)})


@client_claim(
    "P5",
    fault=Fault.LEADER_KILL,
    provoked="records are copied in transactions with their offsets; the coordinator of the "
    "transactions is paused while one of them commits, then killed, and another one is elected",
    shows={"copies": NOTHING},
)
def test_a_transaction_whose_coordinator_dies_during_the_commit_is_stored_once(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    topic, group = topic_of(kafka, "coordinator"), fresh("coordinator")
    copied = topic_of(kafka, "coordinator-copied")
    seen = Seen(kafka, tmp_path, topic)
    with seen.producer() as sending:
        sending.send_numbers(topic, range(COUNT))
    copier = Copier(seen, "copier", group, copied, transactional_id=fresh("copier"))
    settings = {"bootstrap.servers": reachable(kafka), **STAYING}
    with Consumer(topic, settings, group=group) as consumer, copier.producer as producer:
        for message in consumer:
            copier.reading.read(message)
            value = (message.value() or b"").decode()
            killing: threading.Thread | None = None
            with producer.transaction(consumer) as transaction:
                transaction.send(copied, value).result(30)
                if value == str(HELD):
                    killing = _pause_and_kill(kafka)
            if killing is not None:
                killing.join()
            if value == str(COUNT - 1):
                break
    assert seen.committed(group) == [COUNT]
    return {"copies": seen.history({group: copies(kafka, topic, copied)})}


def _pause_and_kill(kafka: PlannedCluster) -> threading.Thread:
    """The coordinator is paused when this returns, and killed after its session."""
    coordinator = kafka.leader_of(TRANSACTIONS, 0)
    kafka.pause(coordinator)

    def kill() -> None:
        until(
            lambda: kafka.leader_of(TRANSACTIONS, 0) not in (coordinator, -1),
            "another coordinator",
        )
        kafka.kill(coordinator)

    killing = threading.Thread(target=kill)
    killing.start()
    return killing
