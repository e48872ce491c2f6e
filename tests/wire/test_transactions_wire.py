"""Transactions over the wire: each version of each API, from bytes to the core's request and back.

Requests are written and read as bytes, so that what a version does not have is really gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lossless.core import messages
from lossless.core.coordination import TransactionalCommit
from lossless.core.groups.messages import (
    OffsetCommitAnswer,
    OffsetToCommit,
    PartitionError,
    TxnOffsetCommit,
)
from lossless.core.messages import (
    Error,
    Producer,
    TopicPartition,
    WriteTxnMarker,
    WriteTxnMarkerAnswer,
)
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
    ListedTransaction,
    ListTransactions,
    ListTransactionsAnswer,
)
from lossless.log.batch import Record, build
from lossless.log.log import Log
from lossless.log.memory import MemoryStore
from lossless.wire import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)
from lossless.wire.codec import Fields, make, read, request_class, response_class, write
from lossless.wire.context import Call
from lossless.wire.versions import APIS

ORDERS, PAYMENTS = TopicPartition("orders", 1), TopicPartition("payments", 0)
MISSING = TopicPartition("missing", 0)


class Node:
    """Answers what it is told to, and remembers what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.asked: list[Any] = []
        self._answers = list(answers)
        self.image = SimpleNamespace(partitions={ORDERS: None, PAYMENTS: None})
        self.replicas: dict[TopicPartition, Any] = {}

    async def ask(self, request: Any) -> Any:
        self.asked.append(request)
        return self._answers.pop(0)

    async def ask_all(self, requests: Sequence[Any]) -> list[Any]:
        return [await self.ask(request) for request in requests]


def over_the_wire(entity: Any, fields: Fields) -> Any:
    return read(entity, write(make(entity, fields)), 0)


def ask(module: Any, version: int, fields: Fields, node: Node) -> Any:
    """What a client reads that has sent these fields in this version."""
    message = over_the_wire(request_class(module.KEY, version), fields)
    serve: Callable[[Call, Any], Any] = module.serve
    told = asyncio.run(serve(_call(message, version), node))
    return over_the_wire(response_class(module.KEY, version), told)


def _call(message: Any, version: int) -> Call:
    return Call(message, version, "test", "127.0.0.1", "PLAINTEXT")


def versions_of(module: Any) -> range:
    api = APIS[module.KEY]
    return range(api.lowest, api.highest + 1)


def every_version(module: Any) -> Any:
    return pytest.mark.parametrize("version", versions_of(module))


# InitProducerId


@every_version(init_producer_id)
def test_a_transactional_producer_is_initialised_by_its_coordinator(version: int) -> None:
    node = Node(InitProducerIdAnswer(Error.NONE, 1000, 7))
    answer = ask(
        init_producer_id,
        version,
        {
            "transactional_id": "shop",
            "transaction_timeout": 60_001,
            "producer_id": 1000,
            "producer_epoch": 6,
        },
        node,
    )
    before = (1000, 6) if version >= 3 else (-1, -1)
    assert node.asked == [InitProducerId("shop", 60_001, *before, version)]
    assert (answer.error_code.value, answer.producer_id, answer.producer_epoch) == (0, 1000, 7)


@every_version(init_producer_id)
def test_a_producer_without_a_name_gets_an_id_and_no_coordinator(version: int) -> None:
    node = Node(messages.InitProducerIdAnswer(Error.NONE, 2000, 0))
    answer = ask(init_producer_id, version, {"transactional_id": None}, node)
    assert node.asked == [messages.InitProducerId()]
    assert (answer.producer_id, answer.producer_epoch) == (2000, 0)


@pytest.mark.parametrize("name", [None, "shop"])
def test_an_id_without_an_epoch_is_refused_and_nobody_is_asked(name: str | None) -> None:
    node = Node()
    answer = ask(init_producer_id, 5, {"transactional_id": name, "producer_id": 7}, node)
    assert node.asked == []
    assert answer.error_code.value == Error.INVALID_REQUEST


# AddPartitionsToTxn


