"""The clusters that `lossless up` started: where they are noted, so that other commands find them.

`.lossless/`, beside the contract or in the current folder, holds `cluster.json`, which names the
folder of each: `.lossless/kafka` unless `--data` said otherwise.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from lossless.engines.local.cluster import LocalCluster
from lossless.engines.local.state import read_state
from lossless.engines.private import make_private, unwritable, write_private
from lossless.errors import BadInput, Unavailable

_FOLDER, _FILE = ".lossless", "cluster.json"


def home(contract_folder: Path | None) -> Path:
    """Where a cluster that is started is noted."""
    return (contract_folder or Path.cwd()) / _FOLDER


def nearest_home(contract_folder: Path | None) -> Path:
    """Where the cluster that a command means is noted: beside the contract, or in the nearest
    folder, from the current one upwards, that has such a note."""
    if contract_folder is None:
        here = Path.cwd()
        for folder in (here, *here.parents):
            if os.path.exists(folder / _FOLDER / _FILE):  # False where it may not be looked at
                return folder / _FOLDER
    return home(contract_folder)


def default_data(home: Path) -> Path:
    """For a cluster that nobody gave a folder: removed when it stops."""
    return home / "kafka"


def note(home: Path, data: Path) -> None:
    try:
        with _locked(home):
            _write(home, [*(one.folder for one in clusters_of(home) if one.folder != data), data])
    except OSError as error:
        raise unwritable(home, error) from error


def forget(home: Path, data: Path) -> None:
    """Removes the note of this cluster, and leaves those of others."""
    if not home.exists():
        return
    try:
        with _locked(home):
            _write(home, [one for one in _noted(home) if one != data])
            with suppress(OSError):  # other things may live there
                home.rmdir()
    except OSError as error:
        raise unwritable(home, error) from error


def find_cluster(home: Path, data: Path | None = None) -> LocalCluster | None:
    """The cluster in `data`, or the one noted: started and not stopped, even if all of it died.
    BadInput if several are noted."""
    found = [_cluster_in(data.absolute())] if data else clusters_of(home)
    if len(found) > 1:
        raise BadInput(
            f"{len(found)} clusters were started here",
            hint="choose one: " + ", ".join(f"--data {one.folder}" for one in found if one),
        )
    return found[0] if found else None


def clusters_of(home: Path) -> list[LocalCluster]:
    """All that are noted: started and not stopped."""
    return [cluster for folder in _noted(home) if (cluster := _cluster_in(folder))]


def _cluster_in(folder: Path) -> LocalCluster | None:
    state = read_state(folder)
    return LocalCluster(folder) if state and state.processes else None


def _noted(home: Path) -> list[Path]:
    try:
        noted = json.loads((home / _FILE).read_text())["data"]
        # An earlier version knew of one cluster only.
        return [Path(folder) for folder in ([noted] if isinstance(noted, str) else noted)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unavailable(
            f"{home / _FILE} cannot be read as the note of a cluster",
            hint="remove it, or name the cluster's folder with --data",
        ) from error


def _write(home: Path, folders: Sequence[Path]) -> None:
    if not folders:
        (home / _FILE).unlink(missing_ok=True)
        return
    part = home / f"{_FILE}.part"
    write_private(part, json.dumps({"data": [str(folder) for folder in folders]}) + "\n")
    part.rename(home / _FILE)


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """The folder itself is the lock, because a file in it would outlive the last note."""
    while True:
        make_private(home)
        descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):  # removed meanwhile: then this lock guards nothing
                if os.path.samestat(os.fstat(descriptor), os.stat(home)):
                    yield
                    return
        finally:
            os.close(descriptor)
