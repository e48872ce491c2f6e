"""The controller's decisions: which brokers are alive, who leads, who is in sync, what exists.

A handler looks at the image and returns records and an answer; it changes nothing. Records are
appended to the quorum's log and applied; the answer goes out once they are committed.

A broker    registered ──▶ fenced ──▶ active ──▶ stopping ──▶ fenced
                              ▲          │
                              └── session expired, or registered again

Invariants
- Whoever is fenced or stopping leads nothing and is in no in-sync set, but for the last member of
  a set where eligible leaders are off.
- A change of an in-sync set names the partition epoch and the leader epoch that it was made from.

Rules learnt
- The in-sync set that a leader proposes names each member's broker epoch. Who has registered since
  is another process, perhaps with an empty disk, and is not added (KIP-903).
- Fenced and stopping replicas are not added either (KIP-841).
- A broker that registers without the epoch it last had did not stop cleanly: it may have lost what
  was not flushed, and leaves every in-sync and eligible set (KIP-966).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from lossless.core import election
from lossless.core.messages import (
    NO_LEADER,
    AdminAnswer,
    AlterConfig,
    AlterPartition,
    AlterPartitionAnswer,
    BrokerHeartbeat,
    BrokerHeartbeatAnswer,
    BrokerRegistration,
    BrokerRegistrationAnswer,
    CreateTopic,
    DeleteTopic,
    ElectLeader,
    Error,
    TopicPartition,
)
from lossless.core.metadata import (
    MIN_ISR,
    UNCLEAN,
    BrokerChanged,
    BrokerRegistered,
    ConfigChanged,
    Image,
    MetadataRecord,
    PartitionChanged,
    PartitionState,
    TopicCreated,
    TopicRemoved,
)
from lossless.core.placement import NotEnoughBrokers, place
from lossless.log.rules import RULES, Rules

Answer = BrokerRegistrationAnswer | BrokerHeartbeatAnswer | AlterPartitionAnswer | AdminAnswer


class Decision(NamedTuple):
    records: tuple[MetadataRecord, ...]
    answer: Answer


class Controller:
    """The decisions of the active controller. `image` is replaced when another one takes over."""

    def __init__(self, image: Image, rules: Rules = RULES) -> None:
        self.image = image
        self._rules = rules

    # Brokers

    def on_registration(
        self, request: BrokerRegistration, has_session: bool, next_offset: int
    ) -> Decision:
        known = self.image.brokers.get(request.broker)
        if known is not None and known.incarnation == request.incarnation:
            return Decision((), BrokerRegistrationAnswer(Error.NONE, known.epoch))
        if known is not None and has_session and not known.stopping:
            # The other process may still be alive; its session will end if it is not.
            return Decision((), BrokerRegistrationAnswer(Error.DUPLICATE_BROKER_REGISTRATION))
        records: list[MetadataRecord] = []
        if known is not None:
            is_clean = request.previous_broker_epoch == known.epoch
            records += self._without(request.broker, is_clean=is_clean)
        epoch = next_offset + len(records)
        records.append(BrokerRegistered(request.broker, request.incarnation, request.rack))
        return Decision(tuple(records), BrokerRegistrationAnswer(Error.NONE, epoch))

    def on_heartbeat(self, request: BrokerHeartbeat) -> Decision:
        known = self.image.brokers.get(request.broker)
        if known is None or known.epoch != request.broker_epoch:
            return Decision((), BrokerHeartbeatAnswer(Error.STALE_BROKER_EPOCH))
        if request.want_shut_down:
            return self._stop(request.broker, known.fenced)
        if known.fenced and request.metadata_offset > known.epoch:
            return Decision(
                self._unfence(request.broker), BrokerHeartbeatAnswer(Error.NONE, is_fenced=False)
            )
        return Decision((), BrokerHeartbeatAnswer(Error.NONE, is_fenced=known.fenced))

    def fence(self, broker: int) -> tuple[MetadataRecord, ...]:
        """Its session has expired: it may be dead, or only out of reach."""
        known = self.image.brokers[broker]
        if known.fenced:
            return ()
        return (BrokerChanged(broker, True, False), *self._without(broker))

    def _stop(self, broker: int, is_fenced: bool) -> Decision:
        records: tuple[MetadataRecord, ...] = ()
        if not is_fenced and not self.image.brokers[broker].stopping:
            records = (BrokerChanged(broker, False, True), *self._without(broker))
        return Decision(
            records, BrokerHeartbeatAnswer(Error.NONE, is_fenced, should_shut_down=True)
        )

    def _unfence(self, broker: int) -> tuple[MetadataRecord, ...]:
        """Partitions without a leader may have one now."""
        return (
            BrokerChanged(broker, False, False),
            *self._changes(
                (
                    partition
                    for partition, state in self.image.partitions.items()
                    if state.leader == NO_LEADER and broker in state.replicas
                ),
                newly_active=broker,
            ),
        )

    def _without(self, broker: int, *, is_clean: bool = True) -> tuple[MetadataRecord, ...]:
        """Every partition that the broker leads, is in sync with or could lead, without it."""
        concerned = (
            partition
            for partition, state in self.image.partitions.items()
            if broker == state.leader
            or broker in state.isr
            or (broker in state.elr and not is_clean)
        )
        return self._changes(
            concerned, removed=broker, uncleanly_stopped=None if is_clean else broker
        )

    # Partitions

    def on_alter_partition(self, request: AlterPartition) -> Decision:
        """The leader of a partition asks for another in-sync set."""
        error = self._may_alter(request)
        if error is not Error.NONE:
            return Decision((), AlterPartitionAnswer(request.partition, error))
        state = self.image.partitions[request.partition]
        isr = tuple(member.broker for member in request.isr)
        target = self._changed(request.partition, isr=isr)
        records: tuple[MetadataRecord, ...] = ()
        if target is not None:
            records = (PartitionChanged(*request.partition, target),)
            state = target
        error = Error.NONE if state.leader == request.broker else Error.NEW_LEADER_ELECTED
        answer = AlterPartitionAnswer(
            request.partition, error, state.isr, state.leader_epoch, state.partition_epoch
        )
        return Decision(records, answer)

    def _may_alter(self, request: AlterPartition) -> Error:
        known = self.image.brokers.get(request.broker)
        if known is None or known.epoch != request.broker_epoch:
            return Error.STALE_BROKER_EPOCH
        state = self.image.partitions.get(request.partition)
        if state is None:
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        if request.leader_epoch != state.leader_epoch:
            return Error.FENCED_LEADER_EPOCH
        if request.partition_epoch != state.partition_epoch:
            return Error.INVALID_UPDATE_VERSION
        if all(self._may_be_in_sync(state, *member) for member in request.isr):
            return Error.NONE
        return Error.INELIGIBLE_REPLICA

    def _may_be_in_sync(self, state: PartitionState, broker: int, broker_epoch: int) -> bool:
        known = self.image.brokers.get(broker)
        if known is None or broker not in state.replicas:
            return False
        is_other = broker_epoch not in (-1, known.epoch) and self._rules.broker_epoch_in_isr
        return not is_other and (known.is_active or not self._rules.fenced_stay_out)

    def on_elect_leader(self, request: ElectLeader) -> Decision:
        state = self.image.partitions.get(request.partition)
        if state is None:
            return _admin(Error.UNKNOWN_TOPIC_OR_PARTITION, str(request.partition))
        if request.unclean and state.leader != NO_LEADER:
            return _admin(Error.ELECTION_NOT_NEEDED, f"{state.leader} leads")
        if not request.unclean and state.leader == state.preferred:
            return _admin(Error.ELECTION_NOT_NEEDED, f"{state.leader} leads")
        target = self._changed(
            request.partition,
            may_be_unclean=request.unclean,
            prefer=None if request.unclean else state.preferred,
        )
        if target is None or target.leader == state.leader:
            error = (
                Error.ELIGIBLE_LEADERS_NOT_AVAILABLE
                if request.unclean
                else Error.PREFERRED_LEADER_NOT_AVAILABLE
            )
            return _admin(error, str(request.partition))
        return Decision((PartitionChanged(*request.partition, target),), AdminAnswer(Error.NONE))

    def _changes(
        self,
        partitions: Iterable[TopicPartition],
        *,
        removed: int | None = None,
        newly_active: int | None = None,
        uncleanly_stopped: int | None = None,
    ) -> tuple[MetadataRecord, ...]:
        records: list[MetadataRecord] = []
        for partition in partitions:
            isr = tuple(b for b in self.image.partitions[partition].isr if b != removed)
            target = self._changed(
                partition,
                isr=isr,
                inactive=removed,
                newly_active=newly_active,
                uncleanly_stopped=uncleanly_stopped,
            )
            if target is not None:
                records.append(PartitionChanged(*partition, target))
        return tuple(records)

    def _changed(
        self,
        partition: TopicPartition,
        *,
        isr: tuple[int, ...] | None = None,
        inactive: int | None = None,
        newly_active: int | None = None,
        uncleanly_stopped: int | None = None,
        may_be_unclean: bool | None = None,
        prefer: int | None = None,
    ) -> PartitionState | None:
        if may_be_unclean is None:
            may_be_unclean = self.image.may_elect_unclean(partition)

        def is_active(broker: int) -> bool:
            """As it will be once the records of this decision are applied."""
            return broker == newly_active or (broker != inactive and self.image.is_active(broker))

        return election.changed(
            self.image.partitions[partition],
            isr=isr,
            uncleanly_stopped=uncleanly_stopped,
            is_active=is_active,
            min_isr=self.image.min_isr(partition),
            may_be_unclean=may_be_unclean,
            prefer=prefer,
            rules=self._rules,
        )

    # Topics and settings

    def on_create_topic(self, request: CreateTopic, next_offset: int) -> Decision:
        if request.topic in self.image.topics:
            return _admin(Error.TOPIC_ALREADY_EXISTS, request.topic)
        if request.partitions < 1:
            return _admin(Error.INVALID_PARTITIONS, "at least 1")
        for key, value in request.config:
            if problem := _problem(key, value):
                return _admin(Error.INVALID_CONFIG, problem)
        if problem := self._misplaced(request):
            return _admin(Error.INVALID_REPLICA_ASSIGNMENT, problem)
        active = {
            broker: known.rack for broker, known in self.image.brokers.items() if known.is_active
        }
        try:
            placed = request.assignment or place(
                active, request.partitions, request.replication_factor
            )
        except NotEnoughBrokers as error:
            return _admin(Error.INVALID_REPLICATION_FACTOR, str(error))
        records: list[MetadataRecord] = [TopicCreated(request.topic, next_offset)]
        records += [ConfigChanged(request.topic, key, value) for key, value in request.config]
        for partition, replicas in enumerate(placed):
            isr = tuple(broker for broker in replicas if broker in active)
            state = PartitionState(replicas, isr, isr[0])
            records.append(PartitionChanged(request.topic, partition, state))
        return Decision(tuple(records), AdminAnswer(Error.NONE))

    def _misplaced(self, request: CreateTopic) -> str | None:
        if not request.assignment:
            return None
        if len(request.assignment) != request.partitions:
            return f"{len(request.assignment)} partitions are placed, not {request.partitions}"
        for replicas in request.assignment:
            if not replicas or len(set(replicas)) < len(replicas):
                return f"replicas are on different brokers, not on {replicas}"
            unknown = [broker for broker in replicas if broker not in self.image.brokers]
            if unknown:
                return f"there is no broker {unknown[0]}"
            if not any(self.image.is_active(broker) for broker in replicas):
                return f"of {replicas} nobody is there to lead"
        return None

    def on_delete_topic(self, request: DeleteTopic) -> Decision:
        if request.topic not in self.image.topics:
            return _admin(Error.UNKNOWN_TOPIC_OR_PARTITION, request.topic)
        return Decision((TopicRemoved(request.topic),), AdminAnswer(Error.NONE))

    def on_alter_config(self, request: AlterConfig) -> Decision:
        if request.topic and request.topic not in self.image.topics:
            return _admin(Error.UNKNOWN_TOPIC_OR_PARTITION, request.topic)
        problem = request.value is not None and _problem(request.key, request.value)
        if problem:
            return _admin(Error.INVALID_CONFIG, problem)
        record = ConfigChanged(request.topic, request.key, request.value)
        # In one batch with what follows from it: a controller that dies in between must not leave
        # one without the other.
        then = self.image.copy()
        then.apply(record, then.end_offset)
        return Decision(
            (record, *Controller(then, self._rules)._elections_due()), AdminAnswer(Error.NONE)
        )

    def _elections_due(self) -> tuple[MetadataRecord, ...]:
        """After a change of settings: partitions that may have a leader now, or that commit with
        less, which who was eligible does not have."""
        return self._changes(
            partition
            for partition, state in self.image.partitions.items()
            if state.leader == NO_LEADER or state.elr
        )


def _admin(error: Error, what: str) -> Decision:
    return Decision((), AdminAnswer(error, what))


def _problem(key: str, value: str) -> str | None:
    """Of what the machines read themselves; other settings are for their host to check."""
    if key == MIN_ISR and not (value.isdecimal() and int(value) >= 1):
        return f"{key} is a number from 1 on, not {value!r}"
    if key == UNCLEAN and value not in ("true", "false"):
        return f"{key} is true or false, not {value!r}"
    return None
