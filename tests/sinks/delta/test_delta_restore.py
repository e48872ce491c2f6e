"""Which RESTORE took a pipeline's commits away, from the history alone."""

from __future__ import annotations

import pytest

from lossless.pipeline.ledger import LedgerEntry
from lossless.pipeline.sinks.delta_ledger import commit_metadata
from lossless.pipeline.sinks.delta_log import Commit
from lossless.pipeline.sinks.delta_restore import Damage, restore_damage


def history(*operations: str | int | None, first: int = 0) -> list[Commit]:
    """From the oldest to the newest: a number is our commit of that sequence, None somebody
    else's, `restore N` what it says."""
    commits = []
    for version, operation in enumerate(operations, first):
        entry = None
        if isinstance(operation, int):
            entry = LedgerEntry(sequence=operation, committed_at_ms=0, before={}, after={})
        restore = isinstance(operation, str)
        commits.append(
            Commit(
                version=version,
                operation="RESTORE" if restore else "WRITE",
                parameters={"version": str(operation).removeprefix("restore ")} if restore else {},
                user_metadata=None if entry is None else commit_metadata("orders", entry),
            )
        )
    return commits[::-1]


@pytest.mark.parametrize(
    ("sequence", "commits", "damage"),
    [
        (2, history(None, 1, 2, None), None),
        # what it took away was not ours
        (2, history(None, 1, 2, None, "restore 2"), None),
        (2, history(None, 1, 2, "restore 1"), Damage(version=3, can_be_undone=True)),
        # undone
        (2, history(None, 1, 2, "restore 1", "restore 2"), None),
        (
            2,
            history(None, 1, 2, "restore 1", None, "restore 3"),
            Damage(version=3, can_be_undone=True),
        ),
        # before the pipeline began
        (1, history(None, None, "restore 0", 1), None),
        # between the check and the commit of sequence 2
        (2, history(None, 1, "restore 0", 2), Damage(version=2, can_be_undone=False)),
        # to a timestamp
        (1, history(None, 1, "restore null"), Damage(version=2, can_be_undone=True)),
        # the log has forgotten our last commit
        (7, history(None, None, "restore 40", first=40), None),
        (7, history(None, None, "restore 39", first=40), None),
        (7, history(None, None, "restore 38", first=40), Damage(version=42, can_be_undone=True)),
    ],
)
def test_a_restore_is_damage_when_it_leaves_out_a_commit_of_ours(
    sequence: int, commits: list[Commit], damage: Damage | None
) -> None:
    assert restore_damage(commits, "orders", sequence) == damage


def test_commits_of_other_pipelines_are_not_ours() -> None:
    assert restore_damage(history(None, 1, 2, "restore 0"), "refunds", 0) is None
