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

What exists and how it is set is decided in topic_decisions and config_decisions, where replicas
move to in reassignment, who leads then in election.
"""

from __future__ import annotations

from collections.abc import Iterable

from lossless.core import config_decisions, election, reassignment, topic_decisions
from lossless.core.admin_messages import (
    ALL_BROKERS,
    AlterConfigs,
    AlterQuotas,
    AlterReassignment,
    ConfigChange,
    ConfigOperation,
    CreatePartitions,
    ListReassignments,
    ListReassignmentsAnswer,
    Reassignment,
    UnregisterBroker,
    topic_resource,
)
from lossless.core.decision import Answer as Answer
from lossless.core.decision import Decision as Decision
from lossless.core.decision import accepted, refused
from lossless.core.messages import (
    NO_LEADER,
    AdminAnswer,
    AllocateProducerIds,
    AllocateProducerIdsAnswer,
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
    BrokerChanged,
    BrokerRegistered,
    BrokerRemoved,
    Image,
    MetadataRecord,
    PartitionChanged,
    PartitionState,
    ProducerIdsAllocated,
    QuotaChanged,
)
from lossless.core.quotas import limits
from lossless.core.reassignment import Assignment, Placed
from lossless.core.security import decisions as security_decisions
from lossless.core.security.messages import AlterScramCredential, CreateAcl, DeleteAcl
from lossless.log.rules import RULES, Rules

PRODUCER_IDS = 1000  # that a broker is given at a time


class Controller:
    """The decisions of the active controller. `image` is replaced when another one takes over."""

    def __init__(self, image: Image, rules: Rules = RULES, topic_id_base: int = 0) -> None:
        self.image = image
        self._rules = rules
        self._topic_id_base = topic_id_base

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
        records.append(
            BrokerRegistered(request.broker, request.incarnation, request.rack, request.endpoints)
        )
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

    def on_unregister(self, request: UnregisterBroker) -> Decision:
        """Its replicas stay where they are until somebody moves them."""
        if request.broker not in self.image.brokers:
            return refused(Error.BROKER_ID_NOT_REGISTERED, f"there is no broker {request.broker}")
        left = self._without(request.broker, is_clean=False)
        return accepted((*left, BrokerRemoved(request.broker)))

    def on_allocate_producer_ids(self, request: AllocateProducerIds) -> Decision:
        known = self.image.brokers.get(request.broker)
        if known is None or known.epoch != request.broker_epoch:
            return Decision((), AllocateProducerIdsAnswer(Error.STALE_BROKER_EPOCH))
        first = self.image.next_producer_id
        return Decision(
            (ProducerIdsAllocated(first + PRODUCER_IDS),),
            AllocateProducerIdsAnswer(Error.NONE, first, PRODUCER_IDS),
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
            return refused(Error.UNKNOWN_TOPIC_OR_PARTITION, str(request.partition))
        if request.unclean and state.leader != NO_LEADER:
            return refused(Error.ELECTION_NOT_NEEDED, f"{state.leader} leads")
        if not request.unclean and state.leader == state.preferred:
            return refused(Error.ELECTION_NOT_NEEDED, f"{state.leader} leads")
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
            return refused(error, str(request.partition))
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
        assignment: Assignment | None = None,
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
            assignment=assignment,
            uncleanly_stopped=uncleanly_stopped,
            is_active=is_active,
            min_isr=self.image.min_isr(partition),
            may_be_unclean=may_be_unclean,
            prefer=prefer,
            rules=self._rules,
        )

    # Where replicas are

    def on_alter_reassignment(self, request: AlterReassignment) -> Decision:
        state = self.image.partitions.get(request.partition)
        if state is None:
            return refused(Error.UNKNOWN_TOPIC_OR_PARTITION, str(request.partition))
        if request.replicas is None:
            placed = self._placed_as_before(request.partition, state)
        else:
            placed = self._placed_anew(state, request.replicas, request)
        if isinstance(placed, Decision):
            return placed
        target = self._changed(request.partition, isr=placed.isr, assignment=placed.assignment)
        records = () if target is None else (PartitionChanged(*request.partition, target),)
        return accepted(records)

    def _placed_anew(
        self, state: PartitionState, replicas: tuple[int, ...], request: AlterReassignment
    ) -> Placed | Decision:
        if problem := topic_decisions.problem_with_replicas(self.image, replicas):
            return refused(Error.INVALID_REPLICA_ASSIGNMENT, problem)
        copies = len(reassignment.assignment_of(state).wanted)
        if len(replicas) != copies and not request.may_change_replication_factor:
            return refused(
                Error.INVALID_REPLICATION_FACTOR,
                f"{request.partition} has {copies} replicas, and would have {len(replicas)}",
            )
        return Placed(reassignment.towards(state, replicas), state.isr)

    def _placed_as_before(
        self, partition: TopicPartition, state: PartitionState
    ) -> Placed | Decision:
        if not reassignment.assignment_of(state).is_moving:
            return refused(Error.NO_REASSIGNMENT_IN_PROGRESS, str(partition))
        placed = reassignment.reverted(state)
        if placed.isr:
            return placed
        if not self.image.may_elect_unclean(partition):
            return refused(
                Error.INVALID_REPLICA_ASSIGNMENT,
                f"of {placed.assignment.replicas} nobody is in sync: an unclean election is needed",
            )
        return placed._replace(isr=placed.assignment.replicas[:1])

    def on_list_reassignments(self, request: ListReassignments) -> Decision:
        partitions = self.image.partitions
        asked = sorted(partitions) if request.partitions is None else request.partitions
        found = tuple(
            Reassignment(partition, state.replicas, state.adding, state.removing)
            for partition in asked
            if (state := partitions.get(partition)) is not None
            and reassignment.assignment_of(state).is_moving
        )
        return Decision((), ListReassignmentsAnswer(Error.NONE, found))

    # Topics and settings

    def on_create_topic(self, request: CreateTopic, next_offset: int) -> Decision:
        return topic_decisions.create_topic(self.image, request, self._topic_id_base + next_offset)

    def on_create_partitions(self, request: CreatePartitions) -> Decision:
        return topic_decisions.create_partitions(self.image, request)

    def on_delete_topic(self, request: DeleteTopic) -> Decision:
        return topic_decisions.delete_topic(self.image, request)

    def on_alter_config(self, request: AlterConfig) -> Decision:
        """One setting: of a topic or, without one, of all brokers."""
        operation = ConfigOperation.DELETE if request.value is None else ConfigOperation.SET
        change = ConfigChange(request.key, request.value, operation)
        resource = topic_resource(request.topic) if request.topic else ALL_BROKERS
        return self.on_alter_configs(AlterConfigs(resource, (change,)))

    def on_alter_configs(self, request: AlterConfigs) -> Decision:
        has_elr = self._rules.eligible_leader_replicas
        records = config_decisions.altered(self.image, request, has_elr=has_elr)
        if isinstance(records, AdminAnswer):
            return Decision((), records)
        # In one batch with what follows from it: a controller that dies in between must not leave
        # one without the other.
        then = self.image.copy()
        for record in records:
            then.apply(record, then.end_offset)
        due = Controller(then, self._rules)._elections_due() if records else ()
        decision = accepted((*records, *due), validate_only=request.validate_only)
        warning = config_decisions.without_effect(request)
        return decision._replace(answer=AdminAnswer(Error.NONE, warning))

    # Users, access and what clients may use

    def on_alter_quotas(self, request: AlterQuotas) -> Decision:
        wrong = limits.problem(request.entity, request.changes)
        if wrong is not None:
            return refused(Error.INVALID_REQUEST, wrong)
        before = self.image.quotas.get(request.entity, {})
        records = tuple(
            QuotaChanged(request.entity, change.key, change.value)
            for change in request.changes
            if before.get(change.key) != change.value
        )
        return accepted(records, validate_only=request.validate_only)

    def on_alter_scram_credential(self, request: AlterScramCredential) -> Decision:
        return security_decisions.alter_scram_credential(self.image, request)

    def on_create_acl(self, request: CreateAcl) -> Decision:
        return security_decisions.create_acl(self.image, request)

    def on_delete_acl(self, request: DeleteAcl) -> Decision:
        return security_decisions.delete_acl(self.image, request)

    def _elections_due(self) -> tuple[MetadataRecord, ...]:
        """After a change of settings: partitions that may have a leader now, or that commit with
        less, which who was eligible does not have."""
        return self._changes(
            partition
            for partition, state in self.image.partitions.items()
            if state.leader == NO_LEADER or state.elr
        )
