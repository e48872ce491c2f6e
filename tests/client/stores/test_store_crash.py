"""kill -9 at every step, and members that wake after their partition has moved."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from store_databases import Database
from store_worker import END, GROUP, ORDERS, POINTS, apply_all

WORKER = Path(__file__).with_name("store_worker.py")
TIMEOUT_S = 60


def _started(database: Database, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WORKER), database.kind, database.target, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _holds_together(database: Database, end: int) -> None:
    """The rows, the total, the state and the offset all say the same."""
    assert database.offsets() == list(range(end))
    assert database.query("SELECT total FROM totals") == ([(end,)] if end else [])
    store = database.open()
    assert store.claim(GROUP, [ORDERS]) == {ORDERS: end or None}
    with store.begin() as unit:
        assert unit.state(ORDERS).get("count", 0) == end


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_member_leaves_whole_units(database: Database, point: str) -> None:
    with _started(database, "die", point, "2") as member:
        assert member.wait(TIMEOUT_S) == -9

    _holds_together(database, 6 if point == "after-commit" else 4)
    apply_all(database.open())
    _holds_together(database, END)


def test_members_that_are_killed_one_after_another_apply_each_record_once(
    database: Database,
) -> None:
    for point in ("within-commit", "after-commit", "before-commit", "after-commit"):
        with _started(database, "die", point, "0") as member:
            assert member.wait(TIMEOUT_S) == -9
    apply_all(database.open())
    _holds_together(database, END)


def test_a_member_that_wakes_after_its_partition_moved_stores_nothing(database: Database) -> None:
    with _waiting_at(database, "claimed") as zombie:
        apply_all(database.open())
        assert _goes_on(zombie) == "PartitionLost"
    _holds_together(database, END)


def test_a_member_that_is_overtaken_between_units_stores_nothing_more(database: Database) -> None:
    with _waiting_at(database, "after-commit") as zombie:
        owner = database.open()
        assert owner.claim(GROUP, [ORDERS]) == {ORDERS: 2}
        assert _goes_on(zombie) == "PartitionLost"
        assert owner.positions() == {ORDERS: 2}
        apply_all(owner)
    _holds_together(database, END)


@pytest.mark.parametrize("kind", ["postgres"])
@pytest.mark.parametrize(
    ("point", "told"), [("before-commit", "StoreUnavailable"), ("within-commit", "PartitionLost")]
)
def test_what_a_sleeping_member_has_locked_is_not_in_the_way(
    database: Database, point: str, told: str
) -> None:
    """It has changed the row of the total, and within the commit that of the ledger too."""
    with _waiting_at(database, point) as zombie:
        apply_all(database.open())
        _holds_together(database, END)
        assert _goes_on(zombie) == told
    _holds_together(database, END)


def _waiting_at(database: Database, point: str) -> Any:
    member = _started(database, "wait", point)
    assert member.stdout is not None
    assert member.stdout.readline() == "WAITING\n"
    return member


def _goes_on(member: Any) -> str:
    said, _ = member.communicate("\n", timeout=TIMEOUT_S)
    return str(said).strip()
