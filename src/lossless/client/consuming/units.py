"""Records and offsets in one transaction of a store: what is stored is stored once (claim C10).

A unit holds the records of a chunk, or of `commit_every_s` when that is over first. Each record
stands behind a savepoint: one that fails takes back what it did itself and nothing else.

    PartitionLost      another member has claimed the partition. The unit is rolled back, the
                       records of that partition are dropped, the others come again.
    StoreUnavailable   nothing is half stored. Everything in the unit comes again; what turns out
                       to be stored after all is not processed twice (`applied`).

Kafka's offsets follow the store's, for those who watch lag; nobody starts from them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any

from confluent_kafka import Message

from lossless.client.consuming.chunks import Chunks
from lossless.client.consuming.failures import Failures, outage_delay_s
from lossless.client.consuming.interfaces import Place, offset_of
from lossless.client.errors import HandlerFailed, PartitionLost, StoreUnavailable
from lossless.client.stores.interface import Store, Unit


class _LeftOff(Exception):
    """Something else has to be done first: the records come again."""


class Units:
    """The loop of a handler with a store, in the thread that called run()."""

    def __init__(
        self,
        chunks: Chunks,
        store: Store,
        failures: Failures,
        handler: Callable[[Message, Any], Any],
        *,
        commit_every_s: float,
        fence: Callable[[set[Place], PartitionLost], None],
    ) -> None:
        self._chunks = chunks
        self._store = store
        self._failures = failures
        self._handler = handler
        self._commit_every_s = commit_every_s
        self._fence = fence
        self._unit: Unit | None = None
        self._began = 0.0

    def run(self) -> None:
        outages = 0
        unavailable = False
        while True:
            committed = self._chunks.finished()
            try:
                if unavailable:  # it may have stored the last unit after all, or lost a partition
                    self._store.positions()
                    unavailable = False
                self._run()
                return
            except _LeftOff:
                continue
            except PartitionLost as error:
                self._fence({(topic, number) for topic, number in error.partitions}, error)
            except StoreUnavailable as error:
                outages = 1 if self._chunks.finished() > committed else outages + 1
                self._roll_back()
                unavailable = True
                if self._chunks.over(outage_delay_s(error, outages)):
                    return  # nobody waits any more; who comes next repeats what was not stored
            finally:
                self._roll_back()

    def _run(self) -> None:
        for message in self._chunks.together(self._commit):
            self._process(message)
            if time.monotonic() - self._began >= self._commit_every_s:
                self._commit()

    def _process(self, message: Message) -> None:
        for attempt in count(1):
            unit = self._begun()
            if unit.applied(message):
                return
            try:
                if not self._failures.passes_by(message):
                    with unit.savepoint():
                        self._handler(message, unit)
                break
            except (PartitionLost, StoreUnavailable, HandlerFailed):
                raise
            except Exception as error:
                # What came before it is stored whatever happens now.
                self._commit(but_last=True)
                delay_s = self._failures.decide(message, error, attempt)
                if delay_s is None:
                    break
                if self._chunks.wait_until_cut(delay_s):
                    raise _LeftOff from error
        self._begun().position(message, offset_of(message) + 1)

    def _begun(self) -> Unit:
        if self._unit is None:
            self._unit = self._store.begin()
            self._began = time.monotonic()
        return self._unit

    def _commit(self, *, but_last: bool = False) -> None:
        unit, self._unit = self._unit, None
        if unit is not None:
            unit.commit()
        self._chunks.finish_handed_out(but_last=but_last)

    def _roll_back(self) -> None:
        unit, self._unit = self._unit, None
        if unit is not None:
            unit.rollback()
