"""Who is in sync, and which set counts while the controller has not spoken."""

from __future__ import annotations

import pytest
from machines import without

from lossless.core.in_sync import InSyncSet, Phase, Progress, Proposal
from lossless.core.messages import InSyncReplica
from lossless.log.rules import RULES, Rules

LAG_MS = 1_000
FETCHING_IS_ENOUGH = without("caught_up_to_previous_end")


def fetched(progress: Progress, offset: int, *, end: int, now_ms: int) -> None:
    progress.on_fetch(offset, 0, end, broker_epoch=7, now_ms=now_ms)


def is_caught_up(progress: Progress, end: int, now_ms: int) -> bool:
    return progress.is_caught_up(end, now_ms, LAG_MS, RULES)


# Progress


def test_nothing_is_known_of_a_follower_before_it_fetches() -> None:
    progress = Progress(now_ms=5)
    assert progress.log_end_offset is None
    assert progress.broker_epoch == -1


def test_a_fetch_tells_how_far_a_follower_is_and_which_process_it_is() -> None:
    progress = Progress(0)
    progress.on_fetch(4, 2, 9, broker_epoch=7, now_ms=3)
    assert (progress.log_end_offset, progress.log_start_offset) == (4, 2)
    assert (progress.broker_epoch, progress.last_fetch_ms) == (7, 3)


def test_whoever_stands_at_the_end_is_caught_up_however_long_ago_it_fetched() -> None:
    progress = Progress(0)
    fetched(progress, 10, end=10, now_ms=1)
    assert is_caught_up(progress, 10, now_ms=1_000_000)


def test_whoever_was_at_the_end_is_caught_up_for_the_time_that_a_lag_is_allowed() -> None:
    progress = Progress(0)
    fetched(progress, 10, end=10, now_ms=500)
    assert is_caught_up(progress, 11, now_ms=500 + LAG_MS)
    assert not is_caught_up(progress, 11, now_ms=501 + LAG_MS)


def test_whoever_reaches_what_was_the_end_at_its_previous_fetch_was_caught_up_then() -> None:
    """The leader never stands still: nobody would reach its very end."""
    progress = Progress(0)
    for n in range(1, 10):
        fetched(progress, 10 * n, end=10 * (n + 1), now_ms=400 * n)
        assert is_caught_up(progress, 10 * (n + 1), now_ms=400 * n)
    assert progress.last_caught_up_ms == 400 * 8


def test_a_first_fetch_that_is_behind_does_not_count_as_caught_up() -> None:
    progress = Progress(0)
    fetched(progress, 0, end=10, now_ms=900)
    assert progress.last_caught_up_ms == 0


def test_a_fetch_of_the_past_does_not_take_back_that_a_follower_was_caught_up() -> None:
    progress = Progress(now_ms=100)
    fetched(progress, 10, end=10, now_ms=50)
    assert progress.last_caught_up_ms == 100


@pytest.mark.parametrize(
    ("rules", "stays"), [(RULES, False), (FETCHING_IS_ENOUGH, True)], ids=["on", "off"]
)
def test_a_follower_that_fetches_and_falls_behind_stays_only_if_fetching_is_enough(
    rules: Rules, stays: bool
) -> None:
    """R7."""
    progress = Progress(0)
    for now_ms in range(0, 5 * LAG_MS, 100):
        fetched(progress, now_ms // 100, end=now_ms + 10, now_ms=now_ms)
    assert progress.is_caught_up(10_000, 5 * LAG_MS, LAG_MS, rules) is stays


def test_without_the_rule_a_follower_that_stands_at_the_end_and_does_not_fetch_is_out() -> None:
    progress = Progress(0)
    fetched(progress, 10, end=10, now_ms=0)
    assert progress.is_caught_up(10, LAG_MS, LAG_MS, FETCHING_IS_ENOUGH)
    assert not progress.is_caught_up(10, LAG_MS + 1, LAG_MS, FETCHING_IS_ENOUGH)


# The set


@pytest.fixture
def in_sync() -> InSyncSet:
    return InSyncSet((1, 2), partition_epoch=4)


def test_a_proposal_names_the_partition_epoch_and_the_process_of_each_member(
    in_sync: InSyncSet,
) -> None:
    assert in_sync.expand(3, {2: 20, 3: 30}) == Proposal(
        (InSyncReplica(1, -1), InSyncReplica(2, 20), InSyncReplica(3, 30)), 4
    )
    assert in_sync.phase is Phase.EXPANDING


def test_a_replica_that_is_to_join_counts_at_once(in_sync: InSyncSet) -> None:
    """R13: the controller may have written it down by now."""
    in_sync.expand(3, {})
    assert (in_sync.isr, in_sync.maximal) == ((1, 2), (1, 2, 3))


def test_a_replica_that_is_to_leave_counts_until_that_is_confirmed(in_sync: InSyncSet) -> None:
    """R13: the change may be refused."""
    in_sync.shrink({2}, {})
    assert (in_sync.phase, in_sync.maximal) == (Phase.SHRINKING, (1, 2))
    assert in_sync.on_confirmed((1,), 5)
    assert (in_sync.phase, in_sync.isr, in_sync.maximal) == (Phase.SETTLED, (1,), (1,))


def test_without_the_rule_a_replica_that_is_to_leave_counts_no_more() -> None:
    in_sync = InSyncSet((1, 2), 4, without("shrink_when_confirmed"))
    in_sync.shrink({2}, {})
    assert in_sync.maximal == (1,)


def test_who_is_in_sync_does_not_join_again(in_sync: InSyncSet) -> None:
    assert in_sync.expand(2, {}) is None
    assert in_sync.phase is Phase.SETTLED


def test_who_is_not_in_sync_cannot_leave(in_sync: InSyncSet) -> None:
    assert in_sync.shrink({3}, {}) is None
    assert in_sync.phase is Phase.SETTLED


def test_one_change_is_under_way_at_a_time(in_sync: InSyncSet) -> None:
    in_sync.expand(3, {})
    assert in_sync.expand(4, {}) is None
    assert in_sync.shrink({2}, {}) is None
    assert in_sync.pending == (1, 2, 3)


def test_a_refusal_leaves_everything_as_it_was(in_sync: InSyncSet) -> None:
    in_sync.expand(3, {})
    in_sync.on_refused()
    assert (in_sync.phase, in_sync.isr, in_sync.maximal) == (Phase.SETTLED, (1, 2), (1, 2))
    assert in_sync.shrink({2}, {}) is not None


def test_what_the_controller_has_written_down_counts_whatever_was_proposed(
    in_sync: InSyncSet,
) -> None:
    in_sync.expand(3, {})
    assert in_sync.on_confirmed((1,), 5)
    assert (in_sync.phase, in_sync.maximal, in_sync.partition_epoch) == (Phase.SETTLED, (1,), 5)


def test_what_the_controller_said_earlier_is_no_news(in_sync: InSyncSet) -> None:
    assert not in_sync.on_confirmed((1, 2, 3), 3)
    assert (in_sync.isr, in_sync.partition_epoch) == ((1, 2), 4)
