"""RESTORE takes rows away and leaves the ledger standing: going on would lose them.

A RESTORE puts the files of an older version back, but not the transaction versions, which are the
ledger. It does not conflict with a commit under way either. So the history is asked: a table is
made of the versions on its *lineage*, from the newest one down, and at a RESTORE on from the
version that it went back to. A commit of ours that is not on it has been taken away. A RESTORE to
the version before an unfortunate RESTORE makes the table whole again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lossless.pipeline.sinks.delta_ledger import entry_from
from lossless.pipeline.sinks.delta_log import Commit

RESTORE = "RESTORE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """The RESTORE that took commits of ours away."""

    version: int
    can_be_undone: bool  # by a RESTORE to the version before; false if we have committed since


def restore_damage(history: Sequence[Commit], pipeline: str, sequence: int) -> Damage | None:
    """`history` is all that the log still has, newest first; `sequence` is the ledger's."""
    ours = {}
    for commit in history:
        entry = entry_from(pipeline, commit.user_metadata)
        if entry is not None:
            ours[entry.sequence] = commit.version
    oldest = history[-1].version
    if sequence not in ours:
        ours[sequence] = oldest - 1  # the log has forgotten it: it is older than all of these
    by_version = {commit.version: commit for commit in history}
    at = history[0].version
    while at >= oldest:
        commit = by_version[at]
        if commit.operation != RESTORE:
            at -= 1
            continue
        target = commit.parameters.get("version") or ""
        went_back_to = int(target) if target.isdigit() else -1  # by timestamp: to who knows where
        if any(went_back_to < version < at for version in ours.values()):
            return Damage(version=at, can_be_undone=all(version < at for version in ours.values()))
        at = went_back_to
    return None
