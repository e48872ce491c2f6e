"""Ids that were seen, within a window that is bounded by count and by age."""

from __future__ import annotations

import datetime
import itertools
import math
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from store_databases import Database
from store_worker import GROUP, ORDERS

from lossless.client.stores.deduplication import Deduplicator, id_text
from lossless.client.stores.sql import SqlStore
from lossless.client.stores.sqlite import SqliteStore
from lossless.engines.waiting import wait_until
from lossless.errors import BadInput

COUNT_MAX, AGE_MAX_S = 3, 100.0


class Window(RuleBasedStateMachine):
    """Against a dictionary of when each id was last new, in order."""

    def __init__(self, folder: Path, numbers: Any) -> None:
        super().__init__()
        self.path = folder / f"{next(numbers)}.db"
        self.now_s = 1_000_000.0
        self.noted: dict[str, float] = {}
        self.latest: list[str] = []  # newest last
        self._open()

    def _open(self) -> None:
        self.window = Deduplicator(
            self.path, count_max=COUNT_MAX, age_max_s=AGE_MAX_S, clock=lambda: self.now_s
        )
        self.window.seen("nothing")  # ids age from the first use on

    @rule(operation=st.sampled_from("abcde"))
    def note(self, operation: str) -> None:
        was_new = self.window.first_time(operation)
        age_s = self.now_s - self.noted.get(operation, float("-inf"))
        if age_s > AGE_MAX_S + 0.01:
            assert was_new
        elif age_s < AGE_MAX_S - 0.01 and operation in self.latest[-COUNT_MAX:]:
            assert not was_new
        if was_new:
            self.noted[operation] = self.now_s
            self.latest = [other for other in self.latest if other != operation] + [operation]

    @rule(operation=st.sampled_from("abcde"))
    def look(self, operation: str) -> None:
        age_s = self.now_s - self.noted.get(operation, float("-inf"))
        if age_s > AGE_MAX_S + 0.01:
            assert not self.window.seen(operation)
        elif age_s < AGE_MAX_S - 0.01 and operation in self.latest[-COUNT_MAX:]:
            assert self.window.seen(operation)

    @rule(passed_s=st.sampled_from([0.5, 30, 200]))
    def time_passes(self, passed_s: float) -> None:
        self.now_s += passed_s

    @rule()
    def restart(self) -> None:
        """Ids do not age while no process uses the window, which begins at the newest one."""
        self.window.close()
        self.now_s = max(self.noted.values(), default=self.now_s)
        self._open()

    @invariant()
    def bounded(self) -> None:
        with self.window._store.transaction("a look of the test") as connection:
            (kept,) = connection.execute("SELECT count(*) FROM lossless_seen").fetchone()
        assert kept <= COUNT_MAX + self.window._forget_every

    def teardown(self) -> None:
        self.window.close()


def test_the_window_is_bounded_by_count_and_age_and_survives_restarts(tmp_path: Path) -> None:
    numbers = itertools.count()
    run_state_machine_as_test(
        lambda: Window(tmp_path, numbers),
        settings=settings(max_examples=50, stateful_step_count=30, deadline=None),
    )


def test_an_id_commits_with_the_unit(database: Database) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS])
    window = Deduplicator(store)

    unit = store.begin()
    assert window.first_time("op-1", unit)
    assert not window.first_time("op-1", unit)
    unit.rollback()

    with store.begin() as unit:
        assert not window.seen("op-1", unit)
        assert window.first_time("op-1", unit)
        unit.position(ORDERS, 1)
    after = database.open()
    after.claim(GROUP, [ORDERS])
    with after.begin() as unit:
        assert Deduplicator(after).seen("op-1", unit)
        assert not Deduplicator(after).first_time("op-1", unit)


@pytest.mark.parametrize("kind", ["postgres"])  # SQLite has one transaction at a time
def test_of_two_members_that_see_an_id_at_once_one_applies_it(database: Database) -> None:
    first, second = database.open(), database.open()
    first.claim(GROUP, [ORDERS])
    second.claim(GROUP, [("orders", 1)])
    early = first.begin()
    assert Deduplicator(first).first_time("op-1", early)
    with second.begin() as late, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(Deduplicator(second).first_time, "op-1", late)
        assert wait_until(lambda: _waits_for_a_lock(database), timeout_s=30)
        early.position(ORDERS, 1)
        early.commit()
        assert not waiting.result(30)


def _waits_for_a_lock(database: Database) -> bool:
    asked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = "
    return database.query(asked + "current_database()") == [(1,)]


