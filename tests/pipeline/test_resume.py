"""Where a pipeline goes on, for every way in which ledger and log can differ."""

from __future__ import annotations

import pytest

from lossless.errors import PromiseBroken
from lossless.pipeline.ledger import Ledger, Position, SourcePartition
from lossless.pipeline.resume import resume
from lossless.pipeline.source import LogRange

ORDERS_0 = SourcePartition("orders", "id-1", 0)
ORDERS_1 = SourcePartition("orders", "id-1", 1)
RECREATED_0 = SourcePartition("orders", "id-2", 0)


def at(next_offset: int, start_offset: int = 0) -> Position:
    return Position(start_offset=start_offset, next_offset=next_offset)


def log(earliest: int, latest: int) -> LogRange:
    return LogRange(earliest=earliest, latest=latest)


def test_an_unknown_topic_begins_where_the_contract_says() -> None:
    going_on = resume(Ledger(), {ORDERS_0: log(0, 9)}, {ORDERS_0: 9}, accept_loss=False)
    assert going_on.offsets == {ORDERS_0: 9}
    assert going_on.changes == {ORDERS_0: at(9, start_offset=9)}


def test_a_known_partition_goes_on_at_the_ledger_whatever_the_contract_says() -> None:
    ledger = Ledger(sequence=3, positions={ORDERS_0: at(4)})
    going_on = resume(ledger, {ORDERS_0: log(0, 9)}, {ORDERS_0: 9}, accept_loss=False)
    assert going_on.offsets == {ORDERS_0: 4}
    assert going_on.changes == {}


def test_a_partition_added_while_away_begins_at_its_first_offset() -> None:
    ledger = Ledger(sequence=3, positions={ORDERS_0: at(4)})
    held = {ORDERS_0: log(0, 9), ORDERS_1: log(0, 7)}
    going_on = resume(ledger, held, {ORDERS_0: 9, ORDERS_1: 7}, accept_loss=False)
    assert going_on.offsets[ORDERS_1] == 0


def test_records_deleted_before_they_were_read_are_named_and_refused() -> None:
    ledger = Ledger(sequence=3, positions={ORDERS_0: at(4)})
    with pytest.raises(PromiseBroken, match=r"orders-0: offsets 4 to 6 \(3\) were deleted"):
        resume(ledger, {ORDERS_0: log(7, 9)}, {ORDERS_0: 7}, accept_loss=False)


def test_an_accepted_loss_is_written_into_the_ledger() -> None:
    ledger = Ledger(sequence=3, positions={ORDERS_0: at(4)})
    going_on = resume(ledger, {ORDERS_0: log(7, 9)}, {ORDERS_0: 7}, accept_loss=True)
    assert going_on.offsets == {ORDERS_0: 7}
    assert going_on.changes == {ORDERS_0: Position(start_offset=0, next_offset=7, lost=3)}


def test_a_recreated_topic_is_refused_and_once_accepted_read_from_its_start() -> None:
    ledger = Ledger(sequence=3, positions={ORDERS_0: at(4)})
    held = {RECREATED_0: log(0, 9)}
    with pytest.raises(PromiseBroken, match=r"re-created \(id id-1 is now id-2\).*offset 4"):
        resume(ledger, held, {RECREATED_0: 0}, accept_loss=False)
    going_on = resume(ledger, held, {RECREATED_0: 0}, accept_loss=True)
    assert going_on.offsets == {RECREATED_0: 0}
    assert going_on.changes[ORDERS_0].closed
    accepted = ledger.successor(going_on.changes)
    assert resume(accepted, held, {RECREATED_0: 0}, accept_loss=False).changes == {}


def test_a_deleted_topic_is_refused() -> None:
    ledger = Ledger(sequence=3, positions={ORDERS_0: at(4)})
    with pytest.raises(PromiseBroken, match="the topic was deleted"):
        resume(ledger, {}, {}, accept_loss=False)


def test_a_log_that_was_cut_back_cannot_be_accepted() -> None:
    ledger = Ledger(sequence=3, positions={ORDERS_0: at(40)})
    with pytest.raises(PromiseBroken, match="cannot be accepted"):
        resume(ledger, {ORDERS_0: log(0, 9)}, {ORDERS_0: 0}, accept_loss=True)


def test_a_partition_that_lost_records_before_it_was_first_seen_is_refused() -> None:
    ledger = Ledger(sequence=3, positions={ORDERS_0: at(4)})
    held = {ORDERS_0: log(0, 9), ORDERS_1: log(5, 7)}
    with pytest.raises(PromiseBroken, match="orders-1: the partition was added"):
        resume(ledger, held, {ORDERS_0: 0, ORDERS_1: 5}, accept_loss=False)
