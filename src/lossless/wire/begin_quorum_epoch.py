"""BeginQuorumEpoch (53): I lead this epoch."""

from __future__ import annotations

from typing import Any

from lossless.core.quorum_messages import BeginQuorumEpoch, BeginQuorumEpochAnswer
from lossless.wire.codec import Fields
from lossless.wire.quorum import leader_number, leader_or_none, of_log, only_partition

KEY, VERSION = 53, 1


def asked(request: BeginQuorumEpoch, cluster_id: str, voter: int) -> Fields:
    return {
        "cluster_id": cluster_id,
        "voter_id": voter,
        "topics": of_log({"leader_id": request.leader, "leader_epoch": request.epoch}),
    }


def answered(message: Any) -> BeginQuorumEpochAnswer:
    said = only_partition(message)
    return BeginQuorumEpochAnswer(said.leader_epoch, leader_or_none(said.leader_id))


def understood(message: Any) -> tuple[int, BeginQuorumEpoch]:
    said = only_partition(message)
    return said.leader_id, BeginQuorumEpoch(said.leader_epoch, said.leader_id)


def told(answer: BeginQuorumEpochAnswer) -> Fields:
    return {
        "topics": of_log({"leader_id": leader_number(answer.leader), "leader_epoch": answer.epoch})
    }
