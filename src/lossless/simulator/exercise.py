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

from lossless.contract.faults import FaultKind
from lossless.core.messages import NO_LEADER
from lossless.core.metadata import PartitionState
from lossless.simulator.settings import DEADLY_FAULTS, FAULTS, Settings
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
    kept: int = 0  # acknowledged records, without those of transactions that were not committed
    in_order: int = 0  # records sent or read right after another one, so that an order exists
    # Of several records, or of records and offsets, and not aborted: only these can be torn.
    units: int = 0
    takeovers: int = 0  # consumers that resumed a partition after it had been read before
    repeated: int = 0  # processed more than once: what at-least-once delivery costs
    faults: Counter[str] = field(default_factory=Counter)  # that took effect, by kind
    late_messages: int = 0
    elections: Counter[str] = field(default_factory=Counter)
    truncations: int = 0
    rebalances: int = 0
    commits: int = 0  # of offsets
    transactions_committed: int = 0
    transactions_aborted: int = 0
    # How often each invariant was checked in a state that could have broken it.
    examined: Counter[str] = field(default_factory=Counter)
    end_min: int | None = None  # where logs end
    end_max: int | None = None

    def add(self, other: Exercised) -> None:
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.faults += other.faults
        self.elections += other.elections
        self.examined += other.examined
        for low in (other.end_min,) if other.end_min is not None else ():
            self.end_min = low if self.end_min is None else min(self.end_min, low)
        for high in (other.end_max,) if other.end_max is not None else ():
            self.end_max = high if self.end_max is None else max(self.end_max, high)

    @property
    def is_disturbed(self) -> bool:
        return bool(self.faults or self.late_messages)

    def had(self, kinds: Iterable[FaultKind]) -> bool:
        """Whether a fault of these kinds took effect."""
        if FaultKind.LATE_MESSAGES in kinds and self.late_messages:
            return True
        return any(self.faults[kind.value] for kind in kinds)

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
    "kept",
    "in_order",
    "units",
    "takeovers",
    "repeated",
    "late_messages",
    "truncations",
    "rebalances",
    "commits",
    "transactions_committed",
    "transactions_aborted",
)

# Faults that reach the brokers, the requests of producers, and the controllers.
_OF_CLIENTS = (FaultKind.PRODUCER_CRASH, FaultKind.CONSUMER_CRASH)
_OF_REQUESTS = tuple(kind for kind in FAULTS if kind not in _OF_CLIENTS)
_OF_BROKERS = tuple(kind for kind in _OF_REQUESTS if kind is not FaultKind.CLIENT_DISCONNECT)
_OF_UNITS = (*_OF_REQUESTS, FaultKind.PRODUCER_CRASH)
_OF_RESTARTS = (*DEADLY_FAULTS, FaultKind.POWER_LOSS_EVERYWHERE)
_OF_CONTROLLERS = (
    FaultKind.CONTROLLER_CRASH,
    FaultKind.POWER_LOSS_EVERYWHERE,
    FaultKind.NETWORK_PARTITION,
    FaultKind.LATE_MESSAGES,
)

# What each kind of anomaly needs so that it could have happened.
_Need = tuple[Callable[[Exercised], object], str]


def _fault(kinds: tuple[FaultKind, ...], what: str) -> _Need:
    return lambda done: done.had(kinds), what


def _examined(name: str, what: str) -> _Need:
    return lambda done: done.examined[name], what


