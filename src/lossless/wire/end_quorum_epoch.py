"""EndQuorumEpoch (54): I no longer lead, and who should be next."""

from __future__ import annotations

from typing import Any

from lossless.core.quorum_messages import EndQuorumEpoch, EndQuorumEpochAnswer
from lossless.wire.codec import Fields
from lossless.wire.quorum import leader_number, leader_or_none, of_log, only_partition

KEY, VERSION = 54, 1


def asked(request: EndQuorumEpoch, cluster_id: str) -> Fields:
    successors = [{"candidate_id": candidate} for candidate in request.successors]
    said = {
        "leader_id": request.leader,
        "leader_epoch": request.epoch,
        "preferred_candidates": successors,
    }
    return {"cluster_id": cluster_id, "topics": of_log(said)}


def answered(message: Any) -> EndQuorumEpochAnswer:
    said = only_partition(message)
    return EndQuorumEpochAnswer(said.leader_epoch, leader_or_none(said.leader_id))


def understood(message: Any) -> tuple[int, EndQuorumEpoch]:
    said = only_partition(message)
    successors = (
        tuple(candidate.candidate_id for candidate in said.preferred_candidates)
        if hasattr(said, "preferred_candidates")
        else tuple(said.preferred_successors)
    )
    return said.leader_id, EndQuorumEpoch(said.leader_epoch, said.leader_id, successors)


def told(answer: EndQuorumEpochAnswer) -> Fields:
    return {
        "topics": of_log({"leader_id": leader_number(answer.leader), "leader_epoch": answer.epoch})
    }
