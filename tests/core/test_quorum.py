"""The rules of the quorum, one by one. What they are for together: test_quorum_properties.py."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.leader_change_message.v0.data import LeaderChangeMessage
from kio.serial import entity_reader

from lossless.core.machine import Effects, Send
from lossless.core.messages import Error
from lossless.core.quorum import METADATA, QUORUM_STATE, Quorum, QuorumConfig
from lossless.core.quorum_messages import (
    BeginQuorumEpoch,
    BeginQuorumEpochAnswer,
    CorruptElection,
    Election,
    EndQuorumEpoch,
    EndQuorumEpochAnswer,
    QuorumBroken,
    QuorumFetch,
    QuorumFetchAnswer,
    Vote,
    VoteAnswer,
    leader_change,
)
from lossless.log.batch import Record, build, parse_all
from lossless.log.leader_epochs import EpochEnd
from lossless.log.log import Log
from lossless.log.memory import MemoryStore

CONFIG = QuorumConfig()
THREE = (1, 2, 3)


class Host:
    """One machine, its disk, its clock, and what it asked for last. Nothing is left to chance."""

    def __init__(
        self, node: int = 1, voters: tuple[int, ...] = THREE, store: MemoryStore | None = None
    ) -> None:
        self.node, self.voters = node, voters
        self.store = store or MemoryStore()
        self.now_ms = 0
        self.start()

    def start(self) -> None:
        self.log = Log(self.store)
        self.quorum = Quorum(
            self.node, self.voters, self.log, self.store, config=CONFIG, draw=lambda _: 0
        )
        self.effects = self.quorum.on_start(self.now_ms)

    def lose_power(self) -> None:
        self.store.lose_power(lambda _: 0)
        self.start()

    def wait(self, ms: int) -> Effects:
        self.now_ms += ms
        self.effects = self.quorum.on_timer(self.now_ms)
        return self.effects

    def wait_until_woken(self) -> Effects:
        assert self.effects.wake_ms is not None
        return self.wait(self.effects.wake_ms - self.now_ms)

    def asked(self, source: int, request: Any) -> Any:
        """The answer; None while it waits for one."""
        self.effects = self.quorum.on_request(source, "this", request, self.now_ms)
        return self.replies().get("this")

    def replies(self) -> dict[Any, Any]:
        return dict(self.effects.reply)

    def answered(self, source: int, answer: Any, request: Any = None) -> Effects:
        """To what it asked last, unless another request is given."""
        if request is None:
            (request,) = (sent.request for sent in self.effects.send if sent.to == source)
        self.effects = self.quorum.on_answer(source, request, answer, self.now_ms)
        return self.effects

    def flush(self) -> Effects:
        self.log.flush()
        offset = self.log.log_end_offset
        self.effects = self.quorum.on_flushed(METADATA, offset, self.now_ms)
        return self.effects

    def append(self, *values: bytes) -> int | None:
        offset, self.effects = self.quorum.append(values, self.now_ms)
        return offset

    @property
    def sent(self) -> list[Any]:
        return [sent.request for sent in self.effects.send]

    @property
    def written_down(self) -> Election:
        return Election.decode(self.store.read(QUORUM_STATE, 0, self.store.size(QUORUM_STATE)))


def history(*epochs: int) -> MemoryStore:
    """A log with a record of each of these epochs, flushed."""
    store = MemoryStore()
    log = Log(store)
    for offset, epoch in enumerate(epochs):
        record = Record(offset, 0, None, f"{epoch}/{offset}".encode())
        log.append(build([record]), leader_epoch=epoch, now_ms=0)
    log.flush()
    return store


def data(*epochs: int, start: int = 0) -> bytes:
    """Batches of one record, as a leader sends them."""
    return b"".join(
        build([Record(0, 0, None, f"{epoch}/{offset}".encode())]).placed(offset, epoch).data
        for offset, epoch in enumerate(epochs, start)
    )


def remembering(election: Election, store: MemoryStore | None = None) -> MemoryStore:
    store = store or MemoryStore()
    store.replace(QUORUM_STATE, election.encode())
    return store


def prospective(store: MemoryStore | None = None) -> Host:
    host = Host(store=store)
    while host.quorum.state != "prospective":
        host.wait_until_woken()
    return host


def candidate(store: MemoryStore | None = None) -> Host:
    host = prospective(store)
    host.answered(2, VoteAnswer(host.quorum.epoch, None, True))
    assert host.quorum.state == "candidate"
    return host


def newly_elected(store: MemoryStore | None = None) -> Host:
    host = candidate(store)
    host.answered(2, VoteAnswer(host.quorum.epoch, None, True))
    assert host.quorum.state == "leader"
    return host


def leader(store: MemoryStore | None = None) -> Host:
    """Of epoch 1, with the opening record at 0, unless the store knows more; it may decide."""
    host = newly_elected(store)
    host.flush()
    host.asked(2, fetch(host, 2))
    assert host.quorum.is_leader
    return host


def fetch(of: Host, replica: int, offset: int | None = None, high_watermark: int = 0) -> Any:
    """By somebody who has what the leader has."""
    end = of.log.log_end_offset if offset is None else offset
    epoch = of.log.epoch_at(end - 1) if end else 0
    assert epoch is not None
    return QuorumFetch(of.quorum.epoch, replica, end, epoch, high_watermark)


def follower(store: MemoryStore | None = None, *, epoch: int = 5, node: int = 1) -> Host:
    """Of node 2. It has asked for what comes next."""
    host = Host(node=node, store=store)
    host.asked(2, BeginQuorumEpoch(epoch, 2))
    assert host.quorum.state == "follower"
    return host


def fetched(epoch: int = 5, **fields: Any) -> QuorumFetchAnswer:
    return QuorumFetchAnswer(epoch, 2, **fields)


# Elections: who asks


def test_a_voter_first_asks_whether_it_would_be_elected() -> None:
    host = Host()
    assert host.quorum.state == "unattached"
    assert host.effects.wake_ms == CONFIG.election_timeout_ms
    host.wait_until_woken()
    asks = Vote(epoch=0, candidate=1, last_epoch=0, last_offset=0, pre_vote=True)
    assert host.effects.send == (Send(2, asks), Send(3, asks))
    assert host.written_down == Election()


def test_a_timer_that_comes_early_changes_nothing() -> None:
    host = Host()
    host.wait(1)
    assert host.effects == Effects(wake_ms=CONFIG.election_timeout_ms)


def test_a_majority_of_pre_votes_opens_an_epoch_with_a_vote_for_itself() -> None:
    host = candidate()
    assert host.written_down == Election(1, None, voted=1)
    assert host.sent == [Vote(1, 1, 0, 0, pre_vote=False)] * 2


def test_a_majority_of_votes_makes_a_leader() -> None:
    host = newly_elected()
    assert host.written_down == Election(1, leader=1, voted=1)
    assert host.sent == [BeginQuorumEpoch(1, 1)] * 2
    assert host.quorum.leader == 1


def test_the_only_voter_leads_at_once() -> None:
    host = Host(voters=(1,))
    assert host.quorum.state == "leader"
    assert not host.quorum.is_leader
    host.flush()
    assert host.quorum.is_leader
    assert host.effects.wake_ms is None


def test_votes_of_a_minority_elect_nobody() -> None:
    host = Host(voters=(1, 2, 3, 4, 5))
    host.wait_until_woken()
    asks = host.sent[0]
    host.answered(2, VoteAnswer(0, None, True))
    host.answered(2, VoteAnswer(0, None, True), asks)
    assert host.quorum.state == "prospective"


def test_a_vote_in_another_election_does_not_count() -> None:
    host = prospective()
    asks = host.sent[0]
    host.answered(2, VoteAnswer(0, None, True))
    host.answered(3, VoteAnswer(1, None, True), asks)
    assert host.quorum.state == "candidate"
    host.wait_until_woken()
    host.answered(2, VoteAnswer(1, None, True), Vote(1, 1, 0, 0, pre_vote=False))
    assert host.quorum.state == "prospective"


def test_a_voter_that_could_not_be_asked_is_asked_again() -> None:
    host = prospective()
    (asks, _) = host.sent
    host.answered(2, None)
    assert host.sent == []
    host.wait_until_woken()
    assert host.now_ms == CONFIG.election_timeout_ms + CONFIG.retry_backoff_ms
    assert host.effects.send == (Send(2, asks),)


def test_who_is_not_wanted_goes_back_to_its_leader() -> None:
    host = follower()
    host.wait(CONFIG.fetch_timeout_ms)
    assert host.quorum.state == "prospective"
    first, second = host.effects.send
    host.answered(2, VoteAnswer(4, None, False), first.request)
    host.answered(3, VoteAnswer(5, 2, False), second.request)
    assert host.quorum.state == "follower"
    assert host.quorum.leader == 2


def test_who_is_not_heard_goes_back_to_its_leader() -> None:
    host = follower()
    host.wait(CONFIG.fetch_timeout_ms)
    host.wait_until_woken()
    assert host.quorum.state == "follower"
    assert host.quorum.epoch == 5


def test_who_is_not_wanted_and_knows_no_leader_waits() -> None:
    host = prospective()
    asks = host.sent[0]
    host.answered(2, VoteAnswer(0, None, False), asks)
    host.answered(3, VoteAnswer(0, None, False), asks)
    assert host.quorum.state == "unattached"
    assert host.effects.wake_ms == host.now_ms + CONFIG.election_timeout_ms


@pytest.mark.parametrize("is_request", [True, False])
def test_a_leader_that_is_heard_is_followed_again_at_once(is_request: bool) -> None:
    host = follower()
    host.wait(CONFIG.fetch_timeout_ms)
    if is_request:
        host.asked(2, BeginQuorumEpoch(5, 2))
    else:
        host.answered(2, VoteAnswer(5, 2, False))
    assert host.quorum.state == "follower"
    assert host.sent == [QuorumFetch(5, 1, 0, 0, 0)]


def test_hearing_of_a_leader_is_not_hearing_it() -> None:
    host = follower()
    host.wait(CONFIG.fetch_timeout_ms)
    host.answered(3, VoteAnswer(5, 2, False))
    assert host.quorum.state == "prospective"


def test_a_candidate_that_lost_does_not_wait_for_the_rest() -> None:
    host = candidate()
    first, second = host.effects.send
    host.answered(2, VoteAnswer(1, None, False), first.request)
    host.answered(3, VoteAnswer(1, None, False), second.request)
    assert host.quorum.state == "candidate"
    assert host.sent == []
    host.wait(1)
    assert host.quorum.state == "prospective"
    assert host.quorum.epoch == 1


def test_a_candidate_that_nobody_answers_asks_anew_whether_it_would_be_elected() -> None:
    host = candidate()
    host.wait(CONFIG.election_timeout_ms)
    assert host.sent == [Vote(1, 1, 0, 0, pre_vote=True)] * 2


def test_a_candidate_follows_whoever_was_elected() -> None:
    host = candidate()
    host.answered(2, VoteAnswer(1, 3, False))
    assert host.quorum.state == "follower"
    assert host.written_down == Election(1, leader=3, voted=1)


# Elections: who is asked


def test_a_pre_vote_changes_nothing_and_may_be_given_twice() -> None:
    host = Host()
    assert host.asked(2, Vote(0, 2, 0, 0, pre_vote=True)) == VoteAnswer(0, None, True)
    assert host.asked(3, Vote(0, 3, 0, 0, pre_vote=True)) == VoteAnswer(0, None, True)
    assert host.written_down == Election()
    assert host.effects.wake_ms == CONFIG.election_timeout_ms


def test_a_vote_is_given_once_in_an_epoch() -> None:
    host = Host()
    assert host.asked(2, Vote(1, 2, 0, 0, pre_vote=False)).granted
    assert not host.asked(3, Vote(1, 3, 9, 9, pre_vote=False)).granted
    assert host.asked(2, Vote(1, 2, 0, 0, pre_vote=False)).granted
    assert host.asked(3, Vote(2, 3, 0, 0, pre_vote=False)).granted


def test_a_vote_is_on_disk_before_it_is_given() -> None:
    host = Host()
    assert host.asked(2, Vote(1, 2, 0, 0, pre_vote=False)).granted
    host.lose_power()
    assert host.quorum.epoch == 1
    assert not host.asked(3, Vote(1, 3, 9, 9, pre_vote=False)).granted


def test_a_vote_is_not_given_where_a_leader_is_known() -> None:
    host = follower()
    assert host.asked(3, Vote(5, 3, 9, 9, pre_vote=False)) == VoteAnswer(5, 2, False)


@pytest.mark.parametrize("pre_vote", [True, False])
@pytest.mark.parametrize(
    ("last_epoch", "last_offset", "granted"),
    [(2, 3, True), (2, 4, True), (3, 1, True), (2, 2, False), (1, 9, False)],
)
def test_whoever_has_less_is_not_voted_for(
    pre_vote: bool, last_epoch: int, last_offset: int, granted: bool
) -> None:
    host = Host(store=history(1, 1, 2))
    vote = Vote(4, 2, last_epoch, last_offset, pre_vote)
    assert host.asked(2, vote) == VoteAnswer(4, None, granted)
    assert host.quorum.epoch == 4


def test_a_vote_is_not_confirmed_to_a_log_that_has_become_shorter() -> None:
    host = Host(store=history(1, 1))
    assert host.asked(2, Vote(2, 2, 1, 2, pre_vote=False)).granted
    assert not host.asked(2, Vote(2, 2, 1, 1, pre_vote=False)).granted


def test_a_voter_leaves_whom_it_voted_for_the_time_to_win() -> None:
    host = Host()
    host.wait(CONFIG.election_timeout_ms - 1)
    host.asked(2, Vote(1, 2, 0, 0, pre_vote=False))
    assert host.effects.wake_ms == host.now_ms + CONFIG.election_timeout_ms


def test_candidates_that_are_refused_do_not_put_off_an_election() -> None:
    host = Host(store=history(1))
    host.wait(CONFIG.election_timeout_ms - 1)
    assert not host.asked(2, Vote(7, 2, 0, 0, pre_vote=False)).granted
    assert host.effects.wake_ms == CONFIG.election_timeout_ms


def test_a_vote_for_an_earlier_epoch_is_refused_and_the_later_one_told() -> None:
    host = follower()
    assert host.asked(3, Vote(4, 3, 9, 9, pre_vote=False)) == VoteAnswer(5, 2, False)
    host = Host(store=remembering(Election(5)))
    assert host.asked(3, Vote(4, 3, 9, 9, pre_vote=False)) == VoteAnswer(5, None, False)
    assert host.written_down == Election(5)


def test_only_voters_are_elected_and_only_voters_vote() -> None:
    assert not Host().asked(9, Vote(1, 9, 0, 0, pre_vote=False)).granted
    assert not Host(node=9).asked(1, Vote(1, 1, 0, 0, pre_vote=False)).granted


def test_a_vote_is_kept_when_a_leader_is_found() -> None:
    host = Host()
    host.asked(2, Vote(1, 2, 0, 0, pre_vote=False))
    host.asked(3, BeginQuorumEpoch(1, 3))
    assert host.written_down == Election(1, leader=3, voted=2)


def test_whoever_fetches_from_a_leader_refuses_pre_votes() -> None:
    host = follower()
    asks = Vote(5, 3, 9, 9, pre_vote=True)
    assert host.asked(3, asks) == VoteAnswer(5, 2, True)
    host.answered(2, fetched(), QuorumFetch(5, 1, 0, 0, 0))
    assert host.asked(3, asks) == VoteAnswer(5, 2, False)
    host.asked(2, EndQuorumEpoch(5, 2, (3, 1)))
    assert host.asked(3, asks) == VoteAnswer(5, 2, True)


def test_a_leader_refuses_pre_votes() -> None:
    assert leader().asked(3, Vote(1, 3, 9, 9, pre_vote=True)) == VoteAnswer(1, 1, False)


def test_a_leader_yields_to_a_later_epoch_and_answers_who_waits() -> None:
    host = leader()
    host.asked(3, fetch(host, 3, high_watermark=1))
    assert host.asked(2, Vote(2, 2, 1, 1, pre_vote=False)) == VoteAnswer(2, None, True)
    assert QuorumFetchAnswer(2, None, Error.NOT_LEADER_OR_FOLLOWER) in [
        reply.answer for reply in host.effects.reply
    ]
    assert host.append(b"late") is None


# Starting anew


def test_whoever_led_does_not_lead_in_that_epoch_again() -> None:
    host = leader()
    host.lose_power()
    assert host.quorum.state == "resigned"
    assert host.quorum.leader is None
    assert host.sent == [EndQuorumEpoch(1, 1, ())] * 2
    assert not host.asked(2, Vote(1, 2, 9, 9, pre_vote=False)).granted
    host.wait(CONFIG.election_timeout_ms)
    assert host.quorum.state == "unattached"
    assert host.written_down == Election(2)


def test_a_candidate_that_starts_anew_does_not_go_on() -> None:
    host = candidate()
    host.lose_power()
    assert host.quorum.state == "unattached"
    assert host.written_down == Election(1, voted=1)
    host.wait_until_woken()
    host.answered(2, VoteAnswer(1, None, True))
    assert host.quorum.epoch == 2


def test_a_follower_that_starts_anew_goes_on() -> None:
    host = follower()
    host.lose_power()
    assert host.quorum.state == "follower"
    assert host.sent == [QuorumFetch(5, 1, 0, 0, 0)]


def test_what_was_not_flushed_before_is_flushed_first() -> None:
    host = follower()
    host.answered(2, fetched(data=data(5)), QuorumFetch(5, 1, 0, 0, 0))
    host.start()
    assert host.effects.flush == (METADATA,)
    assert host.sent == []
    assert host.flush().send == (Send(2, QuorumFetch(5, 1, 1, 5, 0)),)


def test_an_epoch_that_only_the_log_remembers_is_the_epoch() -> None:
    host = Host(store=history(1, 7))
    assert host.written_down == Election(7)


@pytest.mark.parametrize("state", [b"{", b"[]", b"{}", b'{"leaderEpoch": null}', b"\xff"])
def test_a_node_that_does_not_know_how_it_voted_does_not_start(state: bytes) -> None:
    store = MemoryStore()
    store.replace(QUORUM_STATE, state)
    with pytest.raises(CorruptElection, match="how this node has voted"):
        Host(store=store)


# Leading


def test_a_leader_opens_its_epoch_with_a_control_record_that_nobody_sees() -> None:
    host = leader()
    (batch,) = host.log.batches()
    (record,) = batch.records()
    assert batch.is_control
    assert batch.marker() is None
    assert record.key == b"\0\0\0\2"
    assert record.value is not None
    message, size = entity_reader(LeaderChangeMessage)(record.value, 0)
    assert size == len(record.value)
    assert message.leader_id == 1
    assert [voter.voter_id for voter in message.voters] == [1, 2, 3]
    assert [voter.voter_id for voter in message.granting_voters] == [1, 2]
    assert list(host.quorum.values()) == []


def test_a_leader_may_decide_once_its_own_record_is_committed() -> None:
    host = newly_elected()
    assert host.effects.flush == (METADATA,)
    host.flush()
    assert not host.quorum.is_leader
    assert host.append(b"early") is None
    host.asked(2, fetch(host, 2))
    assert host.quorum.is_leader
    assert host.append(b"a", b"b") == 2
    assert host.effects.flush == (METADATA,)


def test_committed_is_what_a_majority_has_flushed() -> None:
    host = leader()
    host.append(b"a", b"b")
    host.asked(2, fetch(host, 2))
    assert host.quorum.high_watermark == 1  # the leader's own disk is slower
    host.flush()
    assert host.quorum.high_watermark == 3
    host.append(b"c")
    host.flush()
    assert host.quorum.high_watermark == 3
    assert list(host.quorum.committed_values()) == [(1, b"a"), (2, b"b")]
    assert list(host.quorum.values(2)) == [(2, b"b"), (3, b"c")]
    host.asked(3, fetch(host, 3))
    assert list(host.quorum.committed_values(3)) == [(3, b"c")]


def test_records_of_earlier_epochs_are_committed_with_one_of_its_own() -> None:
    host = newly_elected(history(1, 2))
    host.flush()
    host.asked(2, fetch(host, 2, offset=2))
    assert host.quorum.high_watermark == 0
    host.asked(2, fetch(host, 2))
    assert host.quorum.high_watermark == 3


def test_an_observer_has_a_copy_and_no_say() -> None:
    host = newly_elected()
    host.flush()
    host.asked(9, fetch(host, 9))
    assert host.quorum.high_watermark == 0


def test_somebody_who_lost_its_disk_takes_nothing_back() -> None:
    host = leader()
    host.asked(2, fetch(host, 2, offset=0))
    assert host.quorum.high_watermark == 1


@pytest.mark.parametrize(
    ("epoch", "error"), [(0, Error.FENCED_LEADER_EPOCH), (2, Error.UNKNOWN_LEADER_EPOCH)]
)
def test_a_fetch_in_another_epoch_is_refused_and_does_not_count(epoch: int, error: Error) -> None:
    host = newly_elected()
    host.flush()
    asks = fetch(host, 2)._replace(epoch=epoch)
    assert host.asked(2, asks) == QuorumFetchAnswer(1, 1, error)
    assert host.quorum.high_watermark == 0
    assert host.quorum.epoch == 1


def test_who_does_not_lead_says_who_does() -> None:
    answer = follower().asked(9, QuorumFetch(5, 9, 0, 0, 0))
    assert answer == QuorumFetchAnswer(5, 2, Error.NOT_LEADER_OR_FOLLOWER)


def test_a_fetch_brings_what_is_written_flushed_or_not() -> None:
    host = leader()
    host.append(b"a")
    answer = host.asked(3, fetch(host, 3, offset=0))
    assert [batch.base_offset for batch in parse_all(answer.data)] == [0, 1]
    assert (answer.error, answer.high_watermark) == (Error.NONE, 1)


def test_a_fetch_waits_for_news() -> None:
    host = leader()
    waits = fetch(host, 2, high_watermark=1)
    assert host.asked(2, waits) is None
    host.append(b"a")
    assert host.replies()["this"].data
    # A high watermark that has moved is news.
    assert host.asked(2, fetch(host, 2, high_watermark=1)) is None
    host.flush()
    assert host.replies()["this"] == QuorumFetchAnswer(1, 1, high_watermark=2)
    # And after a while the answer is that there is none.
    assert host.asked(2, fetch(host, 2, high_watermark=2)) is None
    assert host.effects.wake_ms == host.now_ms + CONFIG.fetch_wait_ms
    host.wait_until_woken()
    assert host.replies()["this"] == QuorumFetchAnswer(1, 1, high_watermark=2)


def test_who_asks_again_is_not_waited_for_twice() -> None:
    host = leader()
    waits = fetch(host, 2, high_watermark=1)
    assert host.asked(2, waits) is None
    host.effects = host.quorum.on_request(2, "that", waits, host.now_ms)
    assert list(host.replies()) == ["this"]
    host.append(b"a")
    assert list(host.replies()) == ["that"]


@pytest.mark.parametrize(
    ("offset", "last_epoch", "diverging"),
    [
        (4, 3, EpochEnd(3, 3)),  # has more of an epoch
        (3, 2, EpochEnd(1, 2)),  # has an epoch that is not here
        (9, 9, EpochEnd(4, 4)),  # has an epoch that is later than all here
        (5, 4, EpochEnd(4, 4)),  # has more than there is
    ],
)
def test_who_has_something_else_is_told_where_histories_part(
    offset: int, last_epoch: int, diverging: EpochEnd
) -> None:
    host = newly_elected(history(1, 1, 3))
    answer = host.asked(2, QuorumFetch(4, 2, offset, last_epoch, 0))
    assert answer == QuorumFetchAnswer(4, 1, diverging=diverging)
    host.flush()
    assert host.quorum.high_watermark == 0  # that was no acknowledgement


def test_voters_that_do_not_fetch_are_told_again_who_leads() -> None:
    host = leader()
    host.wait(CONFIG.fetch_timeout_ms // 2 - 1)
    host.asked(2, fetch(host, 2, high_watermark=1))
    host.wait(1)
    assert host.effects.send == (Send(3, BeginQuorumEpoch(1, 1)),)
    assert host.effects.wake_ms == host.now_ms + CONFIG.fetch_wait_ms - 1


def test_a_leader_that_a_majority_stopped_fetching_from_resigns() -> None:
    host = leader()
    host.wait(CONFIG.check_quorum_ms - 1)
    assert host.quorum.is_leader
    host.wait(1)
    assert host.quorum.state == "resigned"
    assert not host.quorum.is_leader
    assert host.sent == [EndQuorumEpoch(1, 1, (2, 3))] * 2


def test_a_leader_that_a_majority_fetches_from_stays() -> None:
    host = leader()
    for _ in range(5):
        host.wait(CONFIG.check_quorum_ms - 1)
        host.asked(3, fetch(host, 3))
    assert host.quorum.is_leader


def test_observers_that_fetch_are_no_majority() -> None:
    host = leader()
    host.wait(CONFIG.check_quorum_ms - 1)
    host.asked(8, fetch(host, 8))
    host.asked(9, fetch(host, 9))
    host.wait(1)
    assert host.quorum.state == "resigned"


def test_the_better_log_is_to_succeed() -> None:
    host = leader()
    host.append(b"a")
    host.asked(3, fetch(host, 3))
    host.effects = host.quorum.resign(host.now_ms)
    assert host.sent == [EndQuorumEpoch(1, 1, (3, 2))] * 2
    assert host.quorum.resign(host.now_ms).send == ()


def test_a_resignation_is_repeated_until_everybody_knows() -> None:
    host = leader()
    host.effects = host.quorum.resign(host.now_ms)
    (first, second) = host.effects.send
    host.answered(2, EndQuorumEpochAnswer(1, None), first.request)
    host.answered(3, None, second.request)
    assert host.sent == []
    host.wait_until_woken()
    assert host.effects.send == (second,)
    host.answered(3, EndQuorumEpochAnswer(2, 3), second.request)
    assert host.quorum.state == "follower"
    host.answered(2, EndQuorumEpochAnswer(1, None), first.request)
    assert host.quorum.leader == 3


def test_an_answer_from_a_later_epoch_ends_a_leader() -> None:
    host = newly_elected()
    host.answered(2, BeginQuorumEpochAnswer(4, None))
    assert host.quorum.state == "unattached"
    assert host.written_down == Election(4)


@pytest.mark.parametrize("said_by", [Host, leader, follower])
def test_what_cannot_be_stops_a_node_and_leaves_it_as_it_was(said_by: Any) -> None:
    host = said_by()
    before = (host.quorum.state, host.written_down)
    epoch = max(1, host.quorum.epoch)
    with pytest.raises(QuorumBroken):
        # Another leader than the one that is known, or itself, though it remembers nothing of it.
        host.asked(3, BeginQuorumEpoch(epoch, 1 if host.quorum.leader != 1 else 3))
    assert (host.quorum.state, host.written_down) == before


# Following


def test_what_was_fetched_is_flushed_before_more_is_asked_for() -> None:
    host = follower()
    host.answered(2, fetched(data=data(1, 5), high_watermark=9), QuorumFetch(5, 1, 0, 0, 0))
    assert host.effects.flush == (METADATA,)
    assert host.sent == []
    assert host.wait(100).send == ()
    assert host.flush().send == (Send(2, QuorumFetch(5, 1, 2, 5, 2)),)
    assert list(host.quorum.committed_values()) == [(0, b"1/0"), (1, b"5/1")]


def test_a_follower_believes_the_high_watermark_up_to_its_own_end() -> None:
    host = follower()
    host.answered(2, fetched(data=data(5), high_watermark=7), QuorumFetch(5, 1, 0, 0, 0))
    assert host.quorum.high_watermark == 1
    host.flush()
    host.answered(2, fetched(high_watermark=0))
    assert host.quorum.high_watermark == 1


def test_an_answer_to_what_is_no_longer_the_question_is_dropped() -> None:
    host = follower()
    asked = QuorumFetch(5, 1, 0, 0, 0)
    host.answered(2, fetched(data=data(5)), asked)
    host.answered(2, fetched(data=data(5)), asked)
    assert host.log.log_end_offset == 1
    host.asked(3, BeginQuorumEpoch(6, 3))
    host.answered(2, fetched(data=data(5, start=1)), QuorumFetch(5, 1, 1, 5, 0))
    assert host.log.log_end_offset == 1


@pytest.mark.parametrize(
    ("diverging", "offset"),
    [
        (EpochEnd(3, 4), 4),  # the leader has less of that epoch
        (EpochEnd(3, 9), 5),  # the leader has more of it, and not what follows
        (EpochEnd(2, 3), 2),  # the leader has an epoch that is not here
        (EpochEnd(0, 0), 0),  # nothing in common
    ],
)
def test_a_follower_cuts_where_histories_part(diverging: EpochEnd, offset: int) -> None:
    host = follower(history(1, 1, 3, 3, 3, 4))
    host.answered(2, fetched(diverging=diverging), QuorumFetch(5, 1, 6, 4, 0))
    assert host.log.log_end_offset == offset
    last_epoch = host.log.latest_epoch or 0
    assert host.effects.send == (Send(2, QuorumFetch(5, 1, offset, last_epoch, 0)),)


def test_what_is_committed_is_not_cut() -> None:
    host = follower(history(1, 1))
    host.answered(2, fetched(high_watermark=2), QuorumFetch(5, 1, 2, 1, 0))
    with pytest.raises(QuorumBroken, match="committed up to 2"):
        host.answered(2, fetched(diverging=EpochEnd(1, 1)))
    assert host.log.log_end_offset == 2


def test_flushes_may_be_told_of_in_any_order() -> None:
    host = follower()
    host.answered(2, fetched(data=data(5)), QuorumFetch(5, 1, 0, 0, 0))
    host.flush()
    host.answered(2, fetched(data=data(5, start=1)))
    host.flush()
    host.answered(2, fetched(), QuorumFetch(5, 1, 2, 5, 0))
    host.effects = host.quorum.on_flushed(METADATA, 1, host.now_ms)
    host.answered(2, fetched(), QuorumFetch(5, 1, 2, 5, 0))
    assert host.sent == [QuorumFetch(5, 1, 2, 5, 0)]


def test_a_flush_of_what_was_cut_off_since_does_not_count() -> None:
    host = follower(history(1))
    host.answered(2, fetched(data=data(4, start=1)), QuorumFetch(5, 1, 1, 1, 0))
    host.flush()
    host.answered(2, fetched(diverging=EpochEnd(1, 1)))
    host.answered(2, fetched(data=data(5, start=1)))
    host.effects = host.quorum.on_flushed(METADATA, 2, host.now_ms)  # of what was there before
    assert host.sent == []
    assert host.flush().send == (Send(2, QuorumFetch(5, 1, 2, 5, 0)),)


def test_a_flush_of_another_log_is_nothing() -> None:
    host = follower()
    host.answered(2, fetched(data=data(5)), QuorumFetch(5, 1, 0, 0, 0))
    host.log.flush()
    assert host.quorum.on_flushed("orders-0", 1, host.now_ms).send == ()


@pytest.mark.parametrize(
    "answer",
    [
        None,
        fetched(data=b"no batch"),
        QuorumFetchAnswer(5, None, Error.NOT_LEADER_OR_FOLLOWER),
        QuorumFetchAnswer(4, None, Error.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_what_failed_is_tried_again_after_a_while(answer: Any) -> None:
    host = follower()
    asked = host.sent
    host.answered(2, answer)
    assert host.sent == []
    host.wait_until_woken()
    assert host.now_ms == CONFIG.retry_backoff_ms
    assert host.sent == asked


def test_a_follower_that_is_left_alone_asks_whether_it_would_be_elected() -> None:
    host = follower()
    host.wait(CONFIG.fetch_timeout_ms - 1)
    host.answered(2, fetched(), QuorumFetch(5, 1, 0, 0, 0))
    host.wait(CONFIG.fetch_timeout_ms - 1)
    assert host.quorum.state == "follower"
    host.wait(1)
    assert host.sent == [Vote(5, 1, 0, 0, pre_vote=True)] * 2


@pytest.mark.parametrize(
    ("successors", "after_ms"), [((1, 3), 0), ((3, 1), 500), ((3, 2, 1), 500), ((3, 1, 2), 250)]
)
def test_successors_stand_in_turn(successors: tuple[int, ...], after_ms: int) -> None:
    host = follower()
    assert host.asked(2, EndQuorumEpoch(5, 2, successors)) == EndQuorumEpochAnswer(5, 2)
    if after_ms:
        assert host.quorum.state == "follower"
        assert host.effects.wake_ms == after_ms
        host.wait(after_ms)
    assert host.sent == [Vote(5, 1, 0, 0, pre_vote=True)] * 2


def test_without_successors_chance_decides() -> None:
    host = follower()
    host.asked(2, EndQuorumEpoch(5, 2, ()))
    assert host.quorum.state == "prospective"  # for here, chance is 0


def test_what_a_leader_sent_before_it_resigned_does_not_put_off_the_election() -> None:
    host = follower()
    asked = host.sent[0]
    host.asked(2, EndQuorumEpoch(5, 2, (3, 1)))
    host.answered(2, fetched(data=data(5)), asked)
    assert host.log.log_end_offset == 1
    assert host.effects.wake_ms == 500
    assert host.asked(3, Vote(5, 3, 9, 9, pre_vote=True)).granted


def test_the_end_of_another_epoch_changes_nothing() -> None:
    host = follower()
    assert host.asked(3, EndQuorumEpoch(4, 3, (1, 2))) == EndQuorumEpochAnswer(5, 2)
    assert host.quorum.state == "follower"
    assert host.effects.wake_ms == CONFIG.fetch_timeout_ms


# Observing


def test_an_observer_asks_around_who_leads_and_follows() -> None:
    host = Host(node=9)
    assert host.effects.send == (Send(1, QuorumFetch(0, 9, 0, 0, 0)),)
    host.answered(1, QuorumFetchAnswer(5, 2, Error.FENCED_LEADER_EPOCH))
    assert host.effects.send == (Send(2, QuorumFetch(5, 9, 0, 0, 0)),)
    assert host.written_down == Election(5, leader=2)


def test_an_observer_takes_what_the_leader_says_at_once() -> None:
    host = Host(node=9, store=remembering(Election(5)))
    host.answered(1, QuorumFetchAnswer(5, 1, data=data(5)))
    assert host.quorum.leader == 1
    assert host.log.log_end_offset == 1


def test_an_observer_is_patient_while_nobody_leads() -> None:
    host = Host(node=9)
    host.answered(1, QuorumFetchAnswer(0, None, Error.NOT_LEADER_OR_FOLLOWER))
    assert host.sent == []
    host.wait_until_woken()
    assert host.now_ms == CONFIG.retry_backoff_ms
    assert host.sent == [QuorumFetch(0, 9, 0, 0, 0)]


def test_an_observer_never_stands_and_finds_the_same_leader_again() -> None:
    host = follower(node=9)
    host.wait(CONFIG.fetch_timeout_ms)
    assert host.quorum.state == "unattached"
    assert host.effects.send == (Send(1, QuorumFetch(5, 9, 0, 0, 0)),)
    host.wait(CONFIG.fetch_timeout_ms)  # no answer: another one is asked
    assert host.sent == [QuorumFetch(5, 9, 0, 0, 0)]
    host.answered(1, QuorumFetchAnswer(5, 2, Error.NOT_LEADER_OR_FOLLOWER))
    assert host.quorum.state == "follower"
    assert host.effects.send == (Send(2, QuorumFetch(5, 9, 0, 0, 0)),)


# What is written down


@pytest.mark.parametrize("election", [Election(), Election(3, 1, 2), Election(4, None, 0)])
def test_what_is_written_down_is_read(election: Election) -> None:
    assert Election.decode(election.encode()) == election


def test_the_opening_record_has_the_time_of_the_election() -> None:
    batch = leader_change(2, [1, 2, 3], [2, 3], now_ms=7)
    assert [record.timestamp_ms for record in batch.records()] == [7]
