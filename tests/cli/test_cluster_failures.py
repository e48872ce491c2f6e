"""Why a cluster did not start, or why it died: named with the place, and with the exit code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from command import lossless
from confluent_kafka import Producer

from lossless.engines.waiting import wait_until
from small_disk import SmallDisk, mounted

MANY_PARTITIONS = """
[guarantee]
survives = {}

[topics."shop.orders"]
partitions = 300
replication_factor = 3
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted(tmp_path / "disk", "180k") as disk:
        yield disk


def test_a_disk_too_small_for_three_brokers_is_named(tmp_path: Path) -> None:
    for size in ("16k", "64k"):
        with mounted(tmp_path / size, size) as disk:
            up = lossless(disk.place, "up", "--detach")
            assert up.returncode == 4
            assert f"no space left in {disk.place}/.lossless/kafka" in up.stderr
            assert "Traceback" not in up.stderr
            assert not (disk.place / ".lossless").exists()


def test_brokers_that_end_while_topics_are_created_are_named_with_the_reason(
    disk: SmallDisk,
) -> None:
    (disk.place / "lossless.toml").write_text(MANY_PARTITIONS)
    up = lossless(disk.place, "up", "--detach")
    assert up.returncode == 4
    assert "ended: no space left in" in up.stderr
    assert "broker 1" in up.stderr
    assert not (disk.place / ".lossless").exists()


def test_status_says_why_a_broker_ended_and_up_does_not_discard_its_records(
    tmp_path: Path,
) -> None:
    with mounted(tmp_path / "disk", "4m") as disk:
        up = lossless(disk.place, "up", "--detach", "--brokers", "1")
        assert up.returncode == 0, up.stderr
        address = up.stdout.strip().partition("=")[2]
        disk.fill()
        producer = Producer({"bootstrap.servers": address, "log_level": 0})
        for _ in range(100):
            producer.produce("orders", bytes(1000))

        def said() -> str:
            producer.poll(0)
            return lossless(disk.place, "status").stdout

        assert wait_until(lambda: "broker 1 ended: " in said(), timeout_s=60)
        assert "no space left" in said()
        assert f"{disk.place}/.lossless/kafka" in said()
        again = lossless(disk.place, "up", "--detach", "--brokers", "1")
        assert again.returncode == 2
        assert "`up` would discard its records" in again.stderr.replace("\n", " ")
        assert "lossless restart BROKER" in again.stderr
        disk.make_room()
        restarted = lossless(disk.place, "restart", "1")
        assert restarted.returncode == 0, restarted.stderr
        assert "ended" not in said()
        assert lossless(disk.place, "kill", "1").returncode == 0
        assert "ended" not in said()  # nobody but `kill` ended it
        producer.purge()
        assert lossless(disk.place, "down").returncode == 0


def test_a_host_that_cannot_be_resolved_is_refused_before_anything_starts(tmp_path: Path) -> None:
    up = lossless(tmp_path, "up", "--detach", "--host", "nosuch.invalid")
    assert up.returncode == 2
    assert "the name nosuch.invalid cannot be resolved" in up.stderr
    assert list(tmp_path.iterdir()) == []


def test_folders_that_cannot_be_written_to_are_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for arguments in (
        ["up", "--detach", "--data", str(tmp_path / "file" / "x")],
        ["init", str(tmp_path / "file" / "x")],
    ):
        answer = lossless(tmp_path, *arguments)
        assert answer.returncode == 2
        assert "cannot be written to: Not a directory" in answer.stderr
        assert "choose another folder" in answer.stderr


def test_a_misspelt_setting_is_reported_once_with_the_nearest_name(tmp_path: Path) -> None:
    assert lossless(tmp_path, "init").returncode == 0
    up = lossless(tmp_path, "up", "--detach", "--config", "log.retentoin.ms=5")
    assert up.returncode == 0, up.stderr
    assert up.stderr.count("log.retentoin.ms") == 1
    assert "did you mean log.retention.ms?" in up.stderr
    note = lossless(tmp_path, "status", "--data", ".lossless")
    assert note.returncode == 2
    assert "it notes where clusters are" in note.stderr.replace("\n", " ")
    assert f"--data {tmp_path}/.lossless/kafka" in note.stderr.replace("\n", " ")
    assert "damaged" not in note.stderr
    assert lossless(tmp_path, "down").returncode == 0
