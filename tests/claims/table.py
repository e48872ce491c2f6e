"""docs/claims.md, from what the tests of this folder state. `scripts/document-claims` writes it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

from claim import CLAIMS, Claim

from lossless.simulator.scenario import Scenario, load

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "claims.md"
SCENARIOS = HERE.parent / "scenarios"

# Every claim that is to be shown on live clusters.
LIVE = (
    *("R1", "R2", "R3", "R4", "R6", "R7", "R17", "R18"),
    *(f"B{number}" for number in range(1, 9)),
    *("P1", "P4", "P5"),
    *("C1", "C2", "C3", "C4", "C11", "C13", "C14"),
)

_INTRODUCTION = """\
# What was seen on live clusters

Each row is a test that runs twice, on the embedded engine and on Apache Kafka, and must come to
the same verdict. Clients send numbered values and write down what they are told and what they
read; the verifier judges that, and `UNKNOWN` does not count. A fault is seen to take effect
before anything is concluded from it. `scripts/document-claims` writes this table.

Verdicts are kinds of anomalies, as `lossless prove` names them; *none* is none of any kind, and
*repeated*, a record processed twice, is what delivery at least once costs.

All of them run in `make test-all`; the last column has the engines that run in `make test` too.
"""

_LEFT_OUT = """\

## What stays with the simulator

- R7: a follower that fetches, and never catches up. Neither engine has a way to make one slow.
- R18: a network that is cut. Here everybody else is paused instead, the controller too, so that the
  old leader hears of nobody but its clients; what it then does is the same.
- C4: the Java client, which commits the poll before. The live test is of librdkafka.
"""


_SIMULATED = """\

## What is shown in the simulator

Each row is a scenario that `lossless prove` runs, with what its run printed: first with the rule or
setting of the claim on, then with it off. Tests run every scenario and compare. A quantity that a
claim is about is an expectation, which must hold in the first column and fail in the second.
"""


_VERDICTS = ("INVALID", "UNREFUTED", "UNKNOWN", "VALID")


def stated() -> list[Claim]:
    """In the order of the list above; a test of several claims stands at the first of them."""
    for file in sorted(HERE.glob("test_*_claims.py")):
        importlib.import_module(file.stem)
    return sorted(CLAIMS, key=lambda claim: LIVE.index(claim.ids[0]))


def render() -> str:
    rows = [_INTRODUCTION, *_rows(), _LEFT_OUT.rstrip("\n"), _SIMULATED, *_simulated_rows(), ""]
    return "\n".join(rows)


def _simulated_rows() -> Iterator[str]:
    yield "| claim | what is shown | with its rule or setting on | with it off |"
    yield "|---|---|---|---|"
    for file in sorted(SCENARIOS.glob("*.txt")):
        scenario = load(file)
        on, off = _on_and_off(scenario)
        link = f"[{scenario.title}](../tests/scenarios/{file.name})"
        yield f"| {', '.join(scenario.claims)} | {link} | {'<br>'.join(on)} | {'<br>'.join(off)} |"


def _on_and_off(scenario: Scenario) -> tuple[list[str], list[str]]:
    """What the run of a scenario printed about its verdicts and expectations."""
    lines = scenario.expected.splitlines()
    verdict = next((line for line in lines if line.startswith(_VERDICTS)), "")
    if scenario.expectations:
        on = [line for line in lines if line.startswith("expect ")]
        off = [line.strip() for line in lines if line.startswith("  expect ")]
        return on, [f"{scenario.without_text}:", *off]
    if scenario.exhaust is not None:
        on = [line for line in lines if line.startswith("with all rules: ")]
        off = [line for line in lines if line.startswith("without ")]
        return on, off or ["no rule to switch off"]
    if scenario.right is not None:
        return [line for line in lines if line.startswith("with ")][-1:], [_briefly(verdict)]
    return [_briefly(verdict)], ["no rule to switch off"]


def _briefly(verdict: str) -> str:
    return verdict.partition(" (schedule")[0]


def _rows() -> Iterator[str]:
    yield "| claim | what is shown | how it is provoked | verdict on both | in `make test` |"
    yield "|---|---|---|---|---|"
    for claim in stated():
        shown = claim.test.removeprefix("test_").replace("_", " ")
        link = f"[{shown}](../tests/claims/{claim.file})"
        verdicts = "<br>".join(
            f"{case}: {', '.join(f'**{kind}**' for kind in kinds) or 'none'}"
            for case, kinds in claim.shows.items()
        )
        often = ", ".join(claim.often) or "neither"
        ids = ", ".join(claim.ids)
        yield f"| {ids} | {link} | {claim.provoked} | {verdicts} | {often} |"


if __name__ == "__main__":
    print(render(), end="")
