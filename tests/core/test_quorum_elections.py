"""The rules of elections, one by one. What they are for together: test_quorum_properties.py."""

from __future__ import annotations

import pytest
from quorum_host import (
    CONFIG,
    Host,
    candidate,
    data,
    fetch,
    fetched,
    follower,
    history,
    leader,
    newly_elected,
    prospective,
    remembering,
)

from lossless.core.machine import Effects, Send
from lossless.core.messages import Error
from lossless.core.quorum import METADATA, QUORUM_STATE
from lossless.core.quorum_messages import (
    BeginQuorumEpoch,
    CorruptElection,
    Election,
    EndQuorumEpoch,
    QuorumFetch,
    QuorumFetchAnswer,
    Vote,
    VoteAnswer,
)
from lossless.log.memory import MemoryStore

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
