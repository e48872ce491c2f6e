from __future__ import annotations

from lossless.proxy.conditions import Conditions, Drop, Rule, Rules, Target


def test_a_rule_strikes_its_broker_and_its_client_and_nobody_else() -> None:
    rules = Rules()
    rules.add(Rule("cut", Target(1, "a"), {"is_cut": True}))
    assert rules.conditions(1, "a").is_cut
    assert not rules.conditions(2, "a").is_cut
    assert not rules.conditions(1, "b").is_cut
    assert not rules.conditions(1, None).is_cut


def test_of_each_kind_the_latest_rule_holds() -> None:
    rules = Rules()
    rules.add(Rule("delay", Target(), {"delay_ms": 10.0}))
    rules.add(Rule("throttle", Target(), {"bytes_per_second": 5.0}))
    rules.add(Rule("delay", Target(1), {"delay_ms": 50.0}))
    assert rules.conditions(1, None) == Conditions(delay_ms=50.0, bytes_per_second=5.0)
    assert rules.conditions(2, None) == Conditions(delay_ms=10.0, bytes_per_second=5.0)


def test_mending_one_target_leaves_the_others_and_says_what_still_strikes_it() -> None:
    rules = Rules()
    rules.add(Rule("cut", Target(1), {"is_cut": True}))
    rules.add(Rule("delay", Target(), {"delay_ms": 10.0}))
    rules.add_drop(Drop(0, Target(1, "a"), count=1, times=1))
    assert rules.remove(Target(1)) == ["cut", "drop after"]
    assert rules.in_force(Target(1)) == ["delay to all brokers"]
    assert rules.conditions(1, None) == Conditions(delay_ms=10.0)
    assert not rules.is_dropped(0, 1, "a")
    assert rules.remove(Target()) == ["delay"]


def test_a_drop_strikes_every_countth_request_as_often_as_told() -> None:
    rules = Rules()
    rules.add_drop(Drop(0, Target(1), count=2, times=2))
    assert not rules.is_dropped(1, 1, None)
    assert not rules.is_dropped(0, 2, None)
    struck = [rules.is_dropped(0, 1, None) for _ in range(6)]
    assert struck == [False, True, False, True, False, False]
