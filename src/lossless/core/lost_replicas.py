"""Replicas that this broker has lost because its disk changed what was written.

A log that finds such damage marks itself, and the process stops at once, whoever leads: what it
said next could be wrong, and nothing but its end moves leadership to somebody who is in sync. The
next process registers without the epoch of a clean stop, so that the controller takes this broker
out of every in-sync and eligible set (KIP-966). Then the marked log is set aside, for people to
look at, and the replica begins anew, empty, as a follower.

Nothing more is needed where others have the records. One way to lead is left to a replica that is
in no set: who led last leads again when nobody else can (`election.py`). That one has lost what it
led with, so it is not told: the partition waits, without a leader, for those who have the records
or for somebody who decides to do without. Having been in sync under another leader ends this: then
it has everything that is committed.

Kafka takes a folder offline and goes on with the others (KIP-112, KIP-858). A broker has one here.
"""

from __future__ import annotations

from lossless.core.messages import NO_LEADER
from lossless.core.metadata import PartitionState
from lossless.log.checkpoints import is_damaged
from lossless.log.store import Store

LOST = "lost-replicas"  # one name on each line


def undamaged(store: Store) -> Store:
    """The store of a log that is fetched from others in any case."""
    if is_damaged(store):
        store.set_aside()
    return store


class LostReplicas:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._names = set(store.read(LOST, 0, store.size(LOST)).decode().split())

    def undamaged(self, name: str, store: Store) -> Store:
        """The store of a replica: as it is, or empty if what it had was damaged."""
        if is_damaged(store):
            self._names.add(name)
            self._write()  # first: a crash in between must not leave an empty log that may lead
            store.set_aside()
        return store

    def told(self, name: str, broker: int, state: PartitionState) -> PartitionState:
        """What the replica on this broker is told of its partition's state."""
        if name not in self._names:
            return state
        if state.leader == broker:
            return state._replace(leader=NO_LEADER)
        if broker in state.isr:
            self._names.remove(name)
            self._write()
        return state

    def _write(self) -> None:
        self._store.replace(LOST, "\n".join(sorted(self._names)).encode())
