"""Every scenario prints what is written in its file, and every claim has one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lossless.simulator.invariants import INVARIANTS
from lossless.simulator.options import FOUND, RULE_NAMES
from lossless.simulator.scenario import Scenario, Shown, load, run

FOLDER = Path(__file__).parent.parent / "scenarios"
SCENARIOS = [load(file) for file in sorted(FOLDER.glob("*.txt"))]

# What is to be shown in the simulator.
CLAIMS = (
    *(f"R{number}" for number in range(1, 20)),
    *(f"B{number}" for number in range(1, 9)),
    *("P1", "P4", "P5", "C1", "C2", "C3", "C4", "C11", "C12", "C13", "C14", "C15"),
    *(
        "KIP-211",
        "KIP-890",
        "KIP-101",
        "KIP-279",
        "KIP-320",
        "KIP-841",
        "KIP-903",
        "KIP-966",
        "KIP-1327",
    ),
    *("KAFKA-9491", "KAFKA-10101", "KAFKA-10706", "KAFKA-13673", "KAFKA-14704", "KAFKA-15510"),
    *("KAFKA-15221", "KAFKA-20554", "KAFKA-20716"),
)


LONG = [pytest.mark.full, pytest.mark.timeout(3600)]  # every state there is, on any machine


def _named(scenario: Scenario) -> str:
    return scenario.name


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(scenario, marks=LONG if scenario.is_long else []) for scenario in SCENARIOS],
    ids=_named,
)
def test_a_scenario_prints_what_is_written_down(scenario: Scenario) -> None:
    assert run(scenario) == Shown(scenario.expected, ())


@pytest.mark.parametrize("claim", CLAIMS)
def test_every_claim_has_a_scenario(claim: str) -> None:
    assert any(claim in scenario.claims for scenario in SCENARIOS)


def test_no_scenario_names_a_claim_that_is_not_listed() -> None:
    assert {claim for scenario in SCENARIOS for claim in scenario.claims} <= set(CLAIMS)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=_named)
def test_no_scenario_is_vacuous(scenario: Scenario) -> None:
    assert not re.search(r"^(with .*: )?UNKNOWN\b", scenario.expected, re.MULTILINE)


@pytest.mark.parametrize("scenario", [s for s in SCENARIOS if s.looked_for], ids=_named)
def test_with_the_wrong_settings_it_is_shown_and_with_the_right_ones_it_is_not(
    scenario: Scenario,
) -> None:
    """What is written down, read as a person would: the file cannot claim what it does not show."""
    verdicts = [line for line in scenario.expected.splitlines() if line.startswith("with ")]
    assert all("INVALID" not in verdict for verdict in verdicts)
    assert bool(verdicts) == (scenario.right is not None)
    if scenario.right is not None:
        assert "\nINVALID: " in f"\n{scenario.expected}"


def test_every_rule_is_switched_off_by_some_scenario() -> None:
    switched = [one for s in SCENARIOS for one in (s.settings, s.without) if one is not None]
    assert set(RULE_NAMES) == {rule for settings in switched for rule in settings.rules_off}


@pytest.mark.parametrize("name", FOUND)
def test_the_guide_explains_what_can_be_looked_for(name: str) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "proving.md").read_text()
    assert f"| {name} | " in guide or f"| `{name}` | {INVARIANTS.get(name)} |" in guide
