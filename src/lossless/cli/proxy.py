"""`lossless proxy`: injects network faults between clients and any Kafka cluster.

A fault is one line of text, given with --fault or typed on standard input, so that scripts and
people use the same syntax.
"""

from __future__ import annotations

import dataclasses
import json
import math
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from lossless.cli import options
from lossless.cli.cluster import optional_contract
from lossless.cli.console import print_aside, print_error
from lossless.errors import BadInput

if TYPE_CHECKING:
    from lossless.proxy import Proxy

# Applies a fault to a running proxy and returns the line to print.
Fault = Callable[["Proxy"], str]


class FaultSyntax(NamedTuple):
    """The arguments that a fault takes, and the function that parses them."""

    usage: str
    arguments_min: int
    arguments_max: int
    parse: Callable[..., Fault]


def _delay(ms: str, jitter_ms: str = "0", **target: Any) -> Fault:
    delay, jitter = _number("a delay in ms", ms), _number("a jitter in ms", jitter_ms)
    return lambda proxy: proxy.delay(delay, jitter, **target)


def _throttle(bytes_per_second: str, **target: Any) -> Fault:
    rate = _number("bytes per second", bytes_per_second)
    return lambda proxy: proxy.throttle(rate, **target)


def _half_open(direction: str, **target: Any) -> Fault:
    return lambda proxy: proxy.half_open(direction, **target)  # type: ignore[arg-type]


def _cut(**target: Any) -> Fault:
    return lambda proxy: proxy.cut(**target)


def _drop(api: str, count: str = "1", **target: Any) -> Fault:
    from lossless.proxy.apis import api_key

    key, nth = api_key(api), _integer("the number of a request", count)
    return lambda proxy: proxy.drop_after(key, nth, **target)


def _mend(**target: Any) -> Fault:
    return lambda proxy: proxy.mend(**target)


def _counters(broker: int | None, client_id: str | None) -> Fault:
    if client_id is not None:
        raise BadInput("counters are kept per broker, not per client", hint="counters [broker=N]")

    def counters_as_json(proxy: Proxy) -> str:
        counters = proxy.counters_of(broker)
        names = (field.name for field in dataclasses.fields(counters))
        return json.dumps({name: getattr(counters, name) for name in names})

    return counters_as_json


FAULTS = {
    "delay": FaultSyntax("MS [JITTER_MS]", 1, 2, _delay),
    "throttle": FaultSyntax("BYTES_PER_SECOND", 1, 1, _throttle),
    "half-open": FaultSyntax("requests|answers|both", 1, 1, _half_open),
    "cut": FaultSyntax("", 0, 0, _cut),
    "drop": FaultSyntax("API [COUNT]", 1, 2, _drop),
    "mend": FaultSyntax("", 0, 0, _mend),
    "counters": FaultSyntax("", 0, 0, _counters),
}


@click.command()
@click.option(
    "--fault",
    "lines",
    multiple=True,
    metavar="LINE",
    help="Apply this fault at the start; repeatable.",
)
@options.kafka
@options.contract
def command(lines: tuple[str, ...], kafka: str | None, contract_path: Path | None) -> None:
    """Inject network faults between clients and any Kafka cluster.

    Prints a bootstrap.servers for the clients and runs until Ctrl-C. Clients that use it reach
    every broker through the proxy. The cluster is one that `lossless up` started, or an address.
    The proxy reads the traffic, so it does not support TLS listeners.

    Each --fault, and each line on standard input, is one fault or command:

    \b
      delay MS [JITTER_MS]              delay all bytes, in each direction
      throttle BYTES_PER_SECOND         limit each connection, in each direction
      half-open requests|answers|both   discard bytes; connections stay open
      cut                               reset connections and refuse new ones
      drop API [COUNT]                  execute the COUNT-th request of an API, drop its response
      mend                              remove all faults
      counters                          print traffic counters as JSON

    Append broker=N, client=ID or both to limit a fault to them. The proxy answers each line with
    what it affects.
    """
    from lossless.engines.choose import connect
    from lossless.engines.signals import stopped_by_signals
    from lossless.proxy import Proxy

    faults = [parse_fault(line) for line in lines]
    cluster = connect(kafka, optional_contract(contract_path))
    with stopped_by_signals():
        try:
            with Proxy(cluster.bootstrap_servers) as proxy:
                click.echo(f"bootstrap.servers={proxy.bootstrap_servers}")
                for fault in faults:
                    click.echo(fault(proxy))
                print_aside("Ctrl-C stops the proxy. Type a fault: " + ", ".join(FAULTS))
                _apply_lines(proxy)
        except KeyboardInterrupt:
            print_aside("stopped")


def parse_fault(line: str) -> Fault:
    """Parses one line. Raises BadInput, with the accepted syntax, if the line is invalid."""
    name, *rest = line.split() or [""]
    syntax = FAULTS.get(name)
    if syntax is None:
        raise BadInput(f"{line!r} is not a fault", hint=f"choose one of {', '.join(FAULTS)}")
    target: dict[str, Any] = {"broker": None, "client_id": None}
    arguments = []
    for part in rest:
        key, equals, value = part.partition("=")
        if equals and key == "broker":
            target["broker"] = _integer("a broker", value)
        elif equals and key == "client":
            target["client_id"] = value
        else:
            arguments.append(part)
    if not syntax.arguments_min <= len(arguments) <= syntax.arguments_max:
        usage = " ".join(filter(None, (name, syntax.usage, "[broker=N] [client=ID]")))
        raise BadInput(f"{line!r} has too few or too many arguments", hint=f"write {usage}")
    return syntax.parse(*arguments, **target)


def _apply_lines(proxy: Proxy) -> None:
    """Applies each line of standard input until a signal; reports an invalid line and continues."""
    for line in _lines():
        try:
            click.echo(parse_fault(line)(proxy))
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
        raise BadInput(f"{text!r} is not a number; expected {what}")
    return number


def _integer(what: str, text: str) -> int:
    if not text.isdecimal():
        raise BadInput(f"{text!r} is not an integer; expected {what}")
    return int(text)
