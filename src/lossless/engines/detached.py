"""The cluster that `lossless up` started: where it is noted, so that other commands find it.

`.lossless/`, beside the contract or in the current folder, holds `cluster.json`, which names the
cluster's folder: `.lossless/kafka` unless `--data` said otherwise. One cluster per `.lossless/`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from lossless.engines.local.cluster import LocalCluster
from lossless.engines.local.state import read_state
from lossless.engines.private import make_private, write_private
from lossless.errors import Unavailable

_FOLDER, _FILE = ".lossless", "cluster.json"


def home(contract_folder: Path | None) -> Path:
    return (contract_folder or Path.cwd()) / _FOLDER


def default_data(home: Path) -> Path:
    """For a cluster that nobody gave a folder: removed when it stops."""
    return home / "kafka"


def note(home: Path, data: Path) -> None:
    try:
        make_private(home)
        write_private(home / _FILE, json.dumps({"data": str(data)}) + "\n")
    except OSError as error:
        raise Unavailable(f"{home} cannot be written to: {error.strerror}") from error


def forget(home: Path, data: Path) -> None:
    """Unless the note is of another cluster."""
    if _noted(home) == data:
        (home / _FILE).unlink(missing_ok=True)
    with suppress(OSError):  # other things may live there
        home.rmdir()


def find_cluster(home: Path, data: Path | None = None) -> LocalCluster | None:
    """The cluster in `data`, or the one noted: started and not stopped, even if all of it died."""
    folder = data.absolute() if data else _noted(home)
    state = read_state(folder) if folder else None
    return LocalCluster(folder) if folder and state and state.processes else None


def _noted(home: Path) -> Path | None:
    try:
        return Path(json.loads((home / _FILE).read_text())["data"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unavailable(
            f"{home / _FILE} cannot be read as the note of a cluster",
            hint="remove it, or name the cluster's folder with --data",
        ) from error
