"""A leader writes for a transaction only when the coordinator knows that it takes part."""

from __future__ import annotations

from typing import Any

import pytest
from transaction_host import ORDERS, PAYMENTS

from lossless.core.messages import Error, Producer, TopicPartition
from lossless.core.transactions.config import VerificationConfig
from lossless.core.transactions.messages import (
    AddPartitionsToTxn,
    AddPartitionsToTxnAnswer,
    refusal,
)
from lossless.core.transactions.verification import (
    Release,
    Support,
    TransactionalBatch,
    Verdict,
    Verification,
    produce_error,
    txn_offset_commit_error,
)

PRODUCER = Producer(7, 3)
LATER = Producer(7, 4)
DAY_MS = 24 * 3_600_000


class Leader:
    """Appends what is released, and so opens transactions."""

    def __init__(self, config: VerificationConfig | None = None) -> None:
        self.now_ms = 1000
        self.open: set[tuple[TopicPartition, Producer]] = set()
        self.held: dict[str, tuple[TransactionalBatch, ...]] = {}
        self.written: list[tuple[str, TopicPartition]] = []
        self.refused: dict[tuple[str, TopicPartition], Error] = {}
        self.asked: list[AddPartitionsToTxn] = []
        self.fails_to_write = False
        self.verification = Verification(
            config or VerificationConfig(), lambda *where: where in self.open
        )

    def produce(
        self,
        token: str,
        *partitions: TopicPartition,
        producer: Producer = PRODUCER,
        sequence: int = 0,
        support: Support = Support.ADDS,
        name: str | None = "shop",
    ) -> None:
        batches = tuple(TransactionalBatch(each, producer, sequence) for each in partitions)
        self.held[token] = batches
        self.act(self.verification.on_produce(token, name, batches, support, self.now_ms))

    def act(self, verdict: Verdict) -> None:
        for release in verdict.release:
            refused = dict(release.refused)
            self.refused |= {(release.token, each): error for each, error in refused.items()}
            for batch in self.held.pop(release.token):
                if batch.partition not in refused and not self.fails_to_write:
                    self.open.add((batch.partition, batch.producer))
                    self.written.append((release.token, batch.partition))
        self.asked += verdict.send

    def answer(self, request: AddPartitionsToTxn, *errors: Error) -> None:
        """One error for all partitions, or one for each."""
        several = errors if len(errors) > 1 else errors * len(request.partitions)
        pairs = tuple(zip(request.partitions, several, strict=True))
        answer = AddPartitionsToTxnAnswer(request.transactional_id, pairs)
        self.act(self.verification.on_answer(request, answer, self.now_ms))

    def answer_next(self, *errors: Error) -> AddPartitionsToTxn:
        request = self.asked.pop(0)
        self.answer(request, *(errors or (Error.NONE,)))
        return request

    def marker(self, partition: TopicPartition, producer: Producer = PRODUCER) -> None:
        self.open.discard((partition, producer))
        self.verification.on_marker(partition, producer.id)

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.act(self.verification.on_timer(self.now_ms))


@pytest.fixture
def leader() -> Leader:
    return Leader()


# What is asked


def test_a_transaction_that_is_open_goes_on(leader: Leader) -> None:
    leader.open.add((ORDERS, PRODUCER))
    leader.produce("a", ORDERS)
    assert leader.written == [("a", ORDERS)]
    assert leader.asked == []


def test_a_transaction_that_is_not_open_is_held_until_the_coordinator_agrees(
    leader: Leader,
) -> None:
    leader.produce("a", ORDERS)
    assert leader.written == []
    assert leader.asked == [AddPartitionsToTxn("shop", 7, 3, (ORDERS,))]
    leader.answer_next()
    assert leader.written == [("a", ORDERS)]


def test_only_what_is_not_open_is_asked_about(leader: Leader) -> None:
    leader.open.add((ORDERS, PRODUCER))
    leader.produce("a", ORDERS, PAYMENTS)
    assert leader.asked[0].partitions == (PAYMENTS,)
    leader.answer_next()
    assert leader.written == [("a", ORDERS), ("a", PAYMENTS)]


def test_an_epoch_before_that_is_open_is_not_this_one(leader: Leader) -> None:
    leader.open.add((ORDERS, PRODUCER))
    leader.produce("a", ORDERS, producer=LATER)
    assert leader.asked == [AddPartitionsToTxn("shop", 7, 4, (ORDERS,))]


