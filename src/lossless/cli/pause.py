"""`lossless pause`: pauses a broker."""

from __future__ import annotations

from pathlib import Path

import click

from lossless.cli.cluster import location_options, running_cluster


@click.command()
@click.argument("broker", type=int)
@location_options
def command(broker: int, contract_path: Path | None, data: Path | None) -> None:
    """Pause a broker with SIGSTOP.

    The process stays alive, but its session with the controller expires.
    """
    click.echo(running_cluster(contract_path, data).pause(broker).evidence)
