"""Loops and workers against a poll thread that revokes, loses and winds back at random, by seed.

No Kafka: records are numbers. What is checked after every step is what the whole consumer rests on:
what may be committed is processed, what is revoked is not handed out, and order is kept.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from random import Random

import pytest
from confluent_kafka import Message, TopicPartition

from lossless.client.consuming.chunks import Chunks
from lossless.client.consuming.interfaces import Place, Work, offset_of, place_of
from lossless.client.consuming.lanes import Lanes
from lossless.client.metrics import ConsumerMetrics
from lossless.engines.waiting import wait_until

PLACES: list[Place] = [("orders", partition) for partition in range(4)]
STEPS = 1500
PATIENCE_S = 20.0


@pytest.fixture(autouse=True)
def _often() -> Iterator[None]:
    """Threads change places a hundred times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(before / 100)
    yield
    sys.setswitchinterval(before)


class Processed:
    def __init__(self) -> None:
        self.offsets: dict[Place, list[int]] = defaultdict(list)  # in the order of handing out
        self.finished: dict[Place, set[int]] = defaultdict(set)

    def __call__(self, message: Message) -> None:
        self.offsets[place_of(message)].append(offset_of(message))
        self.finished[place_of(message)].add(offset_of(message))


class Polling:
    """What the poll thread does to a work, with chance in the place of Kafka."""

    def __init__(self, work: Work, processed: Processed, seed: int, *, losses: bool = True) -> None:
        self.work = work
        self.losses = losses
        self.processed = processed
        self.random = Random(seed)
        self.position = dict.fromkeys(PLACES, 0)
        self.committed = dict.fromkeys(PLACES, 0)
        for place in PLACES:
            work.begin(place, 0, ())

    def run(self) -> None:
        for _ in range(STEPS):
            self._step()
        # Everything that was read comes to its end.
        assert wait_until(self.is_done, timeout_s=PATIENCE_S, poll_s=0.001)

    def is_done(self) -> bool:
        self.collect()
        return self.committed == self.position

    def _step(self) -> None:
        steps: list[Callable[[], object]] = [self.read, self.collect, self.revoke, self.lose]
        self.random.choices(steps, [12, 3, 2, int(self.losses)])[0]()

    def read(self) -> None:
        records = []
        for place in self.random.sample(PLACES, self.random.randint(1, 3)):
            for _ in range(self.random.randint(1, 20)):
                records.append(record(place, self.position[place], self.random.randint(0, 5)))
                self.position[place] += 1
        ends = {place: TopicPartition(*place, self.position[place]) for place in PLACES}
        if self.work.wait_for_room(1):
            self.work.take_in(records, ends)
        else:
            for message in records:
                self.position[place_of(message)] -= 1

    def collect(self) -> set[Place]:
        collected = self.work.collect()
        for place, position in collected.items():
            assert position.offset >= self.committed[place]
            done = self.processed.finished[place]
            assert done.issuperset(range(self.committed[place], position.offset))
            self.committed[place] = position.offset
        return set(collected)

    def revoke(self) -> None:
        places = set(self.random.sample(PLACES, self.random.randint(1, 4)))
        self.work.hold(places)
        assert self.work.wait_for_hands(places, PATIENCE_S)
        before = {place: len(self.processed.offsets[place]) for place in places}
        self.collect()
        for place in places:
            if not self.losses:  # then all that was processed is committed, and nothing repeated
                reached = max(self.processed.finished[place], default=-1)
                assert self.committed[place] == reached + 1
            assert len(self.processed.offsets[place]) == before[place]
        self._let_go(places)

    def lose(self) -> None:
        places = {self.random.choice(PLACES)}
        self.work.hold(places)
        self._let_go(places)

    def _let_go(self, places: set[Place]) -> None:
        self.work.forget(places)
        assert not places & self.collect()
        for place in places:
            self.position[place] = self.committed[place]
            self.work.begin(place, self.committed[place], ())


def record(place: Place, offset: int, key: int) -> Message:
    return Message(topic=place[0], partition=place[1], offset=offset, key=b"%d" % key, value=b"")


def check_order(processed: Processed) -> None:
    """Each record comes after the one before it, but for what a lost partition repeats."""
    for offsets in processed.offsets.values():
        reached = -1
        for before, offset in zip([-1, *offsets], offsets, strict=False):
            assert offset <= reached + 1
            assert offset == before + 1 or offset <= before
            reached = max(reached, offset)


@pytest.mark.parametrize("losses", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_a_loop_is_handed_what_is_its_own(seed: int, losses: bool) -> None:
    chunks = Chunks(ConsumerMetrics(group="g"), buffered_max=10_000)
    processed = Processed()

    def loop() -> None:
        for message in chunks.messages():
            processed(message)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        Polling(chunks, processed, seed, losses=losses).run()
    finally:
        chunks.end(None)
        thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert chunks.buffered() == 0
    check_order(processed)
    if not losses:
        for offsets in processed.offsets.values():
            assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize("seed", range(4))
def test_a_loop_that_is_left_and_entered_again_passes_nothing(seed: int) -> None:
    chunks = Chunks(ConsumerMetrics(group="g"), buffered_max=10_000)
    processed = Processed()
    random = Random(seed)
    over = threading.Event()

    def loop() -> None:
        while not over.is_set():
            for message in chunks.messages():
                if random.random() < 0.1:
                    break  # not processed: it has to come again
                processed(message)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        Polling(chunks, processed, seed).run()
    finally:
        over.set()
        chunks.end(None)
        thread.join(PATIENCE_S)
    assert not thread.is_alive()
    check_order(processed)


@pytest.mark.parametrize("seed", range(4))
def test_workers_are_handed_what_is_their_own(seed: int) -> None:
    lanes = Lanes(
        ConsumerMetrics(group="g"),
        order="key",
        buffered_max=100_000,
        buffered_bytes_max=10_000_000,
        remember_finished=False,
    )
    processed = Processed()
    lock = threading.Lock()

    def work() -> None:
        while (lane := lanes.take()) is not None:
            with lock:
                processed(lane.records[0])
            lanes.finish(lane, 0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    polling = Polling(lanes, processed, seed)
    # Out of order what is finished is more than what is committed: revocations repeat it.
    polling.revoke = polling.lose  # type: ignore[method-assign]
    try:
        polling.run()
    finally:
        lanes.end(None)
        for thread in threads:
            thread.join(PATIENCE_S)
    assert lanes.buffered() == 0
    for place in PLACES:
        assert processed.finished[place].issuperset(range(polling.position[place]))
