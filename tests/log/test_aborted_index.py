"""The index of aborted transactions: what lies beyond the trusted part of a log is not believed."""

from __future__ import annotations

from lossless.log.index import AbortedIndex, AbortedTransaction
from lossless.log.memory import MemoryStore

FIRST = AbortedTransaction(1, 0, 5, 6)
SECOND = AbortedTransaction(2, 7, 9, 10)


def test_what_was_written_beyond_an_offset_is_cut_off() -> None:
    store = MemoryStore()
    written = AbortedIndex(store, "index")
    written.append(FIRST)
    written.append(SECOND)
    for end_offset, expected in ((None, [FIRST, SECOND]), (10, [FIRST, SECOND]), (9, [FIRST])):
        loaded = AbortedIndex(store, "index")
        assert loaded.load(end_offset)
        assert loaded.between(0, 100) == expected
    again = AbortedIndex(store, "index")
    assert again.load()
    assert again.between(0, 100) == [FIRST]  # cut off on the disk, too
