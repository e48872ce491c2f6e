"""What an administrator does to a topic."""

from __future__ import annotations

import socket

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from observing import QUICK, WAIT_S_MAX, reachable

from lossless.core.error_codes import Error
from lossless.engines.local.planned import PlannedCluster
from lossless.wire.codec import make, read, request_class, response_class, write
from lossless.wire.elect_leaders import KEY, ElectionType
from lossless.wire.frames import LENGTH, request

VERSION = 2
HEAD = 5  # of an answer: the correlation id, and no tags


def admin_of(kafka: PlannedCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": reachable(kafka), **QUICK})


def elect(kafka: PlannedCluster, topic: str) -> None:
    """The first replica of its partition is to lead it.

    Asked of a broker that runs: clients ask whom the cluster calls its controller, and Apache Kafka
    names any broker, a paused one too.
    """
    fields = {
        "election_type": ElectionType.PREFERRED,
        "topic_partitions": [{"topic": topic, "partitions": [0]}],
        "timeout": 30_000,
    }
    message = write(make(request_class(KEY, VERSION), fields))
    host, _, port = reachable(kafka).split(",")[0].rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=WAIT_S_MAX) as connection,
        connection.makefile("rb") as answers,
    ):
        connection.sendall(request(KEY, VERSION, 1, "tests", message, tagged=True))
        (length,) = LENGTH.unpack(answers.read(LENGTH.size))
        answer = read(response_class(KEY, VERSION), answers.read(length), HEAD)
    ((result,),) = (topic.partition_result for topic in answer.replica_election_results)
    assert result.error_code.value in (Error.NONE, Error.ELECTION_NOT_NEEDED), result


def configure(kafka: PlannedCluster, topic: str, **config: str) -> None:
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = admin_of(kafka)  # kept: without it, the answer is that it was thrown away
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S_MAX)
