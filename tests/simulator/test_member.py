"""The model of a consumer in a group: how it joins, what it gives up first, what it loses."""

from __future__ import annotations

from typing import Any

from lossless.core.groups.messages import (
    Heartbeat,
    HeartbeatAnswer,
    JoinGroup,
    JoinGroupAnswer,
    JoinGroupMember,
    OffsetCommit,
    OffsetCommitAnswer,
    OffsetFetch,
    OffsetFetchAnswer,
    OffsetFetched,
    PartitionError,
    SyncGroup,
    SyncGroupAnswer,
)
from lossless.core.messages import (
    OFFSETS_TOPIC,
    Error,
    Fetch,
    FetchAnswer,
    Fetched,
    Metadata,
    MetadataAnswer,
    PartitionLeader,
    TopicPartition,
)
from lossless.log.batch import Record, build
from lossless.simulator.clients.leaders import Leaders
from lossless.simulator.clients.member import Member, State
from lossless.simulator.settings import HEARTBEAT_MS, ConsumerSettings
from lossless.simulator.world import OnConnection
from lossless.verifier.history import Committed, Event, Processed, Reset

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
LEADERS = MetadataAnswer(
    (
        PartitionLeader(FIRST, 1, 0),
        PartitionLeader(SECOND, 1, 0),
        *(PartitionLeader(TopicPartition(OFFSETS_TOPIC, n), 2, 0) for n in (0, 1)),
    )
)


