"""Where a pipeline goes on: the ledger against what the log still has. Pure.

    in the ledger, the log has it        go on at the ledger's next offset
    in the ledger, the log begins later  records were deleted unread: refused
    in the ledger, the log ends earlier  the log was cut back: refused
    in the ledger, other topic id        the topic was re-created: refused
    in the ledger, no such topic         the topic was deleted: refused
    new partition of a known topic       from its first offset: it may have grown while we were away
    new topic                            where the contract says that a pipeline starts

What is refused can be accepted by the user where going on makes sense; the accepted loss is then
written into the ledger, where the audit finds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lossless.errors import PromiseBroken
from lossless.pipeline.ledger import Ledger, Position, SourcePartition
from lossless.pipeline.source import LogRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Records that a pipeline should have read and no longer can."""

    source: SourcePartition
    what: str
    accepted: Position | None  # the position that accepting leads to; None: it cannot be accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Where to go on, and what must be written into the ledger before the first record is read."""

    offsets: Mapping[SourcePartition, int]
    changes: Mapping[SourcePartition, Position]


def find_losses(ledger: Ledger, log: Mapping[SourcePartition, LogRange]) -> list[Loss]:
    names = {source.topic: source.topic_id for source in log}
    losses = []
    for source, position in sorted(ledger.positions.items()):
        if position.closed:
            continue
        held = log.get(source)
        if held is None:
            losses.append(_gone_topic(source, position, names.get(source.topic)))
        elif held.earliest > position.next_offset:
            missing = held.earliest - position.next_offset
            losses.append(
                Loss(
                    source=source,
                    what=f"offsets {position.next_offset} to {held.earliest - 1} ({missing}) were "
                    f"deleted before they were read: the log now begins at {held.earliest}",
                    accepted=replace(
                        position, next_offset=held.earliest, lost=position.lost + missing
                    ),
                )
            )
        elif held.latest < position.next_offset:
            losses.append(
                Loss(
                    source=source,
                    what=f"the log ends at {held.latest}, before the ledger's "
                    f"{position.next_offset}: it was cut back (an unclean leader election does "
                    "that), and new records would take offsets that are already in the table",
                    accepted=None,
                )
            )
    known = {source.topic_id for source in ledger.positions}
    for source, held in sorted(log.items()):
        if source.topic_id in known and source not in ledger.positions and held.earliest > 0:
            losses.append(
                Loss(
                    source=source,
                    what=f"the partition was added while the pipeline was away and offsets 0 to "
                    f"{held.earliest - 1} were deleted before they were read",
                    accepted=Position(
                        start_offset=0, next_offset=held.earliest, lost=held.earliest
                    ),
                )
            )
    return losses


def resume(
    ledger: Ledger,
    log: Mapping[SourcePartition, LogRange],
    start: Mapping[SourcePartition, int],
    *,
    accept_loss: bool,
) -> Resume:
    """`start` says where a topic that the ledger does not know begins, for every partition."""
    losses = find_losses(ledger, log)
    refused = [loss for loss in losses if loss.accepted is None or not accept_loss]
    if refused:
        raise PromiseBroken(_refusal(refused))
    changes = {loss.source: loss.accepted for loss in losses if loss.accepted is not None}
    known = {source.topic_id for source in ledger.positions}
    for source in log:
        if source not in ledger.positions and source not in changes:
            first = 0 if source.topic_id in known else start[source]
            changes[source] = Position(start_offset=first, next_offset=first)
    positions = {**ledger.positions, **changes}
    return Resume(
        offsets={source: positions[source].next_offset for source in log}, changes=changes
    )


def _gone_topic(source: SourcePartition, position: Position, other_id: str | None) -> Loss:
    if other_id is None:
        what = f"the topic was deleted; the ledger stands at offset {position.next_offset}"
    else:
        what = (
            f"the topic was re-created (id {source.topic_id} is now {other_id}); the ledger of the "
            f"old one stands at offset {position.next_offset}, and what it held beyond is unknown"
        )
    return Loss(source=source, what=what, accepted=replace(position, closed=True))


def _refusal(losses: Sequence[Loss]) -> str:
    lines = [f"  {loss.source}: {loss.what}" for loss in losses]
    if all(loss.accepted is not None for loss in losses):
        advice = "To go on and record this loss in the ledger: lossless run --accept-loss"
    else:
        advice = "This cannot be accepted: read the topic into a new table with a new pipeline."
    return "\n".join(["refusing to start: records are gone", *lines, advice])
