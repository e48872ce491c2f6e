"""The reliable client beside confluent-kafka itself: same settings, same headers, same callbacks.

What the peer does is what its experts write: produce with a delivery callback and poll(0), consume
by 500, process, commit afterwards as often as we do. Both talk to one embedded cluster of three
brokers.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import KafkaError, Message, TopicPartition
from confluent_kafka import Producer as RawProducer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.commit_curve import Point, draw
from benchmarks.measure import Peer, Result, compare, console
from lossless.client.consuming.consumer import Consumer
from lossless.client.headers import APPLICATION, HOST, OPERATION_ID
from lossless.client.producing.producer import Producer
from lossless.engines import cluster

PARTITIONS = 6
VALUE = bytes(100)
AT_ONCE = 500  # records of one consume()
COMMIT_EVERY_S = 1.0
KEYS, WORKERS, HANDLER_S = 1_000, 32, 0.005
COMMIT_EVERY = (1, 10, 100, 1_000, 10_000)
COUNTED = 400_000
RAW = "confluent-kafka"
SENDING = {"acks": "all", "enable.idempotence": "true", "linger.ms": "5"}
_fresh = itertools.count()


def measure(records: int, runs: int) -> list[Result]:
    with cluster(processes=True) as local:  # not in the interpreter of the clients
        bootstrap_servers = local.bootstrap_servers
        _create(bootstrap_servers, "sent", PARTITIONS)
        return [
            # Long runs: for the first half second librdkafka asks for an id and sends nothing.
            *_producing(bootstrap_servers, records // 2, runs),
            *_consuming(bootstrap_servers, records // 4, runs),
            *_in_parallel(bootstrap_servers),
            *commit_frequency(bootstrap_servers),
        ]


def _producing(bootstrap_servers: str, records: int, runs: int) -> list[Result]:
    settings = {**SENDING, "bootstrap.servers": bootstrap_servers}

    def ours(_run: int) -> None:
        with Producer(settings, application="benchmark") as producer:
            for number in range(records):
                producer.send("sent", VALUE, b"%d" % (number % KEYS))

    def theirs(run: int) -> None:
        # What our defaults are, given by hand: the same partitioner, the same patience.
        producer = RawProducer(
            {**settings, "partitioner": "murmur2_random", "message.timeout.ms": "120000"}
        )
        constant = [(APPLICATION, b"benchmark"), (HOST, socket.gethostname().encode())]
        acknowledged = 0

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            nonlocal acknowledged
            if error is not None:
                raise RuntimeError(str(error))
            acknowledged += 1

        for number in range(records):
            operation_id = b"%d-%d" % (run, number)
            while True:
                try:
                    producer.produce(
                        "sent",
                        VALUE,
                        b"%d" % (number % KEYS),
                        headers=[*constant, (OPERATION_ID, operation_id)],
                        on_delivery=on_delivery,
                    )
                except BufferError:
                    producer.poll(0.01)
                else:
                    break
            producer.poll(0)
        producer.flush()
        if acknowledged != records:
            raise RuntimeError(f"{acknowledged} of {records} were acknowledged")

    return compare(
        "client: produce 100 B",
        ours,
        [Peer(name=f"{RAW}, the same headers and a callback", work=theirs, bar=0.9)],
        records=records,
        runs=runs,
    )


def _consuming(bootstrap_servers: str, records: int, runs: int) -> list[Result]:
    _create(bootstrap_servers, "read", PARTITIONS)
    _fill(bootstrap_servers, "read", records)

    def settings() -> dict[str, str]:
        return {"bootstrap.servers": bootstrap_servers, "group.id": f"reader-{next(_fresh)}"}

    def ours(_run: int) -> None:
        seen = 0
        with Consumer("read", settings(), commit_every_s=COMMIT_EVERY_S) as consumer:
            for message in consumer:
                seen += len(message.value() or b"") > 0
                if seen == records:
                    consumer.stop()

    def theirs(commit_every_s: float) -> None:
        consumer = RawConsumer(
            {
                **settings(),
                "auto.offset.reset": "earliest",
                "enable.auto.commit": "false",
                "enable.auto.offset.store": "false",
                "fetch.queue.backoff.ms": "20",  # as ours: a second, the default, stalls it
            }
        )
        consumer.subscribe(["read"])
        seen = 0
        committed_s = time.monotonic()
        while seen < records:
            for message in consumer.consume(AT_ONCE, timeout=1.0):
                if message.error() is not None:
                    raise RuntimeError(str(message.error()))
                seen += len(message.value() or b"") > 0
            if time.monotonic() - committed_s >= commit_every_s:
                committed_s = time.monotonic()
                consumer.commit(offsets=consumer.position(consumer.assignment()))
        consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=False)
        consumer.close()

    return compare(
        "client: consume 100 B",
        ours,
        [
            Peer(
                name=f"{RAW}, consume({AT_ONCE}), a commit after each",
                work=lambda _run: theirs(0.0),
                bar=0.9,
            ),
            Peer(
                name="the same with a commit every second, as ours",
                work=lambda _run: theirs(COMMIT_EVERY_S),
                bar=0.9,
            ),
        ],
        records=records,
        runs=runs,
    )


def _in_parallel(bootstrap_servers: str) -> list[Result]:
    """A handler that waits 5 ms: 32 workers, order kept for each of 1,000 keys, against one."""
    records = 16_000
    _create(bootstrap_servers, "slow", PARTITIONS)
    _fill(bootstrap_servers, "slow", records)
    rates = {
        workers: _handled_per_s(bootstrap_servers, workers, count)
        for workers, count in ((1, records // WORKERS), (WORKERS, records))
    }
    ratio = rates[WORKERS] / rates[1]
    return [
        Result(
            name=f"client: {WORKERS} workers, order by key, handler of 5 ms",
            value=round(rates[WORKERS]),
            unit="records/s",
            against="one worker",
            against_value=round(rates[1]),
            ratio=round(ratio, 2),
            bar=25,
            holds=ratio >= 25,
        )
    ]


def _handled_per_s(bootstrap_servers: str, workers: int, records: int) -> float:
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": f"slow-{next(_fresh)}"}
    done = itertools.count(1)
    began_s: list[float] = []
    ended_s: list[float] = []
    consumer = Consumer("slow", settings, workers=workers, order="key")

    def handler(_message: Message) -> None:
        began_s.append(time.perf_counter())
        time.sleep(HANDLER_S)
        if next(done) == records:
            ended_s.append(time.perf_counter())
            consumer.stop()

    with consumer:
        consumer.run(handler)
    return records / (ended_s[0] - began_s[0])


def commit_frequency(bootstrap_servers: str) -> list[Result]:
    """Claim C5: commits cost throughput, and save repetitions after a crash."""
    _create(bootstrap_servers, "counted", 1)
    _fill(bootstrap_servers, "counted", COUNTED)
    results = []
    points = []
    for every in COMMIT_EVERY:
        rate, repeated = _killed_reader(bootstrap_servers, every)
        console.print(f"  a commit every {every}: {rate:,.0f} records/s, {repeated} repeated")
        points.append(Point(every, rate, repeated))
        name = f"client: a commit every {every:,} records"
        results.append(Result(name=f"{name}, read", value=round(rate), unit="records/s"))
        results.append(
            Result(name=f"{name}, repeated after kill -9", value=repeated, unit="records")
        )
    draw(points)
    return results


def _killed_reader(bootstrap_servers: str, every: int) -> tuple[float, int]:
    """Reads in a process that is killed on the way; how fast, and what another one would repeat."""
    measured = min(COUNTED // 2, every * 5_000)
    group = f"killed-{next(_fresh)}"
    with tempfile.TemporaryDirectory() as folder:
        progress = Path(folder) / "progress"
        command = [sys.executable, "-m", "benchmarks.killed_reader"]
        arguments = [bootstrap_servers, group, str(every), str(measured), str(progress)]
        process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        rate = float(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        read = progress.stat().st_size
    raw = RawConsumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    (committed,) = raw.committed([TopicPartition("counted", 0)], timeout=10)
    raw.close()
    return rate, read - max(committed.offset, 0)


def _create(bootstrap_servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    new = NewTopic(topic, partitions, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([new])[topic].result(30)


def _fill(bootstrap_servers: str, topic: str, records: int) -> None:
    producer = RawProducer({**SENDING, "bootstrap.servers": bootstrap_servers})
    for number in range(records):
        if number % 10_000 == 0:
            producer.flush()
        producer.produce(topic, VALUE, b"%d" % (number % KEYS))
    producer.flush()
