"""Whatever is done to a log, and wherever it is cut off, it opens as a prefix of what it was.

Operations are drawn at random and done to a log with small segments. Three questions:
- do the two stores agree?
- what is left after a loss of power?
- what is left when the process dies within an operation, at each step of the store in turn?
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from logs import SMALL, Dead, MortalStore, batch

from lossless.log.batch import Batch, Marker, MarkerKind
from lossless.log.files import FileStore
from lossless.log.log import Log
from lossless.log.memory import MemoryStore
from lossless.log.store import Store


@dataclass(frozen=True)
class Operation:
    """`share` says where in the log: 0 at its start, 1 at its end."""

    kind: str
    share: float = 0.0
    number: int = 0


kinds = st.sampled_from(
    ["append"] * 6
    + ["send"] * 4
    + ["begin", "commit", "abort", "elect", "truncate", "delete", "flush", "kill", "close"]
)
operations = st.lists(
    st.builds(Operation, kind=kinds, share=st.floats(0, 1), number=st.integers(0, 3)),
    min_size=1,
    max_size=40,
)


@dataclass
class Player:
    """Does operations to a log, and remembers what a loss of power may not take."""

    store: Store
    epoch: int = 0
    time_ms: int = 0
    flushed_end: int = 0
    log: Log = field(init=False)

    def __post_init__(self) -> None:
        self.log = Log(self.store, SMALL)

    def do(self, operation: Operation) -> None:
        log, number = self.log, operation.number
        self.time_ms += number
        match operation.kind:
            case "append":
                values = [b"x" * (number * 20), b"y"][: 1 + number % 2]
                one = batch(*values, timestamp_ms=self.time_ms)
                log.append(one, leader_epoch=self.epoch, now_ms=self.time_ms)
            case "send" | "begin":
                self._send(number, begin=operation.kind == "begin")
            case "commit" | "abort":
                kind = MarkerKind.COMMIT if operation.kind == "commit" else MarkerKind.ABORT
                log.append_marker(
                    Marker(kind, 0),
                    producer_id=number,
                    producer_epoch=0,
                    leader_epoch=self.epoch,
                    now_ms=self.time_ms,
                )
            case "elect":
                self.epoch += 1
            case "truncate":
                offset = self._offset(operation.share)
                log.truncate(offset)
                self.flushed_end = min(self.flushed_end, log.log_end_offset)
            case "delete":
                log.delete_before(self._offset(operation.share))
            case "flush":
                log.flush()
                self.flushed_end = log.log_end_offset
            case "kill":
                self.log = Log(self.store, SMALL)
            case "close":
                log.close()
                self.flushed_end = log.log_end_offset
                self.log = Log(self.store, SMALL)

    def _send(self, producer_id: int, *, begin: bool) -> None:
        """The next batch of a producer, inside its transaction if it has one."""
        known = self.log.producers.get(producer_id)
        sequence = 0 if known is None else known.last_sequence + 1
        is_open = known is not None and known.transaction_first_offset is not None
        one = batch(
            timestamp_ms=self.time_ms,
            producer_id=producer_id,
            epoch=0,
            sequence=sequence,
            transactional=begin or is_open,
        )
        self.log.append(one, leader_epoch=self.epoch, now_ms=self.time_ms)

    def _offset(self, share: float) -> int:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        return start + int((end - start) * share)


def described(log: Log) -> dict[str, object]:
    start, end = log.log_start_offset, log.log_end_offset
    return {
        "range": (start, end),
        "batches": list(log.batches(start)),
        "epochs": [log.end_of_epoch(epoch) for epoch in range(20)],
        "producers": log.producers.encode(),
        "aborted": log.aborted_between(start, end),
        "stable": log.last_stable_offset(end),
        "times": [log.first_at_or_after(time_ms) for time_ms in range(0, 40, 3)],
        "flushed": log.recovery_point,
    }


def require_readable(log: Log) -> None:
    """Every offset is found, and what is said of the log fits its batches."""
    expected = list(log.batches(log.log_start_offset))
    offsets = [one.base_offset for one in expected]
    assert offsets == sorted(set(offsets))
    for one in expected:
        first = max(one.base_offset, log.log_start_offset)
        assert log.read(first, end_offset=log.log_end_offset, bytes_max=1) == one.data
        assert log.epoch_at(first) == one.leader_epoch


class PatientStore(FileStore):
    """Waits for what it flushes later, as memory does."""

    def flush_later(self, names: Sequence[str], then: Mapping[str, bytes | None]) -> None:
        super().flush_later(names, then)
        self.names()


@settings(max_examples=150)
@given(operations)
def test_the_two_stores_agree(todo: list[Operation]) -> None:
    folder = Path(tempfile.mkdtemp())
    files = PatientStore(folder)
    try:
        on_disk, in_memory = Player(files), Player(MemoryStore())
        for operation in todo:
            on_disk.do(operation)
            in_memory.do(operation)
        assert described(on_disk.log) == described(in_memory.log)
        assert files.names() == in_memory.store.names()
        require_readable(on_disk.log)
    finally:
        files.close()
        shutil.rmtree(folder)


@settings(max_examples=300)
@given(operations)
def test_a_process_that_dies_loses_nothing(todo: list[Operation]) -> None:
    player = Player(MemoryStore())
    for operation in todo:
        player.do(operation)
    before = described(player.log)
    again = Log(player.store, SMALL)
    assert described(again) == before
    require_readable(again)


@settings(max_examples=500)
@given(operations, st.randoms(use_true_random=False))
def test_a_loss_of_power_leaves_a_prefix_with_all_that_was_flushed(
    todo: list[Operation], random: Random
) -> None:
    store = MemoryStore()
    player = Player(store)
    for operation in todo:
        player.do(operation)
    written = list(player.log.batches(player.log.log_start_offset))
    start = player.log.log_start_offset
    store.lose_power(lambda tail: random.randint(0, tail))
    again = Log(store, SMALL)
    assert again.log_start_offset == start
    assert again.log_end_offset >= player.flushed_end
    assert is_prefix(again, written)
    require_readable(again)


def is_prefix(log: Log, written: list[Batch]) -> bool:
    found = list(log.batches(log.log_start_offset))
    expected = [one for one in written if one.last_offset >= log.log_start_offset]
    return found == expected[: len(found)]


@settings(max_examples=300)
@given(operations, st.integers(1, 12), st.booleans(), st.randoms(use_true_random=False))
def test_dying_within_an_operation_leaves_a_prefix(
    todo: list[Operation], step: int, loses_power: bool, random: Random
) -> None:
    *before, last = todo
    store = MemoryStore()
    mortal = MortalStore(store, lives=0)  # counts below zero: immortal so far
    player = Player(mortal)
    for operation in before:
        player.do(operation)
    flushed_end = player.flushed_end
    written = list(player.log.batches(player.log.log_start_offset))
    twin = Player(MemoryStore())
    for operation in todo:
        twin.do(operation)
    mortal.lives = step
    with contextlib.suppress(Dead):
        player.do(last)
    mortal.lives = 0
    if loses_power:
        store.lose_power(lambda tail: random.randint(0, tail))
    again = Log(store, SMALL)
    is_before = is_prefix(again, written)
    assert is_before or is_prefix(again, list(twin.log.batches(twin.log.log_start_offset)))
    require_readable(again)
    if last.kind != "truncate":
        assert again.log_end_offset >= flushed_end
    # And it can be written to.
    end = again.log_end_offset
    again.append(batch(b"more"), leader_epoch=player.epoch + 1, now_ms=player.time_ms)
    assert again.log_end_offset == end + 1
