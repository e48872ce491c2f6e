"""The ledger as Delta keeps it: transaction versions of the table's own snapshot.

A transaction version is a name with a signed 64-bit number. Unlike a commit's metadata it survives
log clean-up, and a transaction that read one conflicts with whoever changes it.

    lossless/<pipeline>/format                        of the ledger; absent: 1
    lossless/<pipeline>/sequence
    lossless/<pipeline>/after_version                 the version that the last commit was based on
    lossless/<pipeline>/dead_sequence, /dead_token    the last commit that had dead letters
    lossless/<pipeline>/renamed_to/<pipeline>         1: it has this name now
    lossless/<pipeline>/column/<column>               1: hashes of contents cover the column
    lossless/<pipeline>/<topic>:<topic id>:<partition>/<field>

Names of pipelines and columns are percent-encoded, so that they cannot contain a slash. A field
that is absent is zero; a commit writes only the fields that it changes. An accepted loss is a field
of its own, whose name holds the first offset and whose value is the one after the last: versions
cannot be removed, but losses are only ever added or extended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from urllib.parse import quote, unquote

from lossless.pipeline.ledger import (
    FORMAT,
    AcceptedLoss,
    ContentSum,
    Ledger,
    LedgerEntry,
    Position,
    SourcePartition,
    Uncovered,
    check_format,
)
from lossless.tally import HASH_MODULUS, Tally

ROOT = "lossless/"
LOST_FROM = "lost_from_"
UNCOVERED = "uncovered:"  # the column and the first offset; the version is the end
NOT_KNOWN = -1
COLUMN = "column/"
RENAMED_TO = "renamed_to/"


def prefix(pipeline: str) -> str:
    return f"{ROOT}{quote(pipeline, safe='')}/"


def sequence_id(pipeline: str) -> str:
    return f"{prefix(pipeline)}sequence"


def format_id(pipeline: str) -> str:
    return f"{prefix(pipeline)}format"


def after_version_id(pipeline: str) -> str:
    return f"{prefix(pipeline)}after_version"


def dead_sequence_id(pipeline: str) -> str:
    return f"{prefix(pipeline)}dead_sequence"


def dead_token_id(pipeline: str) -> str:
    return f"{prefix(pipeline)}dead_token"


def settled_id(pipeline: str) -> str:
    """In the table of dead letters only: letters up to this sequence are known to be committed."""
    return f"{prefix(pipeline)}settled"


def letters_token_id(pipeline: str) -> str:
    """In the table of dead letters only: the token of the letters that were written last."""
    return f"{prefix(pipeline)}letters_token"


def next_offset_id(pipeline: str, source: SourcePartition) -> str:
    return _field_id(pipeline, source, "next_offset")


def ledger_from(pipeline: str, versions: Mapping[str, int]) -> Ledger:
    """The ledger in a snapshot's transaction versions; others' versions are left alone."""
    check_format(versions.get(format_id(pipeline), 1))
    fields: dict[SourcePartition, dict[str, int]] = {}
    columns = []
    start = prefix(pipeline)
    for name, version in versions.items():
        if name.startswith(start + COLUMN):
            columns.append(unquote(name.removeprefix(start + COLUMN)))
            continue
        if name.startswith(start + RENAMED_TO):
            continue
        source, slash, field = name.removeprefix(start).rpartition("/")
        if name.startswith(start) and slash:
            topic, topic_id, partition = source.split(":")
            key = SourcePartition(topic, topic_id, int(partition))
            fields.setdefault(key, {})[field] = version
    return Ledger(
        sequence=versions.get(sequence_id(pipeline), 0),
        positions={source: _position(found) for source, found in fields.items()},
        columns=tuple(sorted(columns)),
    )


def other_ledgers(pipeline: str, versions: Mapping[str, int]) -> dict[str, Ledger]:
    """The ledgers of the other pipelines in a snapshot's transaction versions."""
    return {
        name: ledger_from(name, versions)
        for name in sorted(_pipelines(versions) - {pipeline})
        if renamed_to(name, versions) is None
    }


def renamed_to(pipeline: str, versions: Mapping[str, int]) -> str | None:
    """The name under which the ledger of a pipeline is continued; None when it is its own."""
    start = f"{prefix(pipeline)}{RENAMED_TO}"
    names = (
        name.removeprefix(start)
        for name, is_so in versions.items()
        if is_so and name.startswith(start)
    )
    return next(map(unquote, names), None)


def former_names(pipeline: str, versions: Mapping[str, int]) -> set[str]:
    """Names under which the ledger of a pipeline was kept before."""
    return {name for name in _pipelines(versions) if renamed_to(name, versions) == pipeline}


def take_over_versions(
    old: str, new: str, versions: Mapping[str, int]
) -> tuple[dict[str, int], LedgerEntry]:
    """The transaction versions that move the ledger of `old` to `new`, and the entry for it.

    The old name's sequence moves too: whoever counts on it, a driver for example, is refused.
    """
    before = ledger_from(old, versions)
    after = before.successor({})
    moved = {
        **changed_versions(new, Ledger(), after),
        sequence_id(old): after.sequence,
        f"{prefix(old)}{RENAMED_TO}{quote(new, safe='')}": 1,
    }
    for name_of in (dead_sequence_id, dead_token_id):
        if name_of(old) in versions:
            moved[name_of(new)] = versions[name_of(old)]
    # It may be a name that the ledger had before.
    moved |= {n: 0 for n in versions if n.startswith(f"{prefix(new)}{RENAMED_TO}")}
    return moved, LedgerEntry.between(before, after, committed_at_ms=int(time.time() * 1000))


