"""`lossless slow-disk`: slows down a broker's disk."""

from __future__ import annotations

from pathlib import Path

import click

from lossless.cli.cluster import location_options, running_cluster


@click.command()
@click.argument("broker", type=int)
@click.option(
    "--delay-ms",
    default=50,
    show_default=True,
    help="Delay added to every write, in milliseconds.",
)
@location_options
def command(broker: int, delay_ms: int, contract_path: Path | None, data: Path | None) -> None:
    """Slow down a broker's disk.

    `lossless mend` undoes this.
    """
    click.echo(running_cluster(contract_path, data).slow_disk(broker, delay_ms).evidence)
