"""The file that says what a cluster is: one that cannot be read costs nobody their records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lossless.engines.local.state import read_state
from lossless.errors import Unavailable

OF_A_LATER_VERSION = json.dumps({"plan": {"nodes": [], "from_the_future": 1}, "processes": {}})


@pytest.mark.parametrize("text", ["", "[]", "null", '{"plan": {"nodes": 3}}', OF_A_LATER_VERSION])
def test_a_state_that_is_not_understood_does_not_advise_to_remove_records(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(Unavailable, match="damaged, or was written by a later version") as refused:
        read_state(tmp_path)
    assert "remove" not in (refused.value.hint or "")
    assert f"{tmp_path} still has the cluster's records" in (refused.value.hint or "")


def test_a_state_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").mkdir()
    with pytest.raises(Unavailable, match=r"cluster.json cannot be read: Is a directory"):
        read_state(tmp_path)
