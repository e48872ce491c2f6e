"""A transactional producer that sends one request at a time, whichever a test chooses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import one_request
from lossless.core.messages import Error
from lossless.engines.local.cluster import LocalCluster
from lossless.engines.waiting import wait_until
from lossless.log.batch import Record, build

PRODUCE = 0
TIMEOUT_S = 5.0


def ask(cluster: LocalCluster, broker: int, key: int, version: int, **fields: Any) -> Any:
    """What a broker answers."""
    return one_request.ask(cluster.plan.address(cluster.node(broker)), key, version, **fields)


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
