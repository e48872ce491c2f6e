"""Faults at random, by seed: acknowledged ⊆ stored ⊆ attempted, each once.

Two producers park what is not acknowledged in time, and fork children that send as well. All other
processes read what they send:

    three consumers   rows and offsets in one PostgreSQL transaction, repeated operations dropped:
                      each record once
    two copiers       records and offsets in one Kafka transaction: each record once
    two retriers      groups that share retry topics, where a fifth of the records fails: none lost
    one worker        handlers in processes: none lost

A process that is killed is started again. LOSSLESS_CLIENT_SOAK_S says for how long,
LOSSLESS_CLIENT_SOAK_SEED repeats the plan of faults of a run that has printed it.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from claims.observing import final_log
from client.claims.client_clusters import (
    CONTROLLER,
    reachable,
    until,
    whole_again,
    with_brokers,
    without_brokers,
)
from client.claims.client_journal import events_of, lines_of, now_ms
from client.claims.client_process import ClientProcess
from client.claims.client_seen import JOINING, SENDING
from client.soak.soak_plan import Planned, SoakFault, plan_of
from lossless.engines.local.planned import PlannedCluster
from lossless.engines.waiting import wait_until
from lossless.errors import Unavailable
from lossless.verifier.anomaly import Kind
from lossless.verifier.history import Acknowledged, Failed, History, Processed, Sent
from lossless.verifier.sets import Sets
from lossless.verifier.verdict import judge
from postgres_server import PostgresServer
from topics import create_new, read_all

DURATION_S = float(os.environ.get("LOSSLESS_CLIENT_SOAK_S", "180"))
TOPIC = "soaked"
GROUP = "soaking"
COPYING = f"{GROUP}-copies"
PARTITIONS = 4
PRODUCERS = ("p1", "p2")
CONSUMERS = ("c1", "c2", "c3")
COPIERS = ("t1", "t2")
RETRIERS = ("r1", "r2")
WORKERS = ("w1",)
READERS = (*CONSUMERS, *COPIERS, *RETRIERS, *WORKERS)
COPIED = f"{TOPIC}-copied"
RETRIED = (f"{TOPIC}-retry-0", f"{TOPIC}-retry-1")
DEAD = f"{TOPIC}-dlt"
FORK_EVERY = 250  # records
SETTLED_S_MAX = 180.0


class Soak:
    """The processes, and what may happen to them."""

    def __init__(self, kafka: PlannedCluster, server: PostgresServer, folder: Path) -> None:
        self._kafka = kafka
        self._server = server
        self._folder = folder
        self.dsn = server.dsn(server.create_database())
        self.running: dict[str, ClientProcess] = {}
        self.ended: list[ClientProcess] = []
        self.happened: Counter[SoakFault] = Counter()
        self.deaths: list[str] = []

    # Processes

    def start(self, name: str) -> None:
        what = self._producer(name) if name in PRODUCERS else self._reader(name)
        if name in self.running:
            self.ended.append(self.running[name])
        self.running[name] = ClientProcess(what, self._folder, name)

    def start_all(self) -> None:
        for name in (*PRODUCERS, *READERS):
            self.start(name)

    def revive(self, *names: str) -> None:
        """Those that were killed by us are started by us: others must not have died."""
        for name in names or (*PRODUCERS, *READERS):
            process = self.running[name]
            if not process.is_alive:
                self.deaths.append(f"{name} died by itself:\n{process.errors}")
                self.start(name)

    def journals(self, *names: str) -> list[Path]:
        every = [*self.ended, *self.running.values()]
        return [process.journal for process in every if process.name in names]

    def close(self) -> None:
        for process in [*self.ended, *self.running.values()]:
            process.close()

    def _producer(self, name: str) -> dict[str, Any]:
        sent = sum(
            1 for path in self.journals(name) for _, kind, *_ in lines_of(path) if kind == "Sent"
        )
        return {
            "role": "sender",
            "topic": TOPIC,
            "partitions": PARTITIONS,
            "first": sent,
            "pause_s": 0.02,
            "fork_every": FORK_EVERY,
            "folder": str(self._folder / f"spool-{name}"),
            "settings": {
                "bootstrap.servers": self._kafka.bootstrap_servers,
                **SENDING,
                "delivery.timeout.ms": 3_000,
                "request.timeout.ms": 2_000,
                "socket.timeout.ms": 3_000,
            },
        }

    def _reader(self, name: str) -> dict[str, Any]:
        common = {
            "topic": TOPIC,
            "settings": {
                "bootstrap.servers": self._kafka.bootstrap_servers,
                **JOINING,
                "session.timeout.ms": 3_000,
                "heartbeat.interval.ms": 500,
            },
        }
        if name in COPIERS:
            sending = {
                "bootstrap.servers": self._kafka.bootstrap_servers,
                **SENDING,
                "transaction.timeout.ms": 10_000,
            }
            return {
                **common,
                "role": "batch copier",
                "group": COPYING,
                "to": COPIED,
                "sending": sending,
            }
        if name in RETRIERS:
            return {**common, "role": "retrier", "group": group_of(name)}
        if name in WORKERS:
            return {**common, "role": "worker", "group": group_of(name)}
        return {
            **common,
            "role": "consumer",
            "group": GROUP,
            "store": ["postgres", self.dsn],
            "sink": "rows",
            "deduplicate": True,
            "quiet": True,
            "options": {"commit_every_s": 0.5},
        }

    # Faults

    def suffer(self, planned: Planned) -> None:
        faults: dict[SoakFault, Callable[[Planned], None]] = {
            SoakFault.LEADER_KILL: self._kill_leader,
            SoakFault.BROKER_PAUSE: self._pause_broker,
            SoakFault.CONTROLLER_KILL: self._kill_controller,
            SoakFault.ALL_BROKERS_KILL: self._kill_brokers,
            SoakFault.CONSUMER_KILL: self._kill_consumer,
            SoakFault.CONSUMER_STOP: self._stop_consumer,
            SoakFault.PRODUCER_KILL: self._kill_producer,
            SoakFault.DATABASE_RESTART: self._restart_database,
        }
        faults[planned.fault](planned)
        self.happened[planned.fault] += 1

    def _kill_leader(self, planned: Planned) -> None:
        partition = planned.target % PARTITIONS
        leaders: list[int] = []

        def known() -> bool:
            with suppress(Unavailable):
                leaders[:] = [self._kafka.leader_of(TOPIC, partition)]
            return bool(leaders) and leaders[0] > 0

        assert wait_until(known, timeout_s=60)
        self._kafka.kill(leaders[0])
        self._lasts(planned)
        self._kafka.restart(leaders[0])

    def _pause_broker(self, planned: Planned) -> None:
        broker = 1 + planned.target % 3
        self._kafka.pause(broker)
        self._lasts(planned)
        self._kafka.resume(broker)

    def _kill_controller(self, planned: Planned) -> None:
        self._kafka.kill(CONTROLLER)
        self._lasts(planned)
        self._kafka.restart(CONTROLLER)

    def _kill_brokers(self, planned: Planned) -> None:
        without_brokers(self._kafka)
        self._lasts(planned)
        with_brokers(self._kafka)

    def _kill_consumer(self, planned: Planned) -> None:
        name = READERS[planned.target % len(READERS)]
        self.running[name].kill()
        self._lasts(planned)
        self.start(name)

    def _stop_consumer(self, planned: Planned) -> None:
        process = self.running[READERS[planned.target % len(READERS)]]
        process.pause()
        self._lasts(planned)
        process.resume()

    def _kill_producer(self, planned: Planned) -> None:
        name = PRODUCERS[planned.target % len(PRODUCERS)]
        self.running[name].kill()
        self._lasts(planned)
        self.start(name)

    def _restart_database(self, planned: Planned) -> None:
        self._server.kill()
        self._lasts(planned)
        self._server.start()

    def _lasts(self, planned: Planned) -> None:
        time.sleep(planned.lasts_s)  # the plan's own time: nothing is waited for

    # The end

    def settle(self) -> None:
        """No faults any more: everything parked is sent, everything sent is stored."""
        whole_again(self._kafka)
        self.revive()
        for name in PRODUCERS:
            self.running[name].end(SETTLED_S_MAX)
        ends = {log.partition: log.end_offset for log in self.final()}

        def all_stored() -> bool:
            return {f"{TOPIC}-{n}": at for n, at in self.positions()} == ends

        def all_done() -> bool:
            return all_stored() and not self.unfinished()

        if not wait_until(all_done, timeout_s=SETTLED_S_MAX, poll_s=0.5):
            said = [process.stacks() for process in self.running.values() if process.is_alive]
            pytest.fail(
                f"ends {ends}, stored {self.positions()}, not committed {self.unfinished()}\n"
                + "\n".join(said)
            )
        self.revive(*READERS)
        for name in READERS:
            self.running[name].end(SETTLED_S_MAX)

    def unfinished(self) -> list[str]:
        """Partitions whose end a group that commits to Kafka has not reached."""
        groups = {COPYING: (TOPIC,), **{group_of(name): (TOPIC,) for name in WORKERS}}
        groups |= {group_of(name): (TOPIC, *RETRIED) for name in RETRIERS}
        found = []
        for group, topics in groups.items():
            settings = {"bootstrap.servers": reachable(self._kafka), "group.id": group}
            asking = Consumer(settings)
            try:
                asked = [TopicPartition(each, n) for each in topics for n in range(PARTITIONS)]
                for at in asking.committed(asked, timeout=30):
                    place = f"{group}: {at.topic}-{at.partition}"
                    try:
                        _, end = asking.get_watermark_offsets(at, timeout=30)
                    except KafkaException as error:  # in the middle of an election
                        found.append(f"{place} {error}")
                        continue
                    if max(at.offset, 0) < end:
                        found.append(f"{place} {at.offset} of {end}")
            finally:
                asking.close()
        return found

    def copies(self) -> Counter[str]:
        """The output of the copiers as read_committed readers see it: partition-offset."""
        read = read_all(reachable(self._kafka), COPIED)
        return Counter((message.value() or b"").decode() for message in read)

    def letters(self) -> int:
        return len(read_all(reachable(self._kafka), DEAD))

    def processed_by(self, name: str) -> set[tuple[str, str]]:
        events = events_of(*self.journals(name))
        return {(each.partition, each.value) for each in events if isinstance(each, Processed)}

    def heard(self, word: str) -> list[list[Any]]:
        every = [*self.ended, *self.running.values()]
        return [[process.name, *words] for process in every for words in process.heard(word)]

    def positions(self) -> list[tuple[int, int]]:
        return self.ask("SELECT partition, next_offset FROM lossless_offsets")

    def ask(self, statement: str) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def final(self) -> tuple[Any, ...]:
        return tuple(final_log(reachable(self._kafka), TOPIC, n) for n in range(PARTITIONS))

    def history(self) -> History:
        """What producers were told, what is in the logs, and what is in the database."""
        sent = events_of(*self.journals(*PRODUCERS))
        told = {e.value for e in sent if isinstance(e, Acknowledged | Failed)}
        events: list[Any] = [
            *sent,
            # A producer that dies is told nothing more.
            *(
                Failed(now_ms(), e.producer, e.partition, e.value, "nobody knows", certain=False)
                for e in sent
                if isinstance(e, Sent) and e.value not in told
            ),
            *(
                Processed(now_ms(), "the database", GROUP, f"{topic}-{partition}", offset, value)
                for topic, partition, offset, value in self.ask("SELECT * FROM stored")
            ),
        ]
        return History(tuple(events), self.final(), settled=True)


def group_of(name: str) -> str:
    """Retriers and workers have groups of their own."""
    return f"{GROUP}-{name}"


@contextmanager
def soaking(kafka: PlannedCluster, server: PostgresServer, folder: Path) -> Iterator[Soak]:
    soak = Soak(kafka, server, folder)
    soak.ask("CREATE TABLE stored (topic text, part int, off bigint, value text)")
    admin = AdminClient({"bootstrap.servers": reachable(kafka)})
    config = {"min.insync.replicas": "2"}
    for topic in (TOPIC, COPIED, *RETRIED, DEAD):
        create_new(admin, NewTopic(topic, PARTITIONS, replication_factor=3, config=config))
    with ExitStack() as stack:
        stack.callback(soak.close)  # whatever happens
        yield soak


@pytest.mark.timeout(DURATION_S + 600)
def test_random_faults_lose_nothing_and_store_each_record_once(
    soaked_kafka: PlannedCluster,
    soaked_database: PostgresServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed = int(os.environ.get("LOSSLESS_CLIENT_SOAK_SEED") or random.SystemRandom().getrandbits(32))
    plan = plan_of(seed, DURATION_S)
    again = f"LOSSLESS_CLIENT_SOAK_SEED={seed} LOSSLESS_CLIENT_SOAK_S={DURATION_S:g}"
    with capsys.disabled():
        # Not to stdout, which is nobody's when tests run in several processes.
        print(f"\nclient soak: {again}, {len(plan)} faults", file=sys.stderr, flush=True)
    try:
        with soaking(soaked_kafka, soaked_database, tmp_path) as soak:
            _suffer_all(soak, plan)
            soak.settle()
            history = soak.history()
            _check_others(soak, history)
        with capsys.disabled():
            faults = ", ".join(f"{count} {fault}" for fault, count in soak.happened.items())
            print(f"client soak: {faults}; {_told(history)}", file=sys.stderr, flush=True)
        assert not soak.deaths, soak.deaths
        _check(history)
    except BaseException as error:
        error.add_note(f"the same plan again: {again}")
        raise


def _suffer_all(soak: Soak, plan: list[Planned]) -> None:
    soak.start_all()
    until(lambda: len(soak.ask("SELECT 1 FROM stored LIMIT 10")) == 10, "records stored")
    began = time.monotonic()
    for planned in plan:
        time.sleep(max(0.0, began + planned.at_s - time.monotonic()))
        soak.suffer(planned)
        soak.revive()


def _told(history: History) -> str:
    acknowledged, in_log, attempted = (
        sum(map(len, values.values())) for values in Sets.of(history)
    )
    copies = sum(1 for anomaly in judge(history) if anomaly.kind is Kind.DUPLICATE)
    return (
        f"{acknowledged} acknowledged, {in_log} in the log ({copies} of them twice), "
        f"{len(history.of(Processed))} stored, {attempted} attempted"
    )


def _check(history: History) -> None:
    # Of what was parked nobody knew whether it was written: a copy in the log may be the price. It
    # has the same operation id, and is stored once.
    wrong = [anomaly for anomaly in judge(history) if anomaly.kind is not Kind.DUPLICATE]
    assert not wrong, [anomaly.what for anomaly in wrong[:20]]
    sets = Sets.of(history)
    assert sets.hold, "acknowledged ⊆ in the log ⊆ attempted"
    times = Counter((event.partition, event.value) for event in history.of(Processed))
    assert max(times.values()) == 1, "each is stored once"
    in_log = {(at, value) for at, values in sets.stored.items() for value in values}
    assert set(times) == in_log, "what is in the log is stored, and nothing else"
    acknowledged, _, attempted = (sum(map(len, values.values())) for values in sets)
    assert acknowledged > attempted / 2, "most of it was acknowledged"


def _check_others(soak: Soak, history: History) -> None:
    in_log = {(at, value) for at, values in Sets.of(history).stored.items() for value in values}
    for name in (*RETRIERS, *WORKERS):
        missing = in_log - soak.processed_by(name)
        assert not missing, f"{name} lost {sorted(missing)[:20]}"
    assert soak.heard("child failed") == []
    assert soak.heard("of another group") == []
    assert soak.letters() == 0, "every record succeeds on the second retry topic at the latest"
    copies = soak.copies()
    wanted = {
        f"{log.partition.rpartition('-')[2]}-{offset}"
        for log in history.final
        for offset, _ in log.records
    }
    assert set(copies) == wanted, "what is in the log is copied, and nothing else"
    assert max(copies.values()) == 1, "each is copied once"


def test_a_seed_gives_the_same_plan_again() -> None:
    assert plan_of(7, 600) == plan_of(7, 600)
    assert plan_of(7, 600) != plan_of(8, 600)
    assert {planned.fault for planned in plan_of(7, 120)} == set(SoakFault)
