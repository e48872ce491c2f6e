"""States of a transactional id, and what routes and refuses its requests."""

from __future__ import annotations

import pytest
from transaction_host import ORDERS, PAYMENTS

from lossless.core.messages import Error
from lossless.core.transactions import state as states
from lossless.core.transactions.messages import (
    AddOffsetsToTxn,
    AddOffsetsToTxnAnswer,
    AddPartitionsToTxn,
    AddPartitionsToTxnAnswer,
    DescribeTransaction,
    DescribeTransactionAnswer,
    EndTxn,
    EndTxnAnswer,
    InitProducerId,
    InitProducerIdAnswer,
    KeyedRequest,
    ListTransactions,
    ListTransactionsAnswer,
    key_of,
    refusal,
)
from lossless.core.transactions.state import IllegalTransition, Transaction, TransactionState

NAMES = {
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
}
REQUESTS: list[KeyedRequest] = [
    InitProducerId("shop", 1),
    AddPartitionsToTxn("shop", 1, 0, (ORDERS, PAYMENTS)),
    AddOffsetsToTxn("shop", 1, 0, "billing"),
    EndTxn("shop", 1, 0, True),
    DescribeTransaction("shop"),
]


def test_states_have_kafkas_names() -> None:
    assert {state.label for state in TransactionState} == NAMES


def test_every_state_says_what_it_follows() -> None:
    assert set(states.ALLOWED_BEFORE) == set(TransactionState)


def test_what_the_table_does_not_allow_is_a_bug_and_not_a_state() -> None:
    ongoing = Transaction(1, 0, 1, TransactionState.ONGOING, (ORDERS,), 0, 0)
    with pytest.raises(IllegalTransition, match="Ongoing is not followed by CompleteAbort"):
        states.completed(ongoing, 1)


@pytest.mark.parametrize("request_", REQUESTS)
def test_requests_are_routed_by_their_transactional_id(request_: KeyedRequest) -> None:
    assert key_of(request_) == "shop"


def test_every_request_can_be_refused() -> None:
    error = Error.NOT_COORDINATOR
    assert [refusal(request, error) for request in [*REQUESTS, ListTransactions()]] == [
        InitProducerIdAnswer(error),
        AddPartitionsToTxnAnswer("shop", ((ORDERS, error), (PAYMENTS, error))),
        AddOffsetsToTxnAnswer(error),
        EndTxnAnswer(error),
        DescribeTransactionAnswer(error, "shop"),
        ListTransactionsAnswer(error),
    ]
