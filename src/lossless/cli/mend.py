"""`lossless mend`: repairs networks and disks."""

from __future__ import annotations

from pathlib import Path

import click

from lossless.cli.cluster import location_options, running_cluster


@click.command()
@location_options
def command(contract_path: Path | None, data: Path | None) -> None:
    """Undo isolate, cut and slow-disk."""
    click.echo(running_cluster(contract_path, data).mend().evidence)
