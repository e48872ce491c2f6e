"""One member of a quorum and all that happens to it, told by a test, one thing at a time."""

from __future__ import annotations

from typing import Any

from lossless.core.machine import Effects
from lossless.core.quorum import METADATA, QUORUM_STATE, Quorum, QuorumConfig
from lossless.core.quorum_messages import (
    BeginQuorumEpoch,
    Election,
    QuorumFetch,
    QuorumFetchAnswer,
    VoteAnswer,
)
from lossless.log.batch import Record, build
from lossless.log.log import Log
from lossless.log.memory import MemoryStore

CONFIG = QuorumConfig()
THREE = (1, 2, 3)


class Host:
    """One machine, its disk, its clock, and what it asked for last. Nothing is left to chance."""

    def __init__(
        self, node: int = 1, voters: tuple[int, ...] = THREE, store: MemoryStore | None = None
    ) -> None:
        self.node, self.voters = node, voters
        self.store = store or MemoryStore()
        self.now_ms = 0
        self.start()

    def start(self) -> None:
        self.log = Log(self.store)
        self.quorum = Quorum(
            self.node, self.voters, self.log, self.store, config=CONFIG, draw=lambda _: 0
        )
        self.effects = self.quorum.on_start(self.now_ms)

    def lose_power(self) -> None:
        self.store.lose_power(lambda _: 0)
        self.start()

    def wait(self, ms: int) -> Effects:
        self.now_ms += ms
        self.effects = self.quorum.on_timer(self.now_ms)
        return self.effects

    def wait_until_woken(self) -> Effects:
        assert self.effects.wake_ms is not None
        return self.wait(self.effects.wake_ms - self.now_ms)

    def asked(self, source: int, request: Any) -> Any:
        """The answer; None while it waits for one."""
        self.effects = self.quorum.on_request(source, "this", request, self.now_ms)
        return self.replies().get("this")

    def replies(self) -> dict[Any, Any]:
        return dict(self.effects.reply)

    def answered(self, source: int, answer: Any, request: Any = None) -> Effects:
        """To what it asked last, unless another request is given."""
        if request is None:
            (request,) = (sent.request for sent in self.effects.send if sent.to == source)
        self.effects = self.quorum.on_answer(source, request, answer, self.now_ms)
        return self.effects

    def flush(self) -> Effects:
        self.log.flush()
        offset = self.log.log_end_offset
        self.effects = self.quorum.on_flushed(METADATA, offset, self.now_ms)
        return self.effects

    def append(self, *values: bytes) -> int | None:
        offset, self.effects = self.quorum.append(values, self.now_ms)
        return offset

    @property
    def sent(self) -> list[Any]:
        return [sent.request for sent in self.effects.send]

    @property
    def written_down(self) -> Election:
        return Election.decode(self.store.read(QUORUM_STATE, 0, self.store.size(QUORUM_STATE)))


def history(*epochs: int) -> MemoryStore:
    """A log with a record of each of these epochs, flushed."""
    store = MemoryStore()
    log = Log(store)
    for offset, epoch in enumerate(epochs):
        record = Record(offset, 0, None, f"{epoch}/{offset}".encode())
        log.append(build([record]), leader_epoch=epoch, now_ms=0)
    log.flush()
    return store


def data(*epochs: int, start: int = 0) -> bytes:
    """Batches of one record, as a leader sends them."""
    return b"".join(
        build([Record(0, 0, None, f"{epoch}/{offset}".encode())]).placed(offset, epoch).data
        for offset, epoch in enumerate(epochs, start)
    )


def remembering(election: Election, store: MemoryStore | None = None) -> MemoryStore:
    store = store or MemoryStore()
    store.replace(QUORUM_STATE, election.encode())
    return store


def prospective(store: MemoryStore | None = None) -> Host:
    host = Host(store=store)
    while host.quorum.state != "prospective":
        host.wait_until_woken()
    return host


def candidate(store: MemoryStore | None = None) -> Host:
    host = prospective(store)
    host.answered(2, VoteAnswer(host.quorum.epoch, None, True))
    assert host.quorum.state == "candidate"
    return host


def newly_elected(store: MemoryStore | None = None) -> Host:
    host = candidate(store)
    host.answered(2, VoteAnswer(host.quorum.epoch, None, True))
    assert host.quorum.state == "leader"
    return host


def leader(store: MemoryStore | None = None) -> Host:
    """Of epoch 1, with the opening record at 0, unless the store knows more; it may decide."""
    host = newly_elected(store)
    host.flush()
    host.asked(2, fetch(host, 2))
    assert host.quorum.is_leader
    return host


def fetch(of: Host, replica: int, offset: int | None = None, high_watermark: int = 0) -> Any:
    """By somebody who has what the leader has."""
    end = of.log.log_end_offset if offset is None else offset
    epoch = of.log.epoch_at(end - 1) if end else 0
    assert epoch is not None
    return QuorumFetch(of.quorum.epoch, replica, end, epoch, high_watermark)


def follower(store: MemoryStore | None = None, *, epoch: int = 5, node: int = 1) -> Host:
    """Of node 2. It has asked for what comes next."""
    host = Host(node=node, store=store)
    host.asked(2, BeginQuorumEpoch(epoch, 2))
    assert host.quorum.state == "follower"
    return host


def fetched(epoch: int = 5, **fields: Any) -> QuorumFetchAnswer:
    return QuorumFetchAnswer(epoch, 2, **fields)
