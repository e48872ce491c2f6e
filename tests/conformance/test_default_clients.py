"""Eight client libraries as they are without any settings: what one sends all can read, and the
headers of their batches are those of `default_batches`."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AsyncPartition
from subject import TIMEOUT_S, Subject
from test_java_tools import events, tool
from test_python_clients import KafkaConsumer, KafkaProducer, TopicPartition, servers

from default_batches import DEFAULT_HEADERS
from lossless.engines.waiting import wait_until
from lossless.log.compression import Compression

COUNT = 10
VALUES = [str(number) for number in range(COUNT)]
SOURCES = Path(__file__).parent / "clients"
BUILD = Path(__file__).parents[2] / "build" / "clients"
RUN_S_MAX, BUILD_S_MAX = 100, 500
GO_LIBRARIES = ("franz-go", "sarama", "kafka-go")


def _run(*command: str, timeout_s: int = RUN_S_MAX, **environment: str) -> str:
    program = shutil.which(command[0])
    assert program is not None, f"{command[0]} is missing: run scripts/setup go node"
    done = subprocess.run(
        [program, *command[1:]],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Each client produces the values, or reads as many as there are.


class _Client:
    """A library: `client` names its headers, `name` the library itself."""

    def __init__(self, client: str) -> None:
        self.client = client

    def produce(self, kafka: Subject, topic: str) -> None:
        raise NotImplementedError

    def consume(self, kafka: Subject, topic: str) -> list[str]:
        raise NotImplementedError


class _Confluent(_Client):
    def produce(self, kafka: Subject, topic: str) -> None:
        kafka.send(topic, *VALUES)

    def consume(self, kafka: Subject, topic: str) -> list[str]:
        return kafka.values(topic)


class _AioKafka(_Client):
    def produce(self, kafka: Subject, topic: str) -> None:
        async def run() -> None:
            async with AIOKafkaProducer(bootstrap_servers=kafka.servers) as producer:
                for value in VALUES:
                    await producer.send_and_wait(topic, value.encode())

        asyncio.run(run())

    def consume(self, kafka: Subject, topic: str) -> list[str]:
        async def run() -> list[str]:
            consumer = AIOKafkaConsumer(bootstrap_servers=kafka.servers)
            await consumer.start()
            try:
                partition = AsyncPartition(topic, 0)
                consumer.assign([partition])
                await consumer.seek_to_beginning(partition)
                async with asyncio.timeout(TIMEOUT_S):
                    return [(await consumer.getone()).value.decode() for _ in VALUES]
            finally:
                await consumer.stop()

        return asyncio.run(run())


class _KafkaPython(_Client):
    def produce(self, kafka: Subject, topic: str) -> None:
        with closing(KafkaProducer(**servers(kafka))) as producer:
            for value in VALUES:
                producer.send(topic, value.encode()).get(TIMEOUT_S)

    def consume(self, kafka: Subject, topic: str) -> list[str]:
        with closing(KafkaConsumer(**servers(kafka))) as consumer:
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            read: list[str] = []
            while len(read) < COUNT:
                polled = consumer.poll(timeout_ms=int(TIMEOUT_S * 1000))
                assert polled, read
                read += [record.value.decode() for record in polled[partition]]
            return read


class _Java(_Client):
    def produce(self, kafka: Subject, topic: str) -> None:
        how = ("--topic", topic, "--num-records", str(COUNT), "--payload-monotonic")
        props = ("--throughput", "-1", "--producer-props", f"bootstrap.servers={kafka.servers}")
        tool(kafka, "ProducerPerformance", *how, *props, server="")

    def consume(self, kafka: Subject, topic: str) -> list[str]:
        how = ("--group-id", kafka.name(), "--max-messages", str(COUNT), "--verbose")
        printed = tool(
            kafka, "VerifiableConsumer", "--topic", topic, *how, "--reset-policy", "earliest"
        )
        return [str(event["value"]) for event in events(printed, "record_data")]


class _Program(_Client):
    """A library of another language, in a program of its own."""

    def __init__(self, client: str, command: Callable[[], list[str]]) -> None:
        super().__init__(client)
        self._command = command

    def produce(self, kafka: Subject, topic: str) -> None:
        self._run("produce", kafka, topic)

    def consume(self, kafka: Subject, topic: str) -> list[str]:
        return self._run("consume", kafka, topic).split()

    def _run(self, what: str, kafka: Subject, topic: str) -> str:
        command = [*self._command(), what, kafka.servers, topic, str(COUNT)]
        return _run(*command, NODE_PATH=str(BUILD / "node_modules"))


def _go(library: str) -> Callable[[], list[str]]:
    def command() -> list[str]:
        program = BUILD / "clients"
        build = ("go", "build", "-C", str(SOURCES), "-o", str(program), ".")
        _run(*build, timeout_s=BUILD_S_MAX, GOFLAGS="-buildvcs=false")
        return [str(program), library]

    return command


def _kafkajs() -> list[str]:
    if not (BUILD / "node_modules" / "kafkajs").exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCES / "package.json", BUILD)
        quietly = ("--no-package-lock", "--no-audit", "--no-fund")
        _run("npm", "install", "--prefix", str(BUILD), *quietly, timeout_s=BUILD_S_MAX)
    return ["node", str(SOURCES / "kafkajs.js")]


HERE = [_Confluent("confluent-kafka"), _AioKafka("aiokafka"), _KafkaPython("kafka-python")]
ELSEWHERE = [
    _Java("Java"),
    *(_Program(library, _go(library)) for library in GO_LIBRARIES),
    _Program("KafkaJS", _kafkajs),
]
CLIENTS = [
    *(pytest.param(client, id=client.client) for client in HERE),
    *(pytest.param(client, id=client.client, marks=pytest.mark.full) for client in ELSEWHERE),
]

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning"),
    pytest.mark.timeout(2 * BUILD_S_MAX),
]


def _await_all(kafka: Subject, topic: str) -> None:
    """kafka-go's writer does not wait for acknowledgements."""

    def stored() -> int:
        return sum(one.records_count for one in kafka.stored(topic))

    assert wait_until(lambda: stored() == COUNT, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_without_settings_reads_what_it_and_others_have_sent(
    kafka: Subject, client: _Client
) -> None:
    own, others = kafka.topic(), kafka.topic()
    client.produce(kafka, own)
    _await_all(kafka, own)
    assert client.consume(kafka, own) == kafka.values(own) == VALUES
    kafka.send(others, *VALUES)
    assert client.consume(kafka, others) == VALUES


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_without_settings_sends_the_headers_that_are_written_down(
    kafka: Subject, client: _Client
) -> None:
    topic = kafka.topic()
    client.produce(kafka, topic)
    _await_all(kafka, topic)
    first = kafka.stored(topic)[0]
    expected = DEFAULT_HEADERS[client.client]
    assert (first.producer_id >= 0) is (expected.producer_id >= 0)
    found = (first.producer_epoch, first.base_sequence)
    assert found == (expected.producer_epoch, expected.base_sequence)
    # franz-go leaves out a compression that makes a batch no smaller.
    assert first.compression in (expected.compression, Compression.NONE)


def test_every_library_whose_headers_are_written_down_is_run() -> None:
    run = {client.client for client in (*HERE, *ELSEWHERE)}
    assert run == {name for name in DEFAULT_HEADERS if "," not in name}  # "sarama, early versions"
