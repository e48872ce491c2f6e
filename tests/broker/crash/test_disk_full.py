"""A disk that is full: its broker stops and says why, the others go on, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_disks import output_of
from crash_rounds import loaded, restart, running, wait_for, wait_for_records

from small_disk import SmallDisk, mounted

FULL = 3  # the broker
SIZE = "24m"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Where the broker will have its data."""
    with mounted(tmp_path / "cluster" / f"broker-{FULL}" / "data", SIZE) as disk:
        yield disk


def test_a_broker_whose_disk_is_full_stops_and_catches_up_once_there_is_room(
    small_disk: SmallDisk, tmp_path: Path
) -> None:
    with running(tmp_path / "cluster") as cluster:
        with loaded(cluster, "full") as load:
            small_disk.fill()
            wait_for(
                lambda: any(r.broker == FULL and r.state == "dead" for r in cluster.status()),
                "the end of the broker",
            )
            assert "cannot go on" in output_of(cluster, FULL)
            assert "No space left on device" in output_of(cluster, FULL)
            wait_for_records(load)
            small_disk.make_room()
            restart(cluster, [FULL])
            wait_for_records(load)
            wait_for(cluster.in_sync, "all replicas in sync")
        # What keeps the folder from being removed with the cluster.
        small_disk.unmount()
