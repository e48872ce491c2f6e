"""What a log keeps beside its segments: small files, each replaced as a whole.

    leader-epoch-checkpoint          the first offset of every leader epoch
    log-start-offset                 once records were deleted before the first segment's end
    recovery-point                   everything below was flushed
    clean-shutdown                   closed properly: nothing needs recovery
    00000000000000004711.snapshot    producers as of that offset
    damaged                          what was found; the log does not open any more

None of them is needed: what is missing, or cannot be read, is made anew from the batches. (But for
the start, below which nothing may be read again, and the mark of damage.)
"""

from __future__ import annotations

from lossless.log.leader_epochs import LeaderEpochs
from lossless.log.producers import Producers
from lossless.log.segment import file_name
from lossless.log.store import Store

EPOCHS = "leader-epoch-checkpoint"
LOG_START = "log-start-offset"
RECOVERY_POINT = "recovery-point"
CLEAN = "clean-shutdown"
DAMAGED = "damaged"
SNAPSHOT_SUFFIX = ".snapshot"


def is_damaged(store: Store) -> bool:
    """Whether somebody found damage here."""
    return DAMAGED in store.names()


def snapshot_name(offset: int) -> str:
    return file_name(offset, SNAPSHOT_SUFFIX)


class Checkpoints:
    def __init__(self, store: Store) -> None:
        self._store = store

    # Where the log starts, and how far it was flushed

    def log_start(self) -> int | None:
        return self._number(LOG_START)

    def write_log_start(self, offset: int) -> None:
        self._store.replace(LOG_START, str(offset).encode())

    def recovery_point(self) -> int | None:
        return self._number(RECOVERY_POINT)

    def write_recovery_point(self, offset: int) -> None:
        self._store.replace(RECOVERY_POINT, str(offset).encode())

    # Leader epochs

    def epochs(self, *, forgets_empty: bool) -> LeaderEpochs | None:
        return LeaderEpochs.decode(self._all(EPOCHS), forgets_empty=forgets_empty)

    def write_epochs(self, epochs: LeaderEpochs) -> None:
        self._store.replace(EPOCHS, epochs.encode())

    # How it was left

    def take_clean(self) -> bool:
        """Whether it was closed properly; from now on it is open, and was not."""
        is_clean = CLEAN in self._store.names()
        self._store.remove(CLEAN)
        return is_clean

    def write_clean(self) -> None:
        self._store.replace(CLEAN, b"")

    def damage(self) -> str | None:
        return self._all(DAMAGED).decode() if is_damaged(self._store) else None

    def write_damage(self, what: str) -> None:
        self._store.replace(DAMAGED, what.encode())

    # Snapshots of producers

    def snapshots(self) -> list[int]:
        names = self._store.names()
        return [
            int(name.removesuffix(SNAPSHOT_SUFFIX))
            for name in names
            if name.endswith(SNAPSHOT_SUFFIX)
        ]

    def newest_snapshot(self, offset_max: int) -> tuple[int, Producers] | None:
        """Up to an offset, and one that can be trusted."""
        for offset in reversed(self.snapshots()):
            if offset <= offset_max:
                found = Producers.decode(self._all(snapshot_name(offset)))
                if found is not None:
                    return offset, found
        return None

    def write_snapshot(self, offset: int, producers: Producers) -> None:
        self._store.replace(snapshot_name(offset), producers.encode())

    def remove_snapshots(self, *, above: int | None = None, below: int = 0) -> None:
        for offset in self.snapshots():
            if offset < below or (above is not None and offset > above):
                self._store.remove(snapshot_name(offset))

    def _number(self, name: str) -> int | None:
        text = self._all(name)
        return int(text) if text.isdigit() else None

    def _all(self, name: str) -> bytes:
        return self._store.read(name, 0, self._store.size(name))