@pytest.mark.parametrize("version", range(4))
def test_a_client_adds_partitions_to_its_transaction(version: int) -> None:
    results = ((ORDERS, Error.NONE), (PAYMENTS, Error.CONCURRENT_TRANSACTIONS))
    node = Node(AddPartitionsToTxnAnswer("shop", results))
    answer = ask(
        add_partitions_to_txn,
        version,
        {
            "v3_and_below_transactional_id": "shop",
            "v3_and_below_producer_id": 1000,
            "v3_and_below_producer_epoch": 2,
            "v3_and_below_topics": [
                {"name": "orders", "partitions": [1]},
                {"name": "payments", "partitions": [0]},
            ],
        },
        node,
    )
    assert node.asked == [AddPartitionsToTxn("shop", 1000, 2, (ORDERS, PAYMENTS), version=version)]
    told = [
        (topic.name, said.partition_index, said.partition_error_code.value)
        for topic in answer.results_by_topic_v3_and_below
        for said in topic.results_by_partition
    ]
    assert told == [("orders", 1, 0), ("payments", 0, Error.CONCURRENT_TRANSACTIONS)]


@pytest.mark.parametrize("version", range(4))
def test_no_client_adds_partitions_of_the_brokers_own_topics(version: int) -> None:
    node = Node()
    answer = ask(
        add_partitions_to_txn,
        version,
        {
            "v3_and_below_transactional_id": "shop",
            "v3_and_below_topics": [
                {"name": "orders", "partitions": [1]},
                {"name": "__consumer_offsets", "partitions": [0]},
            ],
        },
        node,
    )
    assert node.asked == []
    errors = [
        said.partition_error_code.value
        for topic in answer.results_by_topic_v3_and_below
        for said in topic.results_by_partition
    ]
    assert errors == [Error.OPERATION_NOT_ATTEMPTED, Error.TOPIC_AUTHORIZATION_FAILED]


@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_asks_about_several_transactions_at_once(version: int) -> None:
    node = Node(
        AddPartitionsToTxnAnswer("shop", ((ORDERS, Error.NONE),)),
        AddPartitionsToTxnAnswer("bank", ((PAYMENTS, Error.TRANSACTION_ABORTABLE),)),
    )
    transactions = [
        {
            "transactional_id": name,
            "producer_id": producer_id,
            "producer_epoch": 3,
            "verify_only": verify_only,
            "topics": [{"name": partition.topic, "partitions": [partition.partition]}],
        }
        for name, producer_id, verify_only, partition in (
            ("shop", 1000, False, ORDERS),
            ("bank", 1001, True, PAYMENTS),
        )
    ]
    answer = ask(add_partitions_to_txn, version, {"transactions": transactions}, node)
    assert node.asked == [
        AddPartitionsToTxn("shop", 1000, 3, (ORDERS,), False, version),
        AddPartitionsToTxn("bank", 1001, 3, (PAYMENTS,), True, version),
    ]
    told = {
        said.transactional_id: [
            (topic.name, result.partition_index, result.partition_error_code.value)
            for topic in said.topic_results
            for result in topic.results_by_partition
        ]
        for said in answer.results_by_transaction
    }
    assert told == {
        "shop": [("orders", 1, 0)],
        "bank": [("payments", 0, Error.TRANSACTION_ABORTABLE)],
    }


@pytest.mark.parametrize("verify_only", [True, False])
def test_what_a_leader_asks_is_what_a_coordinator_understands(verify_only: bool) -> None:
    module, version = add_partitions_to_txn, add_partitions_to_txn.VERSION
    request = AddPartitionsToTxn("shop", 1000, 2, (ORDERS, PAYMENTS), verify_only)
    sent = over_the_wire(request_class(module.KEY, version), module.asked(request))
    assert module.understood(sent, version) == [request]
    answer = AddPartitionsToTxnAnswer(
        "shop", ((ORDERS, Error.NONE), (PAYMENTS, Error.PRODUCER_FENCED))
    )
    told = over_the_wire(response_class(module.KEY, version), module.told([answer], version))
    assert module.answered(told, request) == answer


