"""One request at a time, as no client library would send it."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Mapping
from typing import Any

from lossless.core.messages import Error
from lossless.engines.local.cluster import LocalCluster
from lossless.engines.waiting import wait_until
from lossless.log.batch import Record, build
from lossless.wire.codec import make, read, request_class, response_class, write
from lossless.wire.frames import LENGTH, has_tagged_answer, request

PRODUCE = 0
TIMEOUT_S = 5.0
_ids = itertools.count(1)


def ask(cluster: LocalCluster, broker: int, key: int, version: int, **fields: Any) -> Any:
    """What a broker answers."""
    entity = request_class(key, version)
    message = write(make(entity, fields))
    number = next(_ids)
    frame = request(key, version, number, "raw", message, tagged=entity.__flexible__)
    host, _, port = cluster.plan.address(cluster.node(broker)).rpartition(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as connection:
        connection.sendall(frame)
        (length,) = LENGTH.unpack(_exactly(connection, LENGTH.size))
        answer = _exactly(connection, length)
    assert int.from_bytes(answer[:4], "big") == number
    at = 5 if has_tagged_answer(key, version) else 4
    return read(response_class(key, version), answer, at)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionResetError("the broker has closed the connection")
        data += part
    return data


class RawProducer:
    """A transactional producer whose every request a test may choose: here, a zombie's."""

    def __init__(self, cluster: LocalCluster, transactional_id: str, coordinator: int) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self.broker = coordinator  # where it is
        self.producer_id = self.epoch = -1

    def init(self) -> None:
        """As often as it takes: what was open is aborted first."""

        def done() -> bool:
            answer = self.coordinator(22, 5, transaction_timeout=60_000)
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            return bool(answer.error_code.value == Error.NONE)

        assert wait_until(done, timeout_s=TIMEOUT_S)

    def coordinator(self, key: int, version: int, **fields: Any) -> Any:
        fields.setdefault("transactional_id", self._id)
        return ask(self._cluster, self.broker, key, version, **fields)

    def add(self, topic: str) -> Error:
        answer = ask(
            self._cluster,
            self.broker,
            24,
            3,
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[{"name": topic, "partitions": [0]}],
        )
        said = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
        return Error(said.partition_error_code.value)

    def produce(
        self, topic: str, sequence: int, *, version: int, epoch: int | None = None
    ) -> Error:
        """One record to partition 0."""
        batch = build(
            [Record(0, 0, None, b"raw")],
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data: Mapping[str, Any] = {"index": 0, "records": batch.data}
        answer = ask(
            self._cluster,
            self._cluster.leader_of(topic, 0),
            PRODUCE,
            version,
            transactional_id=self._id,
            acks=-1,
            timeout=30_000,
            topic_data=[{"name": topic, "partition_data": [data]}],
        )
        return Error(answer.responses[0].partition_responses[0].error_code.value)

    def end(self, *, committed: bool, version: int) -> Error:
        """From version 5 on the answer has the next epoch, and this producer takes it."""
        answer = self.coordinator(
            26,
            version,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        if answer.error_code.value == Error.NONE and version >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return Error(answer.error_code.value)
