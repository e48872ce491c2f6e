"""No more faults strike at a time than allowed, and a counterexample names what it exceeds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lossless.contract.faults import FaultKind
from lossless.core.broker import Broker
from lossless.simulator.budget import Budget, exceeded
from lossless.simulator.cluster import build
from lossless.simulator.exploring import explore
from lossless.simulator.faults import LEADER, Action, Timed, kind_of, strike, victim_of
from lossless.simulator.options import changed, pairs_of
from lossless.simulator.run import Plan, Run, Step
from lossless.simulator.schedule import PROMPT_MS_MAX, Kind
from lossless.simulator.settings import RECOMMENDED, Settings, allowed
from lossless.simulator.telling import beyond
from lossless.simulator.trace import as_text, trace
from lossless.simulator.world import World


def settings_of(text: str) -> Settings:
    return changed(RECOMMENDED, pairs_of(text, "here"), "here")


def running(settings: Settings) -> Run:
    run = Run(settings, 1)
    run.prepare()
    return run


def struck(budget: Budget, world: World, action: Action, at_ms: int) -> bool:
    if not budget.allows(action, at_ms):
        return False
    victim = victim_of(world, action)
    if strike(world, action):
        budget.note(action, victim, at_ms)
    return True


def test_a_second_broker_is_not_struck_before_the_first_is_in_sync_again() -> None:
    run = running(settings_of("faults=broker-crash,power-loss"))
    world, budget = run.world, Budget(run.world, run.settings)
    assert struck(budget, world, Action("crash", 1), 100)
    assert not struck(budget, world, Action("crash", 2), 110)
    assert not struck(budget, world, Action("lose power", 2), 120)
    world.start(1)
    assert not struck(budget, world, Action("crash", 2), 130)
    assert run.settle()
    assert struck(budget, world, Action("crash", 2), 140)
    assert dict(budget.most) == {FaultKind.BROKER_CRASH: 1}


def test_a_broker_that_has_a_fault_may_get_another_one() -> None:
    run = running(settings_of("faults=broker-crash,disk-failure"))
    budget = Budget(run.world, run.settings)
    assert struck(budget, run.world, Action("fail", 1), 100)
    assert struck(budget, run.world, Action("crash", 1), 110)
    assert not struck(budget, run.world, Action("crash", 2), 120)


def test_two_brokers_struck_in_the_same_millisecond_are_two_at_a_time() -> None:
    run = running(settings_of("faults=power-loss"))
    world, budget = run.world, Budget(run.world, run.settings)
    assert struck(budget, world, Action("lose power", 1), 100)
    assert not struck(budget, world, Action("lose power", 2), 100)
    assert dict(budget.most) == {FaultKind.POWER_LOSS: 1}


def test_faults_of_the_same_millisecond_are_all_counted() -> None:
    settings = settings_of("faults=broker-crash=2")
    run = Run(settings, 1)
    run.prepare()
    at_ms = run.world.now_ms + 50
    faults = (Timed(at_ms, Action("crash", 1)), Timed(at_ms, Action("crash", 2)))
    result = Run(settings, 1, Plan(Kind.WALK, faults, end_ms=at_ms + 500)).run()
    assert result.exercised.faults == {"broker-crash": 2}
    assert dict(result.at_a_time) == {FaultKind.BROKER_CRASH: 2}


def test_two_at_a_time_are_two() -> None:
    run = running(settings_of("faults=broker-crash=2"))
    world, budget = run.world, Budget(run.world, run.settings)
    assert struck(budget, world, Action("crash", 1), 100)
    assert struck(budget, world, Action("crash", 2), 110)
    assert not struck(budget, world, Action("crash", 3), 120)
    assert budget.most[FaultKind.BROKER_CRASH] == 2


def test_clients_controllers_and_brokers_are_counted_apart() -> None:
    faults = "faults=broker-crash,controller-crash,producer-crash,consumer-crash"
    run = running(settings_of(faults))
    world, budget = run.world, Budget(run.world, run.settings)
    for number, target in enumerate((1, 101, 201, 301)):
        assert struck(budget, world, Action("crash", target), number)
    for number, target in enumerate((2, 102, 202, 302), 10):
        assert not struck(budget, world, Action("crash", target), number)
    world.start(201)
    assert struck(budget, world, Action("crash", 202), 20)


def test_a_partition_of_one_broker_is_one_fault_however_many_it_is_cut_off_from() -> None:
    run = running(settings_of("faults=network-partition"))
    world, budget = run.world, Budget(run.world, run.settings)
    cuts = [
        Action("cut", *pair, fault=FaultKind.NETWORK_PARTITION, broker=1)
        for pair in ((1, 2), (3, 1), (1, 101))
    ]
    assert all(struck(budget, world, cut, 100) for cut in cuts)
    other = Action("cut", 2, 3, fault=FaultKind.NETWORK_PARTITION, broker=2)
    assert not struck(budget, world, other, 110)
    assert not struck(budget, world, other._replace(target=3, other=2), 110)
    world.cut.clear()
    assert run.settle()
    assert struck(budget, world, other, 120)


def test_the_power_of_all_brokers_counts_alone_until_all_have_recovered() -> None:
    run = running(settings_of("faults=power-loss-everywhere,broker-crash flush-before-ack=true"))
    world, budget = run.world, Budget(run.world, run.settings)
    everywhere = Action("lose power", -3)
    assert struck(budget, world, Action("crash", 1), 100)
    assert struck(budget, world, everywhere, 110)
    assert all(world.processes[number].machine is None for number in (1, 2, 3, 101, 102, 103))
    assert not struck(budget, world, everywhere, 120)
    assert run.settle()
    assert struck(budget, world, everywhere, 130)


def test_the_leader_is_the_broker_that_leads_when_the_fault_strikes() -> None:
    run = running(settings_of("faults=leader-crash"))
    leader = victim_of(run.world, Action("crash", LEADER))
    assert isinstance(run.world.processes[leader].machine, Broker)
    run.world.crash(101)
    run.world.crash(102)
    run.world.crash(103)
    assert victim_of(run.world, Action("crash", LEADER)) == 0


@pytest.mark.parametrize("seed", range(1, 9))
def test_no_schedule_has_more_at_a_time_than_its_budget(seed: int) -> None:
    settings = replace(
        settings_of("faults=broker-crash,power-loss,broker-pause=2,producer-crash,late-messages"),
        faults_max=12,
    )
    most = dict(Run(settings, seed).run().at_a_time)
    assert all(most[kind] <= number for kind, number in settings.faults if kind in most)
    assert most


def test_without_the_fault_no_message_is_late_and_with_it_none_is_later_than_the_bound() -> None:
    settings = settings_of("faults=broker-crash")
    assert all(Run(settings, seed).run().exercised.late_messages == 0 for seed in (1, 2, 3))
    bounded = replace(settings, faults=(allowed(FaultKind.LATE_MESSAGES, 90),))
    for seed in (1, 2, 3, 4):
        plan = Run(bounded, seed).run().plan
        assert max(takes_ms for _, takes_ms in plan.delays) <= 90
        assert max(takes_ms for _, takes_ms in plan.delays) > PROMPT_MS_MAX


def test_with_no_faults_nothing_is_broken_and_nothing_is_late() -> None:
    exercised = Run(settings_of("faults=none"), 1).run().exercised
    assert not exercised.is_disturbed
    assert exercised.acknowledged == exercised.attempted > 0


@pytest.mark.parametrize(
    ("settings", "most", "told"),
    [
        ("", {FaultKind.POWER_LOSS: 1, FaultKind.BROKER_CRASH: 3}, []),
        (
            "",
            {FaultKind.POWER_LOSS: 2},
            ["power-loss, 2 at a time: these settings survive at most 1"],
        ),
        ("flush-before-ack=true", {FaultKind.POWER_LOSS: 3}, []),
        ("flush-before-ack=true", {FaultKind.POWER_LOSS_EVERYWHERE: 1}, []),
        (
            "",
            {FaultKind.POWER_LOSS_EVERYWHERE: 1},
            ["power-loss-everywhere, 1 at a time: these settings survive none"],
        ),
        (
            "idempotent=default acks=1",
            {FaultKind.BROKER_PAUSE: 1},
            ["broker-pause, 1 at a time: these settings survive none"],
        ),
        (
            "min-isr=1",
            {FaultKind.DISK_FAILURE: 1, FaultKind.PRODUCER_CRASH: 2},
            ["disk-failure, 1 at a time: these settings survive none"],
        ),
    ],
)
def test_what_is_beyond_the_settings_is_named(
    settings: str, most: dict[FaultKind, int], told: list[str]
) -> None:
    assert list(exceeded(settings_of(settings), most)) == told


def test_a_counterexample_beyond_the_budget_says_which_one_was_exceeded() -> None:
    settings = settings_of("faults=power-loss-everywhere,late-messages")
    found = explore(settings, range(1, 60), ["lost"]).found
    assert found is not None
    assert beyond(found) == ["power-loss-everywhere, 1 at a time: these settings survive none"]


def test_a_death_beside_a_loss_of_power_counts_as_a_loss() -> None:
    """The last in sync loses power and the other had died: the controller trusts neither."""
    settings = settings_of(
        "client=java racks=a faults=power-loss,broker-crash=2,leader-crash=2,broker-pause=2,"
        "late-messages"
    )
    found = explore(settings, [1019], ["lost"]).found
    assert found is not None
    assert dict(found.at_a_time) == {FaultKind.LEADER_CRASH: 1, FaultKind.POWER_LOSS: 1}
    assert beyond(found) == [
        (
            "2 brokers died at a time, one of them without what it had not flushed: these settings "
            "survive at most 1"
        )
    ]


def script(*timed: Timed) -> Plan:
    return Plan(Kind.WALK, timed, records=((201, 9), (202, 0)), end_ms=3_000)


def test_the_trace_shows_late_messages_the_replaced_disk_and_the_kind_of_each_election() -> None:
    plan = script(
        Timed(300, Action("late", 3, 1, "Fetch", 200)),
        Timed(700, Action("late", 3, 1, "Fetch", 1)),
        Timed(800, Action("fail", 1)),
        Timed(1_600, Action("replace disk", 1)),
    )
    text = as_text(trace(replace(RECOMMENDED, faults=()), 1, plan))
    assert "Fetch (late: 200 ms)" in text
    assert "✓ the disk of broker 1 is replaced: it has what had been flushed" in text
    assert "leads orders-0 in epoch 1 (clean), in sync" in text


def test_a_repaired_disk_ends_the_process_only_if_the_disk_was_broken() -> None:
    world: World = build(RECOMMENDED, 1)
    world.start(1)
    assert not strike(world, Action("free disk", 1))
    life = world.processes[1].life
    assert strike(world, Action("fill", 1))
    assert strike(world, Action("free disk", 1))
    assert world.processes[1].life == life + 1


def test_a_script_names_the_same_kinds_of_faults_as_a_plan_by_chance() -> None:
    named = {
        Action("crash", 1): FaultKind.BROKER_CRASH,
        Action("crash", LEADER): FaultKind.LEADER_CRASH,
        Action("crash", 101): FaultKind.CONTROLLER_CRASH,
        Action("crash", 201): FaultKind.PRODUCER_CRASH,
        Action("crash", 301): FaultKind.CONSUMER_CRASH,
        Action("lose power", 1): FaultKind.POWER_LOSS,
        Action("lose power", -2): FaultKind.POWER_LOSS_EVERYWHERE,
        Action("start", 1): None,
        Action("replace disk", 1): None,
    }
    assert {action: kind_of(action) for action in named} == named


def test_a_step_of_a_late_message_says_how_late() -> None:
    result = Run(RECOMMENDED, 1).run()
    late = [step for step in result.steps if step.late_ms]
    assert len(late) == result.exercised.late_messages > 0
    assert all(isinstance(step, Step) and step.late_ms > PROMPT_MS_MAX for step in late)
