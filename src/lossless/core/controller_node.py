"""A controller: a voter of the quorum that, while it leads, decides for the cluster.

    standby    follows the quorum's log; knows what is committed, and refuses to decide
    active     leads, and has everything: decides, writes, applies, and answers once it is committed

Invariants
- Decide, then apply: only records that were appended change the image, here and everywhere.
- No answer before its records are committed; none at all from a controller that has lost the lead.
- A new active controller gives every broker that is let in a whole session before it fences any.
  Who is fenced has none: should its process have died, the next one is not kept waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lossless.core.admin_messages import (
    ALL_BROKERS,
    AlterConfigs,
    AlterQuotas,
    AlterReassignment,
    CreatePartitions,
    ListReassignments,
    ListReassignmentsAnswer,
    UnregisterBroker,
)
from lossless.core.controller import Answer, Controller, Decision
from lossless.core.machine import Effects, Reply, Token, merged
from lossless.core.messages import (
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
)
from lossless.core.metadata import MIN_ISR, ConfigChanged, Image, MetadataRecord, decode, encode
from lossless.core.quorum import METADATA, NODE, Quorum, QuorumConfig
from lossless.core.quotas.mutations import Mutations
from lossless.core.security.messages import AlterScramCredential, CreateAcl, DeleteAcl
from lossless.core.security.records import ScramCredentialChanged
from lossless.log.log import Log
from lossless.log.rules import RULES, Rules
from lossless.log.store import Store

Request = (
    BrokerRegistration
    | BrokerHeartbeat
    | AlterPartition
    | AllocateProducerIds
    | CreateTopic
    | DeleteTopic
    | AlterConfig
    | AlterConfigs
    | AlterQuotas
    | CreatePartitions
    | ElectLeader
    | AlterReassignment
    | ListReassignments
    | UnregisterBroker
    | AlterScramCredential
    | CreateAcl
    | DeleteAcl
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    session_timeout_ms: int = 9_000  # broker.session.timeout.ms
    # Static settings of brokers: what counts for topics where nobody has set anything.
    properties: Mapping[str, str] = field(default_factory=dict)
    topic_id_base: int = 0  # of this cluster: topics of two clusters have different ids
    first_users: tuple[ScramCredentialChanged, ...] = ()  # known before anybody can add any
    quorum: QuorumConfig = field(default_factory=QuorumConfig)


@dataclass(slots=True)
class _Undecided:
    """An answer whose records are not committed yet."""

    end_offset: int
    token: Token
    answer: Answer


class ControllerNode:
    def __init__(
        self,
        node: int,
        *,
        voters: tuple[int, ...],
        stores: Callable[[str], Store],
        draw: Callable[[int], int],
        config: ControllerConfig | None = None,
        rules: Rules = RULES,
    ) -> None:
        self.node = node
        self.config = config or ControllerConfig()
        self.metadata_log = Log(stores(METADATA))
        self.quorum = Quorum(
            node,
            voters,
            self.metadata_log,
            stores(NODE),
            config=self.config.quorum,
            draw=draw,
        )
        self.committed = Image(self.config.properties)
        self._rules = rules
        self.active: Controller | None = None
        self._sessions: dict[int, int] = {}  # until when each broker is taken to be alive
        self._mutations = Mutations()
        self._undecided: list[_Undecided] = []
        self._reply: list[Reply] = []
        self._quorum_wake_ms: int | None = None

    @property
    def image(self) -> Image:
        return self.committed if self.active is None else self.active.image

    # Events

    def on_start(self, now_ms: int) -> Effects:
        return self._after(now_ms, self.quorum.on_start(now_ms))

    def on_request(self, source: int, token: Token, request: Any, now_ms: int) -> Effects:
        if not isinstance(request, Request):
            return self._after(now_ms, self.quorum.on_request(source, token, request, now_ms))
        if self.active is None:
            self._reply.append(Reply(token, _not_controller(request)))
            return self._after(now_ms)
        return self._after(now_ms, self._decide(self.active, token, request, now_ms))

    def on_answer(self, source: int, request: Any, answer: Any, now_ms: int) -> Effects:
        return self._after(now_ms, self.quorum.on_answer(source, request, answer, now_ms))

    def on_timer(self, now_ms: int) -> Effects:
        parts = [self.quorum.on_timer(now_ms)]
        if self.active is not None:
            for broker, until_ms in self._sessions.items():
                if until_ms <= now_ms and self._is_unfenced(broker):
                    parts.append(self._append(self.active.fence(broker), now_ms))
        return self._after(now_ms, *parts)

    def on_flushed(self, log: str, offset: int, now_ms: int) -> Effects:
        return self._after(now_ms, self.quorum.on_flushed(log, offset, now_ms))

    def resign(self, now_ms: int) -> Effects:
        """Before a planned stop: whoever has most should lead next."""
        return self._after(now_ms, self.quorum.resign(now_ms))

    # Deciding

    def _decide(
        self, controller: Controller, token: Token, request: Request, now_ms: int
    ) -> Effects:
        decision = self._decision(controller, request, now_ms)
        if isinstance(request, CreateTopic | CreatePartitions | DeleteTopic):
            decision = self._mutations.within_limits(self.image, request, decision, now_ms)
        effects = self._append(decision.records, now_ms)
        # Also a reply without records rests on what was applied before it, committed or not.
        self._undecided.append(_Undecided(self.image.end_offset, token, decision.answer))
        return effects

    def _decision(self, controller: Controller, request: Request, now_ms: int) -> Decision:
        match request:
            case BrokerRegistration():
                has_session = self._sessions.get(request.broker, now_ms) > now_ms
                decision = controller.on_registration(
                    request, has_session, self.metadata_log.log_end_offset
                )
                if decision.records:
                    self._renew(request.broker, now_ms)
                return decision
            case BrokerHeartbeat():
                decision = controller.on_heartbeat(request)
                if decision.answer.error is Error.NONE:
                    self._renew(request.broker, now_ms)
                return decision
            case AlterPartition():
                return controller.on_alter_partition(request)
            case AllocateProducerIds():
                return controller.on_allocate_producer_ids(request)
            case CreateTopic():
                return controller.on_create_topic(request, self.metadata_log.log_end_offset)
            case DeleteTopic():
                return controller.on_delete_topic(request)
            case AlterConfig():
                return controller.on_alter_config(request)
            case AlterConfigs():
                return controller.on_alter_configs(request)
            case AlterQuotas():
                return controller.on_alter_quotas(request)
            case CreatePartitions():
                return controller.on_create_partitions(request)
            case ElectLeader():
                return controller.on_elect_leader(request)
            case AlterReassignment():
                return controller.on_alter_reassignment(request)
            case ListReassignments():
                return controller.on_list_reassignments(request)
            case UnregisterBroker():
                return controller.on_unregister(request)
            case AlterScramCredential():
                return controller.on_alter_scram_credential(request)
            case CreateAcl():
                return controller.on_create_acl(request)
            case DeleteAcl():
                return controller.on_delete_acl(request)

    def _renew(self, broker: int, now_ms: int) -> None:
        self._sessions[broker] = now_ms + self.config.session_timeout_ms

    def _append(self, records: tuple[MetadataRecord, ...], now_ms: int) -> Effects:
        if not records:
            return Effects(wake_ms=self._quorum_wake_ms)
        first = self.metadata_log.log_end_offset
        last, effects = self.quorum.append(tuple(map(encode, records)), now_ms)
        if last is not None:
            for offset, record in enumerate(records, first):
                self.image.apply(record, offset)
        return effects

    # What follows from any event

    def _after(self, now_ms: int, *parts: Effects) -> Effects:
        self._catch_up()
        begun = self._change_roles(now_ms)
        self._answer()
        parts = (*parts, *begun)
        for effects in parts:
            self._quorum_wake_ms = effects.wake_ms
        replies, self._reply = tuple(self._reply), []
        own = Effects(reply=replies, wake_ms=self._wake_ms())
        return merged(own, *parts, Effects(wake_ms=self._quorum_wake_ms))

    def _catch_up(self) -> None:
        if self.quorum.high_watermark > self.committed.end_offset:
            for offset, value in self.quorum.committed_values(self.committed.end_offset):
                self.committed.apply(decode(value), offset)
            self.committed.end_offset = self.quorum.high_watermark

    def _change_roles(self, now_ms: int) -> tuple[Effects, ...]:
        if self.quorum.is_leader and self.active is None:
            image = self.committed.copy()
            for offset, value in self.quorum.values(image.end_offset):
                image.apply(decode(value), offset)
            image.end_offset = self.metadata_log.log_end_offset
            self.active = Controller(image, self._rules, self.config.topic_id_base)
            self._sessions = {}
            for number, broker in image.brokers.items():
                if not broker.fenced:
                    self._renew(number, now_ms)
            return tuple(self._append((record,), now_ms) for record in self._to_agree_on(image))
        if not self.quorum.is_leader and self.active is not None:
            self.active = None
            for undecided in self._undecided:
                error = undecided.answer._replace(error=Error.NOT_CONTROLLER)
                self._reply.append(Reply(undecided.token, error))
            self._undecided = []
        return ()

    def _to_agree_on(self, image: Image) -> tuple[MetadataRecord, ...]:
        """How many must be in sync has to be the same for all, whatever their own settings say:
        the first controller's word counts, until somebody changes it (KIP-966). So do the first
        users: whoever was changed or taken away since stays so."""
        agreed: list[MetadataRecord] = [
            record
            for record in self.config.first_users
            if (record.user, record.mechanism) not in image.scram
        ]
        static = self.config.properties.get(MIN_ISR)
        if static is not None and MIN_ISR not in image.overrides(ALL_BROKERS):
            agreed.append(ConfigChanged.of(ALL_BROKERS, MIN_ISR, static))
        return tuple(agreed)

    def _answer(self) -> None:
        committed = self.quorum.high_watermark
        waiting = []
        for undecided in self._undecided:
            if undecided.end_offset <= committed:
                self._reply.append(Reply(undecided.token, undecided.answer))
            else:
                waiting.append(undecided)
        self._undecided = waiting

    def _wake_ms(self) -> int | None:
        if self.active is None:
            return None
        return min(
            (until for broker, until in self._sessions.items() if self._is_unfenced(broker)),
            default=None,
        )

    def _is_unfenced(self, broker: int) -> bool:
        known = self.image.brokers.get(broker)
        return known is not None and not known.fenced


def _not_controller(request: Request) -> Answer:
    error = Error.NOT_CONTROLLER
    match request:
        case BrokerRegistration():
            return BrokerRegistrationAnswer(error)
        case BrokerHeartbeat():
            return BrokerHeartbeatAnswer(error)
        case AlterPartition():
            return AlterPartitionAnswer(request.partition, error)
        case AllocateProducerIds():
            return AllocateProducerIdsAnswer(error)
        case ListReassignments():
            return ListReassignmentsAnswer(error)
        case _:
            return AdminAnswer(error)
