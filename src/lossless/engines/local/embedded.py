"""This package's own brokers, each in a process of this Python."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lossless.broker.meta import write_meta
from lossless.broker.security.listeners import ENABLED, OAUTHBEARER
from lossless.broker.security.nodes import NODE_MECHANISM, NODE_USER, node_settings
from lossless.broker.security.tokens import ENDPOINT
from lossless.core.settings.broker_settings import BrokerSettings
from lossless.core.settings.deviations import with_deviations
from lossless.core.settings.kinds import InvalidSetting

LOG_FILE = "output.log"
FIRST_CONTROLLER = 100  # broker 1 is controller 101 too


def command() -> list[str]:
    return [sys.executable, "-m", "lossless.broker"]


def defaults(config: Mapping[str, str], brokers: int) -> dict[str, str]:
    return with_deviations(config, brokers=brokers)


def warnings(config: Mapping[str, str]) -> list[str]:
    try:
        found = BrokerSettings.from_properties(config)[1]
    except InvalidSetting:  # the node refuses it, and says why
        return []
    takes_tokens = any(
        name.endswith(ENABLED) and OAUTHBEARER in text for name, text in config.items()
    )
    if takes_tokens and not any(name.endswith(ENDPOINT) for name in config):
        found.append(
            f"{ENABLED}: {OAUTHBEARER} takes unsecured tokens, so that everybody can be anybody"
        )
    return found


def controller_settings(secret: str) -> dict[str, str]:
    return node_settings(secret)


def node_login(secret: str) -> tuple[str, str, str]:
    return NODE_MECHANISM, NODE_USER, secret


def voter(node: int, *, is_broker: bool) -> int:
    return FIRST_CONTROLLER + node if is_broker else node


def write_files(_folder: Path) -> None:
    """Nothing but its properties."""


def format_command(_command: Sequence[str], folder: Path, cluster_id: str) -> None:
    write_meta(folder / "data", cluster_id)


def start_command(command: Sequence[str], folder: Path) -> list[str]:
    return [*command, str(folder / "server.properties")]
