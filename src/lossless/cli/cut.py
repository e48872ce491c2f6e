"""`lossless cut`: cuts the network between two brokers."""

from __future__ import annotations

from pathlib import Path

import click

from lossless.cli.cluster import location_options, running_cluster
from lossless.errors import BadInput


@click.command()
@click.argument("between", metavar="A:B")
@location_options
def command(between: str, contract_path: Path | None, data: Path | None) -> None:
    """Cut the network between two brokers.

    Neither broker can reach the other. `lossless mend` undoes this.
    """
    first, colon, second = between.partition(":")
    if not (colon and first.isdecimal() and second.isdecimal()):
        raise BadInput(f"{between!r} does not name two brokers", hint="example: lossless cut 1:2")
    cluster = running_cluster(contract_path, data)
    click.echo(cluster.cut(int(first), int(second)).evidence)
