"""What the commands on a running cluster share: finding it, and naming one of its brokers."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from lossless.contract import Contract, find_contract, load_contract
from lossless.engines.detached import find_cluster, nearest_home
from lossless.engines.local.cluster import LocalCluster
from lossless.errors import Unavailable

Command = TypeVar("Command", bound=Callable[..., Any])


def location_options(command: Command) -> Command:
    """--contract and --data: which cluster is meant."""
    command = click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="The cluster's folder, if `lossless up` was given one.",
    )(command)
    return contract_option(command)


def contract_option(command: Command) -> Command:
    return click.option(
        "--contract",
        "contract_path",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The delivery contract [default: lossless.toml here or above, if any].",
    )(command)


def optional_contract(path: Path | None) -> Contract | None:
    """A cluster needs no contract, but one that is there must be right."""
    found = find_contract(path)
    return load_contract(found) if found else None


def running_cluster(contract_path: Path | None, data: Path | None) -> LocalCluster:
    place = home_of(contract_path)
    cluster = find_cluster(place, data)
    if cluster is None:
        named = f" --data {shlex.quote(str(data))}" if data else ""
        raise Unavailable(
            f"no cluster is running here ({data or place})",
            hint=f"lossless up --detach{named} starts one",
        )
    return cluster


def home_of(contract_path: Path | None) -> Path:
    """Without reading the contract: a typo in it must not keep anybody from stopping brokers."""
    found = find_contract(contract_path)
    return nearest_home(found.parent if found else None)
