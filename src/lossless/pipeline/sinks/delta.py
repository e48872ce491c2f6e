"""Delta tables: rows and ledger in one commit, dead letters decided by it.

    stage    one job writes rows and dead letters into a directory of this pipeline and sequence,
             as files that belong to no table yet; receipts are read back from them, and dead
             letters copied beside their own table's files
    commit   one optimistic transaction: read the ledger (the transaction versions of the table),
             require that it is the expected one, add the dead letters to their own table, then
             add the row files and the new ledger. Whoever changed the ledger meanwhile won.

Invariants
- The ledger is the newest snapshot's transaction versions. It moves only together with files, so a
  commit that vanished (a crash, a lost race on a local disk) leaves both as they were.
- Files staged for sequence n can be committed only while the ledger is at n - 1; see
  delta_staging.py. A driver that loses removes its own, the next one what a dead driver left.
- On `file:` a lock is held around check and commit; see file_lock.py.

Refused: storage on which two drivers can publish the same version (delta_coordination.py); tables
that forget transaction versions (`delta.setTransactionRetentionDuration`) or that lost our last
commit to a RESTORE, because the ledger would no longer say what is in the table; and tables with
features that staged files go around (delta_schema.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import inheritable_thread_target
from pyspark.errors import PySparkException

from lossless.errors import BadInput, Fenced, PromiseBroken
from lossless.pipeline.contents import (
    Uncoverings,
    content_hashes,
    doubtful_rows,
    hashed,
    hashed_columns,
    with_hash_column,
)
from lossless.pipeline.ledger import Ledger, LedgerEntry
from lossless.pipeline.outcomes import CONTENT_HASH, DEAD_LETTER, IS_DEAD, receipts, row_schema
from lossless.pipeline.sinks import delta_ledger, delta_schema
from lossless.pipeline.sinks.delta_coordination import require_coordination
from lossless.pipeline.sinks.delta_errors import (
    JAVA_ERRORS,
    first_line,
    is_conflict,
    is_lasting,
    storage_reason,
)
from lossless.pipeline.sinks.delta_letters import (
    DeltaLetters,
    LettersSettled,
    Named,
    StagedLetters,
)
from lossless.pipeline.sinks.delta_log import (
    LOCK_FILE,
    AddedFile,
    DeltaLog,
    Scratch,
    Snapshot,
    TableMetadata,
    Transaction,
)
from lossless.pipeline.sinks.delta_restore import RESTORE, restore_damage
from lossless.pipeline.sinks.delta_staging import (
    STAGE,
    StagingArea,
    require_as_written,
    table_file,
)
from lossless.pipeline.sinks.interface import (
    CommitUnknown,
    SchemaDifference,
    SinkUnavailable,
    Staged,
    no_ledger,
    own_ledger,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from lossless.pipeline.sinks.unreadable_files import UnreadableFile

ATTEMPTS_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFiles:
    """What a batch wrote into the table's folder, and what its commit will need."""

    sequence: int  # the only sequence that these files may be committed as
    metadata: TableMetadata  # the table that they were written for
    files: tuple[AddedFile, ...]
    letters: StagedLetters | None  # None when there are none


