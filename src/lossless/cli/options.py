"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

contract = click.option(
    "--contract",
    "contract_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The contract, if not the nearest lossless.toml.",
)
kafka = click.option(
    "--kafka",
    metavar="embedded|apache|ADDRESS",
    help="The cluster, if not the contract's: one that `up` started, or an address.",
)
engine = click.option(
    "--kafka",
    "engine",
    type=click.Choice(["embedded", "apache"]),
    default="embedded",
    show_default=True,
    help="Whose brokers: this package's, or Apache Kafka's, run by Java.",
)
master = click.option("--master", default="local[*]", show_default=True, help="Where Spark runs.")
output_format = click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How the result is told on stdout: for people, or as JSON.",
)
