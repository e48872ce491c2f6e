"""What every sink does: keep the ledger, stage outcomes, commit both together, sweep leftovers.

The order of calls in a run

    ledger → sweep → prepare(schema) → { stage(outcomes) → commit(expected, successor, staged) }*

What a sink promises
- `commit` makes rows, dead letters and ledger visible together or not at all, and only if the
  stored ledger still is `expected`; otherwise it raises Fenced and nothing changed.
- What `stage` leaves behind when nobody commits it is invisible to readers, and `sweep` removes it.
- Receipts count what was really written, by the attempts that count: read back from the staged
  files, or returned by the tasks that staged.
- An outcome that is not known (a connection cut during COMMIT) raises CommitUnknown; the runner
  then reads the ledger again and never assumes.
- `stage` and `commit` raise RecordsRefused for records whose rows the table cannot take; nothing
  changed then, and the batch can be staged again with these records as dead letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lossless.errors import BadInput, Unavailable
from lossless.pipeline.ledger import Ledger, LedgerEntry, Receipt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from lossless.pipeline.contents import Uncoverings
    from lossless.pipeline.sinks.unreadable_files import UnreadableFile


class CommitUnknown(Unavailable):
    """The sink may or may not have committed: read the ledger again."""


class SinkUnavailable(Unavailable):
    """The sink cannot be reached or written now; trying again later can help."""


class Place(NamedTuple):
    """Where a record is in the log."""

    topic_id: str
    partition: int
    offset: int


class RecordsRefused(BadInput):
    """The table cannot take rows made of these records; `reasons` says why, record by record."""

    def __init__(self, where: str, reasons: Mapping[Place, str]) -> None:
        place, reason = min(reasons.items())
        more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
        super().__init__(
            f"the {where} refuses offset {place.offset} of partition {place.partition}: "
            f"{reason}{more}",
            hint="nothing of the batch was stored; change the transform, or the table's rule",
        )
        self.reasons = reasons

    def beyond(self, known: Mapping[Place, str]) -> dict[Place, str]:
        """The records that are refused by now. Raises this error if it names no new one."""
        if self.reasons.keys() <= known.keys():
            raise self
        return {**known, **self.reasons}


def allow_columns(pipeline: str) -> str:
    """How a user lets a pipeline add the columns that its table lacks."""
    return f"to have them added: add_columns = true in [pipelines.{pipeline}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """What a batch wrote that no reader sees yet."""

    # By (topic id, partition). `read` is left at zero by a sink: only the runner knows it.
    receipts: Mapping[tuple[str, int], Receipt]
    # The columns that the hashes of the rows' contents cover; none: the rows carry no hash.
    columns: Sequence[str] = ()
    # What the sink needs to commit it: files, a token, a batch and attempt number.
    handle: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaDifference:
    """How the rows' schema differs from the table's. Empty when the table does not exist yet."""

    exists: bool = False
    added: Sequence[str] = field(default_factory=tuple)  # "column type": rows have it, table not
    incompatible: Sequence[str] = field(default_factory=tuple)  # a sentence each


def no_ledger(old: str, where: str, others: Iterable[str]) -> BadInput:
    """There is no ledger to take over."""
    known = ", ".join(sorted(others))
    return BadInput(
        f"the pipeline {old} has no ledger in the {where}",
        hint=f"pipelines that have one there: {known or '(none)'}",
    )


def own_ledger(pipeline: str, where: str, ledger: Ledger) -> BadInput:
    """The pipeline that is to take a ledger over has one already."""
    return BadInput(
        f"the pipeline {pipeline} has a ledger of its own in the {where}, at commit "
        f"{ledger.sequence}",
        hint="two ledgers cannot become one: give the new pipeline another name",
    )


class Sink(Protocol):
    def describe(self) -> str:
        """Where the rows go, for people: 'delta table ./warehouse/orders'. No secrets."""

    def ledger(self) -> Ledger:
        """The stored ledger, read afresh. Ledger() when the pipeline has never committed.

        Raises PromiseBroken when the sink shows that its ledger cannot be trusted.
        """

    def history(self) -> Sequence[LedgerEntry]:
        """The commits that are still known one by one, oldest first."""

    def other_ledgers(self) -> Mapping[str, Ledger]:
        """The ledgers of other pipelines that write into the same table, by their names."""

    def take_over(self, old: str) -> Ledger:
        """Moves the ledger of the pipeline `old` to this one, with history and dead letters.

        A driver that still runs `old` cannot commit any more. Raises BadInput when `old` has no
        ledger here, or this pipeline has one of its own.
        """

    def cancel(self) -> None:
        """Called by another thread: ends what the sink waits for at a server, with an error."""

    def sweep(self) -> None:
        """Removes what earlier attempts staged and nobody committed."""

    def schema_difference(self, rows: StructType) -> SchemaDifference: ...

    def prepare(self, rows: StructType, *, add_columns: bool) -> None:
        """Creates the table, or adds nullable columns when allowed. BadInput when incompatible."""

    def stage(self, outcomes: DataFrame, *, may_expand: bool) -> Staged:
        """Writes rows and dead letters where no reader sees them yet.

        `may_expand` says that a transform may have made several rows of one record: only then is
        it worth counting distinct source offsets.
        """

    def commit(self, expected: Ledger, successor: Ledger, staged: Staged | None) -> None:
        """`staged` is None for a commit that moves the ledger only (start, accepted loss)."""

    def rows(self) -> DataFrame:
        """The stored rows, for the audit; carries PROVENANCE."""

    def unreadable_files(self, *, read: bool) -> Sequence[UnreadableFile]:
        """Data files of the table or its dead letters that are gone or damaged.

        `read`: files of the right length are read as well. Otherwise only names and lengths count.
        """

    def leave_out(self, files: Sequence[UnreadableFile]) -> None:
        """`rows`, `contents` and `dead_letters` read the table without these files from now on."""

    def contents(self, covered: Sequence[str], uncovered: Uncoverings) -> DataFrame:
        """The rows whose contents are not shown to be as written; see contents.py.

        `covered` are the columns that the hashes cover, by the ledger, and `uncovered` the rows
        whose hashes do not cover one of them.
        """

    def content_hashes(self) -> DataFrame:
        """PROVENANCE, field by field, and CONTENT_HASH of every row that has one."""

    def dead_letters(self) -> DataFrame:
        """The committed dead letters: PROVENANCE, key, value, record_headers, headers."""
