"""`lossless restart`: a broker comes back."""

from __future__ import annotations

from pathlib import Path

import click

from lossless.cli.cluster import location_options, running_cluster


@click.command()
@click.argument("broker", type=int)
@location_options
def command(broker: int, contract_path: Path | None, data: Path | None) -> None:
    """Start a broker again, on the same port with the same data.

    One that is alive is stopped in order first.
    """
    click.echo(running_cluster(contract_path, data).restart(broker).evidence)
