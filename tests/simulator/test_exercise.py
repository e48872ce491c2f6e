"""A promise that had no opportunity to break is not kept: the verdict is UNKNOWN."""

from __future__ import annotations

from collections import Counter

import pytest

from lossless.core.messages import NO_LEADER
from lossless.core.metadata import PartitionState
from lossless.simulator.exercise import (
    Election,
    Exercised,
    election,
    promised,
    without_opportunity,
)
from lossless.simulator.exhausting import scope_of, search
from lossless.simulator.exploring import explore, explore_one
from lossless.simulator.invariants import INVARIANTS
from lossless.simulator.options import FOUND, changed, pairs_of
from lossless.simulator.run import Run
from lossless.simulator.settings import RECOMMENDED, Settings
from lossless.verifier.verdict import Verdict

BEFORE = PartitionState((1, 2, 3, 4), (1, 2), 1, leader_epoch=4, partition_epoch=7)
ALL_DONE = Exercised(
    attempted=1,
    acknowledged=1,
    stored=1,
    read=1,
    processed=1,
    kept=1,
    in_order=1,
    units=1,
    takeovers=1,
    examined=Counter(INVARIANTS),
    commits=1,
    late_messages=1,
    faults=Counter({"broker-crash": 1, "producer-crash": 1}),
    elections=Counter({"clean": 1}),
    rebalances=1,
    transactions_committed=1,
    transactions_aborted=1,
)


def settings_of(text: str) -> Settings:
    return changed(RECOMMENDED, pairs_of(text, "here"), "here")


def elected(leader: int, before: PartitionState = BEFORE) -> Election | None:
    after = before._replace(
        leader=leader,
        leader_epoch=before.leader_epoch + 1,
        partition_epoch=before.partition_epoch + 1,
    )
    return election(before, after)


def test_an_election_is_named_by_where_the_leader_came_from() -> None:
    left = BEFORE._replace(isr=(), elr=(3,), leader=NO_LEADER, last_known_leader=1)
    assert elected(2) is Election.CLEAN
    assert elected(3, left) is Election.ELIGIBLE
    assert elected(1, left) is Election.LAST_KNOWN
    assert elected(4, left) is Election.UNCLEAN
    assert elected(NO_LEADER) is None


def test_only_a_new_leader_right_after_the_state_before_is_an_election() -> None:
    same = BEFORE._replace(partition_epoch=8, isr=(1,))
    assert election(BEFORE, same) is None
    assert election(None, BEFORE) is None
    assert election(BEFORE, BEFORE._replace(leader=2, leader_epoch=5, partition_epoch=9)) is None


def test_every_kind_has_an_opportunity_when_everything_was_exercised() -> None:
    settings = settings_of("transactions=true")
    assert without_opportunity(FOUND, settings, ALL_DONE) == {}


def test_no_kind_has_an_opportunity_when_nothing_was_exercised() -> None:
    missing = without_opportunity(FOUND, RECOMMENDED, Exercised())
    assert set(missing) == set(FOUND)
    assert missing["torn transaction"] == "no records belong together"


def test_counts_of_several_runs_add_up() -> None:
    total = Exercised()
    total.add(Exercised(attempted=2, end_min=5, end_max=9, faults=Counter({"power-loss": 1})))
    total.add(Exercised(attempted=3, end_min=4, end_max=6, faults=Counter({"power-loss": 2})))
    total.add(Exercised())
    assert (total.attempted, total.end_min, total.end_max) == (5, 4, 9)
    assert total.faults == {"power-loss": 3}


@pytest.mark.parametrize(
    ("settings", "looked_for", "missing"),
    [
        (
            "producers=0 consumers=0",
            ["lost", "duplicate"],
            {"lost": "no record was acknowledged", "duplicate": "no record was stored"},
        ),
        ("consumers=0 faults=broker-crash", ["lost", "unseen"], {"unseen": "no record was read"}),
        ("faults=none", ["lost"], {"lost": "no fault took effect"}),
        ("faults=broker-crash", ["aborted read"], {"aborted read": "no transaction was aborted"}),
        (
            "faults=broker-crash",
            ["OneOwner"],
            {"OneOwner": "no group shared out its partitions"},
        ),
    ],
)
def test_what_could_not_have_gone_wrong_is_unknown(
    settings: str, looked_for: list[str], missing: dict[str, str]
) -> None:
    if "consumers=0" in settings and "faults" not in settings:
        settings += " faults=broker-crash"
    exploration = explore(settings_of(settings), range(1, 4), looked_for)
    assert (exploration.verdict, exploration.missing) == (Verdict.UNKNOWN, missing)
    one = explore_one(settings_of(settings), 1, looked_for)
    assert (one.verdict, one.missing) == (Verdict.UNKNOWN, missing)


OF_TRANSACTIONS = "transactions=true isolation=read_committed"
ONE_MEMBER = "groups=1 consumers=1 faults=client-disconnect"


