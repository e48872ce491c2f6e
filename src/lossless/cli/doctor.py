"""`lossless doctor`: checks that the machine has everything Lossless needs."""

from __future__ import annotations

import glob
import json
import locale
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import click
import psutil

from lossless import jars
from lossless.cli import options
from lossless.cli.console import stdout
from lossless.contract import Contract, ContractError, find_contract, load_contract
from lossless.contract.place import shown
from lossless.contract.rules.judging import judge_all, refuse_violations
from lossless.errors import BadInput, Unavailable
from lossless.jars.java import VERSION_MIN, java, java_version

DISK_FREE_GB_MIN = 1.0
MEMORY_GB_MIN = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    name: str
    ok: bool
    detail: str  # version and location, or the problem
    needed_for: str
    required: bool = True  # by `up`, or by `run` with this contract
    wrong: bool = False  # present but invalid: the user has to correct it
    mend: str | None = None  # the command that fixes it, if there is one

    def __post_init__(self) -> None:
        if self.ok:
            object.__setattr__(self, "mend", None)


@click.command()
@options.output_format
@options.contract
@click.option("--fetch", is_flag=True, help="Fetch missing jars first.")
@click.pass_context
def command(
    ctx: click.Context, output_format: str, contract_path: Path | None, fetch: bool
) -> None:
    """Check that this machine has everything Lossless needs.

    Prints one line per component and, for each that is missing, the command that fixes it.

    \b
    Exit codes
      0  `up` has everything it needs and, if the contract has pipelines, `run` as well
      2  the contract is invalid, or does not keep what it promises
      4  a component is missing
    """
    findings = list(_examine(contract_path, fetch=fetch))
    healthy = all(finding.ok for finding in findings if finding.required)
    if output_format == "json":
        report = {"ok": healthy, "findings": [asdict(finding) for finding in findings]}
        stdout.print(json.dumps(report, indent=2), markup=False)
    else:
        _print(findings)
    if any(finding.wrong for finding in findings):
        ctx.exit(BadInput.exit_code)
    if not healthy:
        ctx.exit(Unavailable.exit_code)


def _examine(contract_path: Path | None, *, fetch: bool) -> Iterator[Finding]:
    contract, contract_finding = _contract(contract_path)
    sinks = [] if contract is None else [p.sink.type for p in contract.pipelines.values()]
    has_postgres = "postgres" in sinks
    has_pipelines = bool(sinks)
    yield Finding(
        name="python",
        ok=True,
        detail=f"{sys.version.split()[0]}, {sys.executable}",
        needed_for="everything",
    )
    yield _java(required=has_pipelines)
    yield _spark(required=has_pipelines)
    yield _confluent_kafka()
    yield _psycopg(required=has_postgres)
    yield _jars("kafka", "up --kafka apache", required=False, fetch=fetch)
    yield _jars("spark", "run, audit", required=has_pipelines, fetch=fetch)
    yield _jars("jdbc", "postgres sinks", required=has_postgres, fetch=fetch)
    yield _postgres_server()
    yield contract_finding
    if contract is not None and has_pipelines:
        yield _locale(contract)
    yield _disk(Path.cwd() if contract is None else contract.folder)
    yield _memory()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding(name="cores", ok=True, detail=str(cores), needed_for="everything")


def _contract(path: Path | None) -> tuple[Contract | None, Finding]:
    contract = None
    try:
        file = find_contract(path)
        if file is None:
            return None, Finding(
                name="contract",
                ok=False,
                detail="no lossless.toml in this folder or above",
                needed_for="run, audit",
                required=False,
                mend="lossless init",
            )
        contract = load_contract(file)
        refuse_violations(contract, judge_all(contract))
    except ContractError as error:
        # If the contract could be read, the pipelines' needs are reported nevertheless.
        return contract, Finding(
            name="contract",
            ok=False,
            detail=error.what,
            needed_for="up, run, audit",
            wrong=True,
            mend=error.hint,
        )
    pipelines = ", ".join(contract.pipelines) or "none"
    detail = f"{shown(file)}; pipelines: {pipelines}"
    return contract, Finding(name="contract", ok=True, detail=detail, needed_for="run, audit")


def _java(*, required: bool) -> Finding:
    mend = _install(f"openjdk-{VERSION_MIN}-jre-headless", f"openjdk@{VERSION_MIN}")
    if os.environ.get("JAVA_HOME"):  # installing another Java would have no effect
        mend = f"unset JAVA_HOME, or point it at Java {VERSION_MIN} or newer"
    try:
        executable = java()
    except Unavailable as error:
        found, detail = False, error.what
    else:
        found, detail = True, f"{java_version(executable)}, {executable}"
    return Finding(
        name="java",
        ok=found,
        detail=detail,
        needed_for="run, audit, up --kafka apache",
        required=required,
        mend=mend,
    )