def test_an_id_of_a_record_that_failed_is_new_again(database: Database) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS])
    window = Deduplicator(store)
    with store.begin() as unit:
        with suppress(RuntimeError), unit.savepoint():
            assert window.first_time("op-1", unit)
            raise RuntimeError
        assert window.first_time("op-1", unit)


def test_groups_and_names_have_windows_of_their_own(database: Database) -> None:
    for group, name in itertools.product(("billing", "shipping"), ("", "returns")):
        store = database.open()
        store.claim(group, [ORDERS])
        assert Deduplicator(store, name=name).first_time("op-1")
        assert not Deduplicator(store, name=name).first_time("op-1")


def test_old_ids_are_forgotten_in_a_database(database: Database) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS])
    window = Deduplicator(store, count_max=10)
    for number in range(40):
        with store.begin() as unit:
            assert window.first_time(number, unit)
    assert database.query("SELECT count(*) FROM lossless_seen") <= [(11,)]
    assert not any(window.first_time(number) for number in range(30, 40))


def test_an_id_that_is_too_old_is_new_again(database: Database) -> None:
    now_s = 1_000_000.0
    store = database.open()
    store.claim(GROUP, [ORDERS])
    window = Deduplicator(store, age_max_s=100, clock=lambda: now_s)
    assert window.first_time("op-1")
    now_s += 99
    assert not window.first_time("op-1")  # which does not make it younger
    now_s += 2
    assert not window.seen("op-1")
    assert window.first_time("op-1")
    assert not window.first_time("op-1")


@pytest.mark.parametrize("jump_s", [-3600.0, 400 * 24 * 3600.0])
def test_a_clock_that_jumps_forgets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    with Deduplicator(tmp_path / "seen.db", count_max=2) as window:
        window.first_time("a")
        later_s = time.time() + jump_s
        monkeypatch.setattr(time, "time", lambda: later_s)
        assert not window.first_time("a")
        window.first_time("b")
    with Deduplicator(tmp_path / "seen.db", count_max=2) as window:
        assert not window.first_time("b")
        window.first_time("c")
        assert window.seen("b")
        assert window.seen("c")


def test_a_unit_of_another_store_is_refused(tmp_path: Path) -> None:
    with (
        SqliteStore(tmp_path / "store.db") as store,
        Deduplicator(tmp_path / "seen.db") as window,
    ):
        store.claim(GROUP, [ORDERS])
        with store.begin() as unit, pytest.raises(BadInput, match="not of the store"):
            window.first_time("op-1", unit)


def test_a_store_without_a_group_is_refused(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store.db") as store, pytest.raises(BadInput, match="no group"):
        Deduplicator(store).first_time("op-1")


@pytest.mark.parametrize("bounds", [{"count_max": 0}, {"age_max_s": 0}, {"age_max_s": math.nan}])
def test_an_empty_window_is_refused(tmp_path: Path, bounds: Any) -> None:
    with pytest.raises(BadInput):
        Deduplicator(tmp_path / "seen.db", **bounds)


# --- ids

parts = st.text(max_size=4) | st.integers() | st.booleans() | st.dates() | st.none()
ids = st.text() | st.binary(max_size=8) | st.tuples(parts) | st.tuples(parts, parts)


@given(one=ids, other=ids)
def test_ids_that_differ_have_texts_that_differ(one: Any, other: Any) -> None:
    if id_text(one) == id_text(other):
        assert _canonical(one) == _canonical(other)


def _canonical(operation: Any) -> Any:
    match operation:
        case tuple():
            return [_canonical(part) for part in operation]
        case bytes():
            try:
                return operation.decode()
            except UnicodeDecodeError:
                return ("bytes", operation)
        case datetime.date():
            return operation.isoformat()
        case bool():
            return ("bool", operation)
    return operation


def test_the_bytes_of_a_header_are_the_text_they_encode() -> None:
    assert id_text(b"op-1") == id_text("op-1")
    assert id_text(("station 7", datetime.date(2026, 11, 16))) == '["station 7","2026-11-16"]'


def test_a_long_id_has_a_short_text() -> None:
    texts = {id_text("x" * length) for length in (10_000, 10_001)}
    assert len(texts) == 2
    assert all(len(text) < 100 for text in texts)


@pytest.mark.parametrize("operation", [None, 1.5, {"a": 1}, ()])
def test_what_is_no_id_is_refused(operation: Any) -> None:
    with pytest.raises(BadInput, match="cannot be the id"):
        id_text(operation)


def test_a_store_is_what_it_says(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "store.db") as store:
        assert isinstance(store, SqlStore)
        assert "store.db" in store.describe
