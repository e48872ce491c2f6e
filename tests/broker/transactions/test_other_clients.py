"""Transactions of other clients: Java's, which has the second version of the protocol (KIP-890),
and two that are written in Python."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess

import pytest
from transactional_clients import COMMITTED, TIMEOUT_S, UNCOMMITTED, Clients, send

from lossless.engines.waiting import wait_until
from lossless.jars import jars

VALUES = [str(number) for number in range(9)]
JAVA_S_MAX = 100


def java(tool: str, *arguments: str) -> str:
    """What one of Kafka's own tools prints."""
    path = os.pathsep.join(map(str, jars("kafka")))
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", path]
    command += [f"org.apache.kafka.tools.{tool}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=JAVA_S_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Java


def test_javas_producer_commits_transactions_whose_partitions_nobody_adds(clients: Clients) -> None:
    topic = clients.topic()
    servers = clients.cluster.bootstrap_servers
    java(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", "300", "--record-size", "10"),
        *("--throughput", "500", "--transactional-id", "java", "--transaction-duration-ms", "50"),
        *("--producer-props", f"bootstrap.servers={servers}", "acks=all", "linger.ms=0"),
    )
    assert clients.becomes_stable(topic)
    assert len(clients.values(topic, COMMITTED)) == 300
    markers = sum(clients.end(topic, number, UNCOMMITTED) for number in range(3)) - 300
    assert markers > 3  # there was more than one transaction


def test_javas_copier_copies_every_record_once(clients: Clients) -> None:
    source, target = clients.topic(1), clients.topic(1)
    send(clients.plain(), source, VALUES * 10, partitions=1)
    group = f"copies-{source}"
    printed = java(
        "TransactionalMessageCopier",
        *("--broker-list", clients.cluster.bootstrap_servers, "--input-topic", source),
        *("--input-partition", "0", "--output-topic", target, "--max-messages", "90"),
        *("--consumer-group", group, "--transaction-size", "7", "--transactional-id", group),
        "--enable-random-aborts",
    )
    assert json.loads(printed.strip().splitlines()[-1])["remaining"] == 0
    assert clients.becomes_stable(target, [0])
    assert clients.values(target, COMMITTED, [0]) == sorted(VALUES * 10)
    assert clients.group_offset(group, source, 0) == 90


def test_kafkas_tool_lists_and_describes_transactions(clients: Clients) -> None:
    topic = clients.topic(1)
    producer = clients.producer("is-described")
    producer.begin_transaction()
    send(producer, topic, ["open"], partitions=1)
    bootstrap = ("--bootstrap-server", clients.cluster.bootstrap_servers)
    listed = _table(java("TransactionsCommand", *bootstrap, "list"))
    mine = [row for row in listed if row["TransactionalId"] == "is-described"]
    assert [row["TransactionState"] for row in mine] == ["Ongoing"]
    assert int(mine[0]["Coordinator"]) == clients.coordinator_of("is-described")
    (described,) = _table(
        java("TransactionsCommand", *bootstrap, "describe", "--transactional-id", "is-described")
    )
    assert described["TransactionState"] == "Ongoing"
    assert described["ProducerId"] == mine[0]["ProducerId"]
    assert described["TopicPartitions"] == f"{topic}-0"
    (writing,) = _table(
        java(
            "TransactionsCommand",
            *(*bootstrap, "describe-producers", "--topic", topic, "--partition", "0"),
        )
    )
    assert writing["ProducerId"] == described["ProducerId"]
    assert writing["CurrentTransactionStartOffset"] == "0"


def test_kafkas_tool_aborts_a_transaction_that_hangs(clients: Clients) -> None:
    topic = clients.topic(1)
    producer = clients.producer("hangs")
    producer.begin_transaction()
    send(producer, topic, ["open"], partitions=1)
    assert not clients.is_stable(topic, [0])
    java(
        "TransactionsCommand",
        *("--bootstrap-server", clients.cluster.bootstrap_servers),
        *("abort", "--topic", topic, "--partition", "0", "--start-offset", "0"),
    )
    assert clients.becomes_stable(topic, [0])
    assert clients.values(topic, COMMITTED, [0]) == []


def _table(printed: str) -> list[dict[str, str]]:
    lines = [line.split("\t") for line in printed.strip().splitlines()]
    head, *rows = ([cell.strip() for cell in line] for line in lines)
    return [dict(zip(head, row, strict=False)) for row in rows]


# Python


@pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")
def test_kafka_pythons_producer_commits_and_aborts(clients: Clients) -> None:
    from kafka import KafkaProducer

    topic = clients.topic()
    producer = KafkaProducer(
        bootstrap_servers=clients.cluster.bootstrap_servers.split(","),
        transactional_id="kafka-python",
    )
    try:
        producer.init_transactions()
        for values, ends in (
            (["aborted"] * 3, producer.abort_transaction),
            (VALUES, producer.commit_transaction),
        ):
            producer.begin_transaction()
            sent = [
                producer.send(topic, value.encode(), partition=at % 3)
                for at, value in enumerate(values)
            ]
            for future in sent:
                future.get(TIMEOUT_S)
            ends()
    finally:
        producer.close(5)
    assert clients.becomes_stable(topic)
    assert clients.values(topic, COMMITTED) == VALUES
    assert clients.values(topic, UNCOMMITTED) == VALUES + ["aborted"] * 3


def test_aiokafkas_producer_commits_aborts_and_moves_a_groups_offsets(clients: Clients) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka import TopicPartition as Partition

    source, target = clients.topic(1), clients.topic()
    group = f"aiokafka-{source}"

    async def work() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=clients.cluster.bootstrap_servers, transactional_id="aiokafka"
        )
        await producer.start()
        try:
            await producer.begin_transaction()
            await producer.send_and_wait(target, b"aborted", partition=0)
            await producer.send_offsets_to_transaction({Partition(source, 0): 3}, group)
            await producer.abort_transaction()
            async with producer.transaction():
                for at, value in enumerate(VALUES):
                    await producer.send_and_wait(target, value.encode(), partition=at % 3)
                await producer.send_offsets_to_transaction({Partition(source, 0): 7}, group)
        finally:
            await producer.stop()

    asyncio.run(work())
    assert clients.becomes_stable(target)
    assert clients.values(target, COMMITTED) == VALUES
    assert clients.values(target, UNCOMMITTED) == [*VALUES, "aborted"]
    assert wait_until(lambda: clients.group_offset(group, source, 0) == 7, timeout_s=TIMEOUT_S)
