"""Shared by the commands on a running cluster: their options, and how they find the cluster."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lossless.contract import Contract, find_contract, load_contract
from lossless.errors import Unavailable

if TYPE_CHECKING:
    from lossless.engines.local.cluster import LocalCluster

Command = TypeVar("Command", bound=Callable[..., Any])


def location_options(command: Command) -> Command:
    """Adds --contract and --data, which select the cluster, to a command."""
    command = click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="The cluster's data folder, if `lossless up` was started with --data.",
    )(command)
    return contract_option(command)


def contract_option(command: Command) -> Command:
    """Adds --contract, for a command that also works without a contract."""
    return click.option(
        "--contract",
        "contract_path",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The contract [default: the nearest lossless.toml, if any].",
    )(command)


def optional_contract(path: Path | None) -> Contract | None:
    """Returns the contract, or None if no file exists. Raises ContractError if it is invalid."""
    found = find_contract(path)
    return load_contract(found) if found else None


def running_cluster(contract_path: Path | None, data: Path | None) -> LocalCluster:
    """Returns the cluster that the options select. Raises Unavailable if none is running."""
    from lossless.engines.detached import find_cluster

    place = home_of(contract_path)
    cluster = find_cluster(place, data)
    if cluster is None:
        named = f" --data {shlex.quote(str(data))}" if data else ""
        raise Unavailable(
            f"no cluster is running here ({data or place})",
            hint=f"start one: lossless up --detach{named}",
        )
    return cluster


def home_of(contract_path: Path | None) -> Path:
    """Returns the folder in which `lossless up` recorded its clusters.

    Does not read the contract: a typo in it must not keep anyone from stopping the brokers.
    """
    from lossless.engines.detached import nearest_home

    found = find_contract(contract_path)
    return nearest_home(found.parent if found else None)
