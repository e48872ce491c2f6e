"""A table's transaction versions, without a Spark job for each look at them.

Delta tells them by replaying the whole log in Spark, about half a second however small the table.
A driver that has asked once needs only the commits since, and reads them from the log's own files.
Of a short log it reads all.

What it knows counts only while the log is the one that it knows it from: the file of the last
commit that it has read must still say the same. A log that was put back from a backup, or in which
another writer's commit took the place of ours (a lost race on a local disk), does not, and Delta is
asked again. That is also why a driver's own commits are read like everybody else's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lossless.pipeline.sinks.delta_log import DeltaLog, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    version: int  # -1: before the first commit
    versions: Mapping[str, int]
    digest: bytes | None  # of the commit `version`; None when its file could not be read


_NOTHING = _Known(version=-1, versions={}, digest=None)


class Replay:
    def __init__(self, delta: DeltaLog) -> None:
        self._delta = delta
        self._known = _NOTHING

    def forget(self) -> None:
        self._known = _NOTHING

    def at(self, snapshot: Snapshot) -> Mapping[str, int]:
        """The transaction versions of a snapshot, by application id."""
        if not snapshot.exists:
            self._known = _NOTHING
        else:
            self._known = self._since_known(snapshot.version) or self._afresh(snapshot)
        return self._known.versions

    def _since_known(self, version: int) -> _Known | None:
        known = self._known
        if known.version > version:
            return None
        texts = self._delta.commit_texts(max(known.version, 0), version)
        if texts is None:
            return None
        newest = texts[-1]
        if known.version >= 0 and _digest(texts.pop(0)) != known.digest:
            return None
        versions = dict(known.versions)
        for text in texts:
            versions.update(_transactions(text))
        return _Known(version=version, versions=versions, digest=_digest(newest))

    def _afresh(self, snapshot: Snapshot) -> _Known:
        version = snapshot.version
        texts = self._delta.commit_texts(version, version)
        return _Known(
            version=version,
            versions=snapshot.all_transactions(),
            digest=_digest(texts[0]) if texts else None,
        )


def operations(text: str) -> Iterator[str]:
    """What a commit says that it did: WRITE, RESTORE …"""
    for action in _actions(text, "commitInfo"):
        if action.get("operation"):
            yield action["operation"]


def _transactions(text: str) -> dict[str, int]:
    return {action["appId"]: int(action["version"]) for action in _actions(text, "txn")}


def _actions(text: str, kind: str) -> Iterator[Mapping[str, Any]]:
    for line in text.split("\n"):
        # Most lines are files with long statistics: not worth parsing.
        if f'"{kind}"' in line:
            action = json.loads(line).get(kind)
            if action is not None:
                yield action


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
