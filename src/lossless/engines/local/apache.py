"""Apache Kafka, run by Java from jars that are fetched once."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from lossless.core.settings.brokers import BESIDES_KAFKA, setting_for
from lossless.engines.local.security import super_users
from lossless.engines.private import write_private
from lossless.jars import jars
from lossless.jars.java import java

# A lab cluster is started often and lives briefly: the first compiler and the simplest collector
# make brokers start sooner. Kafka's own environment variables replace them.
_HEAP = "-Xmx512m"
_PERFORMANCE = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

LOG_FILE = "server.log"
# Kafka's controllers keep SCRAM's users in the log that they log in to write. PLAIN says the
# secret, but only from one process of this machine to another.
_NODE_USER, _NODE_MECHANISM = "lossless-node", "PLAIN"
_LOG4J = """\
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${sys:lossless.log}/server.log
appender.file.filePattern = ${sys:lossless.log}/server.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d{ISO8601}] %p %m (%c{1})%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = INFO
rootLogger.appenderRef.file.ref = file
"""


def command() -> list[str]:
    """Java with Kafka on its class path. Raises when either is not to be had."""
    return [
        str(java()),
        *shlex.split(os.environ.get("KAFKA_HEAP_OPTS", _HEAP)),
        *shlex.split(os.environ.get("KAFKA_JVM_PERFORMANCE_OPTS", _PERFORMANCE)),
        "-Djava.awt.headless=true",
        *("-cp", os.pathsep.join(str(path) for path in jars("kafka"))),
    ]


def defaults(config: Mapping[str, str], brokers: int) -> dict[str, str]:
    replicas, acknowledging = str(min(3, brokers)), str(min(2, brokers))
    return {
        # Small clusters on one machine: fewer internal partitions, groups that start at once.
        "default.replication.factor": replicas,
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "8",
        "offsets.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": acknowledging,
        "share.coordinator.state.topic.num.partitions": "8",
        "share.coordinator.state.topic.replication.factor": replicas,
        "transaction.state.log.min.isr": acknowledging,
        "transaction.state.log.num.partitions": "8",
        "transaction.state.log.replication.factor": replicas,
        **_heartbeat(config),
        **config,
        **super_users(config, _NODE_USER),
    }


def _heartbeat(config: Mapping[str, str]) -> dict[str, str]:
    """A shorter session needs more frequent heartbeats; Kafka does not derive one from it."""
    session = config.get("broker.session.timeout.ms", "")
    if not session.isdecimal():
        return {}
    return {"broker.heartbeat.interval.ms": str(max(1, int(session) // 5))}


def warnings(config: Mapping[str, str]) -> list[str]:
    return [
        f"{name} is not a setting of Kafka 4.1: ignored, unless a class that you configure reads it"
        for name in config
        if setting_for(name) is None and name not in BESIDES_KAFKA
    ]


def controller_settings(secret: str) -> dict[str, str]:
    listener = "listener.name.controller"
    return {
        "sasl.mechanism.controller.protocol": _NODE_MECHANISM,
        f"{listener}.sasl.enabled.mechanisms": _NODE_MECHANISM,
        f"{listener}.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{_NODE_USER}" password="{secret}" user_{_NODE_USER}="{secret}";'
        ),
    }


def node_login(secret: str) -> tuple[str, str, str]:
    return _NODE_MECHANISM, _NODE_USER, secret


def voter(node: int, *, is_broker: bool) -> int:  # noqa: ARG001
    """A broker that is a controller too has one number for both."""
    return node


def write_files(folder: Path) -> None:
    write_private(folder / "log4j2.properties", _LOG4J)


def format_command(command: Sequence[str], folder: Path, cluster_id: str) -> list[str]:
    """Kafka's own tool lays the data folder out."""
    return [
        *command,
        *_logging(folder),
        "kafka.tools.StorageTool",
        "format",
        "--ignore-formatted",
        *("--cluster-id", cluster_id),
        *("--config", str(folder / "server.properties")),
    ]


def start_command(command: Sequence[str], folder: Path) -> list[str]:
    return [*command, *_logging(folder), "kafka.Kafka", str(folder / "server.properties")]


def _logging(folder: Path) -> list[str]:
    return [
        f"-Dlossless.log={folder / 'log'}",
        f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}",
    ]
