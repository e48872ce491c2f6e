"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

contract = click.option(
    "--contract",
    "contract_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The contract [default: the nearest lossless.toml].",
)
kafka = click.option(
    "--kafka",
    metavar="embedded|apache|ADDRESS",
    help="The cluster: one that `lossless up` started, or an address [default: the contract's].",
)
engine = click.option(
    "--kafka",
    "engine",
    type=click.Choice(["embedded", "apache"]),
    default="embedded",
    show_default=True,
    help="The brokers to run: this package's own, or Apache Kafka's (needs Java).",
)
master = click.option(
    "--master", metavar="URL", default="local[*]", show_default=True, help="The Spark master."
)
output_format = click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of the result on stdout.",
)
