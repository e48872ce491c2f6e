"""Vote (52): may I lead this epoch? Version 2 asks whether one might, and changes nothing."""

from __future__ import annotations

from typing import Any

from lossless.core.quorum_messages import Vote, VoteAnswer
from lossless.wire.codec import Fields
from lossless.wire.quorum import leader_number, leader_or_none, of_log, only_partition

KEY, VERSION = 52, 2


def asked(vote: Vote, cluster_id: str, voter: int) -> Fields:
    return {
        "cluster_id": cluster_id,
        "voter_id": voter,
        "topics": of_log(
            {
                "replica_epoch": vote.epoch,
                "replica_id": vote.candidate,
                "last_offset_epoch": vote.last_epoch,
                "last_offset": vote.last_offset,
                "pre_vote": vote.pre_vote,
            }
        ),
    }


def answered(message: Any) -> VoteAnswer:
    said = only_partition(message)
    return VoteAnswer(said.leader_epoch, leader_or_none(said.leader_id), said.vote_granted)


def understood(message: Any) -> tuple[int, Vote]:
    said = only_partition(message)
    candidate = getattr(said, "replica_id", getattr(said, "candidate_id", -1))
    epoch = getattr(said, "replica_epoch", getattr(said, "candidate_epoch", -1))
    vote = Vote(
        epoch,
        candidate,
        said.last_offset_epoch,
        said.last_offset,
        getattr(said, "pre_vote", False),
    )
    return candidate, vote


def told(answer: VoteAnswer) -> Fields:
    return {
        "topics": of_log(
            {
                "leader_id": leader_number(answer.leader),
                "leader_epoch": answer.epoch,
                "vote_granted": answer.granted,
            }
        )
    }
