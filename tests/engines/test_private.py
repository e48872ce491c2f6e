"""What a cluster keeps on disk is for the account that started it, whatever its umask allows."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from lossless.engines import cluster
from lossless.engines.detached import forget, note
from topics import create_new, produce


@pytest.fixture(autouse=True)
def _everybody_may_do_everything() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def readable_by_others(folder: Path) -> list[str]:
    """Everything in it, and itself."""
    paths = [folder, *folder.rglob("*")]
    assert len(paths) > 1
    return [
        f"{stat.filemode(path.lstat().st_mode)} {path.relative_to(folder)}"
        for path in paths
        if stat.S_IMODE(path.lstat().st_mode) & 0o077
    ]


@pytest.mark.parametrize(
    ("engine", "processes"),
    [("embedded", False), ("embedded", True), ("apache", True)],
    ids=["in-process", "embedded", "apache"],
)
def test_folders_and_files_of_a_cluster_are_for_their_owner(
    engine: str, processes: bool, tmp_path: Path
) -> None:
    data = tmp_path / "kafka"
    with cluster(kafka=engine, brokers=1, data=data, processes=processes) as kafka:
        admin = AdminClient(dict(kafka.client_settings))
        create_new(admin, NewTopic("diary", 1, 1))
        produce(kafka.bootstrap_servers, "diary", [(0, None, b"private")])
        if engine == "embedded":
            kafka.slow_disk(1, 1)
        assert readable_by_others(data) == []
    assert readable_by_others(data) == []


def test_folders_that_an_earlier_version_left_open_are_closed(tmp_path: Path) -> None:
    with cluster(brokers=1, data=tmp_path):
        pass
    node = tmp_path / "broker-1"
    for path in (tmp_path, node):
        path.chmod(0o755)
    with cluster(brokers=1, data=tmp_path):
        assert stat.S_IMODE(node.stat().st_mode) == 0o700
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755  # the user's own folder


def test_the_note_of_a_running_cluster_is_for_its_owner(tmp_path: Path) -> None:
    home, data = tmp_path / ".lossless", tmp_path / "data"
    home.mkdir(0o755)
    note(home, data)
    assert readable_by_others(home) == []
    forget(home, data)
