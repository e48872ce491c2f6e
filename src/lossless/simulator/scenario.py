"""Scenarios: text files that say what is shown, how, and what is printed.

    title: The leader acknowledges alone, and dies
    claims: R6, B8
    settings: acks=1 faults=broker-crash     (any of simulator/options.py)
    right: acks=all                          (what is changed so that the anomaly goes away)
    when: soak                               (too long for every day; always if it is left out)
    look for: lost
    expect wait < 50 ms                      (see expecting.py)
    without: min-isr=1                       (what switches the claim's rule or setting off)
    seeds: 300                               (how many schedules to look through, at most)
    script:                                  (instead of faults by chance: what happens, and when)
      at 10 p1 sends 1
      at 12 broker 1 dies
    ---
    what `lossless prove FILE` prints, written there by `--rewrite`

Without `right` nothing is expected to go wrong: the scenario shows how it goes. With it the
settings as they stand show the anomaly, and with the change it does not happen: not in the same
script, and not in ten times as many schedules as it took to find it. `exhaust: brokers=3 …` goes
through all runs of a small scope instead (exhausting.py).

What a claim says about a quantity is an `expect` line. It has to hold with the settings, and one of
them has to fail with the change of `without`; `--rewrite` rewrites neither. What a scenario does
not show is a complaint, whatever is written in its file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from lossless.contract.faults import FaultKind
from lossless.errors import BadInput
from lossless.simulator.exercise import without_opportunity
from lossless.simulator.exhausting import Scope, exhausted, scope_of
from lossless.simulator.expecting import Expectation, Seen, parse_expectation
from lossless.simulator.exploring import Exploration, explore, judged
from lossless.simulator.faults import EVERY_BROKER, Action, Timed
from lossless.simulator.options import changed, kinds_of, pairs_of, whole_number
from lossless.simulator.run import Plan, Result, Run
from lossless.simulator.schedule import Kind
from lossless.simulator.settings import Settings, allowed
from lossless.simulator.shrinking import Shrinking
from lossless.simulator.telling import told_plan
from lossless.simulator.trace import as_text, trace
from lossless.simulator.world import ADMIN, FIRST_CONSUMER, FIRST_CONTROLLER, FIRST_PRODUCER
from lossless.verifier.history import Acknowledged, Sent
from lossless.verifier.verdict import Verdict

TIMES = 10  # as many schedules without the anomaly as it took to find it
SCHEDULES_MIN = 20  # and at least so many
RULER = "---\n"
SEEDS_MAX = 1_000_000
SCRIPT_MS_MAX = 60_000
AFTER_MS = 600  # a script goes on for so long after its last line
_KEYS = (
    "title",
    "claims",
    "when",
    "settings",
    "right",
    "look for",
    "without",
    "seeds",
    "exhaust",
    "script",
)
# Requests that a script may make late.
CHANNELS = (
    "AlterPartition",
    "BrokerHeartbeat",
    "EndTxn",
    "Fetch",
    "OffsetCommit",
    "Produce",
    "QuorumFetch",
    "WriteTxnMarker",
)
_DISTURBING = ("prefer", "delete", "skew")
_OF_TWO = ("cut", "heal", "disconnect", "late")
_TIMED = re.compile(r"at (\d+) (.+)")
_PROCESS = r"(broker \d{1,3}|controller \d{1,3}|p\d{1,3}|c\d{1,3})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    file: Path
    title: str
    claims: tuple[str, ...]
    is_long: bool
    settings: Settings
    right: Settings | None
    right_text: str
    looked_for: tuple[str, ...]
    seeds: int
    exhaust: Scope | None
    script: tuple[Timed, ...]
    expectations: tuple[Expectation, ...]
    without: Settings | None
    without_text: str
    head: str
    expected: str

    @property
    def name(self) -> str:
        return self.file.stem

    def rewrite(self, printed: str) -> None:
        end = "" if self.head.endswith("\n") else "\n"
        self.file.write_text(f"{self.head}{end}{RULER}{printed}\n")


class Shown(NamedTuple):
    """What a scenario prints, and what it claims and does not show."""

    text: str
    complaints: tuple[str, ...]
    is_unknown: bool = False  # nothing contradicts it, but something could not be told


# Reading


def load(file: Path) -> Scenario:
    try:
        text = file.read_text()
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{file}: not UTF-8 text") from error
    head, _, expected = text.partition(RULER)
    values, script, expectations = _read_head(head, file)
    where = str(file)
    if "title" not in values or "claims" not in values:
        raise BadInput(f"{where}: a scenario needs a title and claims")
    _check_keys(values, where)
    settings = changed(Settings(), pairs_of(values.get("settings", ""), where), where)
    for step in script:
        _check_processes(step.action, settings, where)
    right_text = values.get("right", "")
    right = _right(settings, right_text, where) if right_text else None
    without_text = values.get("without", "")
    if bool(expectations) != bool(without_text) or (expectations and not script):
        raise BadInput(f"{where}: expect lines need a script, and `without` to see them fail")
    if "look for" not in values and "exhaust" not in values and not expectations:
        raise BadInput(f"{where}: a scenario needs `look for`, `exhaust` or expect lines")
    seeds = whole_number(values.get("seeds", "300"), 1, SEEDS_MAX)
    if seeds is None:
        raise BadInput(f"{where}: seeds is 1 to {SEEDS_MAX}, not {values['seeds']!r}")
    return Scenario(
        file=file,
        title=values["title"],
        claims=tuple(claim.strip() for claim in values["claims"].split(",")),
        is_long=_is_long(values.get("when", "always"), where),
        settings=settings,
        right=right,
        right_text=right_text,
        looked_for=kinds_of(values["look for"], where) if "look for" in values else (),
        seeds=seeds,
        exhaust=scope_of(values["exhaust"], where) if "exhaust" in values else None,
        script=tuple(sorted(script, key=lambda step: step.at_ms)),
        expectations=tuple(expectations),
        without=changed(settings, pairs_of(without_text, where), where) if without_text else None,
        without_text=without_text,
        head=head,
        expected=expected.removesuffix("\n"),
    )


def _is_long(when: str, where: str) -> bool:
    if when not in ("always", "soak"):
        raise BadInput(f"{where}: when is always or soak, not {when!r}")
    return when == "soak"


def _right(settings: Settings, text: str, where: str) -> Settings:
    if text == "rules on":
        return changed(settings.with_all_rules(), (), where)
    return changed(settings, pairs_of(text, where), where)


def _read_head(head: str, file: Path) -> tuple[dict[str, str], list[Timed], list[Expectation]]:
    values: dict[str, str] = {}
    script: list[Timed] = []
    expectations: list[Expectation] = []
    for number, line in enumerate(head.splitlines(), 1):
        where = f"{file}, line {number}"
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("  "):
            script.append(_timed(line.strip(), where))
            continue
        if line.startswith("expect "):
            expectation = parse_expectation(line.removeprefix("expect "), where)
            if expectation in expectations:
                raise BadInput(f"{where}: {line!r} is there twice")
            expectations.append(expectation)
            continue
        key, colon, value = line.partition(":")
        if not colon or key not in _KEYS:
            keys = ", ".join(_KEYS)
            raise BadInput(
                f"{where}: {line!r} is not an expect line and has none of the keys {keys}"
            )
        if key in values:
            raise BadInput(f"{where}: {key} is there twice")
        values[key] = value.strip()
    return values, script, expectations


def _timed(line: str, where: str) -> Timed:
    match = _TIMED.fullmatch(line)
    if match:
        for pattern, action in _PHRASES.items():
            words = re.fullmatch(pattern, match[2], re.ASCII)
            if words:
                return Timed(_bounded(match[1], SCRIPT_MS_MAX, where), action(*words.groups()))
    phrases = "; ".join(_readable(phrase) for phrase in _PHRASES)
    raise BadInput(f"{where}: {line!r} is not a step; a step is `at MS …` with one of: {phrases}")


def _readable(phrase: str) -> str:
    phrase = phrase.replace(_PROCESS, "NAME").replace(r"(\w+)", "REQUEST")
    return re.sub(r"\(\\d[^)]*\)", "N", phrase).replace("(", "").replace(")", "")


def _bounded(text: str, most: int, where: str) -> int:
    number = whole_number(text, 0, most)
    if number is None:
        raise BadInput(f"{where}: {text} is too large; the largest is {most}")
    return number


def _check_keys(values: Mapping[str, str], where: str) -> None:
    """A key that would be passed over is refused."""
    for first, others in _EXCLUSIVE.items():
        for other in others:
            if first in values and other in values:
                raise BadInput(f"{where}: {first} and {other} cannot be had together")
    if "right" in values and "look for" not in values:
        raise BadInput(f"{where}: right needs `look for`")


_EXCLUSIVE = {
    "exhaust": ("settings", "right", "look for", "without", "seeds", "script"),
    "script": ("seeds",),
}


def _check_processes(action: Action, settings: Settings, where: str) -> None:
    ranges = (
        range(1, settings.brokers + 1),
        range(FIRST_CONTROLLER, FIRST_CONTROLLER + settings.controllers),
        range(FIRST_PRODUCER, FIRST_PRODUCER + settings.producers),
        range(FIRST_CONSUMER, FIRST_CONSUMER + settings.consumers),
    )
    names = [action.target] if action.target not in (ADMIN, EVERY_BROKER) else []
    if action.verb in _OF_TWO:
        names.append(action.other)
    for number in names:
        if not any(number in processes for processes in ranges):
            raise BadInput(
                f"{where}: there is no such process with these settings: {action.told()}"
            )
    if action.verb == "late" and action.channel not in CHANNELS:
        raise BadInput(
            f"{where}: no request is called {action.channel}; known: {', '.join(CHANNELS)}"
        )


def _process(name: str) -> int:
    if name == "every broker":
        return EVERY_BROKER
    kind, number = re.fullmatch(r"(broker |controller |p|c)(\d+)", name).groups()  # type: ignore[union-attr]
    first = {"broker ": 1, "controller ": FIRST_CONTROLLER, "p": FIRST_PRODUCER}
    return first.get(kind, FIRST_CONSUMER) + int(number) - 1


def _verb(verb: str) -> Callable[[str], Action]:
    return lambda name: Action(verb, _process(name))


_PHRASES: dict[str, Callable[..., Action]] = {
    rf"{_PROCESS} dies": _verb("crash"),
    rf"{_PROCESS} starts": _verb("start"),
    rf"{_PROCESS} loses power": _verb("lose power"),
    r"(every broker) loses power": _verb("lose power"),
    r"(every broker) starts": _verb("start"),
    rf"{_PROCESS} stands still": _verb("pause"),
    rf"{_PROCESS} goes on": _verb("resume"),
    rf"{_PROCESS} is asked to stop": _verb("stop"),
    rf"{_PROCESS} > {_PROCESS} is cut": lambda a, b: Action("cut", _process(a), _process(b)),
    rf"{_PROCESS} > {_PROCESS} passes": lambda a, b: Action("heal", _process(a), _process(b)),
    rf"{_PROCESS} > {_PROCESS} breaks": lambda a, b: Action("disconnect", _process(a), _process(b)),
    rf"{_PROCESS} > {_PROCESS} (\w+) takes (\d{{1,6}})": lambda a, b, channel, ms: Action(
        "late", _process(a), _process(b), channel, int(ms)
    ),
    rf"the disk of {_PROCESS} is full": _verb("fill"),
    rf"the disk of {_PROCESS} fails": _verb("fail"),
    rf"{_PROCESS} sends (\d{{1,3}})": lambda name, n: Action("send", _process(name), int(n)),
    r"the preferred leader is asked for": lambda: Action("prefer", ADMIN),
    r"records before (\d{1,9}) are deleted": lambda n: Action("delete", ADMIN, int(n)),
    rf"{_PROCESS} is (\d{{1,6}}) ms ahead": lambda name, ms: Action(
        "skew", _process(name), int(ms)
    ),
}


# Running


def run(scenario: Scenario) -> Shown:
    """What there is to print. It ends with a verdict for each of the two settings."""
    if scenario.exhaust is not None:
        text, complaints = exhausted(scenario.exhaust)
        return Shown(text, complaints)
    if scenario.script:
        return _run_script(scenario)
    return _run_by_chance(scenario)


def _shown(scenario: Scenario, lines: list[str], verdicts: list[Verdict], more: list[str]) -> Shown:
    """With its settings, a scenario that names the right ones has to show what they prevent."""
    complaints = list(more)
    first, others = verdicts[0], verdicts[1:]
    if scenario.right is None:
        others = verdicts
    elif first is not Verdict.INVALID:
        complaints.append(f"{', '.join(scenario.looked_for)} should be found, and is not")
    if Verdict.INVALID in others:
        settings = f"with {scenario.right_text}" if scenario.right_text else "with its settings"
        complaints.append(f"nothing should be found {settings}, and something is")
    return Shown("\n".join(lines), tuple(complaints), Verdict.UNKNOWN in others)


def _run_script(scenario: Scenario) -> Shown:
    plan, settings = plan_of(scenario), scenario.settings
    traced = trace(settings, 1, plan)
    verdicts = [_judged(scenario, traced.result)]
    lines = [as_text(traced), _verdict(scenario, traced.result, 1)]
    outcomes = expected(scenario, settings, plan)
    lines += [line for line, _ in outcomes]
    complaints = [line for line, holds in outcomes if not holds]
    if scenario.without is not None:
        lines.append(f"without ({scenario.without_text}):")
        without = expected(scenario, scenario.without, plan)
        lines += [f"  {line}" for line, _ in without]
        if all(holds for _, holds in without):
            complaints.append(f"no expectation fails with {scenario.without_text}")
    if scenario.right is not None:
        calm = Run(scenario.right, 1, plan).run()
        outcome = f"{_outcome(scenario, calm)}, longest wait {longest_wait_ms(calm)} ms"
        lines.append(f"with {scenario.right_text}, the same: {outcome}")
        line, verdict = _by_chance(scenario, scenario.right, plan, SCHEDULES_MIN)
        lines.append(line)
        verdicts += [_judged(scenario, calm), verdict]
    return _shown(scenario, lines, verdicts, complaints)


def expected(scenario: Scenario, settings: Settings, plan: Plan) -> list[tuple[str, bool]]:
    """Of each expectation, how it turned out with these settings, and whether it holds."""
    if not scenario.expectations:
        return []
    seen = Seen(trace(settings, 1, plan), _start_ms(scenario.settings))
    outcomes = [(one.text, one.check(seen)) for one in scenario.expectations]
    return [
        (
            f"expect {text}: {'holds' if outcome.holds else 'fails'} ({outcome.measured})",
            outcome.holds,
        )
        for text, outcome in outcomes
    ]


def _start_ms(settings: Settings) -> int:
    run = Run(settings, 1)
    run.prepare()
    return run.world.now_ms


def plan_of(scenario: Scenario) -> Plan:
    """Times count from when clients start."""
    settings = scenario.settings
    start_ms = _start_ms(settings)
    timed = tuple(step._replace(at_ms=start_ms + step.at_ms) for step in scenario.script)
    records = tuple((FIRST_PRODUCER + n, 0) for n in range(settings.producers))
    return Plan(Kind.WALK, timed, records=records, end_ms=timed[-1].at_ms + AFTER_MS)


def _run_by_chance(scenario: Scenario) -> Shown:
    wanted = scenario.looked_for
    found = explore(scenario.settings, range(1, scenario.seeds + 1), wanted)
    if found.found is None or scenario.right is None:
        return _shown(scenario, [_verdict_of(scenario, found)], [found.verdict], [])
    smallest = Shrinking(found.found, wanted).shrink()
    lines = [as_text(trace(smallest.settings, smallest.seed, smallest.plan))]
    lines.append(_verdict(scenario, smallest, found.schedules))
    line, verdict = _by_chance(scenario, scenario.right, None, found.schedules * TIMES)
    return _shown(scenario, [*lines, line], [found.verdict, verdict], [])


def _by_chance(
    scenario: Scenario, settings: Settings, plan: Plan | None, seeds: int
) -> tuple[str, Verdict]:
    """With the change, and everything else by chance, there is nothing to be found."""
    count = max(SCHEDULES_MIN, seeds)
    if plan is not None:
        settings = replace(settings, faults=(allowed(FaultKind.LATE_MESSAGES),))
    exploration = explore(settings, range(1, count + 1), scenario.looked_for, plan=plan)
    found = exploration.found
    if found is not None:
        kinds = ", ".join(found.kinds)
        line = f"with {scenario.right_text}: INVALID, seed {found.seed}: {kinds}"
        return line, exploration.verdict
    steps = exploration.steps
    verdict = f"{exploration.verdict.value}, none in {count} schedules, {steps} steps"
    line = f"with {scenario.right_text}: {verdict}{_why(exploration.missing)}"
    return line, exploration.verdict


def _verdict(scenario: Scenario, result: Result, schedules: int) -> str:
    pause = f"; longest wait {longest_wait_ms(result)} ms" if scenario.script else ""
    return f"{_outcome(scenario, result)} (schedule {schedules}; {told_plan(result.plan)}{pause})"


def longest_wait_ms(result: Result) -> int:
    """Of a producer for an acknowledgement."""
    sent = {event.value: event.time_ms for event in result.history.of(Sent)}
    return max(
        (event.time_ms - sent[event.value] for event in result.history.of(Acknowledged)), default=0
    )


def _outcome(scenario: Scenario, result: Result) -> str:
    broken = [kind for kind in result.kinds if kind in scenario.looked_for]
    if broken:
        return f"INVALID: {', '.join(broken)}"
    verdict = _judged(scenario, result)
    if verdict is not Verdict.UNKNOWN:
        return verdict.value
    return f"{verdict.value}{_why(_missing(scenario, result)) or ': it did not settle'}"


def _judged(scenario: Scenario, result: Result) -> Verdict:
    verdict = judged(result, scenario.looked_for)
    if verdict is Verdict.UNREFUTED and _missing(scenario, result):
        return Verdict.UNKNOWN
    return verdict


def _missing(scenario: Scenario, result: Result) -> Mapping[str, str]:
    """Some steps of a script disturb a cluster and are not faults."""
    exercised = result.exercised
    if any(step.action.verb in _DISTURBING for step in scenario.script):
        exercised = replace(exercised, late_messages=exercised.late_messages + 1)
    return without_opportunity(scenario.looked_for, result.settings, exercised)


def _verdict_of(scenario: Scenario, found: Exploration) -> str:
    if found.found is not None:
        return f"INVALID: {', '.join(found.found.kinds)} in schedule {found.schedules}"
    looked_for = ", ".join(scenario.looked_for)
    scope = f"{found.schedules} schedules, {found.steps} steps"
    return f"{found.verdict.value}: none of {looked_for} in {scope}{_why(found.missing)}"


def _why(missing: Mapping[str, str]) -> str:
    return "".join(f"; {kind}: {why}" for kind, why in missing.items())