def _spark(*, required: bool) -> Finding:
    installed = {name: _version(name) for name in ("pyspark", "pandas", "pyarrow")}
    absent = [name for name, found in installed.items() if found is None]
    pinned = _pinned("pyspark")
    is_usable = False
    if absent:
        detail = f"not installed: {', '.join(absent)}"
    elif installed["pyspark"] != pinned:
        detail = f"{installed['pyspark']} is installed, but the jars need {pinned}"
    else:
        is_usable = True
        detail = f"{pinned}; pandas {installed['pandas']}, pyarrow {installed['pyarrow']}"
    return Finding(
        name="pyspark",
        ok=is_usable,
        detail=detail,
        needed_for="run, audit",
        required=required,
        mend="pip install 'lossless[spark]'",
    )


def _confluent_kafka() -> Finding:
    try:
        import confluent_kafka
    except ImportError as error:
        return Finding(
            name="confluent-kafka",
            ok=False,
            detail=f"cannot be imported: {error}",
            needed_for="everything",
            mend="pip install --force-reinstall confluent-kafka",
        )
    return Finding(
        name="confluent-kafka",
        ok=True,
        detail=f"{version('confluent-kafka')}; librdkafka {confluent_kafka.libversion()[0]}",
        needed_for="everything",
    )


def _psycopg(*, required: bool) -> Finding:
    try:
        import psycopg
    except ImportError as error:  # not installed, or installed without libpq
        detail, found = str(error).splitlines()[0], False
    else:
        detail, found = f"{psycopg.__version__}; libpq {psycopg.pq.version()}", True
    return Finding(
        name="psycopg",
        ok=found,
        detail=detail,
        needed_for="postgres sinks",
        required=required,
        mend="pip install 'lossless[postgres]'",
    )


def _jars(name: str, needed_for: str, *, required: bool, fetch: bool) -> Finding:
    detail = str(jars.folder(name))
    if fetch and not jars.present(name):
        try:
            jars.jars(name)
        except Unavailable as error:
            detail = error.what
    found = jars.present(name)
    if not found and not fetch:
        detail = f"{jars.MEGABYTES[name]} MB, to be fetched into {detail} on first use"
    return Finding(
        name=f"{name} jars",
        ok=found,
        detail=detail,
        needed_for=needed_for,
        required=required,
        mend="lossless doctor --fetch",
    )


def _postgres_server() -> Finding:
    found = shutil.which("initdb") or next(
        iter(sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), reverse=True)), None
    )
    return Finding(
        name="postgresql",
        ok=found is not None,
        detail=str(Path(found).parent) if found else "no initdb on PATH",
        needed_for="the project's own tests",
        required=False,
        mend=_install("postgresql", "postgresql"),
    )


def _locale(contract: Contract) -> Finding:
    paths = [str(contract.folder)]
    paths += [p.sink.path for p in contract.pipelines.values() if p.sink.type != "postgres"]
    encoding = locale.getencoding()
    lost = [path for path in paths if not _is_expressible(path, encoding)]
    return Finding(
        name="locale",
        ok=not lost,
        detail=f"{encoding} cannot express {lost[0]!r}" if lost else encoding,
        needed_for="run, audit",
        mend="export LC_ALL=C.UTF-8",
    )


def _is_expressible(path: str, encoding: str) -> bool:
    try:
        path.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _disk(folder: Path) -> Finding:
    free_gb = shutil.disk_usage(folder).free / 1e9
    return Finding(
        name="disk",
        ok=free_gb >= DISK_FREE_GB_MIN,
        detail=f"{free_gb:.1f} GB free in {folder}",
        needed_for="up, run",
        mend=f"free {DISK_FREE_GB_MIN:g} GB, or work in another folder",
    )


def _memory() -> Finding:
    memory = psutil.virtual_memory()
    return Finding(
        name="memory",
        ok=memory.total / 1e9 >= MEMORY_GB_MIN,
        detail=f"{memory.total / 1e9:.1f} GB, {memory.available / 1e9:.1f} GB of it free",
        needed_for="run, audit",
        mend=f"give the machine or container {MEMORY_GB_MIN:g} GB",
    )


def _print(findings: list[Finding]) -> None:
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        state, style = ("ok", "green") if finding.ok else ("missing", "red")
        if finding.wrong:
            state = "wrong"
        if not finding.ok and not finding.required:
            style = "yellow"
        stdout.print(f"{state:<8}", style=style, end="")
        stdout.print(f"{finding.name:<{width}}  {finding.detail}", markup=False)
        if not finding.ok:
            margin = " " * (8 + width + 2)
            first, *others = (finding.mend or "").splitlines() or [""]
            lines = [f"needed for {finding.needed_for}: {first}", *others]
            if finding.wrong:
                lines = [first, *others]
            for line in lines:
                stdout.print(f"{margin}{line}", markup=False, style="dim")


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _pinned(distribution: str) -> str | None:
    """Returns the release that this package pins, from its own metadata."""
    for requirement in requires("lossless") or []:
        if match := re.match(rf"{distribution}==([^\s;]+)", requirement):
            return match[1]
    return None


def _install(debian: str, homebrew: str) -> str:
    if shutil.which("apt-get"):
        return f"{'' if os.geteuid() == 0 else 'sudo '}apt-get install -y {debian}"
    if shutil.which("brew"):
        return f"brew install {homebrew}"
    return f"install {debian} with your package manager"
