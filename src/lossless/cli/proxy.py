"""`lossless proxy`: a network between clients and any Kafka that can be broken on purpose.

Faults are lines, given with --fault or typed while it runs, so that a script and a person break
things in the same words.
"""

from __future__ import annotations

import dataclasses
import json
import math
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from lossless.cli import options
from lossless.cli.cluster import optional_contract
from lossless.cli.console import print_aside, print_error
from lossless.engines.choose import connect
from lossless.engines.signals import stopped_by_signals
from lossless.errors import BadInput
from lossless.proxy import Proxy
from lossless.proxy.apis import api_key

Fault = Callable[[Proxy], str]


class Word(NamedTuple):
    """A fault's first word: what may follow it, and what it does."""

    usage: str
    least: int
    most: int
    fault: Callable[..., Fault]


def _delay(ms: str, jitter_ms: str = "0", **target: Any) -> Fault:
    by, more = _number("a delay in ms", ms), _number("a jitter in ms", jitter_ms)
    return lambda proxy: proxy.delay(by, more, **target)


def _throttle(bytes_per_second: str, **target: Any) -> Fault:
    rate = _number("bytes per second", bytes_per_second)
    return lambda proxy: proxy.throttle(rate, **target)


def _half_open(direction: str, **target: Any) -> Fault:
    return lambda proxy: proxy.half_open(direction, **target)  # type: ignore[arg-type]


def _cut(**target: Any) -> Fault:
    return lambda proxy: proxy.cut(**target)


def _drop(api: str, count: str = "1", **target: Any) -> Fault:
    key, which = api_key(api), _whole("the number of a request", count)
    return lambda proxy: proxy.drop_after(key, which, **target)


def _mend(**target: Any) -> Fault:
    return lambda proxy: proxy.mend(**target)


def _counters(broker: int | None, client_id: str | None) -> Fault:
    if client_id is not None:
        raise BadInput("counters are of a broker or of all, not of a client")

    def told(proxy: Proxy) -> str:
        counters = proxy.counters_of(broker)
        names = (field.name for field in dataclasses.fields(counters))
        return json.dumps({name: getattr(counters, name) for name in names})

    return told


WORDS = {
    "delay": Word("MS [JITTER_MS]", 1, 2, _delay),
    "throttle": Word("BYTES_PER_SECOND", 1, 1, _throttle),
    "half-open": Word("requests|answers|both", 1, 1, _half_open),
    "cut": Word("", 0, 0, _cut),
    "drop": Word("API [COUNT]", 1, 2, _drop),
    "mend": Word("", 0, 0, _mend),
    "counters": Word("", 0, 0, _counters),
}


@click.command()
@click.option(
    "--fault",
    "lines",
    multiple=True,
    metavar="LINE",
    help="A fault that holds from the beginning; repeatable.",
)
@options.kafka
@options.contract
def command(lines: tuple[str, ...], kafka: str | None, contract_path: Path | None) -> None:
    """Stand between clients and a Kafka, and break the network between them.

    Prints bootstrap.servers for the clients, who then reach every broker through it and no other
    way, and runs until Ctrl-C. Any Kafka will do: what `lossless up` started, or an address. It has
    to read what passes, so listeners with TLS are refused.

    Lines on standard input, or --fault, say what the network is like:

    \b
      delay MS [JITTER_MS]              bytes take longer, each way
      throttle BYTES_PER_SECOND         a connection carries no more, each way
      half-open requests|answers|both   bytes vanish, connections stay
      cut                               connections are reset, new ones refused
      drop API [COUNT]                  the COUNT-th request of an API is done, its answer lost
      mend                              as it was
      counters                          what has passed so far, as JSON

    Each may end in broker=N, client=ID or both, and answers with what it struck.
    """
    faults = [understood(line) for line in lines]
    cluster = connect(kafka, optional_contract(contract_path))
    with stopped_by_signals():
        try:
            with Proxy(cluster.bootstrap_servers) as proxy:
                click.echo(f"bootstrap.servers={proxy.bootstrap_servers}")
                for fault in faults:
                    click.echo(fault(proxy))
                print_aside("Ctrl-C stops it; faults by line: " + ", ".join(WORDS))
                _obey(proxy)
        except KeyboardInterrupt:
            print_aside("stopped")


def understood(line: str) -> Fault:
    """What a line asks for. BadInput, with the words that there are, if it asks for nothing."""
    name, *rest = line.split() or [""]
    word = WORDS.get(name)
    if word is None:
        raise BadInput(f"{line!r}: no fault begins so", hint=f"choose one of {', '.join(WORDS)}")
    target: dict[str, Any] = {"broker": None, "client_id": None}
    arguments = []
    for part in rest:
        key, equals, value = part.partition("=")
        if equals and key == "broker":
            target["broker"] = _whole("a broker", value)
        elif equals and key == "client":
            target["client_id"] = value
        else:
            arguments.append(part)
    if not word.least <= len(arguments) <= word.most:
        usage = " ".join(filter(None, (name, word.usage, "[broker=N] [client=ID]")))
        raise BadInput(f"{line!r} says too little or too much", hint=f"write {usage}")
    return word.fault(*arguments, **target)


def _obey(proxy: Proxy) -> None:
    """Until a signal. A line that cannot be obeyed is said to be so, and changes nothing."""
    for line in _lines():
        try:
            click.echo(understood(line)(proxy))
        except BadInput as error:
            print_error(str(error))
    signal.pause()


def _lines() -> Iterator[str]:
    while line := sys.stdin.readline():
        if line.strip():
            yield line.strip()


def _number(what: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadInput(f"{text!r} is no number: {what} was expected")
    return number


def _whole(what: str, text: str) -> int:
    if not text.isdecimal():
        raise BadInput(f"{text!r} is no whole number: {what} was expected")
    return int(text)
