"""EndTxn: what is answered, to whom, and with which epoch."""

from __future__ import annotations

import pytest
from transaction_host import NEW, OLD, ORDERS, Host, nearly_exhausted

from lossless.core.messages import Error
from lossless.core.transactions.messages import EndTxnAnswer, InitProducerIdAnswer
from lossless.core.transactions.state import EPOCH_LAST_USED, TransactionState

BOTH = pytest.mark.parametrize("version", [OLD, NEW])


@pytest.fixture
def host() -> Host:
    return Host()


@BOTH
@pytest.mark.parametrize(
    ("committed", "state"),
    [(True, TransactionState.PREPARE_COMMIT), (False, TransactionState.PREPARE_ABORT)],
)
def test_the_end_is_decided_before_it_is_carried_out(
    host: Host, version: int, committed: bool, state: TransactionState
) -> None:
    producer = host.open()
    assert host.end(producer, committed, version).error is Error.NONE
    assert host.state() is state


def test_the_answer_waits_for_the_decision_to_be_committed(host: Host) -> None:
    producer = host.open()
    host.is_committing = False
    assert host.end(producer, committed=True) is None
    assert host.sent == []
    host.commit()
    assert host.replies[host.tokens].error is Error.NONE
    assert len(host.sent) == 1


def test_from_version_5_on_every_end_raises_the_epoch(host: Host) -> None:
    producer = host.open()
    first = host.end(producer, committed=True, version=NEW)
    assert first == EndTxnAnswer(Error.NONE, producer.producer_id, 1)
    host.answer_all()
    assert host.add(first) is Error.NONE
    assert host.end(first, committed=False, version=NEW).producer_epoch == 2


def test_up_to_version_4_the_epoch_stays(host: Host) -> None:
    producer = host.open()
    ended = host.end(producer, committed=True, version=OLD)
    assert ended == EndTxnAnswer(Error.NONE, producer.producer_id, 0)
    host.answer_all()
    assert host.add(producer) is Error.NONE


@BOTH
@pytest.mark.parametrize("committed", [True, False])
def test_while_it_ends_whoever_asks_comes_again(host: Host, version: int, committed: bool) -> None:
    producer = host.open()
    host.end(producer, True, version)
    again = host.end(producer, committed, version)
    assert again == EndTxnAnswer(Error.CONCURRENT_TRANSACTIONS)


@BOTH
@pytest.mark.parametrize("committed", [True, False])
def test_who_asks_again_for_what_has_been_done_hears_so(
    host: Host, version: int, committed: bool
) -> None:
    producer = host.open()
    first = host.end(producer, committed, version)
    host.answer_all()
    before = len(host.log)
    assert host.end(producer, committed, version) == first
    assert len(host.log) == before


@BOTH
@pytest.mark.parametrize("committed", [True, False])
def test_who_asks_again_for_the_other_end_has_made_a_mistake(
    host: Host, version: int, committed: bool
) -> None:
    producer = host.open()
    host.end(producer, committed, version)
    host.answer_all()
    assert host.end(producer, not committed, version).error is Error.INVALID_TXN_STATE


@BOTH
def test_who_asks_again_after_a_failover_hears_the_same(host: Host, version: int) -> None:
    producer = host.open()
    first = host.end(producer, True, version)
    host.answer_all()
    host.fail_over()
    assert host.end(producer, True, version) == first


@BOTH
def test_a_commit_of_nothing_is_a_mistake(host: Host, version: int) -> None:
    producer = host.init()
    assert host.end(producer, True, version).error is Error.INVALID_TXN_STATE


def test_up_to_version_4_an_abort_of_nothing_is_a_mistake(host: Host) -> None:
    producer = host.init()
    assert host.end(producer, False, OLD).error is Error.INVALID_TXN_STATE


def test_from_version_5_on_nothing_can_be_aborted(host: Host) -> None:
    """The client may not know whether its partitions were added."""
    producer = host.init()
    answer = host.end(producer, committed=False)
    assert answer == EndTxnAnswer(Error.NONE, producer.producer_id, 1)
    assert [known.state for known in host.logged()[-2:]] == [
        TransactionState.PREPARE_ABORT,
        TransactionState.COMPLETE_ABORT,
    ]
    assert host.logged()[-1].start_timestamp_ms == host.now_ms


@pytest.mark.parametrize("committed", [True, False])
def test_from_version_5_on_nothing_can_be_aborted_after_an_end(host: Host, committed: bool) -> None:
    first = host.end(host.open(), committed)
    host.answer_all()
    assert host.end(first, committed=True).error is Error.INVALID_TXN_STATE
    second = host.end(first, committed=False)
    assert (second.error, second.producer_epoch) == (Error.NONE, 2)
    assert host.state() is TransactionState.COMPLETE_ABORT


