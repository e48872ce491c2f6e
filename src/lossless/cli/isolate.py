"""`lossless isolate`: cuts a broker off from all other nodes."""

from __future__ import annotations

from pathlib import Path

import click

from lossless.cli.cluster import location_options, running_cluster


@click.command()
@click.argument("broker", type=int)
@location_options
def command(broker: int, contract_path: Path | None, data: Path | None) -> None:
    """Cut a broker off from all other brokers and controllers.

    Clients still reach it. `lossless mend` undoes this.
    """
    click.echo(running_cluster(contract_path, data).isolate(broker).evidence)
