"""Rows, state and offsets move together, on SQLite and on PostgreSQL."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread
from typing import Any

import pytest
from confluent_kafka import Message
from psycopg import sql
from store_databases import Database
from store_worker import GROUP, ORDERS, apply, apply_all, placeholder_of

from lossless.client.errors import InvalidPosition, Kind, PartitionLost, StoreUnavailable
from lossless.client.stores.interface import Store, TopicPartition
from lossless.client.stores.sql import SqlStore
from lossless.errors import BadInput

OTHERS = ("orders", 1)


def test_a_new_group_has_no_position(database: Database) -> None:
    store: Store = database.open()

    assert store.claim(GROUP, [ORDERS, OTHERS]) == {ORDERS: None, OTHERS: None}
    assert store.positions() == {ORDERS: None, OTHERS: None}


def test_rows_state_and_offset_are_stored_together(database: Database) -> None:
    store = database.open()
    apply_all(store)

    after = database.open()
    assert after.claim(GROUP, [ORDERS]) == {ORDERS: 10}
    assert database.offsets() == list(range(10))
    with after.begin() as unit:
        assert unit.state(ORDERS) == {"count": 10}


def test_a_rollback_takes_back_everything(database: Database) -> None:
    store = database.open()
    apply_all(store, end=4)
    unit = store.begin()
    apply(unit, 4, placeholder_of(store))
    unit.rollback()

    assert store.positions() == {ORDERS: 4}
    assert database.offsets() == [0, 1, 2, 3]
    with store.begin() as again:
        assert again.state(ORDERS)["count"] == 4


def test_an_exception_in_the_block_rolls_back(database: Database) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS])
    with suppress(RuntimeError), store.begin() as unit:
        apply(unit, 0, placeholder_of(store))
        raise RuntimeError("the handler's")

    assert database.offsets() == []
    assert store.positions() == {ORDERS: None}


def test_groups_do_not_see_each_other(database: Database) -> None:
    apply_all(database.open())

    assert database.open().claim("another", [ORDERS]) == {ORDERS: None}


def test_one_store_serves_one_group(database: Database) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS])
    with pytest.raises(BadInput, match="already serves"):
        store.claim("another", [ORDERS])


# --- topics that were deleted and created again


def test_a_position_of_another_topic_with_the_same_name_is_refused(database: Database) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS], topic_ids={"orders": "first"})
    apply_all(store)

    again = database.open()
    with pytest.raises(InvalidPosition, match="deleted and created again"):
        again.claim(GROUP, [ORDERS], topic_ids={"orders": "second"})
    with store.begin() as unit:  # the owner was not fenced
        unit.position(ORDERS, 11)
    assert again.claim(GROUP, [ORDERS], topic_ids={"orders": "first"}) == {ORDERS: 11}


def test_a_topic_id_is_kept_once_it_is_known(database: Database) -> None:
    apply_all(database.open())  # by a broker without topic ids
    store = database.open()
    assert store.claim(GROUP, [ORDERS], topic_ids={"orders": "first"}) == {ORDERS: 10}
    assert store.claim(GROUP, [ORDERS]) == {ORDERS: 10}
    with pytest.raises(InvalidPosition):
        store.claim(GROUP, [ORDERS], topic_ids={"orders": "second"})


def test_tables_of_an_earlier_version_are_used(database: Database) -> None:
    apply_all(database.open())
    database.change("ALTER TABLE lossless_offsets DROP COLUMN topic_id")
    store = database.open()
    assert store.claim(GROUP, [ORDERS], topic_ids={"orders": "first"}) == {ORDERS: 10}


# --- what is stored is not applied again


def test_a_unit_knows_what_was_applied(database: Database) -> None:
    store = database.open()
    apply_all(store, end=4)
    with store.begin() as unit:
        assert unit.applied(_message(3))
        assert not unit.applied(_message(4))
        unit.position(ORDERS, 5)
        assert unit.applied(_message(4))


def test_a_position_never_goes_back(database: Database) -> None:
    store = database.open()
    apply_all(store, end=4)
    with store.begin() as unit:
        with pytest.raises(InvalidPosition, match="stored up to 4"):
            unit.position(ORDERS, 3)
        unit.position(ORDERS, 9)
        with pytest.raises(InvalidPosition, match="stored up to 9"):
            unit.position(_message(4), 5)
    assert store.positions() == {ORDERS: 9}


# --- zombies


def test_the_old_owner_is_refused_before_the_new_one_wrote(database: Database) -> None:
    zombie, owner = database.open(), database.open()
    apply_all(zombie, end=4)

    assert owner.claim(GROUP, [ORDERS]) == {ORDERS: 4}
    unit = zombie.begin()
    apply(unit, 4, placeholder_of(zombie))
    with pytest.raises(PartitionLost) as lost:
        unit.commit()

    assert lost.value.partitions == [ORDERS]
    assert lost.value.kind is Kind.FATAL
    assert database.offsets() == [0, 1, 2, 3]
    apply_all(owner)
    assert database.offsets() == list(range(10))


def test_the_old_owner_is_refused_after_the_new_one_wrote(database: Database) -> None:
    zombie, owner = database.open(), database.open()
    apply_all(zombie, end=4)
    apply_all(owner)

    unit = zombie.begin()
    apply(unit, 4, placeholder_of(zombie))
    with pytest.raises(PartitionLost):
        unit.commit()

    assert database.offsets() == list(range(10))
    assert owner.positions() == {ORDERS: 10}


def test_the_old_owner_who_commits_first_is_seen_by_the_new_one(database: Database) -> None:
    first, second = database.open(), database.open()
    apply_all(first, end=4)

    assert second.claim(GROUP, [ORDERS]) == {ORDERS: 4}


def test_a_unit_that_loses_one_partition_stores_nothing_of_the_others(database: Database) -> None:
    store, thief = database.open(), database.open()
    store.claim(GROUP, [ORDERS, OTHERS])
    thief.claim(GROUP, [OTHERS])
    unit = store.begin()
    apply(unit, 0, placeholder_of(store))
    unit.position(OTHERS, 7)
    with pytest.raises(PartitionLost) as lost:
        unit.commit()

    assert lost.value.partitions == [OTHERS]
    assert database.offsets() == []
    assert store.positions() == {ORDERS: None}
    assert thief.positions() == {OTHERS: None}


def test_who_asks_for_positions_takes_nothing_back(database: Database) -> None:
    zombie, owner = database.open(), database.open()
    zombie.claim(GROUP, [ORDERS])
    owner.claim(GROUP, [ORDERS])

    with pytest.raises(PartitionLost):
        zombie.positions()
    assert zombie.positions() == {}
    apply_all(owner)
    assert database.offsets() == list(range(10))


@pytest.mark.parametrize("kind", ["postgres"])  # on SQLite the claim waits for the unit
def test_a_claim_by_the_same_store_fences_its_earlier_units_and_stays(
    database: Database,
) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS])
    unit = store.begin()
    apply(unit, 0, placeholder_of(store))
    store.claim(GROUP, [ORDERS])
    with pytest.raises(PartitionLost):
        unit.commit()
    with store.begin() as after:
        apply(after, 0, placeholder_of(store))
    assert database.offsets() == [0]


def test_a_released_partition_is_lost_to_the_open_unit(database: Database) -> None:
    store = database.open()
    apply_all(store, end=2)
    unit = store.begin()
    apply(unit, 2, placeholder_of(store))
    store._lose([TopicPartition(*ORDERS)])  # what release does first; SQLite would wait after it
    with pytest.raises(PartitionLost):
        unit.commit()
    assert database.offsets() == [0, 1]


@pytest.mark.parametrize("kind", ["postgres"])  # on SQLite the claim waits for the unit
def test_a_partition_that_comes_while_a_unit_is_open_can_be_in_it(database: Database) -> None:
    store, members = database.open(), database.open()
    store.claim(GROUP, [ORDERS])
    unit = store.begin()
    store.claim(GROUP, [OTHERS])
    unit.position(OTHERS, 3)
    unit.commit()
    assert store.positions() == {ORDERS: None, OTHERS: 3}
    assert members.ledger(GROUP)[TopicPartition(*OTHERS)].next_offset == 3


def test_release_leaves_what_another_has_claimed(database: Database) -> None:
    store, other = database.open(), database.open()
    store.claim(GROUP, [ORDERS])
    other.claim(GROUP, [ORDERS])
    store.release([ORDERS])

    apply_all(other)
    assert database.offsets() == list(range(10))
    other.release([ORDERS])
    assert database.open().ledger(GROUP)[TopicPartition(*ORDERS)].owner is None


def test_a_partition_that_was_never_claimed_is_refused(database: Database) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS])
    with store.begin() as unit, pytest.raises(PartitionLost):
        unit.position(OTHERS, 1)


def test_a_ledger_that_was_moved_by_hand_is_noticed(database: Database) -> None:
    store = database.open()
    apply_all(store, end=4)
    database.change("UPDATE lossless_offsets SET next_offset = 3")
    unit = store.begin()
    apply(unit, 4, placeholder_of(store))
    with pytest.raises(PartitionLost):
        unit.commit()
    assert database.offsets() == [0, 1, 2, 3]


def test_a_ledger_that_was_emptied_is_noticed(database: Database) -> None:
    store = database.open()
    apply_all(store, end=4)
    database.change("DELETE FROM lossless_offsets")
    unit = store.begin()
    apply(unit, 4, placeholder_of(store))
    with pytest.raises(PartitionLost):
        unit.commit()
    assert database.offsets() == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["postgres"])  # SQLite has one transaction at a time
def test_of_two_units_of_one_partition_one_is_stored(database: Database) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS])
    first, second = store.begin(), store.begin()
    second.execute("INSERT INTO applied (record_offset) VALUES (0)")
    second.position(ORDERS, 1)
    apply(first, 0, placeholder_of(store))
    first.commit()
    with pytest.raises(PartitionLost):
        second.commit()
    assert database.offsets() == [0]


def test_a_zombie_cannot_write_without_a_position_either(database: Database) -> None:
    zombie, owner = database.open(), database.open()
    apply_all(zombie, end=4)
    owner.claim(GROUP, [ORDERS])
    unit = zombie.begin()
    unit.execute("INSERT INTO applied (record_offset) VALUES (4)")
    with pytest.raises(PartitionLost):
        unit.commit()
    assert database.offsets() == [0, 1, 2, 3]


def test_members_that_claim_from_each_other_all_the_time_apply_each_record_once(
    database: Database,
) -> None:
    """Each takes the partition as soon as it has lost it."""
    failures: list[BaseException] = []

    def member(store: SqlStore) -> None:
        try:
            reached = 0
            while reached < 40:
                # Whoever claims ends what the other has under way, its claim included.
                with suppress(PartitionLost, StoreUnavailable):
                    reached = store.claim(GROUP, [ORDERS])[ORDERS] or 0
                    apply_all(store, end=40)
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=member, args=[database.open()]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert database.offsets() == list(range(40))
    assert database.query("SELECT total FROM totals") == [(40,)]


@pytest.mark.parametrize("kind", ["postgres"])
def test_statements_that_psycopg_composes_are_taken(database: Database) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS])
    with store.begin() as unit:
        table = sql.SQL("INSERT INTO {} VALUES ({})").format(sql.Identifier("applied"), 7)
        unit.execute(table)
        unit.position(ORDERS, 1)
    assert database.offsets() == [7]


# --- savepoints


def test_a_failed_record_is_taken_back_alone(database: Database) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS])
    with store.begin() as unit:
        apply(unit, 0, placeholder_of(store))
        with suppress(RuntimeError), unit.savepoint():
            apply(unit, 1, placeholder_of(store))
            unit.state(ORDERS)["broken"] = True
            raise RuntimeError
        with unit.savepoint():
            apply(unit, 1, placeholder_of(store))
    assert database.offsets() == [0, 1]
    with store.begin() as unit:
        assert unit.state(ORDERS) == {"count": 2}
        assert unit.next_offset(ORDERS) == 2


def test_a_failed_statement_is_taken_back_with_its_savepoint(database: Database) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS])
    with store.begin() as unit:
        apply(unit, 0, placeholder_of(store))
        with pytest.raises(store.dialect.errors), unit.savepoint():
            unit.execute("INSERT INTO nowhere VALUES (1)")
        apply(unit, 1, placeholder_of(store))
    assert database.offsets() == [0, 1]


def test_a_savepoint_without_statements_costs_nothing_and_takes_back_state(
    database: Database,
) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS])
    with store.begin() as unit:
        state = unit.state(ORDERS)
        state["kept"] = [1]
        with suppress(RuntimeError), unit.savepoint():
            state["kept"].append(2)
            state["new"] = 1
            unit.position(ORDERS, 5)
            raise RuntimeError
        assert state == {"kept": [1]}
        with unit.savepoint():
            state["kept"].append(3)
        unit.position(ORDERS, 1)
    with store.begin() as unit:
        assert unit.state(ORDERS) == {"kept": [1, 3]}


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_transaction_that_was_lost_in_a_savepoint_stores_nothing(database: Database) -> None:
    store = database.open()
    store.execute("CREATE TABLE keyed (id INTEGER PRIMARY KEY ON CONFLICT ROLLBACK)")
    store.claim(GROUP, [ORDERS])
    unit = store.begin()
    apply(unit, 0, "?")
    unit.execute("INSERT INTO keyed VALUES (1)")
    with pytest.raises(store.dialect.errors, match="UNIQUE"), unit.savepoint():
        unit.execute("INSERT INTO keyed VALUES (1)")
    with pytest.raises(BadInput, match="nothing of it can be stored"):
        unit.commit()
    assert database.offsets() == []
    assert store.positions() == {ORDERS: None}


def test_savepoints_follow_one_another(database: Database) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS])
    with store.begin() as unit:
        for offset in range(6):
            with suppress(RuntimeError), unit.savepoint():
                apply(unit, offset, placeholder_of(store))
                if offset % 3 == 1:
                    raise RuntimeError
            if offset % 3 == 2:
                unit.execute("INSERT INTO applied (record_offset) VALUES (100)")  # in none of them
    assert database.offsets() == [0, 2, 3, 5, 100, 100]
    with store.begin() as unit:
        assert unit.state(ORDERS) == {"count": 4}


# --- handlers that go wrong


@pytest.mark.parametrize("statement", ["COMMIT", " rollback;", "BEGIN", "end"])
def test_a_handler_cannot_end_the_transaction(database: Database, statement: str) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS])
    unit = store.begin()
    with pytest.raises(BadInput, match="in a unit"):
        unit.execute(statement)
    unit.rollback()


def test_a_failed_statement_that_was_swallowed_stores_nothing_on_postgres(
    database: Database,
) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS])
    unit = store.begin()
    apply(unit, 0, placeholder_of(store))
    with pytest.raises(store.dialect.errors):
        unit.execute("INSERT INTO nowhere VALUES (1)")
    if database.kind == "postgres":
        with pytest.raises(BadInput, match="nothing of it can be stored"):
            unit.commit()
        assert database.offsets() == []
    else:  # SQLite takes back the statement alone
        unit.commit()
        assert database.offsets() == [0]


def test_a_constraint_that_fails_at_the_commit_stores_nothing(database: Database) -> None:
    database.change("CREATE TABLE parents (id BIGINT PRIMARY KEY)")
    database.change(
        "CREATE TABLE children (parent BIGINT REFERENCES parents (id) "
        "DEFERRABLE INITIALLY DEFERRED)"
    )
    store = database.open()
    store.claim(GROUP, [ORDERS])
    unit = store.begin()
    apply(unit, 0, placeholder_of(store))
    unit.execute("INSERT INTO children VALUES (1)")
    with pytest.raises(store.dialect.errors, match=r"(?i)foreign key"):
        unit.commit()
    assert database.offsets() == []
    assert store.positions() == {ORDERS: None}
    apply_all(store)
    assert database.offsets() == list(range(10))


def test_a_unit_that_is_over_is_over(database: Database) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS])
    unit = store.begin()
    unit.commit()
    unit.rollback()
    with pytest.raises(BadInput, match="over"):
        unit.execute("SELECT 1")
    with pytest.raises(BadInput, match="over"):
        unit.commit()


def test_a_closed_store_says_so(database: Database) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS])
    unit = store.begin()
    apply(unit, 0, placeholder_of(store))
    store.close()
    with pytest.raises(BadInput, match="closed"):
        store.begin()
    assert database.offsets() == []


def test_an_interrupt_in_the_commit_is_looked_into_before_anything_else(
    database: Database,
) -> None:
    store = database.open()
    store.claim(GROUP, [ORDERS])
    unit = store.begin()
    apply(unit, 0, placeholder_of(store))
    connection = unit._connection
    unit._connection = _InterruptedAfterCommit(connection)
    with pytest.raises(KeyboardInterrupt):
        unit.commit()

    with store.begin() as after:
        assert after.next_offset(ORDERS) == 1
        assert after.applied(_message(0))
        assert after.state(ORDERS) == {"count": 1}
    assert database.offsets() == [0]


class _InterruptedAfterCommit:
    """Ctrl-C at the worst moment: the database has done it, and nobody was told."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def commit(self) -> None:
        self._connection.commit()
        raise KeyboardInterrupt


def _message(offset: int) -> Any:
    return Message(topic=ORDERS[0], partition=ORDERS[1], offset=offset)


def test_errors_are_of_a_kind() -> None:
    assert StoreUnavailable("it is down").kind is Kind.RETRIABLE
    assert StoreUnavailable.exit_code == 4