class Hosted:
    """A member of generation 3 that was given the first partition, where the group is at 5."""

    def __init__(self, **settings: Any) -> None:
        self.now_ms = 0
        self.events: list[Event] = []
        self.sent: list[Any] = []
        self.member = Member(
            "c1",
            "g",
            ConsumerSettings(**settings),
            (FIRST, SECOND),
            Leaders("orders", 3, 1),
            Leaders(OFFSETS_TOPIC, 3, 1),
            tell=self.events.append,
        )
        self._do(self.member.on_start(0))
        for topic in ("orders", OFFSETS_TOPIC):
            self._do(self.member.on_answer(1, Metadata((topic,)), LEADERS, 0))
        self.answer(JoinGroup, JoinGroupAnswer(Error.MEMBER_ID_REQUIRED, "c1-id"))
        self.joined("c1-id", JoinGroupMember("c1-id", None, b""), JoinGroupMember("c2", None, b""))
        self.answer(SyncGroup, SyncGroupAnswer(Error.NONE, assignment=b"0"))
        fetched = (OffsetFetched(FIRST, Error.NONE, 5, 0),)
        self.answer(OffsetFetch, OffsetFetchAnswer(Error.NONE, "g", fetched))

    def joined(self, leader: str, *members: JoinGroupMember) -> None:
        answer = JoinGroupAnswer(Error.NONE, "c1-id", 3, leader=leader, members=members)
        self.answer(JoinGroup, answer)

    def _do(self, effects: Any) -> None:
        for _, request in effects.send:
            self.sent.append(request.request if isinstance(request, OnConnection) else request)

    def all(self, kind: type) -> list[Any]:
        return [request for request in self.sent if isinstance(request, kind)]

    def answer(self, kind: type, answer: Any) -> None:
        self._do(self.member.on_answer(1, self.all(kind)[-1], answer, self.now_ms))

    def read(self, *values: bytes) -> None:
        records = [Record(5 + at, 0, None, value) for at, value in enumerate(values)]
        data = build(records).placed(5, 0).data
        end = 5 + len(values)
        self.answer(Fetch, FetchAnswer((Fetched(FIRST, Error.NONE, end, data=data),)))

    def pass_ms(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self._do(self.member.on_timer(self.now_ms))

    def beat(self, error: Error) -> None:
        self.pass_ms(HEARTBEAT_MS)
        self.answer(Heartbeat, HeartbeatAnswer(error))

    def committed(self, error: Error = Error.NONE) -> None:
        self.answer(OffsetCommit, OffsetCommitAnswer((PartitionError(FIRST, error),)))


def test_it_joins_with_the_id_it_is_given_and_the_leader_shares_out() -> None:
    host = Hosted()
    assert [request.member_id for request in host.all(JoinGroup)] == ["", "c1-id"]
    assert host.all(SyncGroup)[-1].assignments == (("c1-id", b"0"), ("c2", b"1"))
    assert host.events == [Reset(0, "c1", FIRST, None, 5, "assigned")]
    assert host.member.is_calm


def test_it_commits_as_a_member_of_its_generation_and_believes_it_when_it_is_told() -> None:
    host = Hosted()
    host.read(b"a")
    host.pass_ms(20)
    (commit,) = host.all(OffsetCommit)
    assert (commit.generation_id_or_member_epoch, commit.member_id) == (3, "c1-id")
    assert commit.offsets[0][:2] == (FIRST, 6)
    assert not host.member.is_calm
    host.committed()
    assert host.events[-1] == Committed(20, "g", FIRST, 6)


def test_what_is_revoked_is_processed_and_committed_before_it_joins_again() -> None:
    host = Hosted()
    host.read(b"a", b"b", b"c", b"d", b"e", b"f", b"g")
    host.beat(Error.REBALANCE_IN_PROGRESS)
    assert host.member.state is State.REVOKING
    for _ in range(6):
        assert len(host.all(JoinGroup)) == 2
        host.pass_ms(20)
    assert host.all(OffsetCommit)[-1].offsets[0][:2] == (FIRST, 12)
    assert len(host.all(JoinGroup)) == 2, "the commit is not answered"
    host.committed()
    assert len(host.all(JoinGroup)) == 3
    assert host.member.positions == {}


def test_what_is_lost_is_not_committed_and_a_record_in_process_is_finished() -> None:
    host = Hosted()
    host.read(b"a", b"b", b"c", b"d", b"e", b"f")
    host.beat(Error.UNKNOWN_MEMBER_ID)
    assert host.all(JoinGroup)[-1].member_id == ""
    for _ in range(6):
        host.pass_ms(20)
    assert sum(isinstance(event, Processed) for event in host.events) == 6
    assert not host.all(OffsetCommit)


def test_a_commit_that_is_refused_says_that_the_partitions_are_lost() -> None:
    host = Hosted()
    host.read(b"a")
    host.pass_ms(20)
    host.committed(Error.ILLEGAL_GENERATION)
    assert host.member.positions == {}
    assert host.all(JoinGroup)[-1].member_id == "c1-id"
    assert not any(isinstance(event, Committed) for event in host.events)


def test_an_answer_to_a_fetch_from_before_the_partition_was_taken_away_is_not_read() -> None:
    host = Hosted()
    old = host.all(Fetch)[-1]
    host.beat(Error.REBALANCE_IN_PROGRESS)
    host.joined("c2")
    host.answer(SyncGroup, SyncGroupAnswer(Error.NONE, assignment=b"0"))
    fetched = (OffsetFetched(FIRST, Error.NONE, 5, 0),)
    host.answer(OffsetFetch, OffsetFetchAnswer(Error.NONE, "g", fetched))
    data = build([Record(5, 0, None, b"a")]).placed(5, 0).data
    before = len(host.events)
    answer = FetchAnswer((Fetched(FIRST, Error.NONE, 6, data=data),))
    host._do(host.member.on_answer(1, old, answer, host.now_ms))
    assert len(host.events) == before


def test_without_a_committed_offset_the_reset_policy_none_stops_it() -> None:
    host = Hosted(reset="none")
    host.beat(Error.REBALANCE_IN_PROGRESS)
    host.joined("c2")
    host.answer(SyncGroup, SyncGroupAnswer(Error.NONE, assignment=b"1"))
    host.answer(OffsetFetch, OffsetFetchAnswer(Error.NONE, "g", (OffsetFetched(SECOND),)))
    assert host.member.is_stopped
