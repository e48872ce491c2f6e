"""`lossless restart`: restarts a broker."""

from __future__ import annotations

from pathlib import Path

import click

from lossless.cli.cluster import location_options, running_cluster


@click.command()
@click.argument("broker", type=int)
@location_options
def command(broker: int, contract_path: Path | None, data: Path | None) -> None:
    """Restart a broker on the same port with the same data.

    A broker that is running is shut down cleanly first.
    """
    click.echo(running_cluster(contract_path, data).restart(broker).evidence)
