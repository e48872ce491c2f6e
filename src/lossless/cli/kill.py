"""`lossless kill`: kills a broker with SIGKILL."""

from __future__ import annotations

from pathlib import Path

import click

from lossless.cli.cluster import location_options, running_cluster


@click.command()
@click.argument("broker", type=int)
@location_options
def command(broker: int, contract_path: Path | None, data: Path | None) -> None:
    """Kill a broker with SIGKILL.

    The process gets no chance to flush or to close its connections.
    """
    click.echo(running_cluster(contract_path, data).kill(broker).evidence)