@pytest.mark.parametrize(
    ("support", "verify_only"),
    [(Support.VERIFIES, True), (Support.VERIFIES_ABORTABLE, True), (Support.ADDS, False)],
)
def test_old_clients_add_partitions_and_new_ones_have_them_added(
    leader: Leader, support: Support, verify_only: bool
) -> None:
    leader.produce("a", ORDERS, support=support)
    assert leader.asked[0].verify_only is verify_only


def test_versions_say_what_a_client_supports() -> None:
    assert [Support.of_produce(version) for version in (3, 10, 11, 12)] == [
        Support.VERIFIES,
        Support.VERIFIES,
        Support.VERIFIES_ABORTABLE,
        Support.ADDS,
    ]
    assert [Support.of_txn_offset_commit(version) for version in (3, 4, 5)] == [
        Support.VERIFIES,
        Support.VERIFIES_ABORTABLE,
        Support.ADDS,
    ]


def test_verification_can_be_turned_off_but_not_adding() -> None:
    leader = Leader(VerificationConfig(partition_verification_enable=False))
    leader.produce("a", ORDERS, support=Support.VERIFIES_ABORTABLE)
    assert leader.written == [("a", ORDERS)]
    leader.produce("b", PAYMENTS, support=Support.ADDS)
    assert len(leader.asked) == 1


