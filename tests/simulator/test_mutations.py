"""The faults of docs/mutations.md can still be planted: code that changes takes them along."""

from __future__ import annotations

import pytest
from benchmarks.mutations import MUTATIONS, PACKAGE, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.what)
def test_what_is_planted_replaces_one_line(mutation: Mutation) -> None:
    text = (PACKAGE / "lossless" / mutation.file).read_text()
    assert text.count(mutation.line) == 1
