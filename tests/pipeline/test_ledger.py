"""The ledger's own rules, without a sink."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossless.pipeline.ledger import Ledger, LedgerEntry, Position, Receipt, SourcePartition
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
    lost=st.integers(0, 2**50),
    closed=st.booleans(),
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
