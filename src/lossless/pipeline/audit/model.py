"""The values an audit works with: evidence that was scanned, findings, and the report.

A partition's offsets fall into regions, by what the ledger says and what the log still holds:

    before start_offset   BEFORE    the pipeline was never responsible for it
    below the log start   PURGED    deleted by retention since; the ledger is the witness
    below next_offset     SETTLED   must be stored, a dead letter or filtered
    at or beyond it       AHEAD     in flight
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from lossless.pipeline.ledger import LedgerEntry, Position, SourcePartition
from lossless.tally import Tally


class Region(StrEnum):
    BEFORE = "before"
    PURGED = "purged"
    SETTLED = "settled"
    AHEAD = "ahead"


class Side(StrEnum):
    LOG = "log"
    TABLE = "table"
    LETTERS = "dead letters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What one side holds of one partition in one bucket and region."""

    tally: Tally  # source offsets; each counted once where the transform expands, else per row
    rows: int
    first_offset: int
    last_offset: int
    row_hash: int | None = None  # hashes of all rows added up; None: as in `tally`
    # Hashes of offset with timestamp added up: another record at the same offset has another one.
    moment_hash: int = 0

    @property
    def row_tally(self) -> Tally:
        return Tally(self.rows, self.tally.hash if self.row_hash is None else self.row_hash)


# By (start of the bucket in ms, region).
Groups = Mapping[tuple[int, Region], Group]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    start: int  # the log start offset
    end: int  # the offset after the last one that a reader of this isolation level gets
    leader_epoch: int | None = None  # of the leader that said so


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenRecords:
    """Records that only read_uncommitted shows: of aborted and of open transactions."""

    aborted: Tally = Tally()
    open: Tally = Tally()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEvidence:
    source: SourcePartition
    position: Position | None  # the ledger before the scan; None: it does not know the partition
    position_after: Position | None  # the ledger after the scan, when a live pipeline moved on
    log: LogBounds | None  # None: no topic has this id any more
    # The first offset that holds another record than the one that was read: the log was cut back
    # and has grown again since. None: it was not.
    cut_back_to: int | None = None
    compacted: bool = False  # the topic's cleanup.policy has `compact`
    logged: Groups = field(default_factory=dict)
    stored: Groups = field(default_factory=dict)
    letters: Groups = field(default_factory=dict)
    acknowledged: Mapping[int, Tally] | None = None  # by bucket; None: nobody reported
    # The first and last offset that reports name, by bucket.
    acknowledged_offsets: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    hidden: Mapping[int, HiddenRecords] | None = None  # by bucket; None: not looked for
    history: Sequence[LedgerEntry] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One offset at which log, table and dead letters do not agree one to one."""

    offset: int
    logged: int
    rows: int
    letters: int
    key: bytes | None = None
    logged_at_ms: int | None = None
    stored_at_ms: int | None = None

    @property
    def timestamp_ms(self) -> int | None:
        return self.logged_at_ms if self.logged_at_ms is not None else self.stored_at_ms


class FindingKind(StrEnum):
    LOST = "acknowledged, but not in the log"
    DELETED_UNREAD = "deleted by retention before it was read"
    MISSING = "missing from the table"
    LETTER_MISSING = "dead letter missing"
    MISSING_EITHER = "missing: a row or a dead letter"
    DUPLICATED = "duplicated in the table"
    LETTER_DUPLICATED = "duplicated among the dead letters"
    DUPLICATED_IN_LOG = "duplicated in the log"
    STORED_AND_DEAD = "stored and also a dead letter"
    NOT_IN_LOG = "stored, but not in the log"
    BEYOND_LEDGER = "stored beyond the ledger"
    BEFORE_START = "stored from before the pipeline's start"
    NOT_FILTERED = "stored, but the ledger counted it as filtered"
    ROWS_MISSING = "fewer rows than the record became"
    ROWS_DUPLICATED = "more rows than the record became"
    REPLACED = "replaced in the log after it was read"
    ALTERED = "altered since it was stored"
    OTHER_TIMESTAMP = "stored with another timestamp than the log's"
    OTHER_RECORD = "dead letter of another record than the log's"
    UNKNOWN_SOURCE = "stored from a partition that the ledger does not know"
    LEDGER = "the ledger does not agree"


DUPLICATED_KINDS = frozenset(
    {
        FindingKind.DUPLICATED,
        FindingKind.LETTER_DUPLICATED,
        FindingKind.DUPLICATED_IN_LOG,
        FindingKind.STORED_AND_DEAD,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that does not balance: a record, or several that cannot be told apart."""

    kind: FindingKind
    topic: str
    topic_id: str
    partition: int
    offset: int | None = None  # the record; or the first of a range
    last_offset: int | None = None  # the last of a range
    records: int = 1  # how many are lost, or how many copies are too many
    key: bytes | None = None
    timestamp_ms: int | None = None
    bucket_ms: int | None = None  # the bucket it is counted in; None: not known
    candidates: Sequence[int] = ()  # `records` of these offsets, when it cannot be told which
    detail: str = ""


class Verdict(StrEnum):
    BALANCED = "balanced"
    NOT_BALANCED = "not balanced"
    UNDECIDED = "cannot tell"


class Reported(StrEnum):
    """Whether producers said what was acknowledged."""

    NO = "not reported"
    PARTLY = "partially reported"
    FULLY = "reported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """One line of the balance: acknowledged = logged + lost before the log, and

    logged = stored + filtered + dead + in flight + explained + missing.
    """

    start_ms: int | None  # None: records whose bucket nobody knows any more
    acknowledged: int | None = None
    logged: int = 0
    stored: int = 0  # records, each once
    filtered: int = 0
    dead: int = 0
    in_flight: int = 0
    explained: int = 0  # aborted by their transaction, compacted or given up: with evidence
    missing: int = 0  # logged and settled, but neither stored, dead nor filtered
    lost_before_log: int = 0  # acknowledged, but not in the log
    duplicated: int = 0  # copies too many
    unexpected: int = 0  # rows that should not be there
    altered: int = 0  # rows that do not hold any more what was written (--contents)
    balanced: bool = True

    @property
    def lost(self) -> int:
        return self.missing + self.lost_before_log


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSummary:
    source: SourcePartition
    start_offset: int | None
    next_offset: int | None
    log_start: int | None
    log_end: int | None
    balanced: bool
    total: Bucket


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    pipeline: str
    sink: str
    audited_at_ms: int
    sequence: int
    bucket_ms: int
    reported: Reported
    verdict: Verdict
    buckets: Sequence[Bucket]
    partitions: Sequence[PartitionSummary]
    total: Bucket
    findings: Sequence[Finding]
    notes: Sequence[str]  # what was explained, and by which evidence
    undecided: Sequence[str]  # why it cannot tell
