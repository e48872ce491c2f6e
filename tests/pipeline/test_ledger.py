"""The ledger's own rules, without a sink."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossless.errors import BadInput
from lossless.pipeline.ledger import (
    FORMAT,
    AcceptedLoss,
    Ledger,
    LedgerEntry,
    Position,
    Receipt,
    SourcePartition,
    place_losses,
)
from lossless.tally import HASH_MODULUS, Tally, record_hash

tallies = st.builds(
    Tally, st.integers(0, 2**40), st.integers(min_value=0, max_value=HASH_MODULUS - 1)
)
sources = st.builds(
    SourcePartition,
    st.sampled_from(["orders", "shop.payments"]),
    st.sampled_from(["id-1", "id_2"]),
    st.integers(0, 99),
)
positions = st.builds(
    Position,
    start_offset=st.integers(0, 2**62),
    next_offset=st.integers(0, 2**62),
    read=tallies,
    stored=tallies,
    dead=tallies,
    rows=st.integers(0, 2**50),
    row_hash=st.none() | st.integers(0, HASH_MODULUS - 1),
    accepted_losses=st.lists(
        st.builds(AcceptedLoss, st.integers(0, 2**62), st.integers(0, 2**62)), max_size=3
    ).map(lambda losses: tuple(sorted(losses))),
    unplaced_losses=st.integers(0, 2**50),
    closed=st.booleans(),
    leader_epoch=st.none() | st.integers(0, 2**31 - 1),
)
ledgers = st.builds(
    Ledger,
    sequence=st.integers(0, 2**50),
    positions=st.dictionaries(sources, positions, max_size=4),
)


@given(ledgers)
def test_a_ledger_survives_json(ledger: Ledger) -> None:
    assert Ledger.from_json(ledger.to_json()) == ledger


@given(ledgers, st.dictionaries(sources, positions, max_size=3))
def test_an_entry_holds_exactly_what_a_commit_changed(
    ledger: Ledger, changed: dict[SourcePartition, Position]
) -> None:
    successor = ledger.successor(changed)
    entry = LedgerEntry.between(ledger, successor, committed_at_ms=5)
    assert LedgerEntry.from_json(entry.to_json()) == entry
    assert {**ledger.positions, **entry.after} == dict(successor.positions)
    assert all(ledger.positions[source] == position for source, position in entry.before.items())


@given(tallies, tallies, tallies)
def test_tallies_add_up_in_any_order_and_subtract_back(a: Tally, b: Tally, c: Tally) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert (a + b) - b == a


def test_one_record_lost_and_another_doubled_changes_the_hash_though_not_the_count() -> None:
    whole = Tally()
    for offset in range(4):
        whole += Tally(1, record_hash("id", 0, offset))
    wrong = whole - Tally(1, record_hash("id", 0, 2)) + Tally(1, record_hash("id", 0, 3))
    assert wrong.count == whole.count
    assert wrong.hash != whole.hash


def test_a_position_adds_up_its_receipts() -> None:
    begun = Position(start_offset=5, next_offset=5)
    receipt = Receipt(read=Tally(3, 30), stored=Tally(1, 10), dead=Tally(1, 12), rows=2)
    position = begun.advanced(9, receipt)
    assert (position.start_offset, position.next_offset, position.rows) == (5, 9, 2)
    assert position.filtered == Tally(1, 8)


def test_a_position_never_goes_back() -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        Position(start_offset=0, next_offset=7).advanced(6, Receipt())


def test_losses_are_kept_as_ranges_and_ranges_that_touch_are_one() -> None:
    position = Position(start_offset=0, next_offset=10).given_up_to(15).given_up_to(20)
    assert position.accepted_losses == (AcceptedLoss(10, 20),)
    later = position.advanced(30, Receipt()).given_up_to(31)
    assert later.accepted_losses == (AcceptedLoss(10, 20), AcceptedLoss(30, 31))
    assert (later.next_offset, later.lost) == (31, 11)


def test_the_leader_epoch_is_that_of_the_last_batch_that_had_one() -> None:
    position = Position(start_offset=0, next_offset=0).advanced(5, Receipt(), leader_epoch=3)
    assert position.leader_epoch == 3
    assert position.advanced(6, Receipt()).leader_epoch == 3


def test_rows_are_tallied_one_by_one_only_where_records_become_several() -> None:
    one, two = (Tally(1, record_hash("id", 0, offset)) for offset in (1, 2))
    plain = Position(start_offset=0, next_offset=0).advanced(2, Receipt(stored=one, rows=1))
    assert (plain.row_hash, plain.row_tally) == (None, one)
    doubled = Receipt(stored=two, rows=2, row_hash=(two + two).hash)
    expanded = plain.advanced(3, doubled)
    assert expanded.row_tally == one + two + two
    unknown = expanded.advanced(4, Receipt(stored=one, rows=3))
    assert unknown.row_tally is None


def test_a_ledger_of_a_newer_format_is_refused() -> None:
    newer = Ledger().to_json().replace(f'"format":{FORMAT}', f'"format":{FORMAT + 1}')
    with pytest.raises(BadInput, match="upgrade this one"):
        Ledger.from_json(newer)


def test_losses_of_format_1_are_placed_by_the_history_and_otherwise_stay_unplaced() -> None:
    source = SourcePartition("orders", "id", 0)

    def commit(sequence: int, *, from_: Position, to: Position) -> LedgerEntry:
        return LedgerEntry(
            sequence=sequence, committed_at_ms=0, before={source: from_}, after={source: to}
        )

    start = Position(start_offset=0, next_offset=10, unplaced_losses=7)
    given_up = Position(start_offset=0, next_offset=15, unplaced_losses=12)
    read_on = Position(start_offset=0, next_offset=20, unplaced_losses=12)
    history = [commit(3, from_=start, to=given_up), commit(4, from_=given_up, to=read_on)]
    placed = place_losses(read_on, source, history)
    assert placed.accepted_losses == (AcceptedLoss(10, 15),)
    assert (placed.unplaced_losses, placed.lost) == (7, 12)
