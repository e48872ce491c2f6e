"""The verdict in words, and as JSON for scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from lossless.simulator.budget import exceeded
from lossless.simulator.exercise import Election, Exercised
from lossless.simulator.exploring import Exploration
from lossless.simulator.options import shown
from lossless.simulator.run import Plan, Result
from lossless.simulator.settings import Settings
from lossless.verifier.verdict import Verdict


def headline(exploration: Exploration, result: Result | None, wanted: tuple[str, ...]) -> str:
    """The verdict and its scope."""
    schedules = _count(exploration.schedules, "schedule")
    scope = f"{schedules}, {exploration.steps} steps; {scope_of(exploration, result)}"
    if exploration.verdict is Verdict.UNKNOWN:
        return _unknown(exploration, scope, wanted)
    broken = [] if result is None else [kind for kind in result.kinds if kind in wanted]
    if result is None or not broken:
        return f"UNREFUTED: none of {', '.join(wanted)} in {scope}"
    lines = [
        f"INVALID: {', '.join(broken)} in schedule {exploration.schedules}, seed {result.seed}",
        f"  {told_plan(result.plan)}; trace {result.trace_hash}",
    ]
    lines += [f"  beyond the budget: {what}" for what in beyond(result)]
    return "\n".join(lines)


def _unknown(exploration: Exploration, scope: str, wanted: tuple[str, ...]) -> str:
    lines = []
    if exploration.unsettled:
        lines.append(f"UNKNOWN: {exploration.unsettled} of {scope} did not settle")
    by_reason: dict[str, list[str]] = {}
    for kind, why in exploration.missing.items():
        by_reason.setdefault(why, []).append(kind)
    lines += [
        f"UNKNOWN: {', '.join(kinds)} had no opportunity, because {why} in {scope}"
        for why, kinds in by_reason.items()
    ]
    others = [kind for kind in wanted if kind not in exploration.missing]
    if others and not exploration.unsettled:
        lines.append(f"  the others had an opportunity and did not occur: {', '.join(others)}")
    return "\n".join(lines)


def beyond(result: Result) -> list[str]:
    return list(exceeded(result.settings, dict(result.at_a_time), result.most_dead))


def account(
    settings: Settings, exploration: Exploration, result: Result | None, wanted: tuple[str, ...]
) -> str:
    """What the verdict is about: settings, faults, simulated time, and what was exercised."""
    done = exploration.exercised
    rows = [
        ("settings", " ".join(f"{name}={value}" for name, value in shown(settings))),
        ("faults", ", ".join(map(str, settings.faults)) or "none"),
        ("took effect", _counted(done.faults, done.late_messages)),
        ("simulated", f"{done.simulated_ms / 3_600_000:.4f} hours"),
        ("records", _records(done)),
        ("elections", ", ".join(f"{done.elections[kind.value]} {kind.value}" for kind in Election)),
        ("others", _others(done)),
    ]
    also = [
        f"{kind} (first in seed {one.seed})"
        for kind, one in exploration.occurred.items()
        if kind not in wanted
    ]
    if done.repeated:
        also.append(f"repeated ({_count(done.repeated, 'record')})")
    if also:
        rows.append(("not looked for", ", ".join(also)))
    if result is not None and result.at_a_time:
        most = ", ".join(f"{kind.value} {count}" for kind, count in result.at_a_time)
        rows.append(("at a time", most))
    return "\n".join(f"  {name:14} {text}" for name, text in rows)


def _counted(faults: Mapping[str, int], late: int) -> str:
    parts = [f"{kind} {count}" for kind, count in sorted(faults.items())]
    parts += [f"late-messages {late}"] if late else []
    return ", ".join(parts) or "nothing"


def _records(done: Exercised) -> str:
    ends = "" if done.end_min is None else f"; logs end at {done.end_min}"
    if done.end_min != done.end_max:
        ends += f" to {done.end_max}"
    return f"{done.attempted} attempted, {done.acknowledged} acknowledged, {done.read} read{ends}"


def _others(done: Exercised) -> str:
    parts = [_count(done.truncations, "truncation"), _count(done.rebalances, "rebalance")]
    parts.append(f"{done.transactions_committed} transactions committed")
    parts.append(f"{done.transactions_aborted} aborted")
    return ", ".join(parts)


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
    settings: Settings, exploration: Exploration, result: Result | None, wanted: tuple[str, ...]
) -> dict[str, Any]:
    done = exploration.exercised
    document: dict[str, Any] = {
        "verdict": exploration.verdict.value,
        "schedules": exploration.schedules,
        "seeds": [1, exploration.schedules] if result is None else [result.seed, result.seed],
        "steps": exploration.steps,
        "looked_for": list(wanted),
        "without_opportunity": dict(exploration.missing),
        "occurred": {kind: one._asdict() for kind, one in exploration.occurred.items()},
        "settings": dict(shown(settings, every=True)),
        "simulated_hours": round(done.simulated_ms / 3_600_000, 6),
        "exercised": {one.name: getattr(done, one.name) for one in fields(done)},
    }
    if result is not None:
        document |= {
            "seed": result.seed,
            "trace": result.trace_hash,
            "faults": [[timed.at_ms, *timed.action] for timed in result.plan.faults],
            "faults_at_a_time": {kind.value: count for kind, count in result.at_a_time},
            "beyond_the_budget": beyond(result),
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
