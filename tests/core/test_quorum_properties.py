"""Whatever is dropped, delayed, cut off, killed or paused: one leader per epoch, and what was
committed stays. And when all that stops, somebody leads and everybody gets everything.

A small host runs the machines on a clock of its own. All chance comes from the seed, so that a
schedule that fails is run again by its number.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from lossless.core.machine import Effects
from lossless.core.quorum import METADATA, Quorum, QuorumConfig
from lossless.log.log import Log, LogConfig
from lossless.log.memory import MemoryStore

OBSERVER = 100
QUICK = QuorumConfig(
    election_timeout_ms=200,
    fetch_timeout_ms=400,
    election_backoff_max_ms=200,
    fetch_wait_ms=100,
    fetch_max_bytes=1,  # a batch at a time
)
KINDS = ["crash", "crash", "crash", "blackout", "pause", "cut", "cut", "heal", "heal", "resign"]
FAULTS_MS = 12_000
CALM_MS = 20_000


@dataclass
class Node:
    id: int
    store: MemoryStore = field(default_factory=MemoryStore)
    quorum: Quorum | None = None  # None: dead
    log: Log | None = None
    flush_max_ms: int = 5  # how slow its disk is
    life: int = 0  # how often it was started
    wake_ms: int | None = None
    paused_until_ms: int = 0
    high_watermark: int = 0  # up to where its log was compared with what is committed


class Cluster:
    def __init__(self, voters: int, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self.voters = tuple(range(1, voters + 1))
        self.nodes = {node: Node(node) for node in (*self.voters, OBSERVER)}
        self.log_config = LogConfig(segment_bytes=self.random.choice([300, 1 << 30]))
        self.config = self.random.choice([QuorumConfig(), QUICK, QUICK])
        self.delay_max_ms = self.random.choice([5, 50, 200])
        self.regicide_share = self.random.choice([0.0, 0.3, 0.6])
        self.disturb_max_ms = self.random.choice([300, 1000, 3000])
        self.drop_share = self.random.choice([0.0, 0.05, 0.3])
        self.is_calm = False
        self.cut: set[int] = set()  # these nodes hear only each other
        self.appended = 0
        self.leaders: dict[int, int] = {}
        self.committed: dict[int, bytes] = {}  # batches by base offset
        self._events: list[tuple[int, int, int, int, Callable[[], None]]] = []
        self._count = 0
        for node in self.nodes.values():
            node.flush_max_ms = self.random.choice([5, 50, 500])
            self.start(node)

    # The clock

    def at(self, node: Node | None, delay_ms: int, happen: Callable[[], None]) -> None:
        """Later, if the node still lives then."""
        self._count += 1
        ident, life = (node.id, node.life) if node else (0, 0)
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._count, ident, life, happen))

    def run(self, until_ms: int, is_done: Callable[[], bool] = lambda: False) -> None:
        while self._events and self._events[0][0] <= until_ms and not is_done():
            self.now_ms, _, ident, life, happen = heapq.heappop(self._events)
            node = self.nodes.get(ident)
            if node is not None and (node.life != life or node.quorum is None):
                continue
            if node is not None and self.now_ms < node.paused_until_ms:
                self.at(node, node.paused_until_ms - self.now_ms, happen)
                continue
            happen()

    # What a host does

    def start(self, node: Node) -> None:
        node.life += 1
        node.high_watermark = 0
        node.log = Log(node.store, self.log_config)
        node.quorum = Quorum(
            node.id,
            self.voters,
            node.log,
            node.store,
            config=self.config,
            draw=self.random.randrange,
        )
        self.carry_out(node, node.quorum.on_start(self.now_ms))

    def carry_out(self, node: Node, effects: Effects) -> None:
        self.check(node)
        for to, request in effects.send:
            self.send(node, self.nodes[to], request)
        for token, answer in effects.reply:
            token(answer)
        for name in effects.flush:
            assert name == METADATA
            flush_max_ms = 5 if self.is_calm else node.flush_max_ms
            self.at(node, self.random.randrange(1, flush_max_ms), lambda: self.flush(node))
        node.wake_ms = effects.wake_ms
        if effects.wake_ms is not None:
            assert effects.wake_ms > self.now_ms, "it would never sleep"
            delay_ms = effects.wake_ms - self.now_ms
            self.at(node, delay_ms, lambda: self.wake(node, effects.wake_ms))

    def wake(self, node: Node, wake_ms: int | None) -> None:
        if node.wake_ms == wake_ms:
            self.carry_out(node, quorum_of(node).on_timer(self.now_ms))

    def flush(self, node: Node) -> None:
        assert node.log is not None
        node.log.flush()
        offset = node.log.log_end_offset
        delay_ms = self.random.choice([0, 0, 10])
        self.at(
            node,
            delay_ms,
            lambda: self.carry_out(node, quorum_of(node).on_flushed(METADATA, offset, self.now_ms)),
        )

    def send(self, source: Node, target: Node, request: Any) -> None:
        def answered(answer: Any) -> None:
            def arrive() -> None:
                self.carry_out(
                    source,
                    quorum_of(source).on_answer(target.id, request, answer, self.now_ms),
                )

            if answer is None or self.passes(target, source):
                self.at_of_life(source, life, self.delay_ms(), arrive)
            else:
                self.fails(lambda: answered(None))

        def asked() -> None:
            self.carry_out(
                target, quorum_of(target).on_request(source.id, answered, request, self.now_ms)
            )

        life = source.life
        if self.passes(source, target) and target.quorum is not None:
            self.at(target, self.delay_ms(), asked)
        else:
            self.fails(lambda: answered(None))

    def at_of_life(self, node: Node, life: int, delay_ms: int, happen: Callable[[], None]) -> None:
        if node.life == life and node.quorum is not None:
            self.at(node, delay_ms, happen)

    def fails(self, tell: Callable[[], None]) -> None:
        """A connection that breaks is told of, or nothing is ever heard of it again."""
        if self.random.random() < 0.5:
            tell()

    def passes(self, source: Node, target: Node) -> bool:
        is_cut = (source.id in self.cut) != (target.id in self.cut)
        return not is_cut and (self.is_calm or self.random.random() >= self.drop_share)

    def delay_ms(self) -> int:
        return self.random.randrange(1, 5 if self.is_calm else self.delay_max_ms)

    # Faults, and work

    def disturb(self) -> None:
        """Something happens, and something else will soon."""
        if self.is_calm:
            return
        leading = [n for n in self.nodes.values() if n.quorum and n.quorum.state == "leader"]
        node = self.random.choice([*self.nodes.values(), *leading, *leading])
        match self.random.choice(KINDS):
            case "crash" if node.quorum is not None:
                self.crash(node)
            case "blackout" if self.random.random() < 0.5:
                for node in self.nodes.values():
                    if node.quorum is not None:
                        self.crash(node)
            case "pause":
                node.paused_until_ms = self.now_ms + self.random.randrange(3000)
            case "cut":
                self.cut = {n for n in self.nodes if self.random.random() < 0.4}
            case "heal":
                self.cut = set()
            case "resign" if node.quorum is not None and self.now_ms >= node.paused_until_ms:
                self.carry_out(node, node.quorum.resign(self.now_ms))
        self.at(None, self.random.randrange(20, self.disturb_max_ms), self.disturb)

    def disturb_leader(self, node: Node) -> None:
        """Most can go wrong when somebody has just begun to lead."""
        if not self.is_calm and self.random.random() < self.regicide_share:
            self.at(node, self.random.randrange(1, 200), lambda: self.crash(node))

    def crash(self, node: Node) -> None:
        if self.is_calm:
            return
        kind = self.random.randrange(3)
        if kind < 2:
            node.store.lose_power(lambda tail: 0 if kind else self.random.randrange(tail + 1))
        node.quorum = node.log = None
        down_max_ms = self.random.choice([100, 1000, 5000])
        self.at(None, self.random.randrange(10, down_max_ms), lambda: self.restart(node))

    def restart(self, node: Node) -> None:
        if node.quorum is None:
            self.start(node)

    def append(self) -> None:
        """Everybody who believes that it may decide does."""
        for node in self.nodes.values():
            if node.quorum is not None and node.quorum.is_leader:
                self.appended += 1
                values = tuple(
                    f"{self.appended}.{number}".encode()
                    for number in range(self.random.randrange(1, 3))
                )
                offset, effects = node.quorum.append(values, self.now_ms)
                assert offset is not None
                self.carry_out(node, effects)
        if not self.is_calm:
            self.at(None, self.random.randrange(10, 200), self.append)

    # What is promised

    def check(self, node: Node) -> None:
        quorum = quorum_of(node)
        assert node.log is not None
        if quorum.state == "leader" and quorum.epoch not in self.leaders:
            self.leaders[quorum.epoch] = node.id
            self.disturb_leader(node)
            self.check_leader_has_committed(node)
        if quorum.state == "leader":
            assert self.leaders[quorum.epoch] == node.id, "two leaders in one epoch"
        if quorum.leader is not None:
            assert self.leaders[quorum.epoch] == quorum.leader, "a leader that nobody elected"
        assert node.high_watermark <= quorum.high_watermark <= node.log.log_end_offset
        if quorum.high_watermark > node.high_watermark:
            for batch in node.log.batches(node.high_watermark):
                if batch.base_offset >= quorum.high_watermark:
                    break
                known = self.committed.setdefault(batch.base_offset, batch.data)
                assert known == batch.data, "what was committed has changed"
            node.high_watermark = quorum.high_watermark

    def check_leader_has_committed(self, node: Node) -> None:
        assert node.log is not None
        log = {batch.base_offset: batch.data for batch in node.log.batches()}
        for offset, data in self.committed.items():
            assert log.get(offset) == data, "elected without what was committed"

    def check_everything_stayed(self) -> None:
        for node in self.nodes.values():
            assert node.log is not None
            log = {batch.base_offset: batch.data for batch in node.log.batches()}
            for offset, data in self.committed.items():
                assert log.get(offset) == data, "what was committed is lost"

    def is_settled(self) -> bool:
        """Everybody knows that what was appended last is committed."""
        last = f"{self.appended}.0".encode()
        quorums = [quorum_of(node) for node in self.nodes.values()]
        return len({quorum.high_watermark for quorum in quorums}) == 1 and all(
            last in [value for _, value in quorum.committed_values()] for quorum in quorums
        )


def quorum_of(node: Node) -> Quorum:
    assert node.quorum is not None
    return node.quorum


def play(voters: int, seed: int) -> Cluster:
    cluster = Cluster(voters, seed)
    cluster.at(None, cluster.random.randrange(50, 3000), cluster.disturb)
    cluster.at(None, 1000, cluster.append)
    cluster.run(FAULTS_MS)

    cluster.is_calm, cluster.cut = True, set()
    for node in cluster.nodes.values():
        node.paused_until_ms = 0
        cluster.restart(node)
    before = cluster.appended
    end_ms = cluster.now_ms + CALM_MS

    def has_led() -> bool:
        return any(node.quorum and node.quorum.is_leader for node in cluster.nodes.values())

    while cluster.appended == before or not cluster.is_settled():
        assert cluster.now_ms < end_ms, "nobody leads, or not everybody follows"
        cluster.run(end_ms, has_led)
        cluster.append()
        cluster.run(cluster.now_ms + 1000)
    cluster.check_everything_stayed()
    return cluster


@pytest.mark.parametrize("block", range(4))
@pytest.mark.parametrize("voters", [3, 5])
def test_committed_stays_and_one_leads_whatever_happens(voters: int, block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        try:
            play(voters, seed)
        except Exception as error:
            error.add_note(f"replay: play(voters={voters}, seed={seed})")
            raise