def test_an_error_of_the_whole_request_is_one_of_each_partition() -> None:
    module = add_partitions_to_txn
    request = AddPartitionsToTxn("shop", 1000, 2, (ORDERS, PAYMENTS))
    fields = {"error_code": Error.CLUSTER_AUTHORIZATION_FAILED}
    told = over_the_wire(response_class(module.KEY, module.VERSION), fields)
    errors = dict(module.answered(told, request).partitions)
    assert errors == dict.fromkeys((ORDERS, PAYMENTS), Error.CLUSTER_AUTHORIZATION_FAILED)


def test_an_answer_about_another_transaction_is_no_answer() -> None:
    module = add_partitions_to_txn
    request = AddPartitionsToTxn("shop", 1000, 2, (ORDERS,))
    other = AddPartitionsToTxnAnswer("bank", ((ORDERS, Error.NONE),))
    told = over_the_wire(response_class(module.KEY, module.VERSION), module.told([other], 5))
    with pytest.raises(ValueError, match="not about the transaction"):
        module.answered(told, request)


# AddOffsetsToTxn, EndTxn


@every_version(add_offsets_to_txn)
def test_a_groups_offsets_become_part_of_a_transaction(version: int) -> None:
    node = Node(AddOffsetsToTxnAnswer(Error.INVALID_PRODUCER_ID_MAPPING))
    answer = ask(
        add_offsets_to_txn,
        version,
        {
            "transactional_id": "shop",
            "producer_id": 1000,
            "producer_epoch": 2,
            "group_id": "billing",
        },
        node,
    )
    assert node.asked == [AddOffsetsToTxn("shop", 1000, 2, "billing", version)]
    assert answer.error_code.value == Error.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("committed", [True, False])
@every_version(end_txn)
def test_a_transaction_ends_and_from_version_5_on_the_next_epoch_is_told(
    version: int, committed: bool
) -> None:
    node = Node(EndTxnAnswer(Error.NONE, 1000, 3))
    answer = ask(
        end_txn,
        version,
        {
            "transactional_id": "shop",
            "producer_id": 1000,
            "producer_epoch": 2,
            "committed": committed,
        },
        node,
    )
    assert node.asked == [EndTxn("shop", 1000, 2, committed, version)]
    assert answer.error_code.value == Error.NONE
    if version >= 5:
        assert (answer.producer_id, answer.producer_epoch) == (1000, 3)


# TxnOffsetCommit


@every_version(txn_offset_commit)
def test_offsets_are_committed_within_a_transaction(version: int) -> None:
    node = Node(OffsetCommitAnswer((PartitionError(ORDERS, Error.ILLEGAL_GENERATION),)))
    answer = ask(
        txn_offset_commit,
        version,
        {
            "transactional_id": "shop",
            "group_id": "billing",
            "producer_id": 1000,
            "producer_epoch": 2,
            "generation_id": 4,
            "member_id": "m1",
            "group_instance_id": "i1",
            "topics": [
                {
                    "name": "orders",
                    "partitions": [
                        {
                            "partition_index": 1,
                            "committed_offset": 99,
                            "committed_leader_epoch": 5,
                            "committed_metadata": None,
                        }
                    ],
                },
                {"name": "missing", "partitions": [{"partition_index": 0}]},
            ],
        },
        node,
    )
    member = (4, "m1", "i1") if version >= 3 else (-1, "", None)
    offset = OffsetToCommit(ORDERS, 99, 5 if version >= 2 else -1, "")
    commit = TxnOffsetCommit("billing", (offset,), Producer(1000, 2), *member)
    assert node.asked == [TransactionalCommit("shop", version, commit)]
    assert _commit_errors(answer) == {
        MISSING: Error.UNKNOWN_TOPIC_OR_PARTITION,
        ORDERS: Error.ILLEGAL_GENERATION,
    }


