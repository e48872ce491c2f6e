"""What the nodes of a quorum say to each other, write down and remember. The rules: quorum.py.

    Vote                candidate → voters      may I lead this epoch? (pre-vote: might I?)
    BeginQuorumEpoch    leader → voters         I lead this epoch
    EndQuorumEpoch      leader → voters         I no longer do, and who should be next
    QuorumFetch         follower → leader       what comes next? I have everything up to here

Every answer tells the epoch of the one who answers and, if it knows one, the leader of that epoch:
who was left behind finds out by asking anything.

Kafka has these as APIs 52, 53, 54 and 1 (KIP-595, KIP-996). Not here, because voters are fixed and
there are no snapshots: directory ids, endpoints, voter keys (KIP-853), snapshot ids (KIP-630).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lossless.core.machine import Token
from lossless.core.messages import Error
from lossless.log.batch import Batch, Record, build
from lossless.log.leader_epochs import EpochEnd

NO_EPOCH = 0  # of a log without records: the first leader is that of epoch 1

_LEADER_CHANGE_KEY = struct.pack(">hh", 0, 2)  # version, type of control record
_NOBODY = -1


# Said


class Vote(NamedTuple):
    epoch: int
    candidate: int
    last_epoch: int
    last_offset: int  # where the candidate's log ends
    pre_vote: bool


class VoteAnswer(NamedTuple):
    epoch: int
    leader: int | None
    granted: bool


class BeginQuorumEpoch(NamedTuple):
    epoch: int
    leader: int


class BeginQuorumEpochAnswer(NamedTuple):
    epoch: int
    leader: int | None


class EndQuorumEpoch(NamedTuple):
    epoch: int
    leader: int
    successors: tuple[int, ...]  # who has most comes first


class EndQuorumEpochAnswer(NamedTuple):
    epoch: int
    leader: int | None


class QuorumFetch(NamedTuple):
    epoch: int
    replica: int
    offset: int  # everything below is flushed
    last_fetched_epoch: int  # of the record before `offset`
    high_watermark: int  # as far as the replica knows (KIP-1166)


class QuorumFetchAnswer(NamedTuple):
    epoch: int
    leader: int | None
    error: Error = Error.NONE
    high_watermark: int = 0
    diverging: EpochEnd | None = None  # truncate to this, and ask again
    data: bytes = b""  # whole batches


Request = Vote | BeginQuorumEpoch | EndQuorumEpoch | QuorumFetch
Answer = VoteAnswer | BeginQuorumEpochAnswer | EndQuorumEpochAnswer | QuorumFetchAnswer


# Written down


class QuorumBroken(Exception):
    """What the protocol rules out has happened: this node is to stop, and its disk to be kept."""


class CorruptElection(ValueError):
    """What was written down cannot be read. A node that forgot its vote could give it twice."""


class Election(NamedTuple):
    """What a node must not forget, in the file and with the names that Kafka has for it."""

    epoch: int = 0
    leader: int | None = None
    voted: int | None = None

    def encode(self) -> bytes:
        fields = {
            "leaderId": _NOBODY if self.leader is None else self.leader,
            "leaderEpoch": self.epoch,
            "votedId": _NOBODY if self.voted is None else self.voted,
            "data_version": 0,
        }
        return json.dumps(fields).encode()

    @classmethod
    def decode(cls, data: bytes) -> Election:
        if not data:
            return cls()
        try:
            fields = json.loads(data)
            epoch, leader, voted = (
                int(fields[name]) for name in ("leaderEpoch", "leaderId", "votedId")
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptElection(
                f"the quorum state cannot be read ({data[:80]!r}): it is not known how this node "
                "has voted. Restore the file, or give the node a new id and an empty disk."
            ) from error
        return cls(
            epoch, None if leader == _NOBODY else leader, None if voted == _NOBODY else voted
        )


def goes_forward(before: Election, after: Election) -> None:
    """Epochs rise; within one, nobody votes for another or is led by another than at first."""
    same_vote = before.voted in (None, after.voted)
    same_leader = before.leader in (None, after.leader)
    is_same_epoch = after.epoch == before.epoch and same_vote and same_leader
    if not (after.epoch > before.epoch or is_same_epoch):
        raise QuorumBroken(f"{before} cannot become {after}: two leaders or two votes in one epoch")


def leader_change(
    leader: int, voters: Sequence[int], granting: Sequence[int], now_ms: int
) -> Batch:
    """The control batch that opens a leader's epoch, as Kafka's tools read it."""
    value = struct.pack(">hi", 0, leader)
    for nodes in (voters, granting):
        # A compact array: its length plus one, and after each element that no tagged fields follow.
        value += bytes([len(nodes) + 1]) + b"".join(struct.pack(">ib", node, 0) for node in nodes)
    return build([Record(0, now_ms, _LEADER_CHANGE_KEY, value + b"\0")], control=True)


def keeps_committed(high_watermark: int, offset: int) -> None:
    """What is committed stays, whatever a leader says of where histories part."""
    if offset < high_watermark:
        raise QuorumBroken(f"truncating to {offset} loses what is committed up to {high_watermark}")


# Remembered while the process lives: states, each of which ends at its deadline, if it has one


@dataclass(slots=True)
class Unattached:
    deadline_ms: int | None


@dataclass(slots=True)
class Nominee:
    deadline_ms: int
    granted: set[int]
    refused: set[int] = field(default_factory=set)


class Prospective(Nominee):
    __slots__ = ()


class Candidate(Nominee):
    __slots__ = ()


class ParkedFetch(NamedTuple):
    token: Token
    request: QuorumFetch
    until_ms: int


@dataclass(slots=True)
class Leader:
    deadline_ms: int | None  # when it will have heard from too few for too long
    first_offset: int  # of the record that opens its epoch
    begin_ms: int  # when to tell those who do not fetch
    heard_ms: dict[int, int]  # of every other voter, when it last fetched
    ends: dict[int, int] = field(default_factory=dict)  # what other voters have on disk
    parked: dict[int, ParkedFetch] = field(default_factory=dict)  # at most one for a replica


@dataclass(slots=True)
class Resigned:
    deadline_ms: int
    successors: tuple[int, ...]
    told: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Follower:
    deadline_ms: int
    leader: int
    has_fetched: bool = False
    is_over: bool = False  # the leader has resigned


State = Unattached | Nominee | Leader | Resigned | Follower


class Asked(NamedTuple):
    """Of a node that is still to answer, or that is left alone for a while because it did not."""

    request: Request
    retry_ms: int | None = None
