"""`lossless down`: stops the cluster that `lossless up` started."""

from __future__ import annotations

from pathlib import Path

import click

from lossless.cli.cluster import home_of, location_options


@click.command()
@location_options
def command(contract_path: Path | None, data: Path | None) -> None:
    """Stop the local cluster.

    Deletes its data, unless it was started with `lossless up --data`.
    """
    from lossless.engines.detached import find_cluster, forget

    place = home_of(contract_path)
    cluster = find_cluster(place, data)
    if cluster is None:
        click.echo("no cluster is running")
        return
    alive = sum(row.state != "dead" for row in cluster.status())
    cluster.stop()
    forget(place, cluster.folder)
    click.echo(f"stopped {alive} process{'' if alive == 1 else 'es'}")
