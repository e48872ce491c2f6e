"""`lossless prove`: the exact settings in a deterministic simulator, faults explored."""

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
from lossless.simulator.options import FAULT_NAMES, OPTIONS, changed, kinds_of, pairs_of
from lossless.simulator.settings import LATE_MS_MAX, RECOMMENDED_FAULTS

if TYPE_CHECKING:
    from lossless.simulator.exploring import Exploration
    from lossless.simulator.run import Result
    from lossless.simulator.settings import Settings

PROMISED = "lost,unseen,unprocessed,duplicate,inconsistent offset,precommitted read,reordered,stuck"
PROMISED_OF_TRANSACTIONS = "aborted read,torn transaction"
_SHOWN = {
    "brokers": "How many brokers.",
    "rf": "Replication factor.",
    "min-isr": "min.insync.replicas.",
    "acks": "What producers wait for.",
    "unclean": "unclean.leader.election.enable.",
    "idempotent": "enable.idempotence.",
    "in-flight": "max.in.flight.requests.per.connection.",
    "client": "Whose clients.",
    "commit": "When consumers commit: after processing, before, or by themselves (auto).",
    "reset": "auto.offset.reset.",
    "flush-before-ack": "flush.messages=1.",
    "transactions": "Records belong together, and are sent in transactions.",
    "isolation": "isolation.level.",
    "groups": "Share consumers out among so many groups; 0: each has everything.",
}


# Options that decide what a schedule is and how it is judged, and not how it is shown.
_OF_A_SCHEDULE = {*(name.replace("-", "_") for name in _SHOWN), "faults", "more", "look_for"}


def _setting_options(function: click.decorators.FC) -> click.decorators.FC:
    for name, text in reversed(_SHOWN.items()):
        accepted = OPTIONS[name].accepted
        function = click.option(f"--{name}", metavar=accepted.replace(", ", "|"), help=text)(
            function
        )
    return function


