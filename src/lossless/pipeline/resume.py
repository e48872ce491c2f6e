"""Where a pipeline resumes: the ledger against what the log still has.

    in the ledger, the log has it        resume at the ledger's next offset
    in the ledger, the log begins later  records were deleted unread: refused
    in the ledger, the log ends earlier  the log was cut back: refused
    in the ledger, other records there   the log was cut back and has grown again: refused
    in the ledger, other topic id        the topic was re-created: refused
    in the ledger, not selected any more the contract deselected the topic: refused
    in the ledger, no such topic         the topic was deleted: refused
    closed, and selected again           reopened at the ledger's next offset, by the rules above
    new, and there is a ledger           from offset 0: it may have grown while we were away
    new, and there is none               where the contract says that a pipeline starts

What is refused can be accepted by the user where that makes sense; the accepted loss is then
written into the ledger with its offsets, where the audit finds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lossless.errors import PromiseBroken
from lossless.pipeline.ledger import Ledger, Position, SourcePartition
from lossless.pipeline.source import LogRange, SourceLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Records that a pipeline should have read and no longer can."""

    source: SourcePartition
    what: str
    accepted: Position | None  # the position that accepting leads to; None: it cannot be accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Where to resume, and what must be written into the ledger before the first record is read."""

    offsets: Mapping[SourcePartition, int]
    changes: Mapping[SourcePartition, Position]
    accepted: Sequence[Loss] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the cluster has of a pipeline's topics, as of one moment."""

    log: Mapping[SourcePartition, LogRange]  # of the topics that the contract selects
    # Topics of the ledger that exist and that the contract does not select: their ids by name.
    deselected: Mapping[str, str] = field(default_factory=dict)
    # Where a log was cut back below the ledger's next offset: the first offset that is another's.
    cut_back: Mapping[SourcePartition, int] = field(default_factory=dict)


def found_in(source: SourceLog, ledger: Ledger, topics: Sequence[str]) -> Found:
    """Asks the cluster about the topics that the contract selects and those of the ledger."""
    remembered = sorted({known.topic for known in ledger.positions} - set(topics))
    others = source.topics(remembered, existing_only=True) if remembered else []
    partitions = source.partitions([*topics, *others])
    log = source.ranges([p for p in partitions if p.topic in topics])
    # Within one epoch a log only grows. Where it begins at the ledger's next offset, or beyond it,
    # nothing is left to compare.
    led_by_another = {
        known: (position.next_offset, position.leader_epoch)
        for known, position in ledger.positions.items()
        if position.leader_epoch is not None
        and (held := log.get(known)) is not None
        and held.leader_epoch != position.leader_epoch
        and held.earliest < position.next_offset <= held.latest
    }
    return Found(
        log=log,
        deselected={p.topic: p.topic_id for p in partitions if p.topic in others},
        cut_back=source.cut_back(led_by_another),
    )


def find_losses(ledger: Ledger, found: Found) -> list[Loss]:
    """Every partition whose records cannot be read from where the ledger stands."""
    losses = []
    for source, position in sorted(ledger.positions.items()):
        held = found.log.get(source)
        if held is None:
            if not position.closed:
                losses.append(_not_there(source, position, found))
        elif (loss := _loss_in(source, position, held, found.cut_back.get(source))) is not None:
            losses.append(loss)
    if ledger.sequence:
        for source, held in sorted(found.log.items()):
            if source not in ledger.positions and held.earliest > 0:
                losses.append(_begun_too_late(source, held))
    return losses


def _loss_in(
    source: SourcePartition, position: Position, held: LogRange, cut_back_to: int | None
) -> Loss | None:
    if held.earliest > position.next_offset:
        count = held.earliest - position.next_offset
        return Loss(
            source=source,
            what=f"offsets {position.next_offset} to {held.earliest - 1} ({count}) were deleted "
            f"before they were read: the log now begins at {held.earliest}",
            accepted=replace(
                position.given_up_to(held.earliest), closed=False, leader_epoch=held.leader_epoch
            ),
        )
    if held.latest < position.next_offset:
        return Loss(
            source=source,
            what=f"the log ends at {held.latest}, before the ledger's {position.next_offset}: it "
            "was cut back (an unclean leader election does that), and new records would take "
            "offsets that are already in the table",
            accepted=None,
        )
    if cut_back_to is not None:
        return Loss(
            source=source,
            what=f"the log was cut back to offset {cut_back_to} after it had been read to "
            f"{position.next_offset} (an unclean leader election does that), and has grown again: "
            f"offsets {cut_back_to} to {position.next_offset - 1} hold other records than those "
            "that were read",
            accepted=None,
        )
    return None


def _begun_too_late(source: SourcePartition, held: LogRange) -> Loss:
    return Loss(
        source=source,
        what=f"the partition appeared after the pipeline had first run, and offsets 0 to "
        f"{held.earliest - 1} ({held.earliest}) were deleted before they were read",
        accepted=replace(
            Position(start_offset=0, next_offset=0).given_up_to(held.earliest),
            leader_epoch=held.leader_epoch,
        ),
    )


def resume(
    ledger: Ledger,
    found: Found,
    start: Mapping[SourcePartition, int],
    *,
    accept_loss: bool,
) -> Resume:
    """`start` says where each partition begins when there is no ledger yet."""
    losses = find_losses(ledger, found)
    refused = [loss for loss in losses if loss.accepted is None or not accept_loss]
    if refused:
        raise PromiseBroken(_refusal(refused))
    changes = {loss.source: loss.accepted for loss in losses if loss.accepted is not None}
    for source, held in found.log.items():
        if source in changes:
            continue
        position = ledger.positions.get(source)
        if position is None:
            first = 0 if ledger.sequence else start[source]
            changes[source] = Position(
                start_offset=first, next_offset=first, leader_epoch=held.leader_epoch
            )
        elif position.closed or (position.leader_epoch is None and held.leader_epoch is not None):
            changes[source] = replace(position, closed=False, leader_epoch=held.leader_epoch)
    positions = {**ledger.positions, **changes}
    return Resume(
        offsets={source: positions[source].next_offset for source in found.log},
        changes=changes,
        accepted=losses,
    )


def _not_there(source: SourcePartition, position: Position, found: Found) -> Loss:
    ids = {other.topic: other.topic_id for other in found.log} | dict(found.deselected)
    now = ids.get(source.topic)
    at = f"the ledger stands at offset {position.next_offset}"
    if now is None:
        what = f"the topic was deleted; {at}"
    elif now == source.topic_id and source.topic in found.deselected:
        what = (
            f"the contract does not select the topic any more; {at}, and what follows is not read"
        )
    elif now == source.topic_id:
        what = f"the topic has no such partition; {at}"
    else:
        what = (
            f"the topic was re-created (id {source.topic_id} is now {now}); of the old one {at}, "
            "and what it held beyond is unknown"
        )
    return Loss(source=source, what=what, accepted=replace(position, closed=True))


def _refusal(losses: Sequence[Loss]) -> str:
    lines = [f"  {loss.source}: {loss.what}" for loss in losses]
    if all(loss.accepted is not None for loss in losses):
        advice = "To accept this and record it in the ledger: lossless run --accept-loss"
    else:
        advice = "This cannot be accepted: read the topic into a new table with a new pipeline."
    return "\n".join(["refusing to start: records are gone", *lines, advice])
