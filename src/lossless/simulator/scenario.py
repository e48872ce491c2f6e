"""Scenarios: text files that say what is shown, how, and what is printed.

    title: The leader acknowledges alone, and dies
    claims: R6, B8
    settings: acks=1 faults=broker-crash     (any of simulator/options.py)
    right: acks=all                          (what is changed so that the anomaly goes away)
    when: soak                               (too long for every day; always if it is left out)
    look for: lost
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
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lossless.errors import BadInput
from lossless.simulator.exhausting import Scope, exhausted, scope_of
from lossless.simulator.exploring import Exploration, explore
from lossless.simulator.faults import EVERY_BROKER, Action, Timed
from lossless.simulator.options import changed, kinds_of, pairs_of
from lossless.simulator.run import Plan, Result, Run
from lossless.simulator.schedule import Kind
from lossless.simulator.settings import Settings
from lossless.simulator.shrinking import Shrinking
from lossless.simulator.telling import told_plan
from lossless.simulator.trace import as_text, trace
from lossless.simulator.world import ADMIN, FIRST_CONSUMER, FIRST_CONTROLLER, FIRST_PRODUCER
from lossless.verifier.history import Acknowledged, Sent

TIMES = 10  # as many schedules without the anomaly as it took to find it
SCHEDULES_MIN = 20  # and at least so many
RULER = "---\n"
AFTER_MS = 600  # a script goes on for so long after its last line
_KEYS = ("title", "claims", "when", "settings", "right", "look for", "seeds", "exhaust", "script")
_TIMED = re.compile(r"at (\d+) (.+)")
_PROCESS = r"(broker \d+|controller \d+|p\d+|c\d+)"


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
    head: str
    expected: str

    @property
    def name(self) -> str:
        return self.file.stem

    def rewrite(self, printed: str) -> None:
        self.file.write_text(f"{self.head}{RULER}{printed}\n")


# Reading


def load(file: Path) -> Scenario:
    try:
        text = file.read_text()
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}") from error
    head, _, expected = text.partition(RULER)
    values, script = _read_head(head, file)
    where = str(file)
    if "title" not in values or "claims" not in values:
        raise BadInput(f"{where}: a scenario needs a title and claims")
    settings = changed(Settings(), pairs_of(values.get("settings", ""), where), where)
    right_text = values.get("right", "")
    right = _right(settings, right_text, where) if right_text else None
    seeds = values.get("seeds", "300")
    if not seeds.isdigit() or seeds == "0":
        raise BadInput(f"{where}: seeds is a number from 1 on, not {seeds!r}")
    return Scenario(
        file=file,
        title=values["title"],
        claims=tuple(claim.strip() for claim in values["claims"].split(",")),
        is_long=_is_long(values.get("when", "always"), where),
        settings=settings,
        right=right,
        right_text=right_text,
        looked_for=kinds_of(values["look for"], where) if "look for" in values else (),
        seeds=int(seeds),
        exhaust=scope_of(values["exhaust"], where) if "exhaust" in values else None,
        script=tuple(script),
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


def _read_head(head: str, file: Path) -> tuple[dict[str, str], list[Timed]]:
    values: dict[str, str] = {}
    script: list[Timed] = []
    for number, line in enumerate(head.splitlines(), 1):
        where = f"{file}, line {number}"
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("  "):
            script.append(_timed(line.strip(), where))
            continue
        key, colon, value = line.partition(":")
        if not colon or key not in _KEYS:
            raise BadInput(f"{where}: {line!r} is none of {', '.join(_KEYS)}")
        values[key] = value.strip()
    return values, script


def _timed(line: str, where: str) -> Timed:
    match = _TIMED.fullmatch(line)
    if match:
        for pattern, action in _PHRASES.items():
            words = re.fullmatch(pattern, match[2])
            if words:
                return Timed(int(match[1]), action(*words.groups()))
    phrases = "; ".join(phrase.replace(_PROCESS, "NAME") for phrase in _PHRASES)
    raise BadInput(f"{where}: {line!r} is no step; a step is `at MS …` with one of: {phrases}")


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
    rf"{_PROCESS} > {_PROCESS} (\w+) takes (\d+)": lambda a, b, channel, ms: Action(
        "late", _process(a), _process(b), channel, int(ms)
    ),
    rf"the disk of {_PROCESS} is full": _verb("fill"),
    rf"the disk of {_PROCESS} fails": _verb("fail"),
    rf"{_PROCESS} sends (\d+)": lambda name, n: Action("send", _process(name), int(n)),
    r"the preferred leader is asked for": lambda: Action("prefer", ADMIN),
    r"records before (\d+) are deleted": lambda n: Action("delete", ADMIN, int(n)),
    rf"{_PROCESS} is (\d+) ms ahead": lambda name, ms: Action("skew", _process(name), int(ms)),
}


# Running


def run(scenario: Scenario) -> str:
    """What there is to print. It ends with a verdict for each of the two settings."""
    if scenario.exhaust is not None:
        return exhausted(scenario.exhaust)
    if scenario.script:
        return _run_script(scenario)
    return _run_by_chance(scenario)


def _run_script(scenario: Scenario) -> str:
    plan, settings = _plan(scenario), scenario.settings
    traced = trace(settings, 1, plan)
    lines = [as_text(traced), _verdict(scenario, traced.result, 1)]
    if scenario.right is not None:
        calm = Run(scenario.right, 1, plan).run()
        outcome = f"{_outcome(scenario, calm)}, longest wait {longest_wait_ms(calm)} ms"
        lines.append(f"with {scenario.right_text}, the same: {outcome}")
        lines.append(_by_chance(scenario, scenario.right, plan, SCHEDULES_MIN))
    return "\n".join(lines)


def _plan(scenario: Scenario) -> Plan:
    """Times count from when clients start."""
    settings = scenario.settings
    run = Run(settings, 1)
    run.prepare()
    start_ms = run.world.now_ms
    timed = tuple(step._replace(at_ms=start_ms + step.at_ms) for step in scenario.script)
    records = tuple((FIRST_PRODUCER + n, 0) for n in range(settings.producers))
    return Plan(Kind.WALK, timed, records=records, end_ms=timed[-1].at_ms + AFTER_MS)


def _run_by_chance(scenario: Scenario) -> str:
    wanted = scenario.looked_for
    found = explore(scenario.settings, range(1, scenario.seeds + 1), wanted)
    if found.found is None or scenario.right is None:
        return _verdict_of(scenario, found)
    smallest = Shrinking(found.found, wanted).shrink()
    lines = [as_text(trace(smallest.settings, smallest.seed, smallest.plan))]
    lines.append(_verdict(scenario, smallest, found.schedules))
    lines.append(_by_chance(scenario, scenario.right, None, found.schedules * TIMES))
    return "\n".join(lines)


def _by_chance(scenario: Scenario, settings: Settings, plan: Plan | None, seeds: int) -> str:
    """With the change, and everything else by chance, there is nothing to be found."""
    count = max(SCHEDULES_MIN, seeds)
    exploration = explore(settings, range(1, count + 1), scenario.looked_for, plan=plan)
    found = exploration.found
    if found is not None:
        return f"with {scenario.right_text}: INVALID, seed {found.seed}: {', '.join(found.kinds)}"
    steps = exploration.steps
    return f"with {scenario.right_text}: UNREFUTED, none in {count} schedules, {steps} steps"


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
    return f"INVALID: {', '.join(broken)}" if broken else "UNREFUTED"


def _verdict_of(scenario: Scenario, found: Exploration) -> str:
    if found.found is not None:
        return f"INVALID: {', '.join(found.found.kinds)} in schedule {found.schedules}"
    looked_for = ", ".join(scenario.looked_for)
    return f"UNREFUTED: none of {looked_for} in {found.schedules} schedules, {found.steps} steps"
