"""What scenarios expect: each form of an `expect` line, and that it fails when its rule is off."""

from __future__ import annotations

from pathlib import Path

import pytest

from lossless.errors import BadInput
from lossless.simulator.expecting import Seen, parse_expectation
from lossless.simulator.run import Plan
from lossless.simulator.scenario import Scenario, expected, load, plan_of
from lossless.simulator.schedule import Kind
from lossless.simulator.settings import Settings
from lossless.simulator.trace import Trace, trace

FOLDER = Path(__file__).parent.parent / "scenarios"
SCENARIOS = [load(file) for file in sorted(FOLDER.glob("*.txt"))]
EXPECTING = [scenario for scenario in SCENARIOS if scenario.expectations]
# Claims about a quantity: no anomaly tells whether they hold.
ABOUT_QUANTITIES = ("R7", "R8", "R9", "R17", "R19", "B1", "B2", "B4", "B5", "C11", "C14", "C15")


def _named(scenario: Scenario) -> str:
    return scenario.name


@pytest.mark.parametrize("scenario", EXPECTING, ids=_named)
def test_what_a_scenario_expects_holds_and_fails_with_its_rule_off(scenario: Scenario) -> None:
    plan = plan_of(scenario)
    with_it = expected(scenario, scenario.settings, plan)
    assert all(holds for _, holds in with_it), with_it
    assert scenario.without is not None
    without = expected(scenario, scenario.without, plan)
    assert not all(holds for _, holds in without), without


@pytest.mark.parametrize("claim", ABOUT_QUANTITIES)
def test_a_claim_about_a_quantity_has_an_expectation(claim: str) -> None:
    assert any(claim in scenario.claims for scenario in EXPECTING)


def test_rewriting_leaves_expectations_alone(tmp_path: Path) -> None:
    text = (FOLDER / "all_in_sync_acknowledge.txt").read_text()
    file = tmp_path / "scenario.txt"
    file.write_text(text.replace("expect wait > 100 ms\n", "expect wait < 1 ms\n", 1))
    load(file).rewrite("expect wait < 1 ms: fails (284 ms)")
    head = file.read_text().partition("---\n")[0]
    assert "expect wait < 1 ms\n" in head
    assert "without: acks=1" in head


@pytest.fixture(scope="module")
def calm() -> Trace:
    """Two producers, two consumers, no fault."""
    records = ((201, 2), (202, 1))
    return trace(Settings(), 1, Plan(Kind.CALM, records=records, end_ms=700))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("wait < 50 ms", True),
        ("wait >= 50 ms", False),
        ("wait of p1-0 <= 50 ms", True),
        ("wait of p1-7 > 0 ms", False),
        ("refused NOT_ENOUGH_REPLICAS", False),
        ("in-sync 1,2,3", True),
        ("in-sync 1,2", False),
        ("broker 3 leaves 0 times", True),
        ("broker 3 joins 1 times", False),
        ("read p1-0 before 700 ms", True),
        ("read p1-0 after 700 ms", False),
        ("read p1-7 before 700 ms", False),
        ("unread p1-7", False),  # it was never sent
        ("broker 4 leaves 0 times", False),
        ("unread p1-0,p1-7", False),
        ("reset first start", True),
        ("reset out of range", False),
        ("c1 stops", False),
    ],
)
def test_an_expectation_is_measured_in_the_run(calm: Trace, text: str, holds: bool) -> None:
    assert parse_expectation(text, "here").check(Seen(calm, 0)).holds is holds


def test_an_expectation_of_no_known_form_is_refused() -> None:
    with pytest.raises(BadInput, match="nothing can be expected by 'better weather'"):
        parse_expectation("better weather", "here")


@pytest.mark.parametrize(
    "head",
    [
        "expect wait < 50 ms\nscript:\n  at 10 p1 sends 1\n",
        "without: min-isr=1\nscript:\n  at 10 p1 sends 1\n",
        "expect wait < 50 ms\nwithout: min-isr=1\n",
    ],
)
def test_expectations_need_a_script_and_a_rule_to_switch_off(head: str, tmp_path: Path) -> None:
    file = tmp_path / "scenario.txt"
    file.write_text(f"title: one\nclaims: R1\n{head}---\n")
    with pytest.raises(BadInput, match="expect lines need a script"):
        load(file)