@pytest.mark.parametrize("name", [None, ""])
def test_a_transactional_batch_needs_a_name(leader: Leader, name: str | None) -> None:
    leader.produce("a", ORDERS, name=name)
    assert leader.refused == {("a", ORDERS): Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


def test_a_request_has_one_producer(leader: Leader) -> None:
    batches = (TransactionalBatch(ORDERS, PRODUCER, 0), TransactionalBatch(PAYMENTS, LATER, 0))
    verdict = leader.verification.on_produce("a", "shop", batches, Support.ADDS, 0)
    error = Error.INVALID_PRODUCER_ID_MAPPING
    assert verdict == Verdict((Release("a", ((ORDERS, error), (PAYMENTS, error))),))


# What is answered


@pytest.mark.parametrize(
    ("said", "support", "told"),
    [
        (Error.PRODUCER_FENCED, Support.ADDS, Error.INVALID_PRODUCER_EPOCH),
        (Error.TRANSACTION_ABORTABLE, Support.VERIFIES, Error.INVALID_TXN_STATE),
        (Error.TRANSACTION_ABORTABLE, Support.VERIFIES_ABORTABLE, Error.TRANSACTION_ABORTABLE),
        (Error.INVALID_PRODUCER_ID_MAPPING, Support.ADDS, Error.INVALID_PRODUCER_ID_MAPPING),
        (Error.CONCURRENT_TRANSACTIONS, Support.VERIFIES, Error.CONCURRENT_TRANSACTIONS),
    ],
)
def test_what_the_coordinator_does_not_agree_to_is_refused(
    leader: Leader, said: Error, support: Support, told: Error
) -> None:
    leader.produce("a", ORDERS, support=support)
    leader.answer_next(said)
    assert leader.refused == {("a", ORDERS): told}
    assert leader.written == []


def test_a_request_goes_on_where_the_coordinator_agrees(leader: Leader) -> None:
    leader.produce("a", ORDERS, PAYMENTS, support=Support.VERIFIES_ABORTABLE)
    leader.answer_next(Error.NONE, Error.TRANSACTION_ABORTABLE)
    assert leader.written == [("a", ORDERS)]
    assert leader.refused == {("a", PAYMENTS): Error.TRANSACTION_ABORTABLE}


def test_without_an_answer_nothing_is_written(leader: Leader) -> None:
    leader.produce("a", ORDERS)
    leader.act(leader.verification.on_answer(leader.asked[0], None, leader.now_ms))
    assert leader.refused == {("a", ORDERS): Error.NETWORK_EXCEPTION}


def test_an_answer_that_leaves_a_partition_out_does_not_agree_to_it(leader: Leader) -> None:
    leader.produce("a", ORDERS)
    answer = AddPartitionsToTxnAnswer("shop", ())
    leader.act(leader.verification.on_answer(leader.asked[0], answer, leader.now_ms))
    assert leader.refused == {("a", ORDERS): Error.UNKNOWN_SERVER_ERROR}


def test_who_finds_no_coordinator_says_so(leader: Leader) -> None:
    leader.produce("a", ORDERS)
    answer: Any = refusal(leader.asked[0], Error.COORDINATOR_NOT_AVAILABLE)
    leader.act(leader.verification.on_answer(leader.asked[0], answer, leader.now_ms))
    assert leader.refused == {("a", ORDERS): Error.COORDINATOR_NOT_AVAILABLE}


@pytest.mark.parametrize(
    ("error", "support", "told"),
    [
        (Error.NOT_COORDINATOR, Support.ADDS, Error.NOT_ENOUGH_REPLICAS),
        (Error.NETWORK_EXCEPTION, Support.VERIFIES, Error.NOT_ENOUGH_REPLICAS),
        (Error.CONCURRENT_TRANSACTIONS, Support.VERIFIES, Error.NOT_ENOUGH_REPLICAS),
        (Error.CONCURRENT_TRANSACTIONS, Support.ADDS, Error.CONCURRENT_TRANSACTIONS),
        (Error.INVALID_TXN_STATE, Support.VERIFIES, Error.INVALID_TXN_STATE),
    ],
)
def test_producers_hear_what_they_understand(error: Error, support: Support, told: Error) -> None:
    assert produce_error(error, support) is told


def test_who_commits_offsets_hears_what_it_understands() -> None:
    told = txn_offset_commit_error(Error.NETWORK_EXCEPTION)
    assert told is Error.COORDINATOR_LOAD_IN_PROGRESS
    assert txn_offset_commit_error(Error.INVALID_TXN_STATE) is Error.INVALID_TXN_STATE


# The transaction before is still ending


def test_who_adds_waits_for_the_transaction_before(leader: Leader) -> None:
    leader.produce("a", ORDERS)
    request = leader.answer_next(Error.CONCURRENT_TRANSACTIONS)
    assert leader.verification.wake_ms == leader.now_ms + 20
    leader.wait(19)
    assert leader.asked == []
    leader.wait(1)
    assert leader.asked == [request]
    assert leader.verification.wake_ms is None
    leader.answer_next()
    assert leader.written == [("a", ORDERS)]


def test_who_adds_does_not_wait_for_ever(leader: Leader) -> None:
    leader.produce("a", ORDERS)
    attempts = 0
    while leader.asked:
        attempts += 1
        leader.answer_next(Error.CONCURRENT_TRANSACTIONS)
        leader.wait(20)
    assert attempts == 6
    assert leader.refused == {("a", ORDERS): Error.CONCURRENT_TRANSACTIONS}


def test_who_waits_is_not_asked_about_because_of_another_request(leader: Leader) -> None:
    leader.produce("a", ORDERS)
    leader.answer_next(Error.CONCURRENT_TRANSACTIONS)
    leader.produce("b", ORDERS, sequence=1)
    assert leader.asked == []
    leader.wait(20)
    leader.answer_next()
    assert leader.written == [("a", ORDERS), ("b", ORDERS)]


# Order


def test_requests_of_a_producer_are_written_in_their_order(leader: Leader) -> None:
    leader.produce("a", ORDERS, sequence=0)
    leader.produce("b", ORDERS, sequence=5)
    assert len(leader.asked) == 1
    leader.answer_next()
    assert leader.written == [("a", ORDERS), ("b", ORDERS)]
    assert leader.asked == []


def test_what_is_open_waits_behind_what_is_not(leader: Leader) -> None:
    """The first has a batch for the same partition."""
    leader.open.add((PAYMENTS, PRODUCER))
    leader.produce("a", ORDERS, PAYMENTS)
    leader.produce("b", PAYMENTS, sequence=5)
    assert leader.written == []
    leader.answer_next()
    assert leader.written == [("a", ORDERS), ("a", PAYMENTS), ("b", PAYMENTS)]


def test_behind_the_first_other_partitions_are_asked_about(leader: Leader) -> None:
    leader.produce("a", ORDERS)
    leader.produce("b", PAYMENTS)
    leader.answer_next()
    assert leader.written == [("a", ORDERS)]
    assert leader.asked == [AddPartitionsToTxn("shop", 7, 3, (PAYMENTS,))]
    leader.answer_next()
    assert leader.written == [("a", ORDERS), ("b", PAYMENTS)]


def test_what_waits_and_has_become_open_goes_on(leader: Leader) -> None:
    leader.produce("a", ORDERS)
    leader.produce("b", PAYMENTS)
    leader.open.add((PAYMENTS, PRODUCER))
    leader.answer_next(Error.INVALID_TXN_STATE)
    assert leader.written == [("b", PAYMENTS)]
    assert leader.asked == []


def test_what_comes_after_a_refused_batch_is_refused_with_it(leader: Leader) -> None:
    leader.produce("a", ORDERS, sequence=0)
    leader.produce("b", ORDERS, sequence=5)
    leader.answer_next(Error.NOT_COORDINATOR)
    assert leader.refused == {
        ("a", ORDERS): Error.NOT_COORDINATOR,
        ("b", ORDERS): Error.NOT_COORDINATOR,
    }


def test_what_was_on_its_way_does_not_overtake_a_refused_batch(leader: Leader) -> None:
    leader.produce("a", ORDERS, sequence=0)
    leader.answer_next(Error.NOT_COORDINATOR)
    leader.produce("b", ORDERS, sequence=5)
    leader.answer_next()
    assert leader.refused["b", ORDERS] is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    leader.produce("a again", ORDERS, sequence=0)
    leader.produce("b again", ORDERS, sequence=5)
    leader.answer_next()
    assert leader.written == [("a again", ORDERS), ("b again", ORDERS)]


def test_what_was_on_its_way_does_not_overtake_what_could_not_be_written(leader: Leader) -> None:
    leader.fails_to_write = True
    leader.produce("a", ORDERS, sequence=0)
    leader.answer_next()
    leader.fails_to_write = False
    leader.produce("b", ORDERS, sequence=5)
    leader.answer_next()
    assert leader.refused == {("b", ORDERS): Error.OUT_OF_ORDER_SEQUENCE_NUMBER}


def test_a_lower_sequence_takes_the_place_of_a_higher_one(leader: Leader) -> None:
    leader.produce("b", ORDERS, sequence=5)
    leader.produce("a", ORDERS, sequence=0)
    leader.answer_next()
    assert leader.refused == {("b", ORDERS): Error.OUT_OF_ORDER_SEQUENCE_NUMBER}
    assert leader.written == [("a", ORDERS)]


def test_sequences_begin_again_with_another_epoch(leader: Leader) -> None:
    leader.produce("a", ORDERS, sequence=0)
    leader.answer_next(Error.NOT_COORDINATOR)
    leader.produce("b", ORDERS, sequence=5, producer=LATER)
    leader.answer_next()
    assert leader.written == [("b", ORDERS)]


def test_the_sequence_of_an_epoch_before_counts_for_nothing(leader: Leader) -> None:
    leader.produce("a", ORDERS, sequence=5, producer=LATER)
    leader.answer_next(Error.NOT_COORDINATOR)
    leader.produce("zombie", ORDERS, sequence=0)
    leader.answer_next(Error.PRODUCER_FENCED)
    leader.produce("b", ORDERS, sequence=5, producer=LATER)
    leader.answer_next()
    assert leader.written == [("b", ORDERS)]


def test_once_the_transaction_is_open_or_over_its_sequences_are_forgotten(leader: Leader) -> None:
    leader.produce("a", ORDERS, sequence=0)
    leader.answer_next()
    leader.produce("b", ORDERS, sequence=5)
    leader.marker(ORDERS)
    leader.produce("c", ORDERS, sequence=9)
    leader.answer_next()
    assert leader.written[-1] == ("c", ORDERS)


def test_sequences_of_who_never_came_again_are_forgotten(leader: Leader) -> None:
    leader.produce("a", ORDERS, sequence=0)
    leader.answer_next(Error.NOT_COORDINATOR)
    leader.now_ms += DAY_MS
    leader.produce("b", ORDERS, sequence=5)
    leader.answer_next()
    assert leader.written == [("b", ORDERS)]


# Late answers


def test_a_late_answer_does_not_verify_a_later_epoch(leader: Leader) -> None:
    leader.produce("a", ORDERS)
    late = leader.asked.pop(0)
    leader.produce("b", ORDERS, producer=LATER)
    assert leader.refused == {("a", ORDERS): Error.INVALID_PRODUCER_EPOCH}
    leader.answer(late, Error.NONE)
    assert leader.written == []
    leader.answer_next()
    assert leader.written == [("b", ORDERS)]


def test_a_late_answer_that_nobody_waits_for_is_passed_over(leader: Leader) -> None:
    leader.produce("a", ORDERS)
    request = leader.answer_next()
    leader.answer(request, Error.INVALID_TXN_STATE)
    assert leader.refused == {}


def test_a_later_epoch_that_is_open_fences_without_asking(leader: Leader) -> None:
    leader.produce("a", ORDERS)
    leader.open.add((PAYMENTS, LATER))
    leader.produce("b", PAYMENTS, producer=LATER)
    assert leader.refused == {("a", ORDERS): Error.INVALID_PRODUCER_EPOCH}
    assert leader.written == [("b", PAYMENTS)]


def test_an_epoch_before_is_refused_while_a_later_one_waits(leader: Leader) -> None:
    leader.produce("b", ORDERS, producer=LATER)
    leader.produce("a", ORDERS)
    assert leader.refused == {("a", ORDERS): Error.INVALID_PRODUCER_EPOCH}


def test_another_producer_id_of_the_same_name_is_asked_about_apart(leader: Leader) -> None:
    leader.produce("a", ORDERS)
    leader.produce("b", ORDERS, producer=Producer(8, 0))
    assert [request.producer_id for request in leader.asked] == [7, 8]


def test_an_answer_from_before_a_marker_does_not_count(leader: Leader) -> None:
    """It spoke of the transaction that the marker has ended."""
    leader.produce("a", ORDERS, support=Support.VERIFIES)
    leader.marker(ORDERS)
    request = leader.answer_next()
    assert leader.written == []
    assert leader.asked == [request]
    leader.answer_next(Error.TRANSACTION_ABORTABLE)
    assert leader.refused == {("a", ORDERS): Error.INVALID_TXN_STATE}


def test_a_marker_of_another_producer_or_elsewhere_changes_nothing(leader: Leader) -> None:
    leader.produce("a", ORDERS)
    leader.marker(ORDERS, Producer(8, 0))
    leader.marker(PAYMENTS)
    leader.answer_next()
    assert leader.written == [("a", ORDERS)]


def test_an_answer_from_before_a_change_of_leader_does_not_count(leader: Leader) -> None:
    leader.produce("a", ORDERS)
    leader.produce("other", PAYMENTS, producer=Producer(8, 0))
    leader.verification.on_leadership_lost(ORDERS)
    leader.answer_next()
    leader.answer_next()
    assert leader.written == [("other", PAYMENTS)]
    leader.answer_next()
    assert ("a", ORDERS) in leader.written


def test_a_refusal_from_before_a_marker_is_still_a_refusal(leader: Leader) -> None:
    leader.produce("a", ORDERS)
    leader.marker(ORDERS)
    leader.answer_next(Error.PRODUCER_FENCED)
    assert leader.refused == {("a", ORDERS): Error.INVALID_PRODUCER_EPOCH}


def test_what_was_open_when_it_came_and_is_no_longer_is_asked_about(leader: Leader) -> None:
    leader.open.add((PAYMENTS, PRODUCER))
    leader.produce("a", ORDERS, PAYMENTS)
    leader.marker(PAYMENTS)
    leader.answer_next()
    assert leader.written == []
    assert leader.asked == [AddPartitionsToTxn("shop", 7, 3, (ORDERS, PAYMENTS))]


def test_what_another_leader_has_opened_meanwhile_goes_on(leader: Leader) -> None:
    leader.produce("a", ORDERS)
    leader.verification.on_leadership_lost(ORDERS)
    leader.open.add((ORDERS, PRODUCER))
    leader.answer_next()
    assert leader.written == [("a", ORDERS)]
    assert leader.asked == []


def test_sequences_are_forgotten_with_the_leadership(leader: Leader) -> None:
    leader.produce("a", ORDERS, sequence=0)
    leader.answer_next(Error.NOT_COORDINATOR)
    leader.verification.on_leadership_lost(ORDERS)
    leader.produce("b", ORDERS, sequence=5)
    leader.answer_next()
    assert leader.written == [("b", ORDERS)]
