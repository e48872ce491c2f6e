"""Kafka's own tools, which are Java's clients. Each is a process that takes a second to start."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from subject import Subject

from lossless.jars import jars
from lossless.jars.java import java
from lossless.log.compression import Compression

JAVA_S_MAX = 100
GROUP_TOOL = "consumer.group.ConsumerGroupCommand"


def tool(
    kafka: Subject,
    name: str,
    *arguments: str,
    server: str = "--bootstrap-server",
    package: str = "org.apache.kafka.tools",
) -> str:
    """What one of Kafka's tools prints."""
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    path = os.pathsep.join(map(str, jars("kafka")))
    command = [str(java()), *options, "-cp", path, f"{package}.{name}"]
    command += [server, kafka.servers] if server else []
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=JAVA_S_MAX, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def events(printed: str, name: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return [event for event in found if event["name"] == name]


def at_once(*tools: Callable[[], str]) -> list[str]:
    """What each prints, when all have ended."""
    with ThreadPoolExecutor(len(tools)) as pool:
        return [running.result() for running in [pool.submit(one) for one in tools]]


def test_the_topic_tool_creates_and_describes(kafka: Subject) -> None:
    name = kafka.name()
    how = ("--partitions", "2", "--replication-factor", "3", "--config", "retention.ms=5000")
    tool(kafka, "TopicCommand", "--create", "--topic", name, *how)
    kafka.knows(name, 2)
    described = tool(kafka, "TopicCommand", "--describe", "--topic", name)
    head, *partitions = described.strip().splitlines()
    assert "PartitionCount: 2" in head
    assert "ReplicationFactor: 3" in head
    assert "retention.ms=5000" in head
    assert [f"Partition: {number}" in line for number, line in enumerate(partitions)] == [True] * 2


def test_what_javas_producers_send_groups_of_both_protocols_read(kafka: Subject) -> None:
    topic, groups = kafka.topic(2), {"classic": kafka.name(), "consumer": kafka.name()}

    def produce() -> str:
        return tool(kafka, "VerifiableProducer", "--topic", topic, "--max-messages", "50")

    def consume(protocol: str) -> str:
        group = ("--group-id", groups[protocol], "--group-protocol", protocol)
        how = ("--max-messages", "50", "--verbose", "--reset-policy", "earliest")
        return tool(kafka, "VerifiableConsumer", "--topic", topic, *group, *how)

    sent, *read = at_once(produce, lambda: consume("classic"), lambda: consume("consumer"))
    assert len(events(sent, "producer_send_success")) == 50
    for printed in read:
        values = sorted(int(str(event["value"])) for event in events(printed, "record_data"))
        assert values == list(range(50))
        assert all(event["success"] for event in events(printed, "offsets_committed"))
    ends, described = at_once(
        lambda: tool(kafka, "GetOffsetShell", "--topic", topic),
        lambda: tool(kafka, GROUP_TOOL, "--describe", "--group", groups["consumer"]),
    )
    assert sum(int(line.rsplit(":", 1)[1]) for line in ends.split()) == 50
    rows = [line.split() for line in described.splitlines() if line.startswith(groups["consumer"])]
    assert {row[1] for row in rows} == {topic}
    assert sum(int(row[3]) for row in rows) == 50
    assert {row[5] for row in rows} == {"0"}  # nobody lags


def test_records_are_compressed_deleted_and_leaders_elected_by_tools(
    kafka: Subject, tmp_path: Path
) -> None:
    topic, compressed = kafka.topic(), kafka.topic()
    kafka.send(topic, "a", "b", "c")
    which = {"topic": topic, "partition": 0, "offset": 2}
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"partitions": [which], "version": 1}))
    servers = f"bootstrap.servers={kafka.servers}"
    deleted, elected, _ = at_once(
        lambda: tool(kafka, "DeleteRecordsCommand", "--offset-json-file", str(file)),
        lambda: tool(
            kafka,
            "LeaderElectionCommand",
            *("--election-type", "preferred", "--topic", topic, "--partition", "0"),
        ),
        lambda: tool(
            kafka,
            "ProducerPerformance",
            *("--topic", compressed, "--num-records", "600", "--record-size", "200"),
            *("--throughput", "-1", "--producer-props", servers, "compression.type=zstd"),
            server="",
        ),
    )
    assert f"partition: {topic}-0\tlow_watermark: 2" in deleted
    assert kafka.values(topic, start=2) == ["c"]
    assert "Valid replica already elected" in elected
    assert len(kafka.values(compressed)) == 600
    assert {one.compression for one in kafka.stored(compressed)} == {Compression.ZSTD}
