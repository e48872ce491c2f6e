"""The ledger as transaction versions, without Spark."""

from __future__ import annotations

import pytest

from lossless.errors import BadInput
from lossless.pipeline.ledger import FORMAT, Ledger, Position, SourcePartition
from lossless.pipeline.sinks.delta_ledger import (
    changed_versions,
    format_id,
    ledger_from,
    other_ledgers,
)

SOURCE = SourcePartition("shop.orders", "id-1", 0)


def ledger(next_offset: int) -> Ledger:
    return Ledger().successor({SOURCE: Position(start_offset=0, next_offset=next_offset)})


def test_the_ledgers_of_other_pipelines_in_one_table_are_told_apart() -> None:
    versions = {
        **changed_versions("orders", Ledger(), ledger(3)),
        **changed_versions("a/b", Ledger(), ledger(5)),
        "another-writer": 1,
    }
    assert ledger_from("orders", versions) == ledger(3)
    assert other_ledgers("orders", versions) == {"a/b": ledger(5)}
    assert other_ledgers("payments", versions) == {"a/b": ledger(5), "orders": ledger(3)}


def test_a_ledger_of_a_newer_format_is_refused() -> None:
    versions = {**changed_versions("orders", Ledger(), ledger(3)), format_id("orders"): FORMAT + 1}
    with pytest.raises(BadInput, match="upgrade this one"):
        ledger_from("orders", versions)