class DeltaSink:
    """One pipeline's rows in a Delta table; other pipelines may write to the same table."""

    def __init__(self, spark: SparkSession, pipeline: str, path: str) -> None:
        self._pipeline = pipeline
        self._shown_path = path
        self._delta = DeltaLog(spark, path)
        self._letters = DeltaLetters(spark, pipeline, f"{path.rstrip('/')}_dlt")
        self._sequence: int | None = None  # of the ledger, as last seen
        self._coordinated = False  # only one of two drivers can publish a version, as a race showed
        self._left_out: frozenset[str] = frozenset()  # files that an audit does not read
        self._checked_version = -1  # no RESTORE up to here has taken our rows away

    def describe(self) -> str:
        return f"delta table {self._shown_path}"

    # The ledger

    def ledger(self) -> Ledger:
        with self._storage("reading"):
            self._delta.forget()
            snapshot = self._delta.snapshot()
            if not snapshot.exists:
                self._sequence = 0
                return Ledger()
            ledger = self._ledger_in(snapshot)
            delta_schema.refuse_forgetting(snapshot.metadata, self._delta.path)
            after = snapshot.transactions(delta_ledger.after_version_id(self._pipeline))
            for version in after.values():
                self._refuse_restored(version, ledger)
            self._checked_version = snapshot.version
        self._sequence = ledger.sequence
        return ledger

    def history(self) -> Sequence[LedgerEntry]:
        if not self._delta.snapshot().exists:
            return []
        versions = self._delta.snapshot().transactions(delta_ledger.ROOT)
        names = {self._pipeline, *delta_ledger.former_names(self._pipeline, versions)}
        entries = (
            delta_ledger.entry_from(name, commit.user_metadata)
            for commit in reversed(self._delta.commits())
            for name in names
        )
        return [entry for entry in entries if entry is not None]

    def other_ledgers(self) -> Mapping[str, Ledger]:
        with self._storage("reading"):
            snapshot = self._delta.snapshot()
            if not snapshot.exists:
                return {}
            return delta_ledger.other_ledgers(
                self._pipeline, snapshot.transactions(delta_ledger.ROOT)
            )

    def take_over(self, old: str) -> Ledger:
        with self._storage("renaming a pipeline in"), self._delta.locked():
            for _ in range(ATTEMPTS_MAX):
                transaction = self._delta.begin()
                versions = self._delta.snapshot().transactions(delta_ledger.ROOT)
                if delta_ledger.renamed_to(old, versions) == self._pipeline:
                    break  # what follows was interrupted
                others = delta_ledger.other_ledgers(self._pipeline, versions)
                own = delta_ledger.ledger_from(self._pipeline, versions)
                if delta_ledger.renamed_to(self._pipeline, versions):
                    own = Ledger()
                if old not in others:
                    mine = [self._pipeline] if own.sequence else []
                    raise no_ledger(old, self.describe(), [*others, *mine])
                if own.sequence:
                    raise own_ledger(self._pipeline, self.describe(), own)
                moved, entry = delta_ledger.take_over_versions(old, self._pipeline, versions)
                moved[delta_ledger.after_version_id(self._pipeline)] = transaction.read_version
                for name in (old, self._pipeline):
                    transaction.version_of(delta_ledger.sequence_id(name))
                try:
                    transaction.commit(
                        [],
                        moved,
                        query=self._pipeline,
                        epoch=entry.sequence,
                        user_metadata=delta_ledger.commit_metadata(self._pipeline, entry),
                    )
                    break
                except JAVA_ERRORS as error:
                    if not is_conflict(error):
                        raise
            else:
                raise SinkUnavailable(f"the {self.describe()} kept changing: nothing was renamed")
            self._letters.take_over(old)
        return self.ledger()

    def cancel(self) -> None:
        """There is no server to wait for."""

    def sweep(self) -> None:
        with self._storage("sweeping"):
            self._letters.forget()
            if not self._delta.snapshot().exists:
                return
            with self._delta.locked():
                settled = self._letters.settled()
                snapshot = self._delta.snapshot()
                ledger = self._ledger_in(snapshot)
                # `settled` was read first: it can be ahead only of a table that was put back.
                if settled > ledger.sequence:
                    self._letters.go_back(ledger.sequence)
                self._letters.sweep(ledger.sequence, self._named_in(snapshot))
                area = self._staging(ledger.sequence)
                area.remove_all_but(area.in_table(snapshot))

    # The table

    def schema_difference(self, rows: StructType) -> SchemaDifference:
        snapshot = self._delta.snapshot()
        if not snapshot.exists:
            return SchemaDifference()
        return delta_schema.difference(snapshot.metadata.schema, rows)

    def prepare(self, rows: StructType, *, add_columns: bool) -> None:
        reserved = {STAGE, DEAD_LETTER, CONTENT_HASH} & {n.lower() for n in rows.fieldNames()}
        if reserved:
            raise BadInput(f"a column cannot be called {', '.join(sorted(reserved))}")
        rows = with_hash_column(rows)
        with self._preparing():
            if not self._coordinated:
                require_coordination(self._delta, self.describe())
                self._coordinated = True
            if not self._delta.snapshot().exists:
                others = {*self._delta.entries()} - {LOCK_FILE, "_delta_log"}
                if others:
                    raise BadInput(
                        f"{self._shown_path} is neither a Delta table nor empty: "
                        f"it holds {min(others)}",
                        hint="give the sink a path of its own",
                    )
                self._create_or_grow(rows)
            # Also after creating it: another driver may have been quicker, with other columns.
            metadata = self._delta.snapshot().metadata
            delta_schema.refuse_forgetting(metadata, self._delta.path)
            delta_schema.refuse_unsupported(metadata, self.describe())
            difference = delta_schema.difference(metadata.schema, rows)
            delta_schema.refuse_unfit(difference, self._pipeline, self.describe(), add_columns)
            if difference.added:
                self._create_or_grow(rows)

    # A batch

    def stage(self, outcomes: DataFrame, *, may_expand: bool) -> Staged:
        if self._sequence is None:
            self.ledger()
        assert self._sequence is not None
        area = self._staging(self._sequence + 1)
        with self._storage("staging rows for"):
            if not self._delta.snapshot().exists:
                raise SinkUnavailable(f"the {self.describe()} is gone")
            metadata = self._delta.begin().metadata
            scratch = area.write(self._as_the_table_spells(hashed(outcomes), metadata))
            written = scratch.read_back.withColumn(IS_DEAD, area.is_letter())
            # The letters are few: one task, which leaves the other cores to the count.
            with ThreadPoolExecutor(max_workers=1) as beside:
                copying = beside.submit(
                    inheritable_thread_target(self._delta.spark)(self._stage_letters),
                    area,
                    scratch,
                )
                counted = receipts(written, may_expand=may_expand)
                letters = copying.result()
        files = area.row_files(scratch.files)
        dead = sum(receipt.dead.count for receipt in counted.values())
        require_as_written(files, sum(receipt.rows for receipt in counted.values()), "rows")
        require_as_written(area.letter_files(scratch.files), dead, "dead letters")
        require_as_written(letters.files if letters else (), dead, "copies of dead letters")
        return Staged(
            receipts=counted,
            columns=hashed_columns(outcomes.schema),
            handle=StagedFiles(
                sequence=self._sequence + 1,
                metadata=metadata,
                files=tuple(table_file(file) for file in files),
                letters=letters,
            ),
        )

    def commit(self, expected: Ledger, successor: Ledger, staged: Staged | None) -> None:
        files: StagedFiles | None = None if staged is None else staged.handle
        if files is not None and files.sequence != successor.sequence:
            raise ValueError(
                f"files staged for sequence {files.sequence} cannot be committed as "
                f"{successor.sequence}"
            )
        with self._storage("committing to"), self._delta.locked():
            try:
                self._commit(expected, successor, files)
            except Fenced:
                if not self._settle_loss(successor.sequence, files):
                    raise
            else:
                self._remove_losers(successor.sequence, files)
        self._sequence = successor.sequence

    # What the audit reads

    def rows(self) -> DataFrame:
        if not self._delta.snapshot().exists:
            raise BadInput(
                f"there is no Delta table at {self._shown_path} yet",
                hint="the first `lossless run` of the pipeline creates it",
            )
        if self._left_out:
            return self._delta.snapshot().load_without(self._left_out)
        return self._delta.load()

    def unreadable_files(self, *, read: bool) -> Sequence[UnreadableFile]:
        with self._storage("looking for the files of"):
            return [
                *self._delta.unreadable_files(read=read),
                *self._letters.unreadable_files(read=read),
            ]

    def leave_out(self, files: Sequence[UnreadableFile]) -> None:
        self._left_out = frozenset(file.path for file in files)

    def contents(self, covered: Sequence[str], uncovered: Uncoverings) -> DataFrame:
        return doubtful_rows(self.rows(), covered, uncovered)

    def content_hashes(self) -> DataFrame:
        return content_hashes(self.rows())

    def dead_letters(self) -> DataFrame:
        return self._letters.visible(self._named_in(self._delta.snapshot()), self._left_out)

    # The steps of a commit

    def _commit(self, expected: Ledger, successor: Ledger, files: StagedFiles | None) -> None:
        entry = LedgerEntry.between(expected, successor, committed_at_ms=int(time.time() * 1000))
        token: int | None = None
        for _ in range(ATTEMPTS_MAX):
            transaction = self._begin(expected, successor)
            if files is not None:
                self._refuse_changed(files, transaction)
                if files.letters is not None and token is None:
                    token = self._add_letters(expected, files.letters, transaction)
            versions = delta_ledger.changed_versions(self._pipeline, expected, successor)
            versions[delta_ledger.after_version_id(self._pipeline)] = transaction.read_version
            if token is not None:
                versions[delta_ledger.dead_sequence_id(self._pipeline)] = successor.sequence
                versions[delta_ledger.dead_token_id(self._pipeline)] = token
            try:
                version = transaction.commit(
                    [] if files is None else files.files,
                    versions,
                    query=self._pipeline,
                    epoch=successor.sequence,
                    user_metadata=delta_ledger.commit_metadata(self._pipeline, entry),
                )
            except JAVA_ERRORS as error:
                if is_conflict(error):
                    continue  # looking again tells whether it was about our ledger
                raise CommitUnknown(
                    f"the {self.describe()} may or may not have committed sequence "
                    f"{successor.sequence}: {storage_reason(error) or first_line(error)}"
                ) from error
            if version > transaction.read_version + 1:
                # Others came in between, and a RESTORE among them would not have stopped us.
                self._refuse_restored(transaction.read_version, successor)
            self._checked_version = version
            return
        raise SinkUnavailable(
            f"the {self.describe()} kept changing: {ATTEMPTS_MAX} attempts at a commit failed"
        )

    def _begin(self, expected: Ledger, successor: Ledger) -> Transaction:
        """A transaction that has seen the expected ledger, and conflicts with who changes it."""
        transaction = self._delta.begin()
        stored = transaction.version_of(delta_ledger.sequence_id(self._pipeline)) or 0
        if stored != expected.sequence:
            raise self._fenced(expected, stored)
        for source in successor.positions:
            before = expected.positions.get(source)
            found = transaction.version_of(delta_ledger.next_offset_id(self._pipeline, source))
            if found != (None if before is None else before.next_offset):
                raise PromiseBroken(
                    f"the ledger in the {self.describe()} says offset {found} for {source}, and "
                    f"{before.next_offset if before else None} was expected at the same sequence "
                    f"{stored}: something else has written to it"
                )
        delta_schema.refuse_forgetting(transaction.metadata, self._delta.path)
        if transaction.read_version > self._checked_version:
            self._refuse_restored(self._checked_version, expected)
            self._checked_version = transaction.read_version
        return transaction

    def _refuse_changed(self, files: StagedFiles, transaction: Transaction) -> None:
        if transaction.metadata != files.metadata:
            raise SinkUnavailable(
                f"the {self.describe()} got other columns or properties after the batch was staged",
                hint="the batch is staged again",
            )
        missing = self._staging(files.sequence).missing(files.files)
        if missing:
            raise SinkUnavailable(
                f"{len(missing)} files staged for the {self.describe()} are gone, "
                f"{missing[0]} among them",
                hint="the batch is staged again; was it a VACUUM with a retention of hours?",
            )

    def _stage_letters(self, area: StagingArea, scratch: Scratch) -> StagedLetters | None:
        if not area.letter_files(scratch.files):
            return None
        return self._letters.stage(area.letters(scratch), sequence=area.sequence)

    def _add_letters(
        self, expected: Ledger, letters: StagedLetters, transaction: Transaction
    ) -> int:
        """The token that the commit must name for the letters to count."""
        try:
            self._letters.add(
                letters,
                named=self._named_by(
                    transaction.version_of(delta_ledger.dead_sequence_id(self._pipeline)),
                    transaction.version_of(delta_ledger.dead_token_id(self._pipeline)),
                ),
            )
            return letters.token
        except LettersSettled:
            stored = self._ledger_in(self._delta.snapshot())
            if stored.sequence != expected.sequence:
                raise self._fenced(expected, stored.sequence) from None
            raise PromiseBroken(
                f"the dead letters in {self._letters.path} are ahead of the {self.describe()}, "
                "which seems to have been put back from a backup",
                hint="start the pipeline again: letters that the table does not know are removed",
            ) from None

    def _settle_loss(self, sequence: int, files: StagedFiles | None) -> bool:
        """After losing a race: removes what we staged. True if it was our own commit that won,
        which a storage layer that repeats its requests can make look like someone else's."""
        snapshot = self._delta.snapshot()
        area = self._staging(sequence)
        in_table = area.in_table(snapshot)
        if files is not None and files.files and all(f.path in in_table for f in files.files):
            return True
        ours = delta_ledger.sequence_id(self._pipeline)
        if snapshot.transactions(ours).get(ours, 0) >= sequence:
            with suppress(*JAVA_ERRORS):  # the next sweep does it
                area.remove_all_but(in_table)
        return False

    def _remove_losers(self, sequence: int, files: StagedFiles | None) -> None:
        """After our commit: whatever else was staged for its sequence has lost."""
        ours = set() if files is None else {file.path for file in files.files}
        with suppress(*JAVA_ERRORS):  # it is committed; the next sweep does it
            self._staging(sequence).remove_all_but(ours)

    def _staging(self, sequence: int) -> StagingArea:
        return StagingArea(self._delta, self._pipeline, sequence)

    def _as_the_table_spells(self, outcomes: DataFrame, metadata: TableMetadata) -> DataFrame:
        delta_schema.refuse_unsupported(metadata, self.describe())
        difference = delta_schema.difference(metadata.schema, row_schema(outcomes.schema))
        if difference.added or difference.incompatible:
            raise SinkUnavailable(
                f"the {self.describe()} does not have the columns of the rows: "
                + "; ".join([*difference.added, *difference.incompatible]),
                hint="somebody has changed the table: start the pipeline again",
            )
        spelling = {field.name.lower(): field.name for field in metadata.schema.fields}
        return outcomes.toDF(*(spelling.get(name.lower(), name) for name in outcomes.columns))

    # Reading the snapshot

    def _ledger_in(self, snapshot: Snapshot) -> Ledger:
        versions = snapshot.transactions(delta_ledger.prefix(self._pipeline))
        name = delta_ledger.renamed_to(self._pipeline, versions)
        if name is not None:
            raise BadInput(
                f"the pipeline {self._pipeline} was renamed: its ledger in the {self.describe()} "
                f"is continued by {name}",
                hint=f"run {name}; or, to take the name back: lossless rename {name} "
                f"{self._pipeline}",
            )
        return delta_ledger.ledger_from(self._pipeline, versions)

    def _named_in(self, snapshot: Snapshot) -> Named | None:
        versions = snapshot.transactions(delta_ledger.prefix(self._pipeline))
        return self._named_by(
            versions.get(delta_ledger.dead_sequence_id(self._pipeline)),
            versions.get(delta_ledger.dead_token_id(self._pipeline)),
        )

    def _named_by(self, sequence: int | None, token: int | None) -> Named | None:
        if sequence is None or token is None:
            return None
        return Named(sequence=sequence, token=token)

    # Refusals

    def _refuse_restored(self, version: int, ledger: Ledger) -> None:
        """Looks for a RESTORE above `version` that took commits of this pipeline away."""
        if ledger.sequence == 0 or RESTORE not in self._delta.operations_after(version):
            return
        damage = restore_damage(self._delta.commits(), self._pipeline, ledger.sequence)
        if damage is None:
            return
        undo = f"RESTORE TABLE delta.`{self._delta.path}` TO VERSION AS OF {damage.version - 1}"
        another = "read the topics into another table"
        raise PromiseBroken(
            f"RESTORE (version {damage.version}) has taken rows of this pipeline out of the "
            f"{self.describe()}, and the ledger, at sequence {ledger.sequence}, still counts them",
            hint=f"{undo} brings them back; to keep the table as it is, {another}"
            if damage.can_be_undone
            else another,
        )

    def _fenced(self, expected: Ledger, stored: int) -> Fenced:
        return Fenced(
            f"another driver runs the pipeline {self._pipeline}: the {self.describe()} is at "
            f"sequence {stored}, and this one had read {expected.sequence}",
            hint="nothing was written by this one; stop one of the two",
        )

    # Failures of storage

    @contextmanager
    def _storage(self, doing: str) -> Iterator[None]:
        """Errors that Spark explains pass as they are: they may be about the user's transform."""
        try:
            yield
        except (OSError, *JAVA_ERRORS) as error:
            reason = storage_reason(error)
            if reason is None and isinstance(error, PySparkException):
                raise
            raise SinkUnavailable(
                f"{doing} the {self.describe()} failed: {reason or first_line(error)}"
            ) from error

    @contextmanager
    def _preparing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, *JAVA_ERRORS) as error:
            reason = storage_reason(error)
            if reason is None or is_lasting(reason):
                raise BadInput(
                    f"the {self.describe()} cannot be used: {reason or first_line(error)}"
                ) from error
            raise SinkUnavailable(f"preparing the {self.describe()} failed: {reason}") from error

    def _create_or_grow(self, rows: StructType) -> None:
        with self._delta.locked():
            for _ in range(ATTEMPTS_MAX):
                snapshot = self._delta.snapshot()
                schema = (
                    delta_schema.grown(snapshot.metadata.schema, rows) if snapshot.exists else rows
                )
                try:
                    self._delta.set_schema(schema)
                    return
                except JAVA_ERRORS as error:
                    if not is_conflict(error):  # otherwise another driver does the same
                        raise
        raise SinkUnavailable(f"the {self.describe()} kept changing while columns were added")
