"""From offsets that differ to the records that are wrong, by name. Pure.

An offset that is in the log and has neither row nor letter is either missing or was filtered, and
the offset alone does not tell which. The ledger does: it knows how many were filtered and the sum
of their hashes, for the partition and, while its history lasts, for every commit. So within one
commit's range

    hash(offsets without outcome) - hash(filtered, by the ledger) = hash(missing)

and one or two missing offsets are found by their hash; with more of them the candidates are
listed, as "k of these n".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from lossless.pipeline.audit.balance import (
    NOTHING,
    AcknowledgedBalance,
    Examination,
    OffsetRange,
    add,
)
from lossless.pipeline.audit.model import Difference, Finding, FindingKind
from lossless.pipeline.ledger import Position, SourcePartition
from lossless.tally import HASH_MODULUS, Tally, record_hash

# Offsets whose hashes are tried one by one, and candidates that are listed.
SEARCHED_MAX = 1_000_000
CANDIDATES_MAX = 10_000


def name_records(
    examination: Examination, differences: Sequence[Difference], *, complete: bool = True
) -> list[Finding]:
    """Every finding of one partition. `differences` come from where it was compared; when there
    were too many to look at them all (`complete` False), the filtered cannot be told apart.
    """
    naming = _Naming(examination)
    findings = [
        naming.finding(FindingKind.LEDGER, records=0, detail=fault)
        for fault in examination.ledger_faults
    ]
    if (unread := examination.unread) is not None and unread.end is not None:
        findings.append(
            naming.finding(
                FindingKind.DELETED_UNREAD,
                offset=unread.first,
                last_offset=unread.end - 1,
                records=unread.end - unread.first,
                detail="at most as many records as offsets",
            )
        )
    if (cut_back_to := examination.evidence.cut_back_to) is not None:
        last = examination.position.next_offset - 1
        findings.append(
            naming.finding(
                FindingKind.REPLACED,
                offset=cut_back_to,
                last_offset=last,
                records=last + 1 - cut_back_to,
                detail="at most as many records as offsets",
            )
        )
    without_outcome = []
    for difference in differences:
        findings += naming.by_itself(difference)
        if difference.logged and not difference.rows and not difference.letters:
            without_outcome.append(difference)
    if examination.compare is not None and _filtered_can_be_told_apart(examination, complete):
        findings += naming.missing(without_outcome, naming.surplus_letters(differences))
    findings += naming.rows_of_expanded()
    findings += naming.left_over(findings)
    return findings


def _filtered_can_be_told_apart(examination: Examination, complete: bool) -> bool:
    return complete or examination.position.filtered == NOTHING


def name_lost(examination: Examination, balance: AcknowledgedBalance) -> list[Finding]:
    """Records that producers had acknowledged and the log does not hold.

    A leader that dies before its followers have everything takes a run of offsets with it, so a
    run whose hashes add up to what is lost is looked for.
    """
    naming = _Naming(examination)
    evidence = examination.evidence
    findings = []
    for bucket, lost in balance.lost.items():
        ranges = [
            offsets
            for of_bucket, offsets in evidence.acknowledged_offsets.items()
            if bucket in (None, of_bucket)
        ]
        first = min((first for first, _ in ranges), default=0)
        last = max((last for _, last in ranges), default=-1)
        run = find_run_by_hash(lost, range(first, last + 1), naming.hash)
        if run is not None:
            named = [naming.finding(FindingKind.LOST, offset=offset) for offset in run]
        else:
            named = [
                naming.finding(
                    FindingKind.LOST,
                    offset=first,
                    last_offset=last,
                    records=lost.count,
                    detail=f"{lost.count} of what was acknowledged between these offsets",
                )
            ]
        findings += [replace(finding, bucket_ms=bucket) for finding in named]
    return findings


@dataclass(frozen=True, slots=True)
class _Naming:
    examination: Examination

    @property
    def source(self) -> SourcePartition:
        return self.examination.evidence.source

    @property
    def log_start(self) -> int:
        log = self.examination.evidence.log
        return log.start if log else self.examination.position.next_offset

    def finding(
        self,
        kind: FindingKind,
        *,
        offset: int | None = None,
        last_offset: int | None = None,
        records: int = 1,
        difference: Difference | None = None,
        candidates: Sequence[int] = (),
        detail: str = "",
    ) -> Finding:
        return Finding(
            kind=kind,
            topic=self.source.topic,
            topic_id=self.source.topic_id,
            partition=self.source.partition,
            offset=difference.offset if difference else offset,
            last_offset=last_offset,
            records=records,
            key=difference.key if difference else None,
            timestamp_ms=difference.timestamp_ms if difference else None,
            candidates=candidates,
            detail=detail,
        )

    def hash(self, offset: int) -> int:
        return record_hash(self.source.topic_id, self.source.partition, offset)

    def tally(self, offsets: Iterable[int]) -> Tally:
        return add(Tally(1, self.hash(offset)) for offset in offsets)

    def by_itself(self, difference: Difference) -> list[Finding]:
        """What one offset shows without asking the ledger for counts."""
        position = self.examination.position
        outcomes = difference.rows + difference.letters
        if difference.offset < position.start_offset:
            return self._unexpected(FindingKind.BEFORE_START, difference)
        if difference.offset >= self.examination.next_offset_after:
            return self._unexpected(FindingKind.BEYOND_LEDGER, difference)
        found = []
        if (
            not difference.logged
            and outcomes
            and difference.offset >= self.log_start
            and not self.examination.evidence.compacted
        ):
            return self._unexpected(FindingKind.NOT_IN_LOG, difference)
        if difference.rows and difference.letters:
            found.append(self.finding(FindingKind.STORED_AND_DEAD, difference=difference))
        if difference.rows > 1 and not self.examination.expands:
            found.append(self._copies(FindingKind.DUPLICATED, difference, difference.rows))
        if difference.letters > 1:
            found.append(
                self._copies(FindingKind.LETTER_DUPLICATED, difference, difference.letters)
            )
        if (
            outcomes
            and difference.logged_at_ms is not None
            and difference.stored_at_ms is not None
            and difference.logged_at_ms != difference.stored_at_ms
        ):
            found.append(self.finding(FindingKind.OTHER_TIMESTAMP, difference=difference))
        return found

    def _unexpected(self, kind: FindingKind, difference: Difference) -> list[Finding]:
        outcomes = difference.rows + difference.letters
        if not outcomes:
            return []
        what = [f"{difference.rows} row(s)"] if difference.rows else []
        what += [f"{difference.letters} dead letter(s)"] if difference.letters else []
        return [
            self.finding(kind, difference=difference, records=outcomes, detail=" and ".join(what))
        ]

    def _copies(self, kind: FindingKind, difference: Difference, copies: int) -> Finding:
        return self.finding(
            kind, difference=difference, records=copies - 1, detail=f"there are {copies} of it"
        )

    def surplus_letters(self, differences: Sequence[Difference]) -> Tally:
        """Dead letters that should not be there, so that they do not stand for missing ones."""
        total = NOTHING
        for difference in differences:
            expected = 1 if difference.logged and not difference.rows else 0
            surplus = max(0, difference.letters - expected)
            digest = self.hash(difference.offset) * surplus % HASH_MODULUS
            total += Tally(surplus, digest)
        return total

    def missing(
        self, without_outcome: Sequence[Difference], surplus_letters: Tally
    ) -> list[Finding]:
        """Tells the missing from the filtered, and dead letters from rows."""
        by_offset = {d.offset: d for d in without_outcome}
        certain: list[int] = []
        findings: list[Finding] = []
        if self.examination.position.filtered == NOTHING:
            certain = sorted(by_offset)
        else:
            for part in self._parts(by_offset):
                missing, stored, unsure = part.solve(
                    self, may_be_gone=self.examination.evidence.compacted
                )
                certain += missing
                findings += [
                    self.finding(FindingKind.NOT_FILTERED, offset=offset) for offset in stored
                ]
                if unsure:
                    findings.append(
                        self.finding(
                            FindingKind.MISSING_EITHER,
                            offset=part.without_outcome[0],
                            last_offset=part.without_outcome[-1],
                            records=unsure,
                            candidates=part.without_outcome[:CANDIDATES_MAX],
                            detail=f"{unsure} of these {len(part.without_outcome)} offsets; the "
                            "others were filtered",
                        )
                    )
        letters = self._letters_among(certain, surplus_letters)
        for offset in certain:
            kind = FindingKind.MISSING
            if letters is None:
                kind = FindingKind.MISSING_EITHER
            elif offset in letters:
                kind = FindingKind.LETTER_MISSING
            findings.append(self.finding(kind, difference=by_offset[offset]))
        return findings

    def _letters_among(self, missing: Sequence[int], surplus: Tally) -> set[int] | None:
        """Which of the missing were dead letters; None when that cannot be told."""
        wanted = self.examination.missing_letters + surplus
        if wanted.count <= 0:
            return set()
        if wanted == self.tally(missing):
            return set(missing)
        found = find_by_hash(wanted, missing, self.hash)
        return set(found) if found is not None else None

    def _parts(self, by_offset: dict[int, Difference]) -> list[_Part]:
        """The partition cut up by the commits that are still known, and one part for the rest."""
        position = self.examination.position
        log_start = self.log_start
        rest = position.filtered
        ordered = sorted(by_offset)
        remaining = set(ordered)
        parts = []
        for entry in self.examination.evidence.history:
            after = entry.after.get(self.source)
            if after is None:
                continue
            before = entry.before.get(self.source) or Position(
                start_offset=after.start_offset, next_offset=after.start_offset
            )
            filtered = after.filtered - before.filtered
            rest = rest - filtered
            offsets = OffsetRange(first=before.next_offset, end=after.next_offset)
            inside = ordered[
                bisect_left(ordered, before.next_offset) : bisect_left(ordered, after.next_offset)
            ]
            remaining.difference_update(inside)
            # Where the log is not all there, its filtered records are no longer seen as such.
            if before.next_offset >= log_start and after.next_offset <= position.next_offset:
                parts.append(_Part(inside, filtered, offsets))
        whole = OffsetRange(first=max(position.start_offset, log_start), end=position.next_offset)
        if log_start <= position.start_offset:
            parts.append(_Part(sorted(remaining), rest, whole))
        return parts

    def rows_of_expanded(self) -> list[Finding]:
        """One record with a row too few, one with a row too many, or one of each."""
        wanted, position = self.examination.missing_row_tally, self.examination.position
        if self.examination.missing_rows != NOTHING or wanted == NOTHING:
            return []
        offsets = range(position.start_offset, position.next_offset)
        if wanted.count not in (-1, 0, 1) or len(offsets) > SEARCHED_MAX:
            return []
        by_hash = {self.hash(offset): offset for offset in offsets}
        if wanted.count == 1 and wanted.hash in by_hash:
            return [self.finding(FindingKind.ROWS_MISSING, offset=by_hash[wanted.hash])]
        surplus = -wanted.hash % HASH_MODULUS
        if wanted.count == -1 and surplus in by_hash:
            return [self.finding(FindingKind.ROWS_DUPLICATED, offset=by_hash[surplus])]
        if wanted.count == 0:
            for digest, offset in by_hash.items():
                doubled = by_hash.get((digest - wanted.hash) % HASH_MODULUS)
                if doubled is not None:
                    return [
                        self.finding(FindingKind.ROWS_MISSING, offset=offset),
                        self.finding(FindingKind.ROWS_DUPLICATED, offset=doubled),
                    ]
        return []

    def left_over(self, named: Sequence[Finding]) -> list[Finding]:
        """What the tallies say is wrong and no name explains. Never silent about it."""
        rest = self.examination.missing_rows
        for finding in named:
            if finding.offset is None or finding.kind in (
                FindingKind.BEYOND_LEDGER,
                FindingKind.BEFORE_START,
            ):
                continue
            one = Tally(1, self.hash(finding.offset))
            if finding.kind is FindingKind.MISSING:
                rest = rest - one
            elif finding.kind in (FindingKind.DUPLICATED, FindingKind.NOT_IN_LOG):
                rest = rest + Tally(finding.records, one.hash * finding.records % HASH_MODULUS)
            elif finding.kind is FindingKind.NOT_FILTERED:
                rest = rest + one
        start, log_start = self.examination.position.start_offset, self.log_start
        if rest.count == 1 and start < log_start <= start + SEARCHED_MAX:
            purged = find_by_hash(rest, range(start, log_start), self.hash)
            if purged:
                return [self.finding(FindingKind.MISSING, offset=purged[0])]
        if named or self.examination.balanced:
            return []
        position = self.examination.position
        return [
            self.finding(
                FindingKind.LEDGER,
                records=0,
                detail=f"it counts {position.stored.count} stored in {position.rows} rows and "
                f"{position.dead.count} dead; table and dead letters differ from that by "
                f"{-self.examination.missing_rows.count} records, "
                f"{self.examination.surplus_rows} rows (or as many other ones) and "
                f"{-self.examination.missing_letters.count} dead letters",
            )
        ]


@dataclass(frozen=True, slots=True)
class _Part:
    without_outcome: Sequence[int]
    filtered: Tally
    offsets: OffsetRange

    def solve(
        self, naming: _Naming, *, may_be_gone: bool
    ) -> tuple[Sequence[int], Sequence[int], int]:
        """Missing offsets, offsets stored though filtered, and how many are missing unnamed.

        `may_be_gone`: compaction may have removed some of the filtered since.
        """
        wanted = naming.tally(self.without_outcome) - self.filtered
        if wanted == NOTHING:
            return [], [], 0
        if self.filtered == NOTHING:
            return self.without_outcome, [], 0
        found = find_by_hash(wanted, self.without_outcome, naming.hash)
        if found is not None:
            return found, [], 0
        exchanged = None if may_be_gone else self._exchanged(wanted, naming.hash)
        if exchanged is not None:
            return *exchanged, 0
        return [], [], min(max(0, wanted.count), len(self.without_outcome))

    def _exchanged(
        self, wanted: Tally, hash_of: Callable[[int], int]
    ) -> tuple[Sequence[int], Sequence[int]] | None:
        """A filtered offset that has a row after all, and perhaps one missing in its place."""
        end = self.offsets.end
        if wanted.count not in (0, -1) or end is None or end - self.offsets.first > SEARCHED_MAX:
            return None
        missing = {hash_of(offset): offset for offset in self.without_outcome}
        for offset in range(self.offsets.first, end):
            left = (wanted.hash + hash_of(offset)) % HASH_MODULUS
            if wanted.count == -1 and left == 0:
                return [], [offset]
            if wanted.count == 0 and left in missing:
                return [missing[left]], [offset]
        return None


def find_by_hash(
    wanted: Tally, candidates: Sequence[int], hash_of: Callable[[int], int]
) -> list[int] | None:
    """The one or two candidates whose hashes add up to `wanted`; None when there are none."""
    if wanted.count not in (1, 2) or len(candidates) > SEARCHED_MAX:
        return None
    by_hash = {hash_of(offset): offset for offset in candidates}
    if wanted.count == 1:
        return [by_hash[wanted.hash]] if wanted.hash in by_hash else None
    for digest, offset in by_hash.items():
        other = by_hash.get((wanted.hash - digest) % HASH_MODULUS)
        if other is not None and other != offset:
            return sorted((offset, other))
    return None


def find_run_by_hash(wanted: Tally, offsets: range, hash_of: Callable[[int], int]) -> range | None:
    """The run of `wanted.count` neighbouring offsets whose hashes add up to `wanted`."""
    if not 0 < wanted.count <= len(offsets) <= SEARCHED_MAX:
        return None
    hashes = [hash_of(offset) for offset in offsets]
    window = sum(hashes[: wanted.count]) % HASH_MODULUS
    for first in range(len(hashes) - wanted.count + 1):
        if window == wanted.hash:
            return offsets[first : first + wanted.count]
        if first + wanted.count < len(hashes):
            window = (window - hashes[first] + hashes[first + wanted.count]) % HASH_MODULUS
    return None


def in_bucket(finding: Finding, bucket_ms: int) -> Finding:
    """The finding with the bucket it is counted in."""
    if finding.timestamp_ms is None:
        return finding
    return replace(finding, bucket_ms=finding.timestamp_ms - finding.timestamp_ms % bucket_ms)