@pytest.mark.parametrize(
    ("settings", "kinds", "why"),
    [
        ("faults=consumer-crash", "lost,inconsistent offset", "no fault reached the brokers"),
        ("faults=consumer-crash", "duplicate,reordered", "no fault reached a producer's requests"),
        (
            f"{OF_TRANSACTIONS} abort-every=1 faults=broker-crash",
            "lost,unseen",
            "no acknowledged record was committed",
        ),
        (
            f"{OF_TRANSACTIONS} abort-every=1 faults=broker-crash",
            "torn transaction",
            "no transaction or unit had several parts",
        ),
        (
            f"{OF_TRANSACTIONS} unit=1 faults=broker-crash",
            "torn transaction",
            "no transaction or unit had several parts",
        ),
        (
            "commit=before faults=broker-crash",
            "unprocessed",
            "no consumer took over what another had read",
        ),
        (
            "records=1 consumers=0 faults=broker-crash",
            "reordered",
            "no producer or consumer had two records in a row",
        ),
        (
            f"{OF_TRANSACTIONS} transaction-version=1 faults=broker-crash",
            "OneOutcome",
            "no transaction of version 2 got a second marker",
        ),
        (
            "faults=broker-crash",
            "ProducerFenced",
            "no producer's epoch was raised in a partition",
        ),
        (
            f"{OF_TRANSACTIONS} faults=client-disconnect",
            "CoordinatorFenced",
            "no partition got markers of two coordinators",
        ),
        (
            "brokers=1 rf=1 min-isr=1 faults=broker-crash",
            "OneLeaderPerEpoch",
            "no leader was elected among several replicas",
        ),
        ("brokers=1 rf=1 min-isr=1 faults=broker-crash", "StrongIsr", "no follower was in sync"),
        (
            "brokers=1 rf=1 min-isr=1 faults=broker-crash",
            "SameEpoch",
            "no elected leader committed what a follower had fetched",
        ),
        (
            "brokers=1 rf=1 min-isr=1 faults=broker-crash",
            "ActiveIsr",
            "no broker with a replica was fenced or stopping beside another one",
        ),
        (
            "faults=client-disconnect",
            "ActiveLeader",
            "no broker with a replica was fenced or stopping",
        ),
        ("faults=client-disconnect", "CompareAndSet", "no leader changed an in-sync set"),
        (
            "faults=client-disconnect",
            "SameProcess",
            "no leader changed an in-sync set after one of its members had restarted",
        ),
        ("faults=client-disconnect", "RecoverableLog", "no broker died"),
        ("faults=client-disconnect", "MetadataStays", "no fault reached the controllers"),
        (
            "controllers=1 faults=late-messages",
            "MetadataStays",
            "no two controllers, or two lives of one, were compared",
        ),
        (ONE_MEMBER, "OneOwner", "no group had two members at a time"),
        (
            ONE_MEMBER,
            "OwnerCommits",
            "no offset was committed in a group that had several members",
        ),
        (
            ONE_MEMBER,
            "OffsetsStay",
            "no group looked up an offset after it had been acknowledged",
        ),
    ],
)
def test_a_kind_that_these_settings_and_faults_cannot_bring_about_is_unknown(
    settings: str, kinds: str, why: str
) -> None:
    looked_for = kinds.split(",")
    exploration = explore(settings_of(settings), range(1, 11), looked_for)
    assert exploration.missing == dict.fromkeys(looked_for, why)
    assert exploration.verdict is Verdict.UNKNOWN


def test_every_kind_has_an_opportunity_in_some_schedules() -> None:
    """The counts that opportunities are taken from are not zero for ever."""
    settings = settings_of(
        "client=java groups=1 partitions=2 faults=leader-crash,broker-crash,consumer-crash,"
        f"controller-crash,producer-crash,late-messages {OF_TRANSACTIONS}"
    )
    exploration = explore(settings, range(1, 101), FOUND)
    assert (exploration.verdict, exploration.missing) == (Verdict.UNREFUTED, {})


def test_only_settings_in_which_a_consumer_is_replaced_promise_unprocessed_by_default() -> None:
    assert "unprocessed" in promised(RECOMMENDED)
    assert "unprocessed" in promised(settings_of("groups=1 faults=broker-crash"))
    assert "unprocessed" not in promised(settings_of("faults=broker-crash"))
    assert "torn transaction" in promised(settings_of("transactions=true"))


def test_a_rebalance_is_counted_once_though_a_new_coordinator_reads_it_again() -> None:
    settings = settings_of("groups=1 partitions=2 faults=leader-crash=3,broker-crash=2")
    (result,) = (Run(settings, seed).run() for seed in (3,))
    assert result.exercised.elections.total() > 0
    assert result.exercised.rebalances == 1


def test_a_scope_in_which_nothing_happens_is_not_valid() -> None:
    assert search(scope_of("brokers=2 records=0 fences=1", "here")).verdict is Verdict.UNKNOWN
    assert search(scope_of("brokers=2 records=1", "here")).verdict is Verdict.UNKNOWN
    scope = scope_of("brokers=2 records=1 fences=1 at-once=true", "here")
    assert search(scope).verdict is Verdict.VALID


def test_kinds_that_nobody_looked_for_are_listed_with_a_seed_that_shows_them() -> None:
    settings = settings_of("idempotent=default acks=1 faults=broker-pause,late-messages")
    exploration = explore(settings, range(1, 11), ["torn transaction"])
    assert exploration.found is None
    count, seed = exploration.occurred["lost"]
    assert count >= 1
    assert "lost" in Run(settings, seed).run().kinds


def test_a_run_counts_what_it_did() -> None:
    settings = settings_of(
        "client=java transactions=true isolation=read_committed groups=1 partitions=2 "
        "faults=leader-crash=3,late-messages"
    )
    total = Exercised()
    for seed in range(1, 5):
        result = Run(settings, seed).run()
        done = result.exercised
        assert done.simulated_ms >= result.plan.end_ms
        assert done.stored <= done.attempted
        total.add(done)
    assert total.rebalances >= 4
    assert total.transactions_committed > total.transactions_aborted > 0
    assert total.elections[Election.CLEAN.value] > 0
    assert total.elections[Election.UNCLEAN.value] == 0
    assert total.faults["leader-crash"] > 0
    assert total.truncations > 0
    assert (total.end_min or 0) <= (total.end_max or 0)
