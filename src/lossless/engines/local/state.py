"""The cluster's folder: the plan and the processes in one JSON file, changed under a lock.

Several programs may work on one cluster: `lossless up` in one terminal, `lossless kill` in another.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lossless.engines.local.plan import Node, Plan
from lossless.engines.local.process import Identity
from lossless.engines.private import FOLDER_MODE, open_privately, unwritable, write_private
from lossless.errors import BadInput, Unavailable

_FILE = "cluster.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    plan: Plan
    processes: Mapping[int, Identity] = field(default_factory=dict)  # by node

    def with_process(self, node: int, identity: Identity) -> State:
        return dataclasses.replace(self, processes={**self.processes, node: identity})


def read_state(folder: Path) -> State | None:
    """What the folder holds; nothing when there is no cluster in it."""
    file = folder / _FILE
    try:
        raw = json.loads(file.read_text())
        plan = raw["plan"]
        return State(
            plan=Plan(**{**plan, "nodes": [Node(**node) for node in plan["nodes"]]}),
            processes={int(node): Identity(**raw["processes"][node]) for node in raw["processes"]},
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unavailable(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        if notes := _notes(file):
            raise BadInput(
                f"{folder} is not the folder of a cluster: it notes where clusters are",
                hint="leave --data out, or choose one of: "
                + ", ".join(f"--data {shlex.quote(place)}" for place in notes),
            ) from error
        raise Unavailable(
            f"{file} is damaged, or was written by a later version of Lossless",
            hint=f"use that version, or another folder; {folder} still has the cluster's records",
        ) from error


def _notes(file: Path) -> list[str]:
    """The folders that `lossless up` noted here, if this is such a note."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        noted = json.loads(file.read_text())["data"]
        return [noted] if isinstance(noted, str) else list(map(str, noted))
    return []


def write_state(folder: Path, state: State) -> None:
    """Replaced in one step: a reader sees the old or the new, and so does whoever comes after a
    crash."""
    part = folder / f"{_FILE}.part"
    try:
        write_private(part, json.dumps(dataclasses.asdict(state), indent=2) + "\n")
        part.rename(folder / _FILE)
    except OSError as error:
        raise unwritable(folder, error) from error


def node_folder(folder: Path, node: Node) -> Path:
    return folder / node.name.replace(" ", "-")


def remove_files(plan: Plan, folder: Path) -> None:
    """What is ours in the folder; the folder too, when it was made for this cluster alone."""
    if plan.temporary:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        remove_nodes(plan, folder)


def remove_nodes(plan: Plan, folder: Path) -> None:
    """Nodes and state, but not the lock, which whoever calls this may hold and still need."""
    for node in plan.nodes:
        shutil.rmtree(node_folder(folder, node), ignore_errors=True)
    (folder / _FILE).unlink(missing_ok=True)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One change at a time; the system lets go of the lock when its holder dies."""
    file = folder / "cluster.lock"
    while True:
        try:
            folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            descriptor = open_privately(str(file), os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise unwritable(folder, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Whoever held it may have removed the folder: then this lock guards nothing.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(file)):
                    yield
                    return
        finally:
            os.close(descriptor)
