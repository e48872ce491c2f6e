"""Work side by side: order, back-pressure, long records, and what is kept over a restart."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Message, Producer
from consumed import PATIENCE_S, Kafka, Seen, eventually, number, running
from consumer_handlers import Dying, DyingOnce, Noting, RaisingWhatIsNotPickled

from lossless.client.errors import HandlerFailed
from lossless.client.retrying import Backoff, DeadLetters, InPlace, read_letter
from lossless.errors import BadInput
from topics import read_all


class Ordered:
    """Notes the order within each lane, and whether two of one lane ever ran together."""

    def __init__(self, lane: Any) -> None:
        self.lane = lane
        self.seen: dict[object, list[int]] = defaultdict(list)
        self.running: set[object] = set()
        self.together_max = 0
        self.lock = threading.Lock()
        self.random = random.Random(1)

    def __call__(self, message: Message) -> None:
        lane = self.lane(message)
        with self.lock:
            assert lane not in self.running
            self.running.add(lane)
            self.together_max = max(self.together_max, len(self.running))
            pause_s = self.random.random() / 500
        threading.Event().wait(pause_s)
        with self.lock:
            self.running.discard(lane)
            self.seen[lane].append(number(message))

    def count(self) -> int:
        with self.lock:
            return sum(map(len, self.seen.values()))


@pytest.mark.parametrize("order", ["key", "partition"])
def test_order_is_kept_within_lanes_and_lanes_run_beside_each_other(
    kafka: Kafka, order: str
) -> None:
    kafka.make_topic(partitions=4)
    kafka.fill(2000, partitions=4, keys=40)
    handler = Ordered(Message.key if order == "key" else Message.partition)
    with running(kafka.consumer(workers=16, order=order), handler):
        eventually(lambda: handler.count() == 2000)
    assert len(handler.seen) == (40 if order == "key" else 4)
    for numbers in handler.seen.values():
        assert numbers == sorted(numbers)
    assert handler.together_max > (4 if order == "key" else 1)
    assert kafka.committed(4) == [500] * 4


def test_without_order_a_slow_record_holds_up_no_other(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(50, keys=1)
    go_on = threading.Event()
    seen = Seen()

    def handler(message: Message) -> None:
        if number(message) == 5:
            assert go_on.wait(PATIENCE_S)
        seen(message)

    with running(kafka.consumer(workers=4, order="none", commit_every_s=0.05), handler):
        seen.wait_for(set(range(50)) - {5})
        eventually(lambda: kafka.committed() == [5])  # contiguous, and not further (claim C9)
        go_on.set()
        seen.wait_for(range(50))
    assert kafka.committed() == [50]


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.full), 2])
def test_an_hour_with_one_record_causes_no_rebalance(kafka: Kafka, workers: int) -> None:
    """Claim C9, with an hour of some seconds: longer than the session and the poll interval."""
    kafka.make_topic()
    kafka.fill(3)
    go_on = threading.Event()
    seen = Seen()

    def handler(message: Message) -> None:
        if number(message) == 1:
            assert go_on.wait(PATIENCE_S)
        seen(message)

    patience = {"max.poll.interval.ms": 2500, "session.timeout.ms": 2500}
    consumer = kafka.consumer(
        workers=workers, settings={**patience, "heartbeat.interval.ms": 100}, commit_every_s=0.05
    )
    with running(consumer, handler):
        eventually(lambda: kafka.committed() == [1])
        assert not go_on.wait(4)
        assert consumer.metrics.rebalances == 1
        go_on.set()
        seen.wait_for(range(3))
    assert seen.numbers == [0, 1, 2]


@pytest.mark.parametrize("workers", [1, 4])
def test_reading_pauses_when_enough_waits_and_goes_on_later(kafka: Kafka, workers: int) -> None:
    kafka.make_topic(partitions=2)
    kafka.fill(5000, partitions=2, keys=100)
    go_on = threading.Event()
    seen = Seen()

    def handler(message: Message) -> None:
        assert go_on.wait(PATIENCE_S)
        seen(message)

    consumer = kafka.consumer(
        workers=workers, order="key", buffered_max=500, commit_every_records=100
    )
    with running(consumer, handler):
        eventually(lambda: consumer.metrics.paused == 2)
        assert consumer.metrics.buffered < 800
        assert consumer.metrics.received < 800
        go_on.set()
        seen.wait_for(range(5000))
        eventually(lambda: consumer.metrics.paused == 0)
    assert sorted(seen.numbers) == list(range(5000))


def test_what_was_finished_out_of_order_is_not_repeated_after_a_restart(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(300, keys=10)
    seen, again = Seen(), Seen()
    go_on = threading.Event()

    def handler(message: Message) -> None:
        if message.key() == b"3":
            assert go_on.wait(PATIENCE_S)
            raise ValueError("not yet")
        seen(message)

    options: dict[str, Any] = {"workers": 4, "order": "key", "remember_finished": True}
    done = {n for n in range(300) if n % 10 != 3}
    policy = InPlace(backoff=Backoff(first_s=3600, max_s=3600))
    with running(kafka.consumer(**options, retry=policy, commit_every_s=0.1), handler):
        go_on.set()
        seen.wait_for(done)
    assert kafka.committed() == [3]
    assert len(kafka.positions()[0].metadata or "") < 200
    with running(kafka.consumer(**options), again):
        again.wait_for(set(range(300)) - done)
    assert sorted(again.numbers) == sorted(set(range(300)) - done)
    assert kafka.committed() == [300]


def produce_with_headers(kafka: Kafka, count: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.servers})
    for n in range(count):
        producer.produce(
            kafka.topic, key=b"%d" % (n % 5), value=b"%d" % n, headers=[("n", b"%d" % n)]
        )
    producer.flush()


def test_processes_handle_records_as_they_are(kafka: Kafka, tmp_path: Path) -> None:
    kafka.make_topic()
    produce_with_headers(kafka, 20)
    consumer = kafka.consumer(workers=2, worker_kind="process", order="none")
    with running(consumer, Noting(str(tmp_path))):
        eventually(lambda: len(list(tmp_path.iterdir())) == 20)
    assert kafka.committed() == [20]
    assert (tmp_path / "7").read_text().split()[1:] == [kafka.topic, "0", "2"]


def test_a_process_that_is_killed_has_failed_and_the_record_is_tried_again(
    kafka: Kafka, tmp_path: Path
) -> None:
    kafka.make_topic()
    produce_with_headers(kafka, 10)
    consumer = kafka.consumer(
        workers=1,
        worker_kind="process",
        retry=InPlace(backoff=Backoff(first_s=0.01)),
    )
    with running(consumer, DyingOnce(str(tmp_path))):
        eventually(lambda: len(list(tmp_path.iterdir())) == 11)
    assert kafka.committed() == [10]
    assert consumer.metrics.failed >= 1


def test_a_record_that_kills_its_process_fails_no_other_record(
    kafka: Kafka, tmp_path: Path
) -> None:
    kafka.make_topic()
    kafka.make_topic(topic=f"{kafka.topic}-dlt")
    produce_with_headers(kafka, 10)
    consumer = kafka.consumer(workers=3, worker_kind="process", order="none", retry=DeadLetters())
    with running(consumer, Dying(str(tmp_path))):
        eventually(lambda: consumer.metrics.finished == 10)
    assert consumer.metrics.dead_lettered == 1
    assert {each.name for each in tmp_path.iterdir()} == {str(n) for n in range(10)} - {"7"}


def test_an_exception_that_cannot_be_pickled_fails_its_own_record_once(
    kafka: Kafka, tmp_path: Path
) -> None:
    kafka.make_topic()
    kafka.make_topic(topic=f"{kafka.topic}-dlt")
    produce_with_headers(kafka, 10)
    consumer = kafka.consumer(workers=3, worker_kind="process", order="none", retry=DeadLetters())
    with running(consumer, RaisingWhatIsNotPickled(str(tmp_path))):
        eventually(lambda: consumer.metrics.finished == 10)
    assert [len((tmp_path / str(n)).read_text().splitlines()) for n in range(10)] == [1] * 10
    letters = [read_letter(message) for message in read_all(kafka.servers, f"{kafka.topic}-dlt")]
    assert sorted((letter.exception, letter.message) for letter in letters) == [
        ("RuntimeError", "consumer_handlers.HasTwoArguments: 3 and 4 differ"),
        ("RuntimeError", "consumer_handlers.HoldsALock: it is held"),
    ]


def test_a_handler_that_cannot_be_pickled_is_refused(kafka: Kafka) -> None:
    with (
        kafka.consumer(worker_kind="process", retry=DeadLetters()) as consumer,
        pytest.raises(BadInput, match="cannot be pickled"),
    ):
        consumer.run(lambda _: None)


def test_a_coroutine_that_raises_cancelled_error_has_failed(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(10)
    attempts: list[int] = []

    async def handler(message: Message) -> None:
        attempts.append(number(message))
        if number(message) == 4 and attempts.count(4) < 3:
            raise asyncio.CancelledError

    retry = InPlace(backoff=Backoff(first_s=0.01))
    with running(kafka.consumer(retry=retry), handler):
        eventually(lambda: 9 in attempts)
    assert attempts == [0, 1, 2, 3, 4, 4, *range(4, 10)]
    assert kafka.committed() == [10]


def test_coroutines_run_beside_each_other_on_one_loop(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(100, keys=20)
    seen: dict[bytes | str | None, list[int]] = defaultdict(list)
    together: set[int] = set()
    threads: set[int] = set()
    at_once = 0

    async def handler(message: Message) -> None:
        nonlocal at_once
        together.add(number(message))
        threads.add(threading.get_ident())
        at_once = max(at_once, len(together))
        await asyncio.sleep(0.001)
        together.discard(number(message))
        seen[message.key()].append(number(message))

    with running(kafka.consumer(workers=8, order="key"), handler):
        eventually(lambda: sum(map(len, seen.values())) == 100)
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert 1 < at_once <= 8
    assert len(threads) == 1
    assert kafka.committed() == [100]


def test_a_handler_must_fit_its_workers(kafka: Kafka) -> None:
    with (
        kafka.consumer(worker_kind="asyncio") as consumer,
        pytest.raises(BadInput, match="async def"),
    ):
        consumer.run(print)


def test_lag_is_what_is_not_committed(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(10)
    consumer = kafka.consumer(commit_every_records=1)
    place = f"{kafka.topic}-0"
    with consumer:
        for message in consumer:
            if number(message) == 4:
                eventually(lambda: 0 < consumer.metrics.lag.get(place, 0) <= 7)
                break
    found = {each.name: each.value for each in consumer.metrics.snapshot()}
    assert found["lossless_consumer_finished"] == 4
    assert found["lossless_consumer_processing_seconds"] >= 0


def test_processes_of_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "parent.py"
    program.write_text(
        "import operator, time\n"
        "from lossless.client.consuming.workers import Processes\n"
        "if __name__ == '__main__':\n"
        "    print(Processes(2).call(operator.neg, 3), flush=True)\n"
        "    time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"-3\n"
        children = psutil.Process(parent.pid).children(recursive=True)
        assert children
    finally:
        parent.kill()
        parent.communicate(timeout=PATIENCE_S)  # children have none of its pipes
    try:
        eventually(lambda: not any(map(psutil.Process.is_running, children)))
    finally:
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()


async def never_awaited(message: Message) -> None:
    raise AssertionError(f"{message} was processed")


def forgotten(message: Message) -> Any:
    return never_awaited(message)


def generating(message: Message) -> Any:
    yield message


@pytest.mark.parametrize("handler", [forgotten, generating])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"workers": 2},
        {"worker_kind": "process"},
        {"retry": DeadLetters()},
        {"deserialize_value": lambda data, _: data},
    ],
)
def test_a_handler_that_returns_its_work_undone_stops_the_consumer_and_commits_nothing(
    kafka: Kafka, handler: Any, options: dict[str, Any]
) -> None:
    kafka.make_topic()
    kafka.make_topic(topic=f"{kafka.topic}-dlt")
    kafka.fill(3)
    with (
        kafka.consumer(**options) as consumer,
        pytest.raises(HandlerFailed, match=r"returned a (coroutine|generator), which nothing runs"),
    ):
        consumer.run(handler)
    assert kafka.committed()[0] <= 0
    assert consumer.metrics.dead_lettered == 0


def test_what_is_not_a_function_is_refused_as_a_handler(kafka: Kafka) -> None:
    with kafka.consumer() as consumer, pytest.raises(BadInput, match="a handler is a function"):
        consumer.run(None)  # type: ignore[arg-type]
