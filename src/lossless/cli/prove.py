"""`lossless prove`: searches simulated runs of the given settings for a broken promise."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lossless.cli import options
from lossless.cli.console import stderr, stdout
from lossless.contract.faults import FaultKind
from lossless.errors import EXIT_KEPT, BadInput
from lossless.simulator.exercise import promised
from lossless.simulator.options import FAULT_NAMES, OPTIONS, changed, kinds_of, pairs_of
from lossless.simulator.settings import LATE_MS_MAX, RECOMMENDED_FAULTS

if TYPE_CHECKING:
    from lossless.simulator.exploring import Exploration
    from lossless.simulator.run import Result
    from lossless.simulator.settings import Settings

_SHOWN = {
    "brokers": "Number of brokers.",
    "rf": "Replication factor.",
    "min-isr": "min.insync.replicas.",
    "acks": "acks of the producers.",
    "unclean": "unclean.leader.election.enable.",
    "idempotent": "enable.idempotence.",
    "in-flight": "max.in.flight.requests.per.connection.",
    "client": "The client library to simulate.",
    "commit": "When consumers commit: after processing, before it, or automatically (auto).",
    "reset": "auto.offset.reset.",
    "flush-before-ack": "Flush every message to disk before acknowledging it (flush.messages=1).",
    "transactions": "Send records in transactions.",
    "isolation": "isolation.level.",
    "groups": "Number of consumer groups; 0: no groups, each consumer reads every partition.",
}


# Options that determine a schedule and its verdict, as opposed to how they are shown.
_OF_A_SCHEDULE = {*(name.replace("-", "_") for name in _SHOWN), "faults", "more", "look_for"}


def _setting_options(function: click.decorators.FC) -> click.decorators.FC:
    for name, text in reversed(_SHOWN.items()):
        accepted = OPTIONS[name].accepted
        function = click.option(f"--{name}", metavar=accepted.replace(", ", "|"), help=text)(
            function
        )
    return function


@click.command(
    epilog="Verdicts and exit codes: VALID (every run of a stated scope was checked) and UNREFUTED "
    "(no failure in the schedules tried) 0, INVALID (a failing run is shown) 1, UNKNOWN 3."
)
@click.argument("scenarios", nargs=-1, type=click.Path(path_type=Path), metavar="[SCENARIO]...")
@_setting_options
@click.option(
    "--faults",
    metavar="FAULT[=N],...",
    help=f"Faults to inject: {', '.join(FAULT_NAMES)}. N is how many may be active at once "
    "(default 1); for late-messages, the maximum delay in ms "
    f"(default {LATE_MS_MAX}). Default: {', '.join(map(str, RECOMMENDED_FAULTS))}.",
)
@click.option(
    "--set",
    "more",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another setting; repeatable. One of "
    f"{', '.join(name for name in OPTIONS if name not in _SHOWN)}.",
)
@click.option(
    "--look-for",
    metavar="KIND,...",
    help="Anomalies to search for, by their names in docs/proving.md [default: all that these "
    "settings promise to prevent].",
)
@click.option(
    "--seeds",
    type=click.IntRange(1),
    default=500,
    show_default=True,
    metavar="N",
    help="Number of schedules to run: seeds 1 to N.",
)
@click.option(
    "--seed", type=click.IntRange(1), metavar="N", help="Run only the schedule with this seed."
)
@click.option("--whole", is_flag=True, help="Show a failing run as found, without shrinking it.")
@click.option(
    "--html",
    "html_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write the run as a sequence diagram to step through, one self-contained HTML file.",
)
@click.option("--rewrite", is_flag=True, help="Update the expected output in the scenario files.")
@options.output_format
def command(
    scenarios: tuple[Path, ...],
    faults: str | None,
    more: tuple[str, ...],
    look_for: str | None,
    seeds: int,
    seed: int | None,
    whole: bool,
    html_file: Path | None,
    rewrite: bool,
    output_format: str,
    **given: str | None,
) -> None:
    """Search for a simulated run that breaks the promise.

    Simulates brokers, controllers, clients and faults with the given settings, one run per seed. A
    seed gives the same run on every machine. A failing run is shrunk to the fewest faults, messages
    and records that still show the failure, and printed step by step. Settings that are not given
    are those that Lossless recommends.

    SCENARIO is a text file that describes a run and its expected output; see tests/scenarios.

    \b
    Examples
      lossless prove --acks 1 --faults broker-crash
      lossless prove --brokers 3 --rf 3 --min-isr 1 --faults broker-crash,power-loss --seeds 2000
      lossless prove --acks 1 --faults broker-crash --seed 7 --html run.html
      lossless prove --transactions true --isolation read_committed --groups 1
      lossless prove tests/scenarios/*.txt
    """
    if scenarios:
        _refuse_settings_of_scenarios()
        _run_scenarios(scenarios, rewrite)
        return
    if rewrite:
        raise BadInput("--rewrite needs scenarios", hint="name their files: prove --rewrite FILE")
    if html_file is not None and not html_file.parent.is_dir():
        raise BadInput(f"--html {html_file}: folder {html_file.parent} does not exist")
    pairs = [(name.replace("_", "-"), value) for name, value in given.items() if value is not None]
    pairs += [("faults", faults)] if faults is not None else []
    pairs += pairs_of(" ".join(more), "--set")
    settings = _settings(pairs)
    wanted = promised(settings) if look_for is None else kinds_of(look_for, "--look-for")
    given_source = click.get_current_context().get_parameter_source("seeds")
    if seed is not None and given_source is click.core.ParameterSource.COMMANDLINE:
        raise BadInput("--seed and --seeds exclude each other", hint="give one of them")
    with _failing_with_a_command():
        if seed is None:
            exploration = _explore(settings, seeds, wanted)
        else:
            exploration = _one(settings, seed, wanted)
        result = exploration.found
        if result is not None and seed is None and not whole:
            result = _smallest(result, wanted)
        _print_result(settings, exploration, result, wanted, as_json=output_format == "json")
        if html_file is not None:
            _write_page(result, html_file)
    sys.exit(exploration.verdict.exit_code)


@contextmanager
def _failing_with_a_command() -> Iterator[None]:
    """Adds the command that reproduces the failure if the simulation itself fails."""
    from lossless.simulator.run import ScheduleFailed

    try:
        yield
    except ScheduleFailed as failed:
        failed.hint = (
            "This is a bug in Lossless. It says nothing about the settings. Please report it with "
            f"the command that reproduces it: {_repeating(failed.seed)}"
        )
        raise


def _repeating(seed: int) -> str:
    """Returns the command that runs one schedule again."""
    context = click.get_current_context()
    words = ["lossless", "prove"]
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is click.core.ParameterSource.COMMANDLINE and name in _OF_A_SCHEDULE:
            value = context.params[name]
            for one in value if isinstance(value, tuple) else (value,):
                words += [parameter.opts[0], str(one)]
    return shlex.join([*words, "--seed", str(seed)])


def _settings(pairs: list[tuple[str, str]]) -> Settings:
    """Returns the settings given, completed with those that `lossless init` recommends."""
    from dataclasses import replace

    from lossless.simulator.settings import RECOMMENDED

    given = dict(pairs)
    recommended = RECOMMENDED
    if "faults" not in given:  # a client fault needs clients of its kind
        of_none = {
            FaultKind.PRODUCER_CRASH: given.get("producers"),
            FaultKind.CONSUMER_CRASH: given.get("consumers"),
        }
        faults = tuple(one for one in recommended.faults if of_none.get(one.kind) != "0")
        recommended = replace(recommended, faults=faults)
    if "idempotent" not in given and given.get("acks", "all") != "all":
        # Every client refuses enable.idempotence=true without acks=all.
        producer = replace(recommended.producer, idempotent=None)
        recommended = replace(recommended, producer=producer)
    return changed(recommended, pairs, "lossless prove")


def _refuse_settings_of_scenarios() -> None:
    """Raises BadInput if an option is given beside scenarios, which contain their own settings."""
    context = click.get_current_context()
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        is_given = source is click.core.ParameterSource.COMMANDLINE
        if is_given and parameter.name not in ("scenarios", "rewrite"):
            raise BadInput(f"{parameter.opts[0]} does not apply to scenarios; edit their files")


def _explore(settings: Settings, seeds: int, wanted: tuple[str, ...]) -> Exploration:
    from lossless.simulator.exploring import explore

    with _bar("schedules", seeds) as advance:
        return explore(settings, range(1, seeds + 1), wanted, advance)


def _one(settings: Settings, seed: int, wanted: tuple[str, ...]) -> Exploration:
    from lossless.simulator.exploring import explore_one

    return explore_one(settings, seed, wanted)


def _smallest(found: Result, wanted: tuple[str, ...]) -> Result:
    from lossless.simulator.shrinking import Shrinking

    what = f"seed {found.seed} fails; shrinking the run"
    stderr.print(what, style="dim")
    with stderr.status("") as status:
        shrinking = Shrinking(
            found, wanted, lambda left: status.update(f"faults and late messages left: {left}")
        )
        return shrinking.shrink()


def _print_result(
    settings: Settings,
    exploration: Exploration,
    result: Result | None,
    wanted: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    from lossless.simulator.telling import account, headline, told

    if as_json:
        stdout.print_json(json.dumps(told(settings, exploration, result, wanted)))
        return
    if result is not None:
        from lossless.simulator.trace import as_text, trace

        stdout.print(as_text(trace(result.settings, result.seed, result.plan)), markup=False)
    stdout.print(headline(exploration, result, wanted), markup=False)
    stdout.print(account(settings, exploration, result, wanted), markup=False)


def _write_page(result: Result | None, file: Path) -> None:
    from lossless.simulator.page import page
    from lossless.simulator.trace import trace

    if result is None:
        stderr.print(f"no failing run was found; {file} was not written", style="dim")
        return
    try:
        text = page(trace(result.settings, result.seed, result.plan), f"seed {result.seed}")
        file.write_text(text)
    except OSError as error:
        raise BadInput(f"--html {file}: {error.strerror}") from error
    stderr.print(f"wrote {file}", style="dim")


def _run_scenarios(files: tuple[Path, ...], rewrite: bool) -> None:
    from lossless.simulator.scenario import load, run
    from lossless.verifier.verdict import Verdict

    loaded = [load(file) for file in files]
    differing: list[str] = []
    complaints: list[str] = []
    unknown: list[str] = []
    with _bar("scenarios", len(loaded)) as advance:
        for number, scenario in enumerate(loaded, 1):
            printed, not_shown, is_unknown = run(scenario)
            complaints += [f"{scenario.name}: {complaint}" for complaint in not_shown]
            unknown += [scenario.name] if is_unknown else []
            stdout.print(f"{scenario.name}: {scenario.title}", markup=False)
            stdout.print(printed, markup=False)
            if rewrite:
                scenario.rewrite(printed)
            elif printed != scenario.expected:
                differing.append(scenario.name)
            advance(number, 0)
    if differing:
        stderr.print(f"output differs from the file: {', '.join(differing)}", style="bold red")
    for complaint in complaints:
        stderr.print(f"not shown by {complaint}", style="bold red", markup=False)
    if differing or complaints:
        sys.exit(Verdict.INVALID.exit_code)
    if unknown:
        stderr.print(f"UNKNOWN: {', '.join(unknown)}", style="bold red")
        sys.exit(Verdict.UNKNOWN.exit_code)
    sys.exit(EXIT_KEPT)


@contextmanager
def _bar(what: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Shows a progress bar, on a terminal only, and removes it at the end."""
    with Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,
    ) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done, _steps: progress.update(task, completed=done)
