"""What the log's own rules are for: with each on nothing happens, and off it does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from logs import SMALL, batch, fill, values

from lossless.log.leader_epochs import EpochEnd
from lossless.log.log import Appended, Log
from lossless.log.memory import MemoryStore
from lossless.log.producers import Duplicate, Producers, Refusal
from lossless.log.rules import RULES

PRODUCER = 7


def _send(log: Log, sequence: int) -> Appended | Duplicate | Refusal:
    one = batch(b"%d" % sequence, producer_id=PRODUCER, epoch=0, sequence=sequence)
    return log.append(one, leader_epoch=0, now_ms=0)


def _restarted(store: MemoryStore, *, recalls: bool) -> Log:
    return Log(store, SMALL, replace(RULES, batches_recalled=recalls))


def test_after_a_restart_each_of_the_last_five_batches_is_recognised() -> None:
    store = MemoryStore()
    log = Log(store, SMALL)
    for sequence in range(3):
        _send(log, sequence)
    log.close()
    again = _restarted(store, recalls=True)
    assert _send(again, 0) == Duplicate(0, 0, 0)
    assert _send(again, 2) == Duplicate(2, 2, 0)
    assert _send(again, 3) == Appended(3, 3)


def test_without_recalling_only_the_last_batch_is() -> None:
    store = MemoryStore()
    log = Log(store, SMALL)
    for sequence in range(3):
        _send(log, sequence)
    log.close()
    again = _restarted(store, recalls=False)
    assert _send(again, 2) == Duplicate(2, 2, 0)
    assert _send(again, 1) is Refusal.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("count", range(5, 20))
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
def test_the_last_five_are_recognised_wherever_segments_end(count: int, is_closed: bool) -> None:
    """A producer's five may lie in several segments, and every segment begins with a snapshot."""
    store = MemoryStore()
    log = Log(store, SMALL)
    for sequence in range(count):
        _send(log, sequence)
    assert len(log.segment_base_offsets) > 1
    if is_closed:
        log.close()
    again = _restarted(store, recalls=True)
    for sequence in range(count - 5, count):
        assert _send(again, sequence) == Duplicate(sequence, sequence, 0)


def test_what_another_epoch_or_another_producer_sent_is_not_recalled() -> None:
    store = MemoryStore()
    log = Log(store, replace(SMALL, segment_bytes=10_000))
    _send(log, 0)
    fill(log, 1)
    other = batch(b"x", producer_id=8, epoch=0, sequence=0)
    log.append(other, leader_epoch=0, now_ms=0)
    later = batch(b"y", producer_id=PRODUCER, epoch=1, sequence=0)
    log.append(later, leader_epoch=0, now_ms=0)
    log.close()
    again = _restarted(store, recalls=True)
    known = again.producers.get(PRODUCER)
    assert known is not None
    assert [sent.last_offset for sent in known.batches] == [3]


def test_only_batches_before_the_snapshot_are_recalled() -> None:
    """A truncation goes back to an older snapshot, and what was cut is forgotten."""
    store = MemoryStore()
    log = Log(store, SMALL)
    for sequence in range(9):
        _send(log, sequence)
    log.truncate(7)
    assert _send(log, 6) == Duplicate(6, 6, 0)
    assert _send(log, 7) == Appended(7, 7)


def test_recalling_begins_at_an_entry_of_the_index_when_the_segment_is_large() -> None:
    store = MemoryStore()
    config = replace(SMALL, segment_bytes=20_000_000, index_interval_bytes=4096)
    log = Log(store, config)
    for sequence in range(4):
        one = batch(b"z" * 4_000_000, producer_id=PRODUCER, epoch=0, sequence=sequence)
        log.append(one, leader_epoch=0, now_ms=0)
    log.close()
    again = Log(store, config)
    known = again.producers.get(PRODUCER)
    assert known is not None
    assert [sent.last_offset for sent in known.batches] == [1, 2, 3]


def test_what_does_not_lead_up_to_the_last_known_batch_is_not_recalled() -> None:
    producers = Producers()
    for sequence in range(3):
        one = batch(b"x", producer_id=PRODUCER, epoch=0, sequence=sequence)
        producers.apply(one.placed(sequence, 0))
    first = batch(b"x", producer_id=PRODUCER, epoch=0, sequence=0).placed(0, 0)
    producers.recall([first])
    known = producers.get(PRODUCER)
    assert known is not None
    assert [sent.last_offset for sent in known.batches] == [0, 1, 2]


def test_an_epoch_whose_records_were_cut_is_forgotten() -> None:
    log = Log(MemoryStore(), SMALL)
    fill(log, 1, leader_epoch=1)
    fill(log, 1, leader_epoch=2)
    log.truncate(1)
    assert log.latest_epoch == 1
    assert log.end_of_epoch(2) is None


def test_without_that_rule_it_stays_though_nothing_is_of_it() -> None:
    log = Log(MemoryStore(), SMALL, replace(RULES, empty_epochs_forgotten=False))
    fill(log, 1, leader_epoch=1)
    fill(log, 1, leader_epoch=2)
    log.truncate(1)
    assert log.latest_epoch == 2
    assert log.end_of_epoch(2) == EpochEnd(2, 1)


class NeverFlushed(MemoryStore):
    """The power is lost before anything that is to be flushed later is."""

    def flush_later(self, names: object, then: object) -> None:
        pass

    def has_flushed(self) -> bool:
        return False


def _killed_and_then_without_power(*, flushes: bool) -> Log:
    rules = replace(RULES, recovery_point_after_flush=flushes)
    store = NeverFlushed()
    log = Log(store, SMALL, rules)
    fill(log, 12)
    Log(store, SMALL, rules)  # the process died; what it wrote is there
    store.lose_power(lambda _: 0)
    return Log(store, SMALL, rules)


def test_what_recovery_has_read_survives_a_loss_of_power_after_it() -> None:
    assert len(values(_killed_and_then_without_power(flushes=True))) == 12


def test_a_recovery_point_that_is_ahead_of_the_disk_leaves_holes() -> None:
    log = _killed_and_then_without_power(flushes=False)
    assert log.log_end_offset > 0
    assert values(log) == []
