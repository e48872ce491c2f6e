"""`lossless fill-disk`: fills a broker's disk."""

from __future__ import annotations

from pathlib import Path

import click

from lossless.cli.cluster import location_options, running_cluster


@click.command()
@click.argument("broker", type=int)
@location_options
def command(broker: int, contract_path: Path | None, data: Path | None) -> None:
    """Fill a broker's disk.

    The broker stops at its next write. `lossless restart` frees the space and starts it again.
    """
    click.echo(running_cluster(contract_path, data).fill_disk(broker).evidence)
