"""What the brokers of a cluster have on their disks, read without touching it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from crash_load import value_of

from lossless.engines.local.cluster import LocalCluster
from lossless.log.batch import Batch
from lossless.log.checkpoints import SNAPSHOT_SUFFIX
from lossless.log.files import ASIDE, FileStore
from lossless.log.log import Log
from lossless.verifier.history import Records


class Copy(NamedTuple):
    """A replica as it stood on disk."""

    log_start_offset: int
    log_end_offset: int
    batches: tuple[Batch, ...]

    @property
    def records(self) -> Records:
        return tuple(
            (record.offset, value_of(record.value or b""))
            for batch in self.batches
            if not batch.is_control
            for record in batch.records()
            if record.offset >= self.log_start_offset
        )


def log_folder(cluster: LocalCluster, broker: int, topic: str, partition: int) -> Path:
    """Where a broker keeps its replica. It must have it."""
    (found,) = (
        folder
        for folder in broker_folder(cluster, broker).glob(f"{topic}-{partition}.*")
        if ASIDE not in folder.name
    )
    return found


def broker_folder(cluster: LocalCluster, broker: int) -> Path:
    return cluster.folder / f"broker-{broker}" / "data" / "broker"


def output_of(cluster: LocalCluster, broker: int) -> str:
    return (cluster.folder / f"broker-{broker}" / "log" / "output.log").read_text()


def copy_of(folder: Path) -> Copy:
    """Opening a log recovers it, so it is a copy that is opened."""
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(folder, place, dirs_exist_ok=True, copy_function=_copy_if_there)
        store = FileStore(Path(place))
        try:
            log = Log(store)
            batches = tuple(log.batches(log.log_start_offset))
            return Copy(log.log_start_offset, log.log_end_offset, batches)
        finally:
            store.close()


def _copy_if_there(source: str, target: str) -> None:
    """Nothing moves, but a flush beside the work may still replace one snapshot by the next."""
    try:
        shutil.copy2(source, target)
    except FileNotFoundError:
        if not source.endswith(SNAPSHOT_SUFFIX):
            raise


def copies(cluster: LocalCluster, topic: str, partition: int) -> dict[int, Copy]:
    """Of every broker. Whoever asks has seen to it that nothing moves."""
    return {
        node.id: copy_of(log_folder(cluster, node.id, topic, partition))
        for node in cluster.plan.brokers
    }


def difference(one: Copy, other: Copy) -> str | None:
    """Batch by batch and byte by byte, from where both begin; None: there is none."""
    start = max(one.log_start_offset, other.log_start_offset)
    if one.log_end_offset != other.log_end_offset:
        return f"one ends at {one.log_end_offset}, the other at {other.log_end_offset}"
    for left, right in zip(_from(one, start), _from(other, start), strict=False):
        if left.data != right.data:
            return f"batch {left.base_offset} differs from batch {right.base_offset}"
    return None


def _from(copy: Copy, start: int) -> list[Batch]:
    return [batch for batch in copy.batches if batch.last_offset >= start]
