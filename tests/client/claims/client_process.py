"""A client in a process of its own, which can be stopped and killed, doing what it was told.

Run as a script it gets one JSON object: a `role`, and what the role needs. Everything that happens
is in its journal. A handler that is to hold says so there, and waits for a line on stdin. SIGTERM
ends it in order.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

TESTS = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(TESTS))

from client.claims.client_journal import (  # noqa: E402
    Journal,
    Reading,
    events_of,
    now_ms,
    said_in,
)
from lossless.engines.waiting import wait_until  # noqa: E402
from lossless.verifier.history import (  # noqa: E402
    Acknowledged,
    Event,
    Failed,
    Processed,
    Sent,
)

WAIT_S_MAX = 60.0


class ClientProcess:
    def __init__(self, what: dict[str, Any], folder: Path, name: str) -> None:
        self.name = name
        self.journal = folder / f"{name}-{os.urandom(4).hex()}.journal"
        self._errors = self.journal.with_suffix(".stderr")
        what = {"name": name, **what, "journal": str(self.journal)}
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", __file__, json.dumps(what)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def events(self) -> tuple[Event, ...]:
        return events_of(self.journal)

    @property
    def processed(self) -> list[str]:
        return [event.value for event in self.events if isinstance(event, Processed)]

    def said(self, *words: Any) -> bool:
        return any(line[: len(words)] == list(words) for line in said_in(self.journal))

    def heard(self, word: str) -> list[list[Any]]:
        return [line[1:] for line in said_in(self.journal) if line[0] == word]

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """While it lives: what it says before it dies is in the message."""
        wait_until(lambda: condition() or not self.is_alive, timeout_s=WAIT_S_MAX)
        assert condition(), f"{self.name}: not {what}\n{self.errors}"

    def wait_to_say(self, *words: Any) -> None:
        self.wait_for(lambda: self.said(*words), f"said {words}: {said_in(self.journal)}")

    @property
    def errors(self) -> str:
        return self._errors.read_text(errors="replace")[-4000:]

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        process = psutil.Process(self._process.pid)
        assert wait_until(lambda: process.status() == psutil.STATUS_STOPPED, timeout_s=10)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self, timeout_s: float = WAIT_S_MAX) -> None:
        """In order, and therefore not before it knows what a signal means."""
        self.wait_to_say("ready")
        if self.is_alive:
            self._process.terminate()
        code = self._process.wait(timeout_s)
        assert code == 0, f"{self.name} ended with {code}:\n{self.errors}"

    def stacks(self) -> str:
        """Where each of its threads is, after all that it has said."""
        before = self._errors.stat().st_size
        self._process.send_signal(signal.SIGUSR1)
        wait_until(lambda: self._errors.stat().st_size > before, timeout_s=5)
        return f"{self.name}: {said_in(self.journal)[-5:]}\n{self.errors}"

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def client_process(what: dict[str, Any], folder: Path, name: str) -> Iterator[ClientProcess]:
    process = ClientProcess(what, folder, name)
    try:
        yield process
    finally:
        process.close()


# In the process


def main(what: dict[str, Any]) -> None:
    from client.soak.soak_roles import ROLES

    faulthandler.register(signal.SIGUSR1)
    roles: dict[str, Callable[[dict[str, Any], Journal], None]] = {
        "consumer": consume,
        "copier": copy,
        "producer": fill_spool,
        "sender": send_for_ever,
        **ROLES,
    }
    roles[what["role"]](what, Journal(Path(what["journal"])))


def open_store(kind: str, target: str) -> Any:
    from lossless.client.stores import FileSink, PostgresStore, SqliteStore

    return {"sqlite": SqliteStore, "postgres": PostgresStore, "files": FileSink}[kind](target)


class Handling:
    """One record after the other: held, failed, stored, as the task says."""

    def __init__(
        self, what: dict[str, Any], journal: Journal, reading: Reading, store: Any
    ) -> None:
        self._what = what
        self._journal = journal
        self._reading = reading
        self._store = store
        self._sink = what.get("sink")
        self._upserts: Any = None
        self._deduplicator: Any = None
        if what.get("deduplicate"):
            from lossless.client.stores import Deduplicator

            self._deduplicator = Deduplicator(store)

    def __call__(self, message: Any, unit: Any = None) -> None:
        what, journal = self._what, self._journal
        value = message.value().decode()
        self._reading.read(message)
        if value == what.get("hold_before"):
            self._hold(value)
        if value in what.get("fail_on", ()):
            journal.say("failed", value)
            raise RuntimeError(f"{value} cannot be processed")
        if what.get("work_s"):
            time.sleep(what["work_s"])
        if self._deduplicator is not None and self._is_repeated(message, unit):
            return
        if self._sink is not None:
            self._store_row(message, unit, value)
        self._reading.processed(message)
        if value == what.get("hold_after"):
            self._hold(value)

    def _hold(self, value: str) -> None:
        self._journal.say("holding", value)
        sys.stdin.readline()
        self._journal.say("going on", value)

    def _is_repeated(self, message: Any, unit: Any) -> bool:
        from lossless.client.headers import OPERATION_ID
        from lossless.client.record import header

        operation = header(message.headers(), OPERATION_ID)
        return not self._deduplicator.first_time(operation, unit)

    def _store_row(self, message: Any, unit: Any, value: str) -> None:
        row = (message.topic(), message.partition(), message.offset(), value)
        if self._sink == "rows":
            mark = self._store.dialect.sql("?, ?, ?, ?")
            unit.execute(f"INSERT INTO stored VALUES ({mark})", row)
        elif self._sink == "averages":
            state = unit.state(message)
            window = [*state.get("window", []), int(value)][-3:]
            state["window"] = window
            unit.execute(
                "INSERT INTO stored VALUES (?, ?, ?, ?)", (*row[:3], sum(window) / len(window))
            )
        elif self._sink == "file":
            unit.write(message)
        else:
            import sqlite3

            if self._upserts is None:
                self._upserts = sqlite3.connect(self._sink, isolation_level=None)
            self._upserts.execute("INSERT OR REPLACE INTO stored VALUES (?, ?, ?, ?)", row)


def consume(what: dict[str, Any], journal: Journal) -> None:
    from lossless.client.consuming.consumer import Consumer
    from lossless.client.retrying import Backoff, InPlace

    store = open_store(*what["store"]) if "store" in what else None
    options = dict(what.get("options", {}))
    if what.get("retry_in_place_s"):
        backoff = Backoff(first_s=what["retry_in_place_s"], factor=1, jitter=0)
        options["retry"] = InPlace(backoff=backoff)

    reading = Reading(
        None if what.get("quiet") else journal,
        what["name"],
        what["group"],
        topics=[what["topic"]],
        in_order=what.get("in_order", True),
    )

    def told(word: str) -> Callable[[Any], None]:
        return lambda partitions: journal.say(word, [each.partition for each in partitions])

    def on_assigned(partitions: Any) -> None:
        reading.on_assigned(partitions)
        journal.say("assigned", [each.partition for each in partitions])

    consumer = Consumer(
        what["topic"],
        what["settings"],
        group=what["group"],
        store=store,
        on_assigned=on_assigned,
        on_revoked=told("revoked"),
        on_lost=told("lost"),
        **options,
    )
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    journal.say("ready")
    try:
        with consumer:
            consumer.run(Handling(what, journal, reading, store))
    finally:
        if store is not None:
            store.close()
    journal.say("ended")


def copy(what: dict[str, Any], journal: Journal) -> None:
    """Copies each record to another topic in a transaction with its offset; may hold inside one."""
    from lossless.client.consuming.consumer import Consumer
    from lossless.client.errors import ClientError
    from lossless.client.producing.producer import Producer

    producer = Producer(
        {**what["sending"], "transactional.id": what["transactional_id"]}, audit=False
    )
    consumer = Consumer(
        what["topic"],
        what["settings"],
        group=what["group"],
        on_lost=lambda partitions: journal.say("lost", [each.partition for each in partitions]),
    )
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    journal.say("ready")
    reading = Reading(journal, what["name"], what["group"], topics=[what["topic"]], in_order=False)
    held = False
    with consumer:
        for message in consumer:
            reading.read(message)
            value = message.value().decode()
            try:
                with producer.transaction(consumer) as transaction:
                    transaction.send(what["to"], value).result(WAIT_S_MAX)
                    if value == what["hold_in"] and not held:
                        held = True
                        journal.say("holding", value)
                        sys.stdin.readline()
            except ClientError as error:
                journal.say("aborted", value, type(error).__name__)
                if is_fatal(error):
                    break
            else:
                journal.say("copied", value)
    try:
        producer.close()
    except ClientError as error:
        journal.say("closed", type(error).__name__)
    journal.say("ended")


def is_fatal(error: Exception) -> bool:
    """Whether the producer of a transaction cannot begin another one."""
    from lossless.client.errors import ClientFailed, PartitionLost

    return isinstance(error, ClientFailed) and not isinstance(error, PartitionLost)


def fill_spool(what: dict[str, Any], journal: Journal) -> None:
    """Sends until nothing more can be parked; says what is, and waits to be killed."""
    from lossless.client.errors import SpoolFull
    from lossless.client.producing.giving_up import Park
    from lossless.client.producing.producer import Producer

    producer = Producer(
        what["settings"],
        giving_up=Park(what["folder"], bytes_max=what["bytes_max"]),
        application=what["name"],
        audit=False,
    )
    name, topic = what["name"], what["topic"]
    deliveries = {}
    for number in range(what["count_max"]):
        value = f"{name}-{number}"
        journal.note(Sent(now_ms(), name, f"{topic}-0", value))
        try:
            deliveries[value] = producer.send(
                topic, value, key="account", partition=0, operation_id=value
            )
        except SpoolFull as full:
            journal.note(Failed(now_ms(), name, f"{topic}-0", value, full.what, certain=True))
            journal.say("full", number)
            break
        if number == what["hold_until_parked"]:
            first = deliveries[f"{name}-0"]
            assert wait_until(lambda: first.parked, timeout_s=WAIT_S_MAX)  # noqa: B023

    def decided() -> bool:
        return all(delivery.parked or delivery.done for delivery in deliveries.values())

    assert wait_until(decided, timeout_s=WAIT_S_MAX)
    for value, delivery in deliveries.items():
        reason = "parked" if delivery.parked else str(delivery.error)
        journal.note(Failed(now_ms(), name, f"{topic}-0", value, reason, certain=False))
    journal.say("parked", [value for value, delivery in deliveries.items() if delivery.parked])
    sys.stdin.readline()


def send_for_ever(what: dict[str, Any], journal: Journal) -> None:
    """Numbered records to all partitions in turn, from `first` on; what is not acknowledged in time
    is parked. After every `fork_every` records, if that is given, a forked child sends one as well.
    SIGTERM: no more are sent, what is parked is delivered, then it ends."""
    from client.claims.client_children import Children
    from lossless.client.producing.giving_up import Park
    from lossless.client.producing.producer import Producer

    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    journal.say("ready")
    name, topic, partitions = what["name"], what["topic"], what["partitions"]

    def on_delivery(value: str, at: str) -> Callable[[Any], None]:
        def note(delivery: Any) -> None:
            if delivery.error is None:
                acknowledged = delivery.result()
                journal.note(Acknowledged(now_ms(), name, at, value, acknowledged.offset))
            else:
                journal.note(Failed(now_ms(), name, at, value, delivery.error.what, certain=False))

        return note

    with Producer(what["settings"], giving_up=Park(what["folder"]), application=name) as producer:
        journal.say("started", producer.metrics.parked)
        number = what["first"]
        children = Children(producer, journal, what)
        while not over.wait(what["pause_s"]):
            if what.get("fork_every") and number % what["fork_every"] == 0:
                children.fork(number)
            partition = number % partitions
            value, at = f"{name}-{number}", f"{topic}-{partition}"
            journal.note(Sent(now_ms(), name, at, value))
            producer.send(
                topic,
                value,
                # As many keys as partitions: what a producer sends to one of them stays in order.
                key=f"{name}-{partition}",
                partition=partition,
                operation_id=value,
                on_delivery=on_delivery(value, at),
            )
            number += 1
        producer.flush(WAIT_S_MAX)
        assert wait_until(lambda: not producer.metrics.parked, timeout_s=WAIT_S_MAX)
        children.wait(WAIT_S_MAX)
    journal.say("ended")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
