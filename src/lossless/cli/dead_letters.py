"""`lossless dead-letters`: lists records that could not be processed, and sends them back."""

from __future__ import annotations

import base64
import heapq
import json
import re
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lossless.cli import options
from lossless.cli.console import counted, stderr, stdout
from lossless.cli.pipeline_letters import PipelineLetters, pipeline_letters
from lossless.contract import Contract, librdkafka_settings, load_contract
from lossless.contract.load import find_contract
from lossless.contract.place import nearest
from lossless.errors import BadInput

if TYPE_CHECKING:
    from lossless.client.retrying.letters import DeadLetter
    from lossless.client.retrying.reading import Wanted
    from lossless.client.retrying.replaying import ReplayReport

_SUFFIX = "-dlt"
_AGO = re.compile(r"(\d+)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LISTED = 50
_NAMED = 5
_KEY_SHOWN = 24
_VALUE_SHOWN = 40
_WIDTH_MAX = 1_000
_RECORD_BYTES_MAX = "1000000000"  # the maximum that librdkafka accepts


@click.group()
def command() -> None:
    """List records that could not be processed, or send them back.

    When a consumer gives up on a record, it sends the record to TOPIC-dlt. Headers contain the
    original topic, partition and offset, the consumer group, the number of attempts, and the
    exception. Dead letters written by Spring Kafka, Kafka Connect, Kafka Streams and share groups
    are supported as well.

    \b
    Examples
      lossless dead-letters list orders
      lossless dead-letters list orders --exception ValueError --since 2h
      lossless dead-letters replay orders --dry-run
      lossless dead-letters replay orders --exception TimeoutError
    """


def _shared(function: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(
        [
            click.option(
                "--exception",
                metavar="NAME",
                help="Only letters with this exception, with or without module; * is a wildcard.",
            ),
            click.option(
                "--since",
                metavar="TIME",
                help="Only letters since TIME: 2h (two hours ago), or 2026-05-01T12:00 (UTC).",
            ),
            click.option(
                "--until",
                metavar="TIME",
                help="Only letters before TIME, in the format of --since.",
            ),
            click.option(
                "--original-topic", metavar="TOPIC", help="Only records that came from this topic."
            ),
            click.option("--limit", type=click.IntRange(min=1), help="Maximum number of letters."),
            click.option(
                "--format",
                "layout",
                type=click.Choice(["table", "json"]),
                default="table",
                show_default=True,
                help="Format of the result on stdout.",
            ),
            options.kafka,
            options.contract,
        ]
    ):
        function = option(function)
    return function


@command.command("list")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@_shared
def list_command(
    topics: tuple[str, ...],
    exception: str | None,
    since: str | None,
    until: str | None,
    original_topic: str | None,
    limit: int | None,
    layout: str,
    kafka: str | None,
    contract_path: Path | None,
) -> None:
    """List dead letters, newest last.

    TOPIC is a dead letter topic, or a topic whose dead letters are in TOPIC-dlt. Without TOPIC,
    reads all topics whose names end in -dlt. Dead letters are recognised by their headers; a topic
    that contains records but no dead letters is an error. The table shows the last 50 letters, or
    as many as --limit allows. JSON also includes stack traces and headers. Letters stay in
    their topic, also after a replay.

    Pipelines store their dead letters in tables, not in topics. If there is a contract, the output
    names the tables of the pipelines that read TOPIC, with a query that reads each.

    The column "when" is the timestamp of the letter. For Kafka Connect and Kafka Streams, that is
    the timestamp of the original record.

    \b
    Examples
      lossless dead-letters list
      lossless dead-letters list orders --exception ValueError --since 2h
      lossless dead-letters list orders --format json | jq -r '.letters[0].stack_trace'
    """
    from lossless.client.retrying.reading import letters_of

    wanted = _wanted(exception, since, until, original_topic)
    settings, existing, contract = _reached(kafka, contract_path)
    chosen = [_chosen(name, existing) for name in topics] or sorted(
        name for name in existing if name.endswith(_SUFFIX)
    )
    in_tables = pipeline_letters(contract, topics)
    most = limit or _LISTED
    newest: list[tuple[int, str, int, int, DeadLetter]] = []
    count = 0
    strangers: dict[str, int] = {}
    for topic in chosen:
        has_letters = False
        for letter in letters_of(settings, topic):
            has_letters = has_letters or letter.is_letter
            if not letter.is_letter:
                strangers[topic] = strangers.get(topic, 0) + 1
            elif wanted.matches(letter):
                count += 1
                entry = (letter.timestamp_ms or 0, topic, letter.partition, letter.offset, letter)
                if len(newest) < most:
                    heapq.heappush(newest, entry)
                else:
                    heapq.heappushpop(newest, entry)
        if topics and topic in strangers and not has_letters:
            raise _no_letters(topic, strangers[topic], in_tables)
    letters = [entry[-1] for entry in sorted(newest, key=lambda entry: entry[:-1])]
    if layout == "json":
        document = {
            "topics": chosen,
            "count": count,
            "not_letters": sum(strangers.values()),
            "letters": [_as_json(each) for each in letters],
            "in_tables": [asdict(each) for each in in_tables],
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    if letters:
        _print(_table(letters))
    else:
        click.echo(f"no dead letters{_where(chosen)}")
    if count > len(letters):
        click.echo(f"showing the last {len(letters):,} of {count:,}; use --limit to show more")
    for topic, number in strangers.items():
        _print_skipped(topic, number)
    for each in in_tables:
        click.echo(each)


@command.command("replay")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@_shared
@click.option("--dry-run", is_flag=True, help="Show what would be sent back, and send nothing.")
def replay_command(
    topics: tuple[str, ...],
    exception: str | None,
    since: str | None,
    until: str | None,
    original_topic: str | None,
    limit: int | None,
    layout: str,
    kafka: str | None,
    contract_path: Path | None,
    dry_run: bool,
) -> None:
    """Send dead letters back to their original topics, each once.

    Each record returns to its original topic and partition with its original key, value, headers,
    timestamp and operation id, without the headers about its failure. The letter stays in the dead
    letter topic.

    The consumer group lossless-replay-TOPIC records which letters were sent: a second replay sends
    only the others, whatever the filters of the first were. A replay that is killed may repeat up
    to 500 records, each with the same operation id. To send all letters again, delete the group.
    Run only one replay of a topic at a time.

    Fix the cause of the failures first, or the records return as new dead letters.

    \b
    Examples
      lossless dead-letters replay orders --dry-run
      lossless dead-letters replay orders --exception TimeoutError
      lossless dead-letters replay orders --since 2h --limit 100
    """
    from lossless.client.producing.producer import Producer
    from lossless.client.retrying.replaying import replay

    wanted = _wanted(exception, since, until, original_topic)
    settings, existing, contract = _reached(kafka, contract_path)
    chosen = [_chosen(name, existing) for name in topics]
    letters: list[DeadLetter] = []
    reports: list[ReplayReport] = []
    left = limit
    # The brokers, not the client, limit the size of a record.
    sending = {"message.max.bytes": _RECORD_BYTES_MAX, **settings}
    with nullcontext() if dry_run else Producer(sending, application="lossless-replay") as sender:
        for topic in dict.fromkeys(chosen):
            report = replay(
                settings,
                topic,
                sender=sender,
                wanted=wanted,
                limit=left,
                on_letter=letters.append if dry_run or layout == "json" else None,
            )
            reports.append(report)
            left = None if left is None else left - report.matched
    if layout == "json":
        document = {
            "dry_run": dry_run,
            "topics": [_report_as_json(report) for report in reports],
            "letters": [_as_json(letter) for letter in letters],
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
        _refuse_strangers(reports, contract, topics)
        return
    if letters:
        _print(_table(letters))
    for report in reports:
        if report.has_letters or not report.strangers:
            _print_report(report, dry_run=dry_run)
    _refuse_strangers(reports, contract, topics)


def _wanted(
    exception: str | None, since: str | None, until: str | None, original_topic: str | None
) -> Wanted:
    from lossless.client.retrying.reading import Wanted

    return Wanted(
        exception=exception,
        since_ms=_milliseconds("--since", since),
        until_ms=_milliseconds("--until", until),
        original_topic=original_topic,
    )


def _milliseconds(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    now = datetime.now(tz=UTC)
    match = _AGO.fullmatch(text)
    if match is not None:
        return int(now.timestamp() * 1000) - int(match[1]) * _SECONDS[match[2]] * 1000
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput(
            f"{option} {text} is not a time",
            hint="write how long ago (30s, 10m, 2h, 3d) or when (2026-05-01T12:00:00Z)",
        ) from error
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def _reached(
    kafka: str | None, contract_path: Path | None
) -> tuple[dict[str, str], set[str], Contract | None]:
    """Returns the client settings, the names of all topics, and the contract if there is one."""
    from lossless.engines.choose import connect
    from lossless.engines.metadata import read_metadata

    # A contract is needed only to find the cluster; an address is enough.
    found = find_contract(contract_path)
    contract = load_contract(found) if found else None
    client = connect(kafka, contract).client_settings
    return librdkafka_settings(client), set(read_metadata(client).topics), contract


def _refuse_strangers(
    reports: list[ReplayReport], contract: Contract | None, topics: tuple[str, ...]
) -> None:
    for report in reports:
        if report.strangers and not report.has_letters:
            in_tables = pipeline_letters(contract, topics)
            raise _no_letters(report.topic, report.strangers, in_tables)


def _no_letters(topic: str, count: int, in_tables: list[PipelineLetters]) -> BadInput:
    return BadInput(
        f"{topic} contains no dead letters: {_without_headers(count)}",
        hint="; ".join(map(str, in_tables))
        or "name a dead letter topic; without a topic, `lossless dead-letters list` reads all "
        f"whose names end in {_SUFFIX}",
    )


def _print_skipped(topic: str, count: int) -> None:
    stderr.print(f"{topic}: {_without_headers(count)}, not shown", markup=False)


def _without_headers(count: int) -> str:
    return f"{counted(count, 'record')} without the headers of a dead letter"


def _chosen(name: str, existing: set[str]) -> str:
    """Returns `NAME-dlt` if that topic exists, else NAME. Raises BadInput if neither does."""
    for candidate in (f"{name}{_SUFFIX}", name):
        if candidate in existing:
            return candidate
    letters = sorted(each for each in existing if each.endswith(_SUFFIX))
    close = nearest(f"{name}{_SUFFIX}", letters) or nearest(name, existing)
    raise BadInput(
        f"neither topic {name!r} nor {name + _SUFFIX!r} exists",
        hint=f"did you mean {close!r}?"
        if close
        else f"existing dead letter topics: {', '.join(letters) or 'none'}",
    )


def _where(topics: Iterable[str]) -> str:
    named = list(topics)
    return f" in {', '.join(named)}" if named else f": no topic ends in {_SUFFIX}"


def _table(letters: list[DeadLetter]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("when", "from", "group", "attempts", "exception", "key", "value"):
        table.add_column(
            column,
            justify="right" if column == "attempts" else "left",
            no_wrap=column in ("when", "from", "attempts"),
        )
    for letter in letters:
        why = ": ".join(part for part in (_short(letter.exception), letter.message) if part)
        cells = (
            _time(letter.timestamp_ms),
            letter.original_place or f"? (stored in {letter.place})",
            letter.group or "-",
            "-" if letter.attempts is None else str(letter.attempts),
            _start(why, 60) or "-",
            _shown(letter.key, _KEY_SHOWN),
            _shown(letter.value, _VALUE_SHOWN),
        )
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _print(table: Table) -> None:
    """Prints the table: fitted to a terminal, else one line per letter."""
    console = stdout if stdout.is_terminal else Console(highlight=False, width=_WIDTH_MAX)
    console.print(table)


def _print_report(report: ReplayReport, *, dry_run: bool) -> None:
    count = report.matched if dry_run else report.sent
    if count:
        what = f"{counted(count, 'letter')} {'would be sent' if dry_run else 'sent'} back"
    else:
        what = "nothing to send back"
    rest = [f"{report.others:,} did not match the filters"] if report.others else []
    if report.more:
        rest.append("more are left; --limit was reached")
    click.echo(f"{report.topic}: {what}" + (f" ({', '.join(rest)})" if rest else ""))
    if report.unknown:
        named = ", ".join(report.unknown[:_NAMED]) + (", …" if report.unknown[_NAMED:] else "")
        stderr.print(
            f"{report.topic}: {counted(len(report.unknown), 'letter')} not sent, because the "
            f"letter lacks the origin of the record, or the record itself: {named}",
            markup=False,
        )
    if report.strangers:
        skipped = _without_headers(report.strangers)
        stderr.print(f"{report.topic}: {skipped}, not sent", markup=False)
    if report.deleted:
        stderr.print(
            f"{report.topic}: retention deleted up to {counted(report.deleted, 'letter')} before "
            "they could be sent back",
            markup=False,
        )


def _as_json(letter: DeadLetter) -> dict[str, Any]:
    return {
        "when": _iso(letter.timestamp_ms),
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "family": letter.family,
        "original": {
            "topic": letter.original_topic,
            "partition": letter.original_partition,
            "offset": letter.original_offset,
            "timestamp": _iso(letter.original_timestamp_ms),
        },
        "group": letter.group,
        "attempts": letter.attempts,
        "exception": letter.exception,
        "message": letter.message,
        "stack_trace": letter.stack_trace,
        **_bytes_as_json("key", letter.key),
        **_bytes_as_json("value", letter.value),
        "headers": [
            {"name": name, **_bytes_as_json("value", value)} for name, value in letter.headers
        ],
    }


def _report_as_json(report: ReplayReport) -> dict[str, Any]:
    return {
        "topic": report.topic,
        "matched": report.matched,
        "sent": report.sent,
        "not_asked_for": report.others,
        "deleted": report.deleted,
        "left": report.unknown,
        "not_letters": report.strangers,
        "more": report.more,
    }


def _bytes_as_json(name: str, value: bytes | None) -> dict[str, str | None]:
    """Returns UTF-8 text under `name`, or other bytes as base 64 under `name_base64`."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _time(timestamp_ms: int | None) -> str:
    if timestamp_ms is None:
        return "-"
    return f"{datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC):%Y-%m-%d %H:%M:%S}Z"


def _iso(timestamp_ms: int | None) -> str | None:
    if timestamp_ms is None:
        return None
    when = datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _short(exception: str | None) -> str | None:
    return None if exception is None else exception.rpartition(".")[2]


def _shown(value: bytes | None, length: int) -> str:
    if value is None:
        return "-"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "0x" + value[:length].hex()
    return _start(text, length)


def _start(text: str, length: int) -> str:
    """Returns the start of the text on one line, without control characters."""
    clean = "".join(each if each.isprintable() else " " for each in text)
    return clean if len(clean) <= length else clean[: length - 1] + "…"
