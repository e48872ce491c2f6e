"""The equations, for one partition. Pure: tallies in, doubts out.

    read      (ledger) = logged, settled     (scan of the log)
    stored    (ledger) = stored, settled     (scan of the table)
    dead      (ledger) = letters, settled    (scan of the dead letters)
    filtered           = read - stored - dead, by the ledger alone: a deleted row is not "filtered"

each as a count and as a hash, so that one record lost and another duplicated do not cancel out.
When the log no longer holds what the ledger read, the gap needs evidence: records below the log
start must be matched by the rows they became; compaction needs a topic that compacts.

A partition that raises no doubt is balanced, and nobody looks at single records. One that does is
compared offset by offset, in the ranges that `Examination.compare` names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lossless.pipeline.audit.model import Group, Groups, PartitionEvidence, Region
from lossless.pipeline.ledger import Position
from lossless.tally import HASH_MODULUS, Tally, offset_hashes, partition_seed

NOTHING = Tally()
HASHED_MAX = 1_000_000  # offsets whose hashes are computed one by one
NEVER_READ = Position(start_offset=0, next_offset=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """From `first` to just below `end`; `end` None: without end."""

    first: int
    end: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What the tallies of one partition say."""

    evidence: PartitionEvidence
    position: Position
    gap: Tally  # read by the ledger, no longer in the log
    gap_explained: bool  # by retention or compaction, or there is none
    missing_rows: Tally  # the ledger's stored minus the table's
    missing_letters: Tally
    surplus_rows: int  # rows that the ledger does not count
    missing_row_tally: Tally  # the ledger's rows minus the table's, each row counted
    unread: OffsetRange | None  # deleted before it was read
    beyond: bool  # rows at or beyond the ledger's next offset
    before: bool  # rows from before the pipeline's start
    bucket_doubts: Sequence[int]  # buckets that do not balance by themselves
    compare: OffsetRange | None  # where single offsets must be compared
    ledger_faults: Sequence[str]
    undecided: Sequence[str]
    notes: Sequence[str]

    @property
    def balanced(self) -> bool:
        return (
            self.gap_explained
            and self.missing_rows == NOTHING
            and self.missing_letters == NOTHING
            and self.surplus_rows == 0
            and self.missing_row_tally == NOTHING
            and self.unread is None
            and not self.beyond
            and not self.before
            and not self.bucket_doubts
            and not self.ledger_faults
        )

    @property
    def needs_comparison(self) -> bool:
        """Whether single offsets must be looked at before anything can be said."""
        return not self.balanced or self.compacted_away

    @property
    def compacted_away(self) -> bool:
        """Compaction explains any gap, so it could hide records that were never read."""
        return self.evidence.compacted and self.gap != NOTHING

    @property
    def expands(self) -> bool:
        return expands(self.position)

    @property
    def next_offset_after(self) -> int:
        after = self.evidence.position_after
        return max(self.position.next_offset, after.next_offset if after else 0)


def expands(position: Position) -> bool:
    """One record became several rows: only then must the audit count distinct offsets."""
    return position.rows > position.stored.count


def tally_of(groups: Groups, *regions: Region) -> Tally:
    return add(g.tally for (_, region), g in groups.items() if region in regions)


def add(tallies: Iterable[Tally]) -> Tally:
    total = NOTHING
    for tally in tallies:
        total = total + tally
    return total


