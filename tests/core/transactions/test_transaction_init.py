"""InitProducerId: who gets which producer id and epoch, and who is fenced."""

from __future__ import annotations

from typing import Any

import pytest
from transaction_host import NEW, OLD, ORDERS, Host, nearly_exhausted

from lossless.core.messages import Error
from lossless.core.transactions.config import TransactionConfig
from lossless.core.transactions.messages import InitProducerId, InitProducerIdAnswer
from lossless.core.transactions.state import (
    EPOCH_LAST_USED,
    EPOCH_MAX,
    Transaction,
    TransactionState,
)


@pytest.fixture
def host() -> Host:
    return Host()


def as_itself(producer: Any) -> dict[str, int]:
    return {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}


def test_a_new_name_gets_a_producer_id_and_epoch_0(host: Host) -> None:
    assert host.init() == InitProducerIdAnswer(Error.NONE, 1000, 0)
    assert host.state() is TransactionState.EMPTY


def test_a_name_that_is_used_again_gets_the_next_epoch(host: Host) -> None:
    host.init()
    assert host.init() == InitProducerIdAnswer(Error.NONE, 1000, 1)


def test_two_names_never_share_a_producer_id(host: Host) -> None:
    assert host.init("shop").producer_id != host.init("bank").producer_id


def test_a_timeout_that_is_given_again_takes_the_place_of_the_one_before(host: Host) -> None:
    host.init()
    host.init(transaction_timeout_ms=5)
    assert host.shard.transactions["shop"].transaction_timeout_ms == 5


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_refused(host: Host, timeout_ms: int) -> None:
    answer = host.init(transaction_timeout_ms=timeout_ms)
    assert answer.error is Error.INVALID_TRANSACTION_TIMEOUT
    assert host.log == []


def test_the_largest_timeout_is_allowed(host: Host) -> None:
    assert host.init(transaction_timeout_ms=900_000).error is Error.NONE


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("", {}),
        ("n" * (1 << 15), {}),
        ("shop", {"producer_id": 1}),
        ("shop", {"producer_epoch": 1}),
    ],
)
def test_what_is_not_a_request_is_refused(host: Host, name: str, fields: dict[str, int]) -> None:
    assert host.init(name, **fields).error is Error.INVALID_REQUEST


def test_without_producer_ids_at_hand_a_new_name_comes_again(host: Host) -> None:
    host.has_ids = False
    assert host.init().error is Error.COORDINATOR_LOAD_IN_PROGRESS
    host.has_ids = True
    assert host.init().error is Error.NONE


# While something is going on


def test_what_is_going_on_is_aborted_first(host: Host) -> None:
    host.open()
    assert host.init().error is Error.CONCURRENT_TRANSACTIONS
    assert host.state() is TransactionState.PREPARE_ABORT
    (send,) = host.sent
    assert (send.request.producer_epoch, send.request.committed) == (1, False)


def test_while_it_ends_whoever_asks_comes_again(host: Host) -> None:
    host.open()
    host.init()
    assert host.init().error is Error.CONCURRENT_TRANSACTIONS
    host.answer_all()
    assert host.init() == InitProducerIdAnswer(Error.NONE, 1000, 2)


def test_the_epoch_of_the_abort_is_nobodys(host: Host) -> None:
    """The producer before has 0, the abort 1, and who asked for it 2."""
    before = host.open()
    host.init()
    host.answer_all()
    after = host.init()
    assert after.producer_epoch == before.producer_epoch + 2
    assert host.add(before) is Error.PRODUCER_FENCED


def test_the_abort_is_told_of_when_it_is_committed(host: Host) -> None:
    host.open()
    host.is_committing = False
    assert host.ask(InitProducerId("shop", 60_000)) is None
    assert host.sent == []
    host.commit()
    assert host.replies[host.tokens].error is Error.CONCURRENT_TRANSACTIONS
    assert len(host.sent) == 1


# As itself (KIP-360)


def test_a_producer_goes_on_as_itself_with_the_next_epoch(host: Host) -> None:
    producer = host.init()
    assert host.init(**as_itself(producer)) == producer._replace(producer_epoch=1)


def test_who_asks_again_gets_the_same_epoch_again(host: Host) -> None:
    producer = host.init()
    first = host.init(**as_itself(producer))
    assert host.init(**as_itself(producer)) == first
    assert host.init(**as_itself(producer)) == first


def test_who_has_been_replaced_is_fenced(host: Host) -> None:
    producer = host.init()
    host.init()
    assert host.init(**as_itself(producer)).error is Error.PRODUCER_FENCED


def test_who_asks_again_after_a_failover_is_fenced(host: Host) -> None:
    """Kafka's records do not have the epoch before."""
    producer = host.init()
    host.init(**as_itself(producer))
    host.fail_over()
    assert host.init(**as_itself(producer)).error is Error.PRODUCER_FENCED


def test_another_producer_id_is_fenced(host: Host) -> None:
    host.init()
    answer = host.init(producer_id=1, producer_epoch=0)
    assert answer.error is Error.PRODUCER_FENCED


@pytest.mark.parametrize(
    ("version", "error"), [(3, Error.INVALID_PRODUCER_EPOCH), (4, Error.PRODUCER_FENCED)]
)
def test_old_clients_know_fencing_by_another_name(host: Host, version: int, error: Error) -> None:
    host.init()
    assert host.init(producer_id=1, producer_epoch=0, version=version).error is error


