"""A disk that is full: its broker stops and says why, the others go on, and nothing is lost."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_disks import output_of
from crash_rounds import loaded, restart, running, wait_for, wait_for_records

FULL = 3  # the broker
SIZE = "24m"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Where the broker will have its data."""
    place = tmp_path / "cluster" / f"broker-{FULL}" / "data"
    place.mkdir(parents=True)
    mounted = _run("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place))
    assert mounted.returncode == 0, f"a small disk has to be mounted: {mounted.stderr.strip()}"
    try:
        yield place
    finally:
        _run("umount", "--lazy", str(place))


def test_a_broker_whose_disk_is_full_stops_and_catches_up_once_there_is_room(
    small_disk: Path, tmp_path: Path
) -> None:
    with running(tmp_path / "cluster") as cluster:
        filling = small_disk / "filling"
        with loaded(cluster, "full") as load:
            fill(filling)
            wait_for(
                lambda: any(r.broker == FULL and r.state == "dead" for r in cluster.status()),
                "the end of the broker",
            )
            assert "cannot go on" in output_of(cluster, FULL)
            assert "No space left on device" in output_of(cluster, FULL)
            wait_for_records(load)
            filling.unlink()
            restart(cluster, [FULL])
            wait_for_records(load)
            wait_for(cluster.in_sync, "all replicas in sync")
        # What keeps the folder from being removed with the cluster.
        _run("umount", "--lazy", str(small_disk))


def fill(file: Path) -> None:
    """Until nothing more fits."""
    with file.open("wb", buffering=0) as opened, contextlib.suppress(OSError):
        while True:
            opened.write(bytes(4096))


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)
