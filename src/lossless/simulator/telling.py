"""The verdict in words, and as JSON for scripts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from lossless.simulator.exploring import Exploration
from lossless.simulator.run import Plan, Result
from lossless.simulator.settings import Settings
from lossless.verifier.verdict import Verdict


def headline(exploration: Exploration, result: Result | None, wanted: tuple[str, ...]) -> str:
    """One line for what was found, and one for the scope."""
    schedules = f"{exploration.schedules} schedule" + "s" * (exploration.schedules != 1)
    scope = f"{schedules}, {exploration.steps} steps; {scope_of(exploration, result)}"
    if exploration.verdict is Verdict.UNKNOWN:
        return f"UNKNOWN: {exploration.unsettled or 1} of {scope} did not settle"
    broken = [] if result is None else [kind for kind in result.kinds if kind in wanted]
    if result is None or not broken:
        return f"UNREFUTED: none of {', '.join(wanted)} in {scope}"
    return (
        f"INVALID: {', '.join(broken)} in schedule {exploration.schedules}, seed {result.seed}\n"
        f"  {told_plan(result.plan)}; trace {result.trace_hash}"
    )


def scope_of(exploration: Exploration, result: Result | None) -> str:
    return f"seeds 1 to {exploration.schedules}" if result is None else f"seed {result.seed}"


def told_plan(plan: Plan) -> str:
    actions = [timed.action for timed in plan.faults]
    records = sum(count for _, count in plan.records)
    records += sum(action.other for action in actions if action.verb == "send")
    faults = sum(action.sign == "✗" for action in actions)
    parts = [_count(records, "record"), _count(faults, "fault")]
    if plan.delays:
        parts.append(_count(len(plan.delays), "late message"))
    return ", ".join(parts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + "s" * (number != 1)


def told(
    exploration: Exploration, result: Result | None, wanted: tuple[str, ...]
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "verdict": exploration.verdict.value,
        "schedules": exploration.schedules,
        "steps": exploration.steps,
        "looked_for": list(wanted),
    }
    if result is not None:
        document |= {
            "seed": result.seed,
            "trace": result.trace_hash,
            "settings": _settings(result.settings),
            "faults": [[timed.at_ms, *timed.action] for timed in result.plan.faults],
            "late_messages": len(result.plan.delays),
            "anomalies": [
                {
                    "kind": anomaly.kind.value,
                    "partition": str(anomaly.partition),
                    "value": anomaly.value,
                    "offset": anomaly.offset,
                    "what": anomaly.what,
                }
                for anomaly in result.anomalies
            ],
            "broken_invariants": list(result.broken),
        }
    return document


def _settings(settings: Settings) -> dict[str, Any]:
    plain = asdict(settings)
    del plain["rules"]
    plain["faults"] = [kind.value for kind in settings.faults]
    plain["off"] = list(settings.rules_off)
    return plain
