"""Consume, transform, produce: copies, and the offsets of the group that made them."""

from __future__ import annotations

from collections import Counter

import pytest

from lossless.core.coordination import TransactionalCommit
from lossless.core.groups.messages import NO_GENERATION, OffsetCommit, OffsetFetch
from lossless.core.transactions.messages import AddOffsetsToTxn
from lossless.errors import BadInput
from lossless.simulator.options import changed, pairs_of
from lossless.simulator.run import Result, Run, Step
from lossless.simulator.settings import Settings
from lossless.simulator.world import OUTPUT_TOPIC, World
from lossless.verifier.history import Committed, Consumed, Read

COPIES = "transactions=true isolation=read_committed groups=1 transform=true unit=1 records=5 "
IN_IT = COPIES + "commit=transaction "


def _settings(text: str) -> Settings:
    return changed(Settings(), pairs_of(text, "test"), "test")


def _copied(result: Result) -> Counter[str]:
    """How often readers of committed records have a copy of each value."""
    reads = {(read.partition, read.offset, read.value) for read in result.history.of(Read)}
    return Counter(
        value.split("@")[0]
        for partition, _, value in reads
        if str(partition).startswith(OUTPUT_TOPIC)
    )


def _committed_input(result: Result) -> set[str]:
    history = result.history
    return {
        value
        for log in history.final
        if not str(log.partition).startswith(OUTPUT_TOPIC)
        for _, value in log.records
        if (log.partition, value) not in history.aborted
    }


@pytest.mark.parametrize("version", [1, 2])
def test_each_committed_record_has_one_copy_without_faults(version: int) -> None:
    result = Run(_settings(f"{IN_IT} partitions=2 transaction-version={version}"), 2).run()
    assert result.kinds == ()
    assert _copied(result) == Counter(_committed_input(result))
    assert result.exercised.transactions_aborted > 0


def test_each_record_has_one_copy_whatever_member_or_broker_dies() -> None:
    settings = _settings(f"{IN_IT} faults=consumer-crash=2,broker-crash,late-messages")
    crashes = 0
    for seed in range(1, 9):
        result = Run(settings, seed).run()
        assert result.kinds == ()
        assert set(_copied(result).values()) == {1}
        assert result.history.of(Consumed)
        assert result.history.of(Committed)
        crashes += result.exercised.faults["consumer-crash"]
    assert crashes > 0


def _asked(text: str) -> list[object]:
    asked: list[object] = []

    def watch(world: World, step: Step) -> None:
        if step.label.kind == "deliver" and world.delivered is not None:
            asked.append(world.delivered)

    Run(_settings(text), 2, watch=watch).run()
    return asked


def test_offsets_are_committed_in_the_transaction_with_the_generation_of_the_member() -> None:
    asked = _asked(IN_IT)
    commits = [one for one in asked if isinstance(one, TransactionalCommit)]
    assert commits
    assert all(one.commit.generation_id > NO_GENERATION for one in commits)
    assert {one.version for one in commits} == {5}
    assert not [one for one in asked if isinstance(one, OffsetCommit | AddOffsetsToTxn)]
    assert all(one.require_stable for one in asked if isinstance(one, OffsetFetch))


def test_with_version_1_the_client_adds_the_offsets_to_the_transaction_first() -> None:
    asked = _asked(f"{IN_IT} transaction-version=1")
    first = next(one for one in asked if isinstance(one, AddOffsetsToTxn | TransactionalCommit))
    assert isinstance(first, AddOffsetsToTxn)
    assert {one.version for one in asked if isinstance(one, TransactionalCommit)} == {4}


def test_offsets_that_are_committed_afterwards_are_not_in_the_transaction() -> None:
    asked = _asked(COPIES)
    assert [one for one in asked if isinstance(one, OffsetCommit)]
    assert not [one for one in asked if isinstance(one, TransactionalCommit)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("transform=true groups=1", "transform=true needs a group that writes in transactions"),
        ("transform=true transactions=true", "transform=true needs a group"),
        (f"{COPIES} commit=auto", "transform=true commits after the transaction or in it"),
        (f"{COPIES} hand-off=true", "transform=true commits after the transaction or in it"),
        ("commit=transaction", "commit=transaction needs consumers that write: transform=true"),
    ],
)
def test_contradicting_settings_are_refused(text: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        _settings(text)
