"""`lossless status`: shows the brokers of the cluster that `lossless up` started."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich import box
from rich.table import Table

from lossless.cli.cluster import location_options, running_cluster
from lossless.cli.console import stdout
from lossless.errors import Unavailable

if TYPE_CHECKING:
    from lossless.engines.local.cluster import LocalCluster

_STYLES = {"running": "green", "paused": "yellow", "dead": "red"}


@click.command()
@click.option(
    "--format",
    "layout",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Format of the result on stdout.",
)
@location_options
def command(layout: str, contract_path: Path | None, data: Path | None) -> None:
    """Show the brokers of the local cluster.

    Prints the role, address, state and process id of each, and marks the active controller.
    """
    cluster = running_cluster(contract_path, data)
    brokers = cluster.status()
    controller = _controller(cluster)
    if layout == "json":
        answer = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "data": str(cluster.folder),
            "controller": controller,
            "brokers": [dataclasses.asdict(row) for row in brokers],
        }
        click.echo(json.dumps(answer, indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("broker", "role", "address", "state", "process"):
        table.add_column(column, justify="right" if column in ("broker", "process") else "left")
    for row in brokers:
        active = " (active)" if row.broker == controller else ""
        state = f"[{_STYLES[row.state]}]{row.state}[/]"
        table.add_row(str(row.broker), row.role + active, row.address, state, str(row.pid or "-"))
    stdout.print(table)
    if any(row.reason for row in brokers):
        click.echo(cluster.ended())
    click.echo(f"bootstrap.servers={cluster.bootstrap_servers}")


def _controller(cluster: LocalCluster) -> int | None:
    try:
        return cluster.controller()
    except Unavailable:
        return None
