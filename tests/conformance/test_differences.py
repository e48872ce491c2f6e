"""The list of differences is true: each line is one, and a test of this folder asserts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lossless.wire.differences import DIFFERENCES, Difference

_TESTS = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda one: one.behaviour)
def test_a_difference_is_one_and_is_asserted(difference: Difference) -> None:
    assert difference.embedded is not difference.apache
    assert f"def {difference.test}(" in _TESTS
