"""The rules of the quorum, but for elections. What they are for: test_quorum_properties.py."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.leader_change_message.v0.data import LeaderChangeMessage
from kio.serial import entity_reader
from quorum_host import (
    CONFIG,
    Host,
    data,
    fetch,
    fetched,
    follower,
    history,
    leader,
    newly_elected,
    remembering,
)

from lossless.core.machine import Send
from lossless.core.messages import Error
from lossless.core.quorum import METADATA
from lossless.core.quorum_messages import (
    BeginQuorumEpoch,
    BeginQuorumEpochAnswer,
    Election,
    EndQuorumEpoch,
    EndQuorumEpochAnswer,
    QuorumBroken,
    QuorumFetch,
    QuorumFetchAnswer,
    Vote,
    leader_change,
)
from lossless.log.batch import parse_all
from lossless.log.leader_epochs import EpochEnd

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
