"""State of a partition: a mapping that behaves as a dictionary, and commits with the offset."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from store_databases import Database
from store_worker import GROUP, ORDERS

from lossless.client.errors import PartitionLost
from lossless.client.stores.sql import SqlStore
from lossless.client.stores.sql_unit import DatabaseUnit
from lossless.client.stores.sqlite import SqliteStore
from lossless.client.stores.state import StateCache
from lossless.errors import BadInput

OTHERS = ("orders", 1)

keys = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


class StateMachine(RuleBasedStateMachine):
    """Units that commit or roll back, savepoints, and owners that change, against a dict."""

    def __init__(self, folder: Path, numbers: Any) -> None:
        super().__init__()
        self.path = folder / f"{next(numbers)}.db"
        self.stored: dict[str, Any] = {}
        self.model: dict[str, Any] = {}
        self.next_offset = 0

    @initialize(keys_max=st.sampled_from([1, 3, 1000]))
    def start(self, keys_max: int) -> None:
        self.keys_max = keys_max
        self.store = SqliteStore(self.path)
        self._claim()
        self.unit: DatabaseUnit = self.store.begin()

    def _claim(self) -> None:
        self.store.claim(GROUP, [ORDERS])
        for claim in self.store._claims.values():
            claim.cache._keys_max = self.keys_max

    @property
    def state(self) -> Any:
        return self.unit.state(ORDERS)

    @rule(key=keys, value=values)
    def set(self, key: str, value: Any) -> None:
        self.state[key] = copy.deepcopy(value)
        self.model[key] = copy.deepcopy(value)

    @rule(key=keys)
    def get(self, key: str) -> None:
        assert self.state.get(key, "nothing") == self.model.get(key, "nothing")

    @rule(key=keys)
    def delete(self, key: str) -> None:
        found = key in self.model
        assert (key in self.state) == found
        if found:
            del self.state[key]
            del self.model[key]
        else:
            with pytest.raises(KeyError):
                del self.state[key]

    @precondition(lambda self: any(isinstance(value, list) for value in self.model.values()))
    @rule(data=st.data(), value=values)
    def change_in_place(self, data: Any, value: Any) -> None:
        lists = sorted(key for key, found in self.model.items() if isinstance(found, list))
        key = data.draw(st.sampled_from(lists))
        self.state[key].append(copy.deepcopy(value))
        self.model[key].append(copy.deepcopy(value))

    @rule(changes=st.dictionaries(keys, st.none() | values, max_size=3), fails=st.booleans())
    def in_a_savepoint(self, changes: dict[str, Any], fails: bool) -> None:
        before = copy.deepcopy(self.model)
        try:
            with self.unit.savepoint():
                for key, value in changes.items():
                    if value is None:
                        self.state.pop(key, None)
                        self.model.pop(key, None)
                    else:
                        self.set(key, value)
                for key in self.model:
                    if isinstance(self.model[key], list):
                        self.state[key].append(1)
                        self.model[key].append(1)
                if fails:
                    raise RuntimeError
        except RuntimeError:
            self.model = before

    @rule()
    def commit(self) -> None:
        self.next_offset += 1
        self.unit.position(ORDERS, self.next_offset)
        self.unit.commit()
        self.stored = copy.deepcopy(self.model)
        self.unit = self.store.begin()
        assert self.unit.next_offset(ORDERS) == self.next_offset

    @rule()
    def roll_back(self) -> None:
        self.unit.rollback()
        self.model = copy.deepcopy(self.stored)
        self.unit = self.store.begin()

    @rule()
    def another_owner(self) -> None:
        self.unit.rollback()
        self.store.close()
        self.store = SqliteStore(self.path)
        self._claim()
        self.model = copy.deepcopy(self.stored)
        self.unit = self.store.begin()

    @rule()
    def look_at_everything(self) -> None:
        assert dict(self.state) == self.model
        assert len(self.state) == len(self.model)

    @invariant()
    def cache_is_bounded(self) -> None:
        if hasattr(self, "store"):
            for claim in self.store._claims.values():
                assert len(claim.cache._texts) <= self.keys_max

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.look_at_everything()
            self.store.close()


def test_state_is_a_dictionary_that_commits_with_the_offset(tmp_path: Path) -> None:
    numbers = itertools.count()
    run_state_machine_as_test(
        lambda: StateMachine(tmp_path, numbers),
        settings=settings(max_examples=40, stateful_step_count=25, deadline=None),
    )


@given(stored=st.dictionaries(keys, st.text(max_size=2), max_size=4), key=keys)
def test_a_cache_says_what_is_stored(stored: dict[str, str], key: str) -> None:
    class Rows:
        def load(self, key: str) -> str | None:
            return stored.get(key)

        def load_all(self) -> dict[str, str]:
            return dict(stored)

    for keys_max, looks_at_all in itertools.product((1, 2, 1000), (False, True)):
        cache = StateCache(keys_max)
        if looks_at_all:
            assert cache.all_texts(Rows()) == stored
        assert cache.text(key, Rows()) == stored.get(key)
        assert cache.all_texts(Rows()) == stored


def test_each_partition_has_a_state_of_its_own(database: Database) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS, OTHERS])
    with store.begin() as unit:
        unit.state(ORDERS)["a"] = 1
        unit.state(OTHERS)["a"] = 2
    after = database.open()
    after.claim(GROUP, [ORDERS, OTHERS])
    with after.begin() as unit:
        assert dict(unit.state(ORDERS)) == {"a": 1}
        assert dict(unit.state(OTHERS)) == {"a": 2}


def test_what_an_owner_remembers_of_a_lost_partition_is_dropped(database: Database) -> None:
    """It comes back after another has changed its state."""
    first, second = database.open(), database.open()
    _set(first, "a", 1)
    _set(second, "a", 2)
    unit = first.begin()
    unit.state(ORDERS)["a"] = 3
    with pytest.raises(PartitionLost):
        unit.commit()

    first.claim(GROUP, [ORDERS])
    with first.begin() as unit:
        assert unit.state(ORDERS)["a"] == 2


def test_what_is_released_is_read_again(database: Database) -> None:
    first, second = database.open(), database.open()
    _set(first, "a", 1)
    first.release([ORDERS])
    _set(second, "a", 2)
    second.release([ORDERS])
    _set(first, "b", 1)
    with first.begin() as unit:
        assert dict(unit.state(ORDERS)) == {"a": 2, "b": 1}


def test_values_of_an_earlier_unit_are_nobodys_state(database: Database) -> None:
    store = database.open()
    _set(store, "a", [1])
    with store.begin() as unit:
        kept = unit.state(ORDERS)["a"]
    kept.append(2)
    with store.begin() as unit:
        assert unit.state(ORDERS)["a"] == [1]


def test_odd_texts_are_kept_as_they_are(database: Database) -> None:
    store = database.open()
    texts = ["\0", "\ud800", "ß'\"%s?", "\U0001f600", ""]
    _set(store, "ß'\"%s?", texts)
    after = database.open()
    after.claim(GROUP, [ORDERS])
    with after.begin() as unit:
        assert dict(unit.state(ORDERS)) == {"ß'\"%s?": texts}


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"bytes", object()])
def test_what_is_no_json_is_refused_where_it_is_set(database: Database, value: Any) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS])
    with store.begin() as unit, pytest.raises(BadInput, match="cannot be written as JSON"):
        unit.state(ORDERS)["a"] = value


@pytest.mark.parametrize("key", ["\0", "\ud800", 1, None])
def test_keys_that_databases_refuse_are_refused(database: Database, key: Any) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS])
    with store.begin() as unit, pytest.raises(BadInput, match="key"):
        unit.state(ORDERS)[key] = 1


def _set(store: SqlStore, key: str, value: Any) -> None:
    next_offset = store.claim(GROUP, [ORDERS])[ORDERS] or 0
    with store.begin() as unit:
        unit.state(ORDERS)[key] = value
        unit.position(ORDERS, next_offset + 1)


def test_a_database_that_is_read_once_is_not_asked_again(
    make_database: Callable[[str], Database],
) -> None:
    store = make_database("sqlite").open()
    _set(store, "a", 1)
    asked: list[str] = []
    with store.begin() as unit:
        assert unit.state(ORDERS)["a"] == 1
        unit._connection.set_trace_callback(asked.append)
        unit.state(ORDERS)["a"] = 2
        unit.position(ORDERS, 2)
        assert asked == []
    unit = store.begin()
    unit._connection.set_trace_callback(asked.append)
    assert unit.state(ORDERS)["a"] == 2
    unit.rollback()
    assert not [statement for statement in asked if "SELECT" in statement]