def test_a_name_that_was_forgotten_goes_on_with_a_new_producer_id(host: Host) -> None:
    assert host.init(producer_id=1, producer_epoch=9) == InitProducerIdAnswer(Error.NONE, 1000, 0)


def test_a_producer_goes_on_after_its_transaction_was_aborted_for_it(host: Host) -> None:
    producer = host.open()
    host.wait(120_000)
    host.answer_all()
    assert host.init(**as_itself(producer)) == producer._replace(producer_epoch=1)


def test_under_version_1_a_producer_whose_transaction_was_aborted_is_fenced() -> None:
    host = Host(TransactionConfig(transaction_version=1))
    producer = host.open()
    host.wait(120_000)
    host.answer_all()
    assert host.init(**as_itself(producer)).error is Error.PRODUCER_FENCED


def test_an_end_that_raises_the_epoch_leaves_the_one_before_for_who_asks_again(host: Host) -> None:
    producer = host.open()
    ended = host.end(producer, committed=True)
    host.answer_all()
    answer = host.init(**as_itself(producer))
    assert (answer.error, answer.producer_epoch) == (Error.NONE, ended.producer_epoch)


def test_an_end_that_keeps_the_epoch_keeps_the_one_before_as_well(host: Host) -> None:
    first = host.init()
    producer = host.init(**as_itself(first))
    host.add(producer)
    host.end(producer, committed=True, version=OLD)
    host.answer_all()
    assert host.init(**as_itself(first)) == producer


# The last epoch


def test_after_the_last_epoch_comes_another_producer_id(host: Host) -> None:
    host.put("shop", nearly_exhausted())
    assert host.init() == InitProducerIdAnswer(Error.NONE, 1000, 0)


def test_who_used_its_epochs_up_and_asks_again_gets_the_same_producer_id(host: Host) -> None:
    host.put("shop", nearly_exhausted())
    itself = {"producer_id": 500, "producer_epoch": EPOCH_LAST_USED}
    assert host.init(**itself) == InitProducerIdAnswer(Error.NONE, 1000, 0)
    assert host.init(**itself) == InitProducerIdAnswer(Error.NONE, 1000, 0)
    assert host.init(**itself) == InitProducerIdAnswer(Error.NONE, 1000, 0)


def test_without_producer_ids_at_hand_an_exhausted_producer_comes_again(host: Host) -> None:
    host.put("shop", nearly_exhausted())
    host.has_ids = False
    assert host.init().error is Error.COORDINATOR_LOAD_IN_PROGRESS


def test_the_last_usable_epoch_is_given_to_who_asks_again_for_it(host: Host) -> None:
    host.put("shop", nearly_exhausted()._replace(producer_epoch=EPOCH_LAST_USED - 1))
    itself = {"producer_id": 500, "producer_epoch": EPOCH_LAST_USED - 1}
    assert host.init(**itself).producer_epoch == EPOCH_LAST_USED
    assert host.init(**itself).producer_epoch == EPOCH_LAST_USED


def test_there_is_always_an_epoch_left_to_fence_with(host: Host) -> None:
    host.put("shop", nearly_exhausted(TransactionState.ONGOING))
    assert host.init().error is Error.CONCURRENT_TRANSACTIONS
    host.answer_all()
    assert host.shard.transactions["shop"].producer_epoch == EPOCH_MAX
    assert host.init() == InitProducerIdAnswer(Error.NONE, 1000, 0)


def test_the_fencing_epoch_is_given_to_nobody(host: Host) -> None:
    host.put("shop", nearly_exhausted(TransactionState.ONGOING))
    producer = InitProducerIdAnswer(Error.NONE, 500, EPOCH_LAST_USED)
    host.init()
    host.answer_all()
    assert host.end(producer, committed=False).error is Error.PRODUCER_FENCED
    guessed = producer._replace(producer_epoch=EPOCH_MAX)
    assert host.add(guessed) is Error.PRODUCER_FENCED
    assert host.end(guessed, committed=False).error is Error.PRODUCER_FENCED
    assert host.end(guessed, committed=False, version=OLD).error is Error.PRODUCER_FENCED
    again = host.init(producer_id=500, producer_epoch=EPOCH_LAST_USED)
    assert again == InitProducerIdAnswer(Error.NONE, 1000, 0)


def test_an_epoch_that_is_neither_this_nor_the_one_before_is_fenced_at_the_end_too(
    host: Host,
) -> None:
    host.put("shop", nearly_exhausted())
    answer = host.init(producer_id=500, producer_epoch=3)
    assert answer.error is Error.PRODUCER_FENCED


def test_a_transaction_of_version_2_at_the_last_epoch_ends_with_another_producer_id(
    host: Host,
) -> None:
    ongoing: Transaction = nearly_exhausted(TransactionState.ONGOING)
    host.put("shop", ongoing)
    producer = InitProducerIdAnswer(Error.NONE, 500, EPOCH_LAST_USED)
    answer = host.end(producer, committed=True, version=NEW)
    assert (answer.error, answer.producer_id, answer.producer_epoch) == (Error.NONE, 1000, 0)
    (send,) = host.sent
    assert (send.request.partition, send.request.producer_id) == (ORDERS, 500)
    assert send.request.producer_epoch == EPOCH_MAX