@every_version(txn_offset_commit)
def test_clients_before_version_2_are_not_told_that_a_coordinator_loads(version: int) -> None:
    node = Node(OffsetCommitAnswer((PartitionError(ORDERS, Error.COORDINATOR_LOAD_IN_PROGRESS),)))
    topics = [{"name": "orders", "partitions": [{"partition_index": 1}]}]
    answer = ask(txn_offset_commit, version, {"transactional_id": "shop", "topics": topics}, node)
    known = Error.COORDINATOR_LOAD_IN_PROGRESS
    expected = known if version >= 2 else Error.COORDINATOR_NOT_AVAILABLE
    assert _commit_errors(answer) == {ORDERS: expected}


def test_nobody_is_asked_to_commit_what_does_not_exist() -> None:
    node = Node()
    topics = [{"name": "missing", "partitions": [{"partition_index": 0}]}]
    answer = ask(txn_offset_commit, 3, {"transactional_id": "shop", "topics": topics}, node)
    assert node.asked == []
    assert _commit_errors(answer) == {MISSING: Error.UNKNOWN_TOPIC_OR_PARTITION}


def _commit_errors(answer: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, said.partition_index): said.error_code.value
        for topic in answer.topics
        for said in topic.partitions
    }


# WriteTxnMarkers


@every_version(write_txn_markers)
def test_markers_of_several_transactions_are_written_one_by_one(version: int) -> None:
    node = Node(
        WriteTxnMarkerAnswer(ORDERS, Error.NONE),
        WriteTxnMarkerAnswer(PAYMENTS, Error.NOT_LEADER_OR_FOLLOWER),
        WriteTxnMarkerAnswer(ORDERS, Error.INVALID_PRODUCER_EPOCH),
    )
    answer = ask(
        write_txn_markers,
        version,
        {
            "markers": [
                {
                    "producer_id": 1000,
                    "producer_epoch": 2,
                    "transaction_result": True,
                    "coordinator_epoch": 8,
                    "topics": [
                        {"name": "orders", "partition_indexes": [1]},
                        {"name": "payments", "partition_indexes": [0]},
                    ],
                },
                {
                    "producer_id": 1001,
                    "producer_epoch": 0,
                    "transaction_result": False,
                    "coordinator_epoch": 8,
                    "topics": [{"name": "orders", "partition_indexes": [1]}],
                },
            ]
        },
        node,
    )
    assert node.asked == [
        WriteTxnMarker(ORDERS, 1000, 2, 8, True),
        WriteTxnMarker(PAYMENTS, 1000, 2, 8, True),
        WriteTxnMarker(ORDERS, 1001, 0, 8, False),
    ]
    told = [
        (said.producer_id, topic.name, result.partition_index, result.error_code.value)
        for said in answer.markers
        for topic in said.topics
        for result in topic.partitions
    ]
    assert told == [
        (1000, "orders", 1, Error.NONE),
        (1000, "payments", 0, Error.NOT_LEADER_OR_FOLLOWER),
        (1001, "orders", 1, Error.INVALID_PRODUCER_EPOCH),
    ]


@pytest.mark.parametrize("committed", [True, False])
def test_what_a_coordinator_asks_is_what_a_leader_understands(committed: bool) -> None:
    module = write_txn_markers
    request = WriteTxnMarker(ORDERS, 1000, 2, 8, committed)
    sent = over_the_wire(request_class(module.KEY, module.VERSION), module.asked(request))
    assert module.understood(sent) == [request]
    answer = WriteTxnMarkerAnswer(ORDERS, Error.TRANSACTION_COORDINATOR_FENCED)
    fields = module.told([(request, answer)])
    told = over_the_wire(response_class(module.KEY, module.VERSION), fields)
    assert module.answered(told, request) == answer
    with pytest.raises(ValueError, match="not about the marker"):
        module.answered(told, request._replace(partition=PAYMENTS))


# Administrators


