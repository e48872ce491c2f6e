"""`lossless fill-disk`: a broker that has no space left."""

from __future__ import annotations

from pathlib import Path

import click

from lossless.cli.cluster import location_options, running_cluster


@click.command()
@click.argument("broker", type=int)
@location_options
def command(broker: int, contract_path: Path | None, data: Path | None) -> None:
    """Let a broker's disk be full: it stops at its next write. `restart` finds space again."""
    click.echo(running_cluster(contract_path, data).fill_disk(broker).evidence)
