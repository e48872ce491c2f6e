"""Fetch (1), of the metadata log: what followers and observers of the quorum ask its leader."""

from __future__ import annotations

from typing import Any

from lossless.core.messages import UNKNOWN_EPOCH, Error
from lossless.core.quorum_messages import QuorumFetch, QuorumFetchAnswer
from lossless.log.leader_epochs import EpochEnd
from lossless.wire.codec import Fields
from lossless.wire.quorum import METADATA_ID, leader_number, leader_or_none, only_partition

KEY, VERSION = 1, 18


def asked(request: QuorumFetch, cluster_id: str) -> Fields:
    return {
        "cluster_id": cluster_id,
        "replica_state": {"replica_id": request.replica},
        "max_wait": 500,
        "min_bytes": 0,
        "max_bytes": 8 << 20,
        "topics": [
            {
                "topic_id": METADATA_ID,
                "partitions": [
                    {
                        "partition": 0,
                        "current_leader_epoch": request.epoch,
                        "fetch_offset": request.offset,
                        "last_fetched_epoch": request.last_fetched_epoch,
                        "high_watermark": request.high_watermark,
                        "partition_max_bytes": 8 << 20,
                    }
                ],
            }
        ],
    }


def answered(message: Any) -> QuorumFetchAnswer:
    if len(message.responses) != 1 or len(message.responses[0].partitions) != 1:
        raise ValueError("not about the metadata log")
    said = message.responses[0].partitions[0]
    diverging = said.diverging_epoch
    return QuorumFetchAnswer(
        said.current_leader.leader_epoch,
        leader_or_none(said.current_leader.leader_id),
        Error(said.error_code.value),
        said.high_watermark,
        EpochEnd(diverging.epoch, diverging.end_offset) if diverging.epoch >= 0 else None,
        said.records or b"",
    )


def understood(message: Any) -> tuple[int, QuorumFetch]:
    said = only_partition(message)
    # Before version 15 the replica has no state, only a number.
    state = getattr(message, "replica_state", message)
    replica = state.replica_id
    return replica, QuorumFetch(
        getattr(said, "current_leader_epoch", UNKNOWN_EPOCH),
        replica,
        said.fetch_offset,
        getattr(said, "last_fetched_epoch", UNKNOWN_EPOCH),
        getattr(said, "high_watermark", 0),
    )


def told(answer: QuorumFetchAnswer) -> Fields:
    said: dict[str, Any] = {
        "partition_index": 0,
        "error_code": answer.error,
        "high_watermark": answer.high_watermark,
        "last_stable_offset": answer.high_watermark,
        "log_start_offset": 0,
        "current_leader": {
            "leader_id": leader_number(answer.leader),
            "leader_epoch": answer.epoch,
        },
        "records": answer.data,
    }
    if answer.diverging is not None:
        said["diverging_epoch"] = {
            "epoch": answer.diverging.epoch,
            "end_offset": answer.diverging.end_offset,
        }
    return {"responses": [{"topic_id": METADATA_ID, "partitions": [said]}]}
