"""What a run exercised: without it a verdict says nothing.

A promise that had no opportunity to break is neither kept nor broken. Every run counts the records,
the faults that took effect, the elections and so on; `without_opportunity` names what could not
have gone wrong in what was counted, and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lossless.core.messages import NO_LEADER
from lossless.core.metadata import PartitionState
from lossless.simulator.settings import Settings
from lossless.verifier.anomaly import Kind


class Election(StrEnum):
    """Where a new leader came from."""

    CLEAN = "clean"  # the in-sync set
    ELIGIBLE = "eligible leader replica"  # KIP-966
    LAST_KNOWN = "last known leader"
    UNCLEAN = "unclean"


def election(before: PartitionState | None, after: PartitionState) -> Election | None:
    """How the leader of `after` was elected, right after `before` in the records of one controller.

    None if it is not a new leader, or if the states do not follow each other.
    """
    if before is None or after.partition_epoch != before.partition_epoch + 1:
        return None
    if after.leader == NO_LEADER or after.leader_epoch <= before.leader_epoch:
        return None
    if after.leader in before.isr:
        return Election.CLEAN
    if after.leader in before.elr:
        return Election.ELIGIBLE
    return Election.LAST_KNOWN if after.leader == before.last_known_leader else Election.UNCLEAN


@dataclass(slots=True, kw_only=True)
class Exercised:
    """Counts of one run, or of several together."""

    simulated_ms: int = 0
    attempted: int = 0  # records
    acknowledged: int = 0
    stored: int = 0
    read: int = 0
    processed: int = 0
    repeated: int = 0  # processed more than once: what at-least-once delivery costs
    faults: Counter[str] = field(default_factory=Counter)  # that took effect, by kind
    late_messages: int = 0
    elections: Counter[str] = field(default_factory=Counter)
    truncations: int = 0
    rebalances: int = 0
    commits: int = 0  # of offsets
    transactions_committed: int = 0
    transactions_aborted: int = 0
    end_min: int | None = None  # where logs end
    end_max: int | None = None

    def add(self, other: Exercised) -> None:
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.faults += other.faults
        self.elections += other.elections
        for low in (other.end_min,) if other.end_min is not None else ():
            self.end_min = low if self.end_min is None else min(self.end_min, low)
        for high in (other.end_max,) if other.end_max is not None else ():
            self.end_max = high if self.end_max is None else max(self.end_max, high)

    @property
    def is_disturbed(self) -> bool:
        return bool(self.faults or self.late_messages)

    @property
    def transactions(self) -> int:
        return self.transactions_committed + self.transactions_aborted


_SUMS = (
    "simulated_ms",
    "attempted",
    "acknowledged",
    "stored",
    "read",
    "processed",
    "repeated",
    "late_messages",
    "truncations",
    "rebalances",
    "commits",
    "transactions_committed",
    "transactions_aborted",
)

# What each kind of anomaly needs so that it could have happened.
_Need = tuple[Callable[[Exercised], object], str]
_DISTURBED: _Need = (lambda done: done.is_disturbed, "no fault took effect")
_ATTEMPTED: _Need = (lambda done: done.attempted, "no record was sent")
_STORED: _Need = (lambda done: done.stored, "no record was stored")
_ACKNOWLEDGED: _Need = (lambda done: done.acknowledged, "no record was acknowledged")
_READ: _Need = (lambda done: done.read, "no record was read")
_PROCESSED: _Need = (lambda done: done.processed, "no record was processed")
_COMMITTED: _Need = (lambda done: done.commits, "no offset was committed")
_ABORTED: _Need = (lambda done: done.transactions_aborted, "no transaction was aborted")
_TRANSACTION: _Need = (lambda done: done.transactions, "no transaction ended")
_ELECTED: _Need = (lambda done: done.elections, "no leader was elected")
_REBALANCED: _Need = (lambda done: done.rebalances, "no group shared out its partitions")
_NEEDS: Mapping[str, tuple[_Need, ...]] = {
    Kind.LOST: (_ACKNOWLEDGED, _DISTURBED),
    Kind.UNSEEN: (_ACKNOWLEDGED, _READ, _DISTURBED),
    Kind.UNPROCESSED: (_PROCESSED, _COMMITTED, _DISTURBED),
    Kind.DUPLICATE: (_STORED, _DISTURBED),
    Kind.INCONSISTENT_OFFSET: (_STORED, _DISTURBED),
    Kind.PRECOMMITTED_READ: (_READ, _DISTURBED),
    Kind.ABORTED_READ: (_READ, _ABORTED),
    Kind.REORDERED: (_STORED, _DISTURBED),
    Kind.STUCK: (_ATTEMPTED, _DISTURBED),
    Kind.INVENTED: (_STORED,),
    "HighWatermarkWithinLog": (_STORED, _DISTURBED),
    "HighWatermarkRises": (_STORED, _DISTURBED),
    "OneLeaderPerEpoch": (_ELECTED,),
    "StrongIsr": (_STORED, _DISTURBED),
    "ActiveLeader": (_DISTURBED,),
    "ActiveIsr": (_DISTURBED,),
    "CompareAndSet": (_DISTURBED,),
    "SameProcess": (_DISTURBED,),
    "SameEpoch": (_STORED, _ELECTED),
    "RecoverableLog": (_STORED, _DISTURBED),
    "OneOwner": (_REBALANCED,),
    "OwnerCommits": (_REBALANCED, _COMMITTED),
    "OneOutcome": (_TRANSACTION,),
    "ProducerFenced": (_STORED, _DISTURBED),
    "CoordinatorFenced": (_TRANSACTION, _DISTURBED),
    "OffsetsStay": (_COMMITTED, _REBALANCED),
    "MetadataStays": (_DISTURBED,),
}


def without_opportunity(
    wanted: Iterable[str], settings: Settings, exercised: Exercised
) -> dict[str, str]:
    """The kinds that could not have happened in what was counted, and why."""
    missing: dict[str, str] = {}
    for kind in wanted:
        needs = _NEEDS.get(kind, ())
        if kind == Kind.TORN_TRANSACTION:
            together: _Need = (lambda _: settings.producer.unit, "no records belong together")
            needs = (together, _STORED, _DISTURBED)
        for is_met, what in needs:
            if not is_met(exercised):
                missing[kind] = what
                break
    return missing
