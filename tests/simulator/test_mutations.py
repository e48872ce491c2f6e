"""The faults of docs/mutations.md can be planted, and what is planted is found.

`make soak` searches for all of them; here are ten that are found soon.
"""

from __future__ import annotations

import pytest
from benchmarks.mutation_search import SEARCHES, found, settings_of
from benchmarks.mutations import MUTATIONS, PACKAGE, Mutation, search

SAMPLE = (
    "acknowledges one offset early",
    "commits what the fastest has, not what all have",
    "does not know a batch that comes again",
    "is elected by a minority",
    "votes for everybody who asks",
    "a coordinator forgets what it coordinated at failover",
    "writes no generation down",
    "the earlier of two offsets counts",
    "takes every marker for a commit",
    "a new coordinator leaves decided transactions as they are",
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.what)
def test_what_is_planted_replaces_one_place(mutation: Mutation) -> None:
    text = (PACKAGE / "lossless" / mutation.file).read_text()
    assert text.count(mutation.line) == 1


def test_nothing_is_found_where_nothing_is_planted() -> None:
    for one in SEARCHES:
        settings = settings_of(one)
        assert [found(one, settings, seed) for seed in range(1, 6)] == [()] * 5


@pytest.mark.timeout(600)
@pytest.mark.parametrize("what", SAMPLE)
def test_a_planted_fault_is_found(what: str) -> None:
    (mutation,) = (one for one in MUTATIONS if one.what == what)
    assert search(mutation) is not None