def examine(evidence: PartitionEvidence) -> Examination:
    position = evidence.position or NEVER_READ
    purged_outcomes = tally_of(evidence.stored, Region.PURGED) + tally_of(
        evidence.letters, Region.PURGED
    )
    rows = tally_of(evidence.stored, Region.SETTLED, Region.PURGED)
    letters = tally_of(evidence.letters, Region.SETTLED, Region.PURGED)
    gap = position.read - tally_of(evidence.logged, Region.SETTLED)
    gap_explained = _gap_has_evidence(evidence, position, gap, purged_outcomes)
    missing_rows = position.stored - rows
    missing_letters = position.dead - letters
    settled_rows = sum(
        g.rows
        for (_, region), g in evidence.stored.items()
        if region in (Region.SETTLED, Region.PURGED)
    )
    missing_row_tally = _missing_row_tally(evidence, position)
    after = evidence.position_after or position
    beyond = any(
        region is Region.AHEAD and g.last_offset >= max(position.next_offset, after.next_offset)
        for groups in (evidence.stored, evidence.letters)
        for (_, region), g in groups.items()
    )
    before = any(
        region is Region.BEFORE
        for groups in (evidence.stored, evidence.letters)
        for _, region in groups
    )
    doubts = _bucket_doubts(evidence, position, gap)
    faults = _ledger_faults(evidence, position, gap, gap_explained)
    suspect = (
        not gap_explained
        or missing_rows != NOTHING
        or missing_letters != NOTHING
        or bool(doubts)
        or (evidence.compacted and gap != NOTHING)
        or (settled_rows != position.rows and not expands(position))
    )
    return Examination(
        evidence=evidence,
        position=position,
        gap=gap,
        gap_explained=gap_explained,
        missing_rows=missing_rows,
        missing_letters=missing_letters,
        surplus_rows=settled_rows - position.rows,
        missing_row_tally=missing_row_tally,
        unread=_unread(evidence, position),
        beyond=beyond,
        before=before,
        bucket_doubts=sorted(doubts),
        compare=_range_to_compare(evidence, position, doubts) if suspect else None,
        ledger_faults=faults,
        undecided=_undecided(evidence, position),
        notes=_notes(evidence, position, gap, gap_explained),
    )


def _missing_row_tally(evidence: PartitionEvidence, position: Position) -> Tally:
    """Rows by count and hash, so that a row lost and another doubled do not cancel out.

    Only where one record became several rows: otherwise `missing_rows` is the same.
    """
    if not expands(position) or position.row_tally is None:
        return NOTHING
    return position.row_tally - add(
        group.row_tally
        for (_, region), group in evidence.stored.items()
        if region in (Region.SETTLED, Region.PURGED)
    )


def _unread(evidence: PartitionEvidence, position: Position) -> OffsetRange | None:
    """What was deleted before it was read.

    The log's start was read after the ledger: what a live pipeline read in between is no loss, so
    the ledger that was read last decides.
    """
    log = evidence.log
    if log is None or evidence.position is None or position.closed:
        return None
    after = evidence.position_after
    first = max(position.next_offset, after.next_offset if after else 0)
    return OffsetRange(first=first, end=log.start) if log.start > first else None


def _gap_has_evidence(
    evidence: PartitionEvidence, position: Position, gap: Tally, purged_outcomes: Tally
) -> bool:
    if evidence.log is None:
        return True  # nothing to compare with: `_undecided` says so unless it was accepted
    if gap == NOTHING and purged_outcomes == NOTHING:
        return True
    if gap.count < 0 or (gap.count == 0 and gap.hash != 0):
        return False
    if evidence.compacted:
        return True
    if evidence.log.start <= position.start_offset:
        return False
    # What is below the log start became rows and letters that are still there, or was filtered.
    filtered = gap - purged_outcomes
    return _is_part_of(filtered, position.filtered)


def _is_part_of(part: Tally, whole: Tally) -> bool:
    """Whether the records of `part` can be among those of `whole`, as far as tallies tell."""
    if part.count == 0 or whole.count == 0:
        return part == NOTHING
    return 0 < part.count < whole.count or part == whole


def hides_timestamps(examination: Examination) -> bool:
    """Whether filtered records prevent a comparison of timestamps by sums (see audit/identity.py).

    A partition that was compared record by record hides nothing.
    """
    evidence = examination.evidence
    return (
        evidence.log is not None
        and examination.position.filtered != NOTHING
        and examination.compare is None
        and any(
            bucket_residue(evidence, bucket) != NOTHING for bucket in _settled_buckets(evidence)
        )
    )