@click.command(
    epilog="Verdicts: VALID (a stated scope was exhausted) and UNREFUTED (nothing in so many "
    "schedules) end with 0, INVALID (with the run that shows it) with 1, UNKNOWN with 3."
)
@click.argument("scenarios", nargs=-1, type=click.Path(path_type=Path), metavar="[SCENARIO]...")
@_setting_options
@click.option(
    "--faults",
    metavar="FAULT[=N],...",
    help=f"Of {', '.join(FAULT_NAMES)}; N at a time (1), and late messages at most N ms late "
    f"({LATE_MS_MAX}). By default {','.join(map(str, RECOMMENDED_FAULTS))}.",
)
@click.option(
    "--set",
    "more",
    multiple=True,
    metavar="NAME=VALUE",
    help=f"Any other setting: {', '.join(name for name in OPTIONS if name not in _SHOWN)}.",
)
@click.option(
    "--look-for",
    metavar="KIND,...",
    help=f"What is a failure: {PROMISED}, and with transactions {PROMISED_OF_TRANSACTIONS}, unless "
    "given.",
)
@click.option("--seeds", type=click.IntRange(1), default=500, show_default=True, metavar="N")
@click.option("--seed", type=click.IntRange(1), metavar="N", help="One run, told step by step.")
@click.option("--whole", is_flag=True, help="Do not shrink what is found.")
@click.option(
    "--html",
    "html_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write the run as a sequence diagram to step through, one self-contained file.",
)
@click.option("--rewrite", is_flag=True, help="Write what scenarios print into their files.")
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
    """Look for a run in which these settings break the promise.

    A cluster of the protocol's own machines is simulated, with clients and faults; the same seed is
    the same run, on any machine. What is found is shrunk until nothing can be left out of it, and
    told so that people can follow.

    \b
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
        raise BadInput("--rewrite is for scenarios: name their files")
    if html_file is not None and not html_file.parent.is_dir():
        raise BadInput(f"--html {html_file}: there is no folder {html_file.parent}")
    pairs = [(name.replace("_", "-"), value) for name, value in given.items() if value is not None]
    pairs += [("faults", faults)] if faults is not None else []
    pairs += pairs_of(" ".join(more), "--set")
    settings = _settings(pairs)
    if look_for is None:
        look_for = PROMISED
        if settings.is_transactional:
            look_for += f",{PROMISED_OF_TRANSACTIONS}"
    wanted = kinds_of(look_for, "--look-for")
    given_source = click.get_current_context().get_parameter_source("seeds")
    if seed is not None and given_source is click.core.ParameterSource.COMMANDLINE:
        raise BadInput("--seed runs one schedule, --seeds many: give one of them")
    with _failing_with_a_command():
        if seed is None:
            exploration = _explore(settings, seeds, wanted)
        else:
            exploration = _one(settings, seed, wanted)
        result = exploration.found
        if result is not None and seed is None and not whole:
            result = _smallest(result, wanted)
        _tell(settings, exploration, result, wanted, as_json=output_format == "json")
        if html_file is not None:
            _write_page(result, html_file)
    sys.exit(exploration.verdict.exit_code)


@contextmanager
def _failing_with_a_command() -> Iterator[None]:
    """Adds the command that repeats it to a failure of the simulation itself."""
    from lossless.simulator.run import ScheduleFailed

    try:
        yield
    except ScheduleFailed as failed:
        failed.hint = (
            "This is a bug in Lossless, and no verdict about the settings. Please report it with "
            f"the command that repeats it: {_repeating(failed.seed)}"
        )
        raise


def _repeating(seed: int) -> str:
    """The command that runs one schedule again."""
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
    """What `lossless init` recommends, where nothing else is given."""
    from dataclasses import replace

    from lossless.simulator.settings import RECOMMENDED

    given = dict(pairs)
    recommended = RECOMMENDED
    if "faults" not in given:  # without clients of a kind there is nothing of it to strike
        of_none = {
            FaultKind.PRODUCER_CRASH: given.get("producers"),
            FaultKind.CONSUMER_CRASH: given.get("consumers"),
        }
        faults = tuple(one for one in recommended.faults if of_none.get(one.kind) != "0")
        recommended = replace(recommended, faults=faults)
    if "idempotent" not in given and given.get("acks", "all") != "all":
        # Recommended with acks=all, and refused by every client without.
        producer = replace(recommended.producer, idempotent=None)
        recommended = replace(recommended, producer=producer)
    return changed(recommended, pairs, "lossless prove")


def _refuse_settings_of_scenarios() -> None:
    """A scenario says itself what is simulated."""
    context = click.get_current_context()
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        is_given = source is click.core.ParameterSource.COMMANDLINE
        if is_given and parameter.name not in ("scenarios", "rewrite"):
            raise BadInput(f"{parameter.opts[0]} has no meaning for scenarios: their files say it")


def _explore(settings: Settings, seeds: int, wanted: tuple[str, ...]) -> Exploration:
    from lossless.simulator.exploring import explore

    with _bar("schedules", seeds) as advance:
        return explore(settings, range(1, seeds + 1), wanted, advance)


def _one(settings: Settings, seed: int, wanted: tuple[str, ...]) -> Exploration:
    from lossless.simulator.exploring import explore_one

    return explore_one(settings, seed, wanted)


def _smallest(found: Result, wanted: tuple[str, ...]) -> Result:
    from lossless.simulator.shrinking import Shrinking

    what = f"seed {found.seed} shows it; leaving out what is not needed"
    stderr.print(what, style="dim")
    with stderr.status("") as status:
        shrinking = Shrinking(
            found, wanted, lambda left: status.update(f"{left} faults and late messages left")
        )
        return shrinking.shrink()


def _tell(
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
        stderr.print("nothing was found, so there is nothing to draw", style="dim")
        return
    try:
        text = page(trace(result.settings, result.seed, result.plan), f"seed {result.seed}")
        file.write_text(text)
    except OSError as error:
        raise BadInput(f"--html {file}: {error.strerror}") from error
    stderr.print(f"{file} shows it step by step", style="dim")


def _run_scenarios(files: tuple[Path, ...], rewrite: bool) -> None:
    from lossless.simulator.scenario import load, run

    loaded = [load(file) for file in files]
    differing = []
    with _bar("scenarios", len(loaded)) as advance:
        for number, scenario in enumerate(loaded, 1):
            printed = run(scenario)
            stdout.print(f"{scenario.name}: {scenario.title}", markup=False)
            stdout.print(printed, markup=False)
            if rewrite:
                scenario.rewrite(printed)
            elif printed != scenario.expected:
                differing.append(scenario.name)
            advance(number, 0)
    if differing:
        stderr.print(f"not as written down: {', '.join(differing)}", style="bold red")
        sys.exit(1)
    sys.exit(EXIT_KEPT)


@contextmanager
def _bar(what: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Only on a terminal, and gone when it is done."""
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