def test_transactions_are_described_each_by_its_coordinator() -> None:
    known = DescribeTransactionAnswer(
        Error.NONE, "shop", "Ongoing", 60_000, 1_700_000_000_123, 1000, 2, (ORDERS, PAYMENTS)
    )
    missing = DescribeTransactionAnswer(Error.TRANSACTIONAL_ID_NOT_FOUND, "cafe")
    node = Node(known, missing)
    fields = {"transactional_ids": ["shop", "cafe"]}
    answer = ask(describe_transactions, 0, fields, node)
    assert node.asked == list(map(DescribeTransaction, ("shop", "cafe")))
    shop, cafe = answer.transaction_states
    assert (shop.transactional_id, shop.transaction_state) == ("shop", "Ongoing")
    assert (shop.producer_id, shop.producer_epoch) == (1000, 2)
    assert shop.transaction_timeout.total_seconds() == 60
    assert round(shop.transaction_start_time.timestamp() * 1000) == 1_700_000_000_123
    topics = [(topic.topic, topic.partitions) for topic in shop.topics]
    assert topics == [("orders", (1,)), ("payments", (0,))]
    assert cafe.error_code.value == Error.TRANSACTIONAL_ID_NOT_FOUND


def test_a_transaction_that_has_not_begun_has_no_time() -> None:
    """By its bytes: kio reads no negative times, though Java does."""
    node = Node(DescribeTransactionAnswer(Error.NONE, "bank", "Empty", 1_000, -1, 1001, 0))
    message = over_the_wire(request_class(65, 0), {"transactional_ids": ["bank"]})
    told = asyncio.run(describe_transactions.serve(_call(message, 0), cast(Any, node)))
    written = write(make(response_class(65, 0), told))
    assert b"Empty" + (1_000).to_bytes(4, "big") + b"\xff" * 8 in written


@every_version(list_transactions)
def test_transactions_are_listed_as_far_as_the_version_can_ask(version: int) -> None:
    listed = ListedTransaction("shop", 1000, "Ongoing")
    node = Node(ListTransactionsAnswer(Error.NONE, ("Odd",), (listed,)))
    answer = ask(
        list_transactions,
        version,
        {
            "state_filters": ["Ongoing", "Odd"],
            "producer_id_filters": [1000, 1001],
            "duration_filter": 5_000,
            "transactional_id_pattern": "s.*",
        },
        node,
    )
    duration_ms = 5_000 if version >= 1 else -1
    pattern = "s.*" if version >= 2 else ""
    assert node.asked == [ListTransactions(("Ongoing", "Odd"), (1000, 1001), duration_ms, pattern)]
    assert answer.unknown_state_filters == ("Odd",)
    told = [
        (t.transactional_id, t.producer_id, t.transaction_state) for t in answer.transaction_states
    ]
    assert told == [listed]


def test_who_asks_for_no_pattern_gets_all_names() -> None:
    node = Node(ListTransactionsAnswer(Error.NONE))
    ask(list_transactions, 2, {}, node)
    assert node.asked == [ListTransactions()]


def test_every_replica_tells_who_has_written_and_whose_transaction_is_open() -> None:
    node = Node()
    log = Log(MemoryStore())
    node.replicas[ORDERS] = SimpleNamespace(log=log)
    for producer_id, is_transactional in ((1000, True), (1001, False)):
        log.append(
            build(
                [Record(0, 0, None, b"a"), Record(1, 0, None, b"b")],
                producer_id=producer_id,
                producer_epoch=4,
                base_sequence=10,
                transactional=is_transactional,
            ),
            leader_epoch=0,
            now_ms=0,
        )
    asked = [
        {"name": "orders", "partition_indexes": [1]},
        {"name": "payments", "partition_indexes": [0]},
        {"name": "missing", "partition_indexes": [0]},
        {"name": "no/topic", "partition_indexes": [0]},
    ]
    answer = ask(describe_producers, 0, {"topics": asked}, node)
    orders, payments, missing, odd = (topic.partitions[0] for topic in answer.topics)
    found = [
        (said.producer_id, said.producer_epoch, said.last_sequence, said.current_txn_start_offset)
        for said in orders.active_producers
    ]
    assert found == [(1000, 4, 11, 0), (1001, 4, 11, -1)]
    assert [said.coordinator_epoch for said in orders.active_producers] == [-1, -1]
    assert payments.error_code.value == Error.NOT_LEADER_OR_FOLLOWER
    assert missing.error_code.value == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert odd.error_code.value == Error.INVALID_TOPIC_EXCEPTION