@BOTH
def test_a_name_that_nobody_knows_has_nothing_to_end(host: Host, version: int) -> None:
    producer = host.init()
    answer = host.end(producer, True, version, name="bank")
    assert answer == EndTxnAnswer(Error.INVALID_PRODUCER_ID_MAPPING)


def test_without_a_name_nothing_ends(host: Host) -> None:
    assert host.end(host.init(), True, name="").error is Error.INVALID_REQUEST


@BOTH
def test_another_producer_id_ends_nothing(host: Host, version: int) -> None:
    producer = host.open()._replace(producer_id=1)
    assert host.end(producer, True, version).error is Error.INVALID_PRODUCER_ID_MAPPING
    assert host.state() is TransactionState.ONGOING


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (1, Error.INVALID_PRODUCER_EPOCH),
        (2, Error.PRODUCER_FENCED),
        (OLD, Error.PRODUCER_FENCED),
        (NEW, Error.PRODUCER_FENCED),
    ],
)
@pytest.mark.parametrize("epoch", [0, 2])
def test_another_epoch_ends_nothing(host: Host, version: int, error: Error, epoch: int) -> None:
    host.init()
    producer = host.init()
    host.add(producer)
    other = producer._replace(producer_epoch=epoch)
    assert host.end(other, True, version).error is error
    assert host.state() is TransactionState.ONGOING


def test_who_has_been_replaced_ends_nothing_even_with_the_epoch_before(host: Host) -> None:
    """Another instance has begun and ended since: that its epoch is one more is chance."""
    host.init()
    zombie = InitProducerIdAnswer(Error.NONE, 1000, 0)
    producer = host.init()
    host.add(producer, version=3)
    host.end(producer, True, OLD)
    host.answer_all()
    assert host.end(zombie, True, NEW).error is Error.PRODUCER_FENCED


def test_a_commit_of_what_was_aborted_by_time_is_a_mistake(host: Host) -> None:
    producer = host.open()
    host.wait(120_000)
    assert host.end(producer, True).error is Error.CONCURRENT_TRANSACTIONS
    host.answer_all()
    assert host.end(producer, True).error is Error.INVALID_TXN_STATE


def test_an_abort_of_what_was_aborted_by_time_goes_on_with_the_new_epoch(host: Host) -> None:
    producer = host.open()
    host.wait(120_000)
    host.answer_all()
    answer = host.end(producer, committed=False)
    assert (answer.error, answer.producer_epoch) == (Error.NONE, 1)
    assert host.add(answer) is Error.NONE


def test_up_to_version_4_who_was_aborted_by_time_is_fenced(host: Host) -> None:
    producer = host.open()
    host.wait(120_000)
    host.answer_all()
    assert host.end(producer, False, OLD).error is Error.PRODUCER_FENCED


# The last epoch


@pytest.mark.parametrize("committed", [True, False])
def test_at_the_last_epoch_who_asks_again_is_known_by_its_old_producer_id(
    host: Host, committed: bool
) -> None:
    host.put("shop", nearly_exhausted(TransactionState.ONGOING))
    producer = InitProducerIdAnswer(Error.NONE, 500, EPOCH_LAST_USED)
    first = host.end(producer, committed)
    assert host.end(producer, committed).error is Error.CONCURRENT_TRANSACTIONS
    host.answer_all()
    assert host.end(producer, committed) == first == EndTxnAnswer(Error.NONE, 1000, 0)
    assert host.end(producer, not committed).error is Error.INVALID_TXN_STATE
    assert host.add(first, ORDERS) is Error.NONE
    assert host.end(producer, committed).error is Error.INVALID_PRODUCER_ID_MAPPING


def test_at_the_last_epoch_the_next_producer_id_survives_a_failover(host: Host) -> None:
    host.put("shop", nearly_exhausted(TransactionState.ONGOING))
    producer = InitProducerIdAnswer(Error.NONE, 500, EPOCH_LAST_USED)
    ended = host.end(producer, committed=True)
    host.fail_over()
    host.answer_all()
    assert host.add(ended, ORDERS) is Error.NONE


def test_at_the_last_epoch_without_producer_ids_at_hand_nothing_ends(host: Host) -> None:
    host.put("shop", nearly_exhausted(TransactionState.ONGOING))
    host.has_ids = False
    producer = InitProducerIdAnswer(Error.NONE, 500, EPOCH_LAST_USED)
    assert host.end(producer, True).error is Error.COORDINATOR_LOAD_IN_PROGRESS
    assert host.state() is TransactionState.ONGOING