def bucket_residue(evidence: PartitionEvidence, bucket: int) -> Tally:
    """Logged and settled in a bucket, but neither stored nor dead."""

    def settled(groups: Groups) -> Tally:
        group = groups.get((bucket, Region.SETTLED))
        return group.tally if group else NOTHING

    return settled(evidence.logged) - settled(evidence.stored) - settled(evidence.letters)


def _settled_buckets(evidence: PartitionEvidence) -> set[int]:
    return {
        bucket
        for groups in (evidence.logged, evidence.stored, evidence.letters)
        for bucket, region in groups
        if region is Region.SETTLED
    }


def _bucket_doubts(evidence: PartitionEvidence, position: Position, gap: Tally) -> list[int]:
    """Within a bucket only the filtered may be left over.

    A log from which compaction has removed records cannot be checked by bucket: it is compared
    record by record.
    """
    if evidence.log is None or (evidence.compacted and gap != NOTHING):
        return []
    return [
        bucket
        for bucket in _settled_buckets(evidence)
        if not _is_part_of(residue := bucket_residue(evidence, bucket), position.filtered)
        or (residue == NOTHING and _moments_differ(evidence, bucket))
    ]


def _moments_differ(evidence: PartitionEvidence, bucket: int) -> bool:
    """Whether some record of a bucket was stored with another timestamp than the log's.

    The sums can be compared only where nothing was filtered: a filtered record leaves no timestamp
    but the log's. `hides_timestamps` names the other partitions.
    """

    def of(groups: Groups) -> int:
        group = groups.get((bucket, Region.SETTLED))
        return group.moment_hash if group else 0

    outcomes = of(evidence.stored) + of(evidence.letters)
    return (of(evidence.logged) - outcomes) % HASH_MODULUS != 0


def _range_to_compare(
    evidence: PartitionEvidence, position: Position, doubts: Sequence[int]
) -> OffsetRange | None:
    whole = OffsetRange(first=position.start_offset, end=position.next_offset)
    if position.filtered != NOTHING or evidence.compacted or evidence.log is None:
        return whole
    spans = [
        group
        for groups in (evidence.logged, evidence.stored, evidence.letters)
        for (bucket, region), group in groups.items()
        if region is Region.SETTLED and bucket in doubts
    ]
    # Nothing is filtered, so a bucket whose log and outcomes agree hides nothing. Below the log
    # start there is no log to agree with.
    spans += _purged_groups(evidence)
    if not spans:
        return None
    return OffsetRange(
        first=min(g.first_offset for g in spans), end=max(g.last_offset for g in spans) + 1
    )


def _purged_groups(evidence: PartitionEvidence) -> list[Group]:
    return [
        group
        for groups in (evidence.stored, evidence.letters)
        for (_, region), group in groups.items()
        if region is Region.PURGED
    ]


def _ledger_faults(
    evidence: PartitionEvidence, position: Position, gap: Tally, gap_explained: bool
) -> list[str]:
    faults = []
    filtered = position.filtered
    if filtered.count < 0 or (filtered.count == 0 and filtered.hash != 0):
        faults.append(
            f"it counts {position.read.count} read, but {position.stored.count} stored and "
            f"{position.dead.count} dead: they are not the same records"
        )
    log = evidence.log
    if log is None:
        return faults
    if log.end < position.next_offset and not position.closed:
        faults.append(
            f"it stands at offset {position.next_offset}, but the log ends at {log.end}: either "
            "the ledger was moved forwards or the log was cut back"
        )
    if evidence.cut_back_to is not None:
        faults.append(
            f"it stands at offset {position.next_offset} in leader epoch {position.leader_epoch}, "
            f"and the log was cut back to {evidence.cut_back_to} since (an unclean leader election "
            "does that): what stands there now was never read"
        )
    if not gap_explained:
        where = f"below its next offset {position.next_offset}"
        if gap.count < 0:
            faults.append(f"the log holds {-gap.count} records {where} that it never counted")
        elif gap.count > 0 and log.start > position.start_offset:
            faults.append(
                f"it counts {gap.count} records below the log start {log.start}, but what they "
                "became is not all there"
            )
        elif gap.count > 0:
            faults.append(f"it counts {gap.count} records more than the log holds {where}")
        else:
            faults.append(f"it counts as many records as the log holds {where}, but other ones")
    return faults