_DISTURBED: _Need = (lambda done: done.is_disturbed, "no fault took effect")
_BROKERS_DISTURBED = _fault(_OF_BROKERS, "no fault reached the brokers")
_REQUESTS_DISTURBED = _fault(_OF_REQUESTS, "no fault reached a producer's requests")
_UNITS_DISTURBED = _fault(_OF_UNITS, "no fault reached a producer")
_ATTEMPTED: _Need = (lambda done: done.attempted, "no record was sent")
_STORED: _Need = (lambda done: done.stored, "no record was stored")
_ACKNOWLEDGED: _Need = (lambda done: done.acknowledged, "no record was acknowledged")
_KEPT: _Need = (lambda done: done.kept, "no acknowledged record was committed")
_READ: _Need = (lambda done: done.read, "no record was read")
_PROCESSED: _Need = (lambda done: done.processed, "no record was processed")
_IN_ORDER: _Need = (lambda done: done.in_order, "no producer or consumer had two records in a row")
_UNITS: _Need = (lambda done: done.units, "no transaction or unit had several parts")
_COMMITTED: _Need = (lambda done: done.commits, "no offset was committed")
_TAKEN_OVER: _Need = (lambda done: done.takeovers, "no consumer took over what another had read")
_ABORTED: _Need = (lambda done: done.transactions_aborted, "no transaction was aborted")
_TRANSACTION: _Need = (lambda done: done.transactions, "no transaction ended")
_REBALANCED: _Need = (lambda done: done.rebalances, "no group shared out its partitions")
_FENCED = "no broker with a replica was fenced or stopping"
_ALTERED = "no leader changed an in-sync set"
_NEEDS: Mapping[str, tuple[_Need, ...]] = {
    Kind.LOST: (_ACKNOWLEDGED, _KEPT, _DISTURBED, _BROKERS_DISTURBED),
    Kind.UNSEEN: (_ACKNOWLEDGED, _KEPT, _READ, _DISTURBED),
    Kind.UNPROCESSED: (_PROCESSED, _COMMITTED, _KEPT, _DISTURBED, _TAKEN_OVER),
    Kind.DUPLICATE: (_STORED, _DISTURBED, _REQUESTS_DISTURBED),
    Kind.INCONSISTENT_OFFSET: (_STORED, _DISTURBED, _BROKERS_DISTURBED),
    Kind.PRECOMMITTED_READ: (_READ, _DISTURBED, _BROKERS_DISTURBED),
    Kind.ABORTED_READ: (_READ, _ABORTED),
    Kind.REORDERED: (_STORED, _IN_ORDER, _DISTURBED, _REQUESTS_DISTURBED),
    Kind.STUCK: (_ATTEMPTED, _DISTURBED),
    Kind.INVENTED: (_STORED,),
    "HighWatermarkWithinLog": (_STORED, _DISTURBED, _BROKERS_DISTURBED),
    "HighWatermarkRises": (_STORED, _DISTURBED, _BROKERS_DISTURBED),
    "OneLeaderPerEpoch": (
        _examined("OneLeaderPerEpoch", "no leader was elected among several replicas"),
    ),
    "StrongIsr": (
        _STORED,
        _DISTURBED,
        _BROKERS_DISTURBED,
        _examined("StrongIsr", "no follower was in sync"),
    ),
    "ActiveLeader": (_DISTURBED, _examined("ActiveLeader", _FENCED)),
    "ActiveIsr": (_DISTURBED, _examined("ActiveIsr", f"{_FENCED} beside another one")),
    "CompareAndSet": (_DISTURBED, _examined("CompareAndSet", _ALTERED)),
    "SameProcess": (
        _DISTURBED,
        _examined("SameProcess", f"{_ALTERED} after one of its members had restarted"),
    ),
    "SameEpoch": (
        _STORED,
        _examined("SameEpoch", "no elected leader committed what a follower had fetched"),
    ),
    "RecoverableLog": (_STORED, _DISTURBED, _fault(_OF_RESTARTS, "no broker died")),
    "OneOwner": (_REBALANCED, _examined("OneOwner", "no group had two members at a time")),
    "OwnerCommits": (
        _REBALANCED,
        _COMMITTED,
        _examined("OwnerCommits", "no offset was committed in a group that had several members"),
    ),
    "OneOutcome": (
        _TRANSACTION,
        _examined("OneOutcome", "no transaction of version 2 got a second marker"),
    ),
    "ProducerFenced": (
        _STORED,
        _DISTURBED,
        _examined("ProducerFenced", "no producer's epoch was raised in a partition"),
    ),
    "CoordinatorFenced": (
        _TRANSACTION,
        _DISTURBED,
        _examined("CoordinatorFenced", "no partition got markers of two coordinators"),
    ),
    "OffsetsStay": (
        _COMMITTED,
        _REBALANCED,
        _examined("OffsetsStay", "no group looked up an offset after it had been acknowledged"),
    ),
    "OneVote": (
        _DISTURBED,
        _examined("OneVote", "no controller restarted in an epoch of its vote"),
    ),
    "OneProducer": (
        _DISTURBED,
        _examined("OneProducer", "no producer started again with its transactional id"),
    ),
    "MetadataStays": (
        _DISTURBED,
        _fault(_OF_CONTROLLERS, "no fault reached the controllers"),
        _examined("MetadataStays", "no two controllers, or two lives of one, were compared"),
    ),
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
            reached = _DISTURBED if settings.transforms else _UNITS_DISTURBED
            needs = (together, _STORED, _UNITS, _DISTURBED, reached)
        if kind == Kind.LOST and settings.producer.acks == 0:  # lost on the way, too
            needs = (_ACKNOWLEDGED, _KEPT, _DISTURBED, _REQUESTS_DISTURBED)
        for is_met, what in needs:
            if not is_met(exercised):
                missing[kind] = what
                break
    return missing


_PROMISED = (
    Kind.LOST,
    Kind.UNSEEN,
    Kind.UNPROCESSED,
    Kind.DUPLICATE,
    Kind.INCONSISTENT_OFFSET,
    Kind.PRECOMMITTED_READ,
    Kind.REORDERED,
    Kind.STUCK,
)
_PROMISED_OF_TRANSACTIONS = (Kind.ABORTED_READ, Kind.TORN_TRANSACTION)


def promised(settings: Settings) -> tuple[str, ...]:
    """The kinds to look for unless others are named.

    Only a consumer that takes over from another one can miss a record that was not processed. With
    groups any fault can bring that about; without them only the crash of a consumer does.
    """
    kinds = _PROMISED + (_PROMISED_OF_TRANSACTIONS if settings.is_transactional else ())
    can_take_over = settings.groups or FaultKind.CONSUMER_CRASH in dict(settings.faults)
    return tuple(kind.value for kind in kinds if can_take_over or kind is not Kind.UNPROCESSED)
