"""What differs between the two kinds of cluster that run here: how a node is made and started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from lossless.engines.local import apache, embedded


class Software(Protocol):
    LOG_FILE: str  # in a node's folder log/

    def command(self) -> Sequence[str]:
        """How every node is started. Raises when something needed is not to be had."""

    def defaults(self, config: Mapping[str, str], brokers: int) -> Mapping[str, str]:
        """The settings of a node in a cluster of so many brokers; what the user sets counts."""

    def warnings(self, config: Mapping[str, str]) -> Sequence[str]:
        """What the user sets without effect."""

    def controller_settings(self, secret: str) -> Mapping[str, str]:
        """The settings by which nodes log in with controllers, and nobody else can."""

    def node_login(self, secret: str) -> tuple[str, str, str]:
        """That login: mechanism, user and password."""

    def voter(self, node: int, *, is_broker: bool) -> int:
        """The number of a node's controller in the quorum."""

    def write_files(self, folder: Path) -> None:
        """What a node's folder needs besides its server.properties."""

    def format_command(
        self, command: Sequence[str], folder: Path, cluster_id: str
    ) -> Sequence[str] | None:
        """Lays the data folder out, if that takes a process; else it is done when this returns."""

    def start_command(self, command: Sequence[str], folder: Path) -> Sequence[str]: ...


SOFTWARE: Mapping[str, Software] = {"embedded": embedded, "apache": apache}