def _pipelines(versions: Mapping[str, int]) -> set[str]:
    return {unquote(name.split("/")[1]) for name in versions if name.startswith(ROOT)}


def changed_versions(pipeline: str, expected: Ledger, successor: Ledger) -> dict[str, int]:
    """The transaction versions that lead from one ledger to the next."""
    versions = {format_id(pipeline): FORMAT, sequence_id(pipeline): successor.sequence}
    for column in {*successor.columns} - {*expected.columns}:
        versions[f"{prefix(pipeline)}{COLUMN}{quote(column, safe='')}"] = 1
    for source, position in successor.positions.items():
        before = _fields(expected.positions[source]) if source in expected.positions else {}
        for field, value in _fields(position).items():
            if before.get(field) != value:
                versions[_field_id(pipeline, source, field)] = value
    return versions


def commit_metadata(pipeline: str, entry: LedgerEntry) -> str:
    """What a commit says about itself in the table's history, for as long as that is kept."""
    document = {"lossless": {"pipeline": pipeline, "entry": json.loads(entry.to_json())}}
    return json.dumps(document, separators=(",", ":"))


def entry_from(pipeline: str, user_metadata: str | None) -> LedgerEntry | None:
    """The entry in a commit's metadata, if it is a commit of this pipeline."""
    if not user_metadata or '"lossless"' not in user_metadata:
        return None
    try:
        document = json.loads(user_metadata)
    except ValueError:
        return None  # somebody else's words
    found = document.get("lossless") if isinstance(document, dict) else None
    if not isinstance(found, dict) or found.get("pipeline") != pipeline:
        return None
    return LedgerEntry.from_json(json.dumps(found["entry"]))


def _field_id(pipeline: str, source: SourcePartition, field: str) -> str:
    name = f"{source.topic}:{source.topic_id}:{source.partition}"
    return f"{prefix(pipeline)}{name}/{field}"


def _fields(position: Position) -> dict[str, int]:
    fields = {
        "start_offset": position.start_offset,
        "next_offset": position.next_offset,
        "read_count": position.read.count,
        "read_hash": _signed(position.read.hash),
        "stored_count": position.stored.count,
        "stored_hash": _signed(position.stored.hash),
        "dead_count": position.dead.count,
        "dead_hash": _signed(position.dead.hash),
        "rows": position.rows,
        "lost": position.unplaced_losses,
        "closed": int(position.closed),
        "leader_epoch": NOT_KNOWN if position.leader_epoch is None else position.leader_epoch,
        "hashed_from": NOT_KNOWN if position.hashed_from is None else position.hashed_from,
        **{f"{LOST_FROM}{loss.first}": loss.end for loss in position.accepted_losses},
        **{
            f"{UNCOVERED}{quote(one.column, safe='')}:{one.first}": one.end
            for one in position.uncovered
        },
    }
    if position.row_hash is not None:
        fields["row_hash"] = _signed(position.row_hash)
    if (summed := position.content_sum) is not None:
        fields["content_sum"] = _signed(summed.hash)
        fields["content_sum_first"] = summed.first
        fields["content_sum_end"] = summed.end
    return fields


def _position(fields: Mapping[str, int]) -> Position:
    def tally(kind: str) -> Tally:
        return Tally(fields.get(f"{kind}_count", 0), fields.get(f"{kind}_hash", 0) % HASH_MODULUS)

    def known(field: str) -> int | None:
        found = fields.get(field, NOT_KNOWN)
        return None if found == NOT_KNOWN else found

    return Position(
        start_offset=fields["start_offset"],
        next_offset=fields["next_offset"],
        read=tally("read"),
        stored=tally("stored"),
        dead=tally("dead"),
        rows=fields.get("rows", 0),
        row_hash=fields["row_hash"] % HASH_MODULUS if "row_hash" in fields else None,
        accepted_losses=tuple(
            sorted(
                AcceptedLoss(int(name.removeprefix(LOST_FROM)), end)
                for name, end in fields.items()
                if name.startswith(LOST_FROM)
            )
        ),
        unplaced_losses=fields.get("lost", 0),
        closed=bool(fields.get("closed", 0)),
        leader_epoch=known("leader_epoch"),
        hashed_from=known("hashed_from"),
        content_sum=ContentSum(
            fields["content_sum_first"],
            fields["content_sum_end"],
            fields["content_sum"] % HASH_MODULUS,
        )
        if "content_sum" in fields
        else None,
        uncovered=tuple(
            sorted(
                _uncovered(name.removeprefix(UNCOVERED), end)
                for name, end in fields.items()
                if name.startswith(UNCOVERED)
            )
        ),
    )


def _uncovered(name: str, end: int) -> Uncovered:
    column, _, first = name.rpartition(":")
    return Uncovered(unquote(column), int(first), end)


def _signed(digest: int) -> int:
    return digest - HASH_MODULUS if digest >= HASH_MODULUS // 2 else digest
