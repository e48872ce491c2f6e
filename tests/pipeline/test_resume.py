"""Where a pipeline goes on, for every way in which ledger and log can differ."""

from __future__ import annotations

import pytest

from lossless.errors import PromiseBroken
from lossless.pipeline.ledger import AcceptedLoss, Ledger, Position, SourcePartition
from lossless.pipeline.resume import Found, Resume
from lossless.pipeline.resume import resume as resume_found
from lossless.pipeline.source import LogRange

ORDERS_0 = SourcePartition("orders", "id-1", 0)
ORDERS_1 = SourcePartition("orders", "id-1", 1)
PAYMENTS_0 = SourcePartition("payments", "id-3", 0)
RECREATED_0 = SourcePartition("orders", "id-2", 0)


def at(next_offset: int, start_offset: int = 0) -> Position:
    return Position(start_offset=start_offset, next_offset=next_offset)


def log(earliest: int, latest: int) -> LogRange:
    return LogRange(earliest=earliest, latest=latest)


def resume(
    ledger: Ledger,
    held: dict[SourcePartition, LogRange],
    start: dict[SourcePartition, int],
    *,
    accept_loss: bool,
    deselected: dict[str, str] | None = None,
    cut_back: dict[SourcePartition, int] | None = None,
) -> Resume:
    found = Found(log=held, deselected=deselected or {}, cut_back=cut_back or {})
    return resume_found(ledger, found, start, accept_loss=accept_loss)


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
    accepted = Position(start_offset=0, next_offset=7, accepted_losses=(AcceptedLoss(4, 7),))
    assert going_on.changes == {ORDERS_0: accepted}
    assert [loss.source for loss in going_on.accepted] == [ORDERS_0]


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
    with pytest.raises(PromiseBroken, match="orders-1: the partition appeared after"):
        resume(ledger, held, {ORDERS_0: 0, ORDERS_1: 5}, accept_loss=False)


def test_a_topic_that_appears_once_there_is_a_ledger_begins_at_0_whatever_the_contract_says() -> (
    None
):
    ledger = Ledger(sequence=3, positions={ORDERS_0: at(4)})
    held = {ORDERS_0: log(0, 9), PAYMENTS_0: log(0, 7)}
    going_on = resume(ledger, held, {ORDERS_0: 9, PAYMENTS_0: 7}, accept_loss=False)
    assert going_on.offsets == {ORDERS_0: 4, PAYMENTS_0: 0}


def test_a_topic_that_appears_once_there_is_a_ledger_and_lost_its_first_records_is_refused() -> (
    None
):
    ledger = Ledger(sequence=3, positions={ORDERS_0: at(4)})
    held = {ORDERS_0: log(0, 9), PAYMENTS_0: log(5, 7)}
    with pytest.raises(PromiseBroken, match=r"payments-0: .* offsets 0 to 4 \(5\) were deleted"):
        resume(ledger, held, {}, accept_loss=False)
    going_on = resume(ledger, held, {}, accept_loss=True)
    assert going_on.changes[PAYMENTS_0].accepted_losses == (AcceptedLoss(0, 5),)
    assert going_on.offsets[PAYMENTS_0] == 5


def test_a_deselected_topic_is_not_called_deleted_and_is_reopened_when_it_is_selected_again() -> (
    None
):
    ledger = Ledger(sequence=3, positions={ORDERS_0: at(4), PAYMENTS_0: at(7)})
    orders_only = {ORDERS_0: log(0, 9)}
    deselected = {"payments": "id-3"}
    with pytest.raises(PromiseBroken, match="payments-0: the contract does not select the topic"):
        resume(ledger, orders_only, {}, accept_loss=False, deselected=deselected)
    away = resume(ledger, orders_only, {}, accept_loss=True, deselected=deselected)
    assert away.changes[PAYMENTS_0].closed
    closed = ledger.successor(away.changes)

    back = resume(closed, {**orders_only, PAYMENTS_0: log(0, 9)}, {}, accept_loss=False)
    assert back.offsets[PAYMENTS_0] == 7
    assert not back.changes[PAYMENTS_0].closed

    purged = {**orders_only, PAYMENTS_0: log(8, 9)}
    with pytest.raises(PromiseBroken, match=r"payments-0: offsets 7 to 7 \(1\) were deleted"):
        resume(closed, purged, {}, accept_loss=False)
    accepted = resume(closed, purged, {}, accept_loss=True).changes[PAYMENTS_0]
    assert (accepted.closed, accepted.accepted_losses) == (False, (AcceptedLoss(7, 8),))


def test_a_log_that_was_cut_back_and_has_grown_again_cannot_be_accepted() -> None:
    read = Position(start_offset=0, next_offset=9, leader_epoch=3)
    ledger = Ledger(sequence=3, positions={ORDERS_0: read})
    held = {ORDERS_0: LogRange(earliest=0, latest=20, leader_epoch=4)}
    with pytest.raises(PromiseBroken, match=r"cut back to offset 6 .*\n.*cannot be accepted"):
        resume(ledger, held, {}, accept_loss=True, cut_back={ORDERS_0: 6})
    assert resume(ledger, held, {}, accept_loss=False).changes == {}


def test_a_ledger_without_leader_epochs_gets_them_at_its_next_start() -> None:
    ledger = Ledger(sequence=3, positions={ORDERS_0: at(4)})
    held = {ORDERS_0: LogRange(earliest=0, latest=9, leader_epoch=2)}
    going_on = resume(ledger, held, {}, accept_loss=False)
    assert going_on.changes[ORDERS_0] == Position(start_offset=0, next_offset=4, leader_epoch=2)
    again = resume(ledger.successor(going_on.changes), held, {}, accept_loss=False)
    assert again.changes == {}