def _undecided(evidence: PartitionEvidence, position: Position) -> list[str]:
    if evidence.log is None and not position.closed:
        why = "is gone, so its log cannot be compared with the ledger"
        return [f"{evidence.source}: the topic with id {evidence.source.topic_id} {why}"]
    return []


def _notes(
    evidence: PartitionEvidence, position: Position, gap: Tally, gap_explained: bool
) -> list[str]:
    source = evidence.source
    notes = []
    if evidence.log is None:
        if position.closed:
            notes.append(
                f"{source}: the topic with id {source.topic_id} is gone, which was accepted; the "
                f"ledger is the witness of {position.read.count} records"
            )
    elif gap_explained and gap.count > 0:
        why = (
            "below the log start" if not evidence.compacted else "compacted or below the log start"
        )
        notes.append(
            f"{source}: {gap.count} records are {why} ({evidence.log.start}) by now; the ledger is "
            "their witness and the table agrees with it"
        )
    if position.lost:
        where = ", ".join(f"{loss.first} to {loss.end - 1}" for loss in position.accepted_losses)
        notes.append(
            f"{source}: {position.lost} offsets were given up with --accept-loss"
            + (f" ({where})" if where else "")
            + "; records among them are lost, and that was accepted"
        )
    return notes


def logged_by_bucket(evidence: PartitionEvidence) -> dict[int, Tally]:
    """Everything the log is known to have held, hidden records apart.

    Below the log start the rows and letters stand for the records they were made of.
    """
    logged: dict[int, Tally] = {}
    for (bucket, _), group in evidence.logged.items():
        logged[bucket] = logged.get(bucket, NOTHING) + group.tally
    for groups in (evidence.stored, evidence.letters):
        for (bucket, region), group in groups.items():
            if region is Region.PURGED:
                logged[bucket] = logged.get(bucket, NOTHING) + group.tally
    return logged


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgedBalance:
    """acknowledged = logged + lost. Bucket None stands for the partition as a whole."""

    lost: Mapping[int | None, Tally]
    aborted: Mapping[int, int]
    open: Mapping[int, int]
    given_up: Mapping[int | None, int]  # lost, and accepted with --accept-loss
    unreported: int  # logged, but in no report
    undecided: Sequence[str] = ()
    by_bucket: Mapping[int, int] = field(default_factory=dict)  # acknowledged
    without_bucket: int = 0  # acknowledged, in a bucket that nobody knows


