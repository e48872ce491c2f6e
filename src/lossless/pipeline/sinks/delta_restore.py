"""RESTORE takes rows away and leaves the ledger standing: going on would lose them.

A RESTORE puts the files of an older version back, but not the transaction versions, which are the
ledger. Whether the pipeline's last commit is still in the table is read from the history: from the
newest version down, and at a RESTORE on from the version that it went back to. So a RESTORE to the
version before an unfortunate RESTORE makes the table whole again.
"""

from __future__ import annotations

from collections.abc import Sequence

from lossless.pipeline.sinks.delta_ledger import entry_from
from lossless.pipeline.sinks.delta_log import Commit

RESTORE = "RESTORE"


def restored_away(commits: Sequence[Commit], pipeline: str, sequence: int) -> Commit | None:
    """The RESTORE that took the pipeline's commit `sequence` away, if one did.

    `commits`, newest first, go back to that commit or as far as the log still does.
    """
    if not any(commit.operation == RESTORE for commit in commits):
        return None
    by_version = {commit.version: commit for commit in commits}
    ours = _version_of(commits, pipeline, sequence)
    at = commits[0].version
    while at > ours:
        commit = by_version[at]
        if commit.operation != RESTORE:
            at -= 1
            continue
        target = commit.parameters.get("version") or ""
        if not target.isdigit() or int(target) < ours:  # by timestamp: no version to go on from
            return commit
        at = int(target)
    return None


def _version_of(commits: Sequence[Commit], pipeline: str, sequence: int) -> int:
    for commit in commits:
        entry = entry_from(pipeline, commit.user_metadata)
        if entry is not None and entry.sequence == sequence:
            return commit.version
    return commits[-1].version - 1  # the log has forgotten it: it is older than all of these
