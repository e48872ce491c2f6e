"""DescribeTransactions and ListTransactions."""

from __future__ import annotations

import pytest
from transaction_host import ORDERS, PAYMENTS, Host

from lossless.core.messages import Error
from lossless.core.transactions.messages import (
    DescribeTransaction,
    DescribeTransactionAnswer,
    ListedTransaction,
    ListTransactions,
    ListTransactionsAnswer,
    merged_listings,
)


@pytest.fixture
def host() -> Host:
    """With an idle producer, bank, and one with a transaction, shop."""
    host = Host()
    host.init("bank")
    host.open(PAYMENTS, ORDERS)
    return host


def names(host: Host, request: ListTransactions) -> list[str]:
    return [each.transactional_id for each in host.ask(request).transactions]


def test_a_transaction_is_described(host: Host) -> None:
    assert host.ask(DescribeTransaction("shop")) == DescribeTransactionAnswer(
        Error.NONE, "shop", "Ongoing", 60_000, host.now_ms, 1001, 0, (ORDERS, PAYMENTS)
    )


def test_a_name_that_nobody_knows_is_not_found(host: Host) -> None:
    answer = host.ask(DescribeTransaction("mill"))
    assert answer == DescribeTransactionAnswer(Error.TRANSACTIONAL_ID_NOT_FOUND, "mill")


def test_an_empty_name_is_no_name(host: Host) -> None:
    assert host.ask(DescribeTransaction("")).error is Error.INVALID_REQUEST


def test_all_are_listed(host: Host) -> None:
    assert host.ask(ListTransactions()).transactions == (
        ListedTransaction("bank", 1000, "Empty"),
        ListedTransaction("shop", 1001, "Ongoing"),
    )


def test_they_are_listed_by_state(host: Host) -> None:
    assert names(host, ListTransactions(("Ongoing",))) == ["shop"]
    assert names(host, ListTransactions(("Ongoing", "Empty"))) == ["bank", "shop"]


def test_states_that_do_not_exist_are_named(host: Host) -> None:
    answer = host.ask(ListTransactions(("Ongoing", "Sleeping")))
    assert answer.unknown_state_filters == ("Sleeping",)
    assert len(answer.transactions) == 1
    assert host.ask(ListTransactions(("Sleeping",))).transactions == ()


def test_they_are_listed_by_producer_id(host: Host) -> None:
    assert names(host, ListTransactions(producer_id_filters=(1000,))) == ["bank"]


def test_they_are_listed_by_how_long_they_have_been_going_on(host: Host) -> None:
    host.now_ms += 100
    assert names(host, ListTransactions(("Ongoing",), duration_filter_ms=99)) == ["shop"]
    assert names(host, ListTransactions(("Ongoing",), duration_filter_ms=100)) == []


def test_they_are_listed_by_their_names(host: Host) -> None:
    assert names(host, ListTransactions(transactional_id_pattern="s.*")) == ["shop"]
    assert names(host, ListTransactions(transactional_id_pattern="s")) == []


def test_a_pattern_that_is_none_is_refused(host: Host) -> None:
    answer = host.ask(ListTransactions(transactional_id_pattern="("))
    assert answer == ListTransactionsAnswer(Error.INVALID_REGULAR_EXPRESSION)


def test_a_request_that_is_none_is_a_bug(host: Host) -> None:
    with pytest.raises(TypeError, match="no request of a transaction coordinator"):
        host.ask("what?")


def test_a_broker_lists_all_its_shards(host: Host) -> None:
    one = host.ask(ListTransactions(("Empty", "Sleeping")))
    other = host.ask(ListTransactions(("Ongoing", "Sleeping")))
    merged = merged_listings([one, other])
    assert merged.unknown_state_filters == ("Sleeping",)
    assert merged.transactions == one.transactions + other.transactions


def test_a_shard_that_cannot_tell_makes_the_whole_list_an_error(host: Host) -> None:
    failed = ListTransactionsAnswer(Error.COORDINATOR_LOAD_IN_PROGRESS)
    assert merged_listings([host.ask(ListTransactions()), failed]) == failed