def balance_acknowledged(examination: Examination) -> AcknowledgedBalance:
    """What the producers' reports say about the log; needs `evidence.acknowledged`."""
    evidence = examination.evidence
    acknowledged = evidence.acknowledged or {}
    logged = logged_by_bucket(evidence)
    hidden = evidence.hidden or {}
    aborted = {b: h.aborted.count for b, h in hidden.items() if h.aborted.count}
    open_ = {b: h.open.count for b, h in hidden.items() if h.open.count}
    held = {
        b: logged.get(b, NOTHING) + (hidden[b].aborted + hidden[b].open if b in hidden else NOTHING)
        for b in {*logged, *hidden}
    }
    remainder = witnessed_without_bucket(examination)
    surplus: dict[int | None, Tally]
    if evidence.compacted or remainder != NOTHING:
        # Which bucket the records were in that only the ledger remembers, nobody knows.
        surplus = {None: add(acknowledged.values()) - add(held.values()) - remainder}
    else:
        surplus = {
            b: acknowledged.get(b, NOTHING) - held.get(b, NOTHING) for b in {*acknowledged, *held}
        }
    lost: dict[int | None, Tally] = {}
    given_up: dict[int | None, int] = {}
    undecided = []
    unreported = 0
    unplaced = examination.position.unplaced_losses
    for bucket, difference in sorted(surplus.items(), key=lambda item: item[0] or 0):
        unreported += max(0, -difference.count)
        # As many but other ones: at least one is lost and another was not reported.
        count = difference.count or int(difference.hash != 0)
        if count <= 0:
            continue
        accepted = _accepted_in(examination, bucket)
        credited = _credited(examination, Tally(count, difference.hash), accepted)
        if credited:
            given_up[bucket] = credited
            difference = difference - _tally_of_ranges(examination, accepted)
            count -= credited
        if not count:
            continue
        if count <= unplaced:
            unplaced -= count
            undecided.append(
                f"{evidence.source}: {count} acknowledged records are not in the log, and an "
                f"earlier release accepted the loss of {examination.position.unplaced_losses} "
                "offsets without keeping which: whether these are among them cannot be shown"
            )
        elif evidence.compacted:
            undecided.append(
                f"{evidence.source}: {count} acknowledged records are not in the log; compaction "
                "may have removed them before they were read, but without their keys "
                "(--acknowledged FILE) that cannot be shown"
            )
        else:
            lost[bucket] = Tally(count, difference.hash)
    return AcknowledgedBalance(
        lost=lost,
        aborted=aborted,
        open=open_,
        given_up=given_up,
        unreported=unreported,
        undecided=undecided,
        by_bucket={bucket: tally.count for bucket, tally in acknowledged.items()},
    )


def _accepted_in(examination: Examination, bucket: int | None) -> list[OffsetRange]:
    """Accepted losses among the offsets that reports of a bucket name."""
    offsets = examination.evidence.acknowledged_offsets
    spans = (
        list(offsets.values()) if bucket is None else [offsets[bucket]] if bucket in offsets else []
    )
    found = []
    for loss in examination.position.accepted_losses:
        for first, last in spans:
            start, end = max(loss.first, first), min(loss.end, last + 1)
            if start < end:
                found.append(OffsetRange(first=start, end=end))
    return found


def _credited(examination: Examination, lost: Tally, accepted: Sequence[OffsetRange]) -> int:
    """How many of the lost may be among the accepted offsets.

    Accepted offsets need not have held records. Where as many are lost as were accepted, the hash
    tells whether they are the same ones.
    """
    offsets = sum((one.end or one.first) - one.first for one in accepted)
    if lost.count == offsets and 0 < offsets <= HASHED_MAX:
        same = lost == _tally_of_ranges(examination, accepted)
        return lost.count if same else lost.count - 1
    return min(lost.count, offsets)


def _tally_of_ranges(examination: Examination, ranges: Iterable[OffsetRange]) -> Tally:
    source = examination.evidence.source
    seed = partition_seed(source.topic_id, source.partition)
    total = NOTHING
    for one in ranges:
        offsets = range(one.first, one.end or one.first)
        if len(offsets) <= HASHED_MAX:
            total += Tally(len(offsets), offset_hashes(offsets, seed) % HASH_MODULUS)
    return total


def witnessed_without_bucket(examination: Examination) -> Tally:
    """Records that the ledger read and that left no trace with a timestamp: filtered or compacted,
    and then gone from the log.
    """
    if not examination.gap_explained:
        return NOTHING
    evidence = examination.evidence
    outcomes = tally_of(evidence.stored, Region.PURGED) + tally_of(evidence.letters, Region.PURGED)
    return examination.gap - outcomes
