"""A broker: its replicas, what it fetches for them, and what it asks of the controller.

Invariants
- Replicas act only on metadata that contains this process's own registration: before that a
  restarted broker would take up a leadership that was given to its predecessor.
- Logs are opened and destroyed some at a time, so that nothing else waits for thousands of them. A
  partition whose log is still to be opened has no replica here. The metadata counts as taken up,
  for the controller and for clients that wait for it, when no log is left to open.
- One fetch to each leader, and one change of a partition's in-sync set, is under way at a time.

Rules learnt
- A change of the in-sync set whose outcome is unknown stays pending: it may have happened. Only a
  refusal that says so (INELIGIBLE_REPLICA) takes it back; everything else waits for the metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from lossless.core.admin_messages import topic_resource
from lossless.core.coordination import Coordination, CoordinationConfig
from lossless.core.in_sync import Proposal
from lossless.core.lost_replicas import LostReplicas, undamaged
from lossless.core.machine import NOTHING, Effects, Reply, Send, Token, merged
from lossless.core.messages import (
    AllocateProducerIds,
    AlterPartition,
    AlterPartitionAnswer,
    BrokerHeartbeat,
    BrokerRegistration,
    Endpoint,
    Error,
    Fetch,
    FetchAnswer,
    InitProducerId,
    Metadata,
    MetadataAnswer,
    PartitionLeader,
    Produce,
    TopicPartition,
)
from lossless.core.metadata import ConfigChanged, Image, PartitionChanged, TopicRemoved, decode
from lossless.core.producer_ids import ProducerIds
from lossless.core.quorum import METADATA, NODE, Quorum, QuorumConfig
from lossless.core.replica import Replica, ReplicaConfig, Role
from lossless.core.serving import Serving
from lossless.core.settings.policies import TopicPolicy
from lossless.core.standing import Phase, Standing
from lossless.core.strays import strays
from lossless.log.log import Log, LogConfig
from lossless.log.rules import RULES, Rules
from lossless.log.store import Store

CHECKPOINT = "replication-offset-checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    heartbeat_ms: int = 2_000  # broker.heartbeat.interval.ms
    fetch_wait_ms: int = 500  # replica.fetch.wait.max.ms
    backoff_ms: int = 100
    checkpoint_ms: int = 5_000  # replica.high.watermark.checkpoint.interval.ms
    tidy_ms: int = 300_000  # log.retention.check.interval.ms
    logs_at_once_max: int = 20  # that are opened or destroyed in one step
    replica: ReplicaConfig = field(default_factory=ReplicaConfig)
    coordination: CoordinationConfig = field(default_factory=CoordinationConfig)
    log: LogConfig = field(default_factory=LogConfig)
    quorum: QuorumConfig = field(default_factory=QuorumConfig)


STORE_NAME_MAX = 240  # characters


class TopicConfig(NamedTuple):
    """What the settings of a topic mean for its replicas."""

    log: LogConfig
    replica: ReplicaConfig
    policy: TopicPolicy | None = None


class Broker:
    def __init__(
        self,
        broker: int,
        *,
        voters: tuple[int, ...],
        stores: Callable[[str], Store],
        stored: Callable[[], Iterable[str]],  # the names of all that there are
        incarnation: int,
        draw: Callable[[int], int],
        config: BrokerConfig | None = None,
        rules: Rules = RULES,
        topic_config: Callable[[Mapping[str, str]], TopicConfig] | None = None,
        rack: str | None = None,
        endpoints: tuple[Endpoint, ...] = (),
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.broker = broker
        self.config = config or BrokerConfig()
        self.image = Image()
        self.replicas: dict[TopicPartition, Replica] = {}
        self._stores, self._stored = stores, stored
        self._warn = warn
        self._rules = rules
        self._topic_config = topic_config
        self._store = stores(NODE)
        self._standing = Standing(
            broker,
            self._store,
            incarnation=incarnation,
            rack=rack,
            endpoints=endpoints,
            heartbeat_ms=self.config.heartbeat_ms,
            backoff_ms=self.config.backoff_ms,
        )
        self._lost = LostReplicas(self._store)
        self.metadata_log = Log(undamaged(stores(METADATA)))  # an observer's: nobody counts on it
        self.quorum = Quorum(
            broker,
            voters,
            self.metadata_log,
            self._store,
            config=self.config.quorum,
            draw=draw,
        )
        self._checkpoint = _read_checkpoint(self._store)
        self._tick_ms = 0
        self._checkpoint_ms = 0
        self._tidy_ms = 0
        self._may_split = not (rules.check_and_act_at_once and rules.truncate_before_high_watermark)
        self._finish_ms: int | None = None  # only while a rule that is off has split a step
        self._fetching: set[int] = set()
        self._fetch_ms: dict[int, int] = {}
        self._followed: dict[int, list[Replica]] = {}
        self._altering: dict[TopicPartition, AlterPartition] = {}
        self._alter_ms: dict[TopicPartition, int] = {}
        self._to_open: dict[TopicPartition, None] = {}
        self._to_destroy: dict[str, Callable[[], None]] = {}  # by the name of its store
        self._taken_up = 0  # how much of the metadata has been acted on as a whole
        self._serving = Serving(self.replicas, lambda partition: partition in self.image.partitions)
        self.producer_ids = ProducerIds()
        self.coordination = Coordination(
            self.config.coordination,
            image=lambda: self.image,
            replicas=self.replicas,
            touch=self._serving.touch,
            draw=draw,
            next_producer_id=self.producer_ids.take,
        )
        self._topic_configs: dict[str, TopicConfig] = {}
        self._quorum_wake_ms: int | None = None
        self._send: list[Send] = []
        self._deferred: list[Effects] | None = None  # while several events are dealt with at once

    @property
    def phase(self) -> Phase:
        return self._standing.phase

    @property
    def broker_epoch(self) -> int:
        return self._standing.broker_epoch

    @property
    def heard_ms(self) -> int:
        """When the controller answered last."""
        return self._standing.heard_ms

    # Events

    def on_start(self, now_ms: int) -> Effects:
        self._tick_ms = now_ms + self.config.replica.lag_ms_max // 2
        self._checkpoint_ms = now_ms + self.config.checkpoint_ms
        self._tidy_ms = now_ms + self.config.tidy_ms
        return self._after(now_ms, self.quorum.on_start(now_ms))

    def on_request(self, source: int, token: Token, request: Any, now_ms: int) -> Effects:
        if self._standing.phase is Phase.STOPPED:
            return NOTHING
        serving = self._serving
        if isinstance(request, Produce):
            if not self.coordination.holds(token, request, now_ms):  # else it will be released
                serving.produce(token, request, _NOTHING_REFUSED, now_ms)
        elif isinstance(request, Fetch):
            serving.fetch(token, request, now_ms)
        elif isinstance(request, Metadata):
            serving.replies.append(Reply(token, self._metadata(request)))
        elif isinstance(request, InitProducerId):
            serving.replies += self.producer_ids.on_request(token, now_ms)
        elif not (
            serving.on_request(token, request, now_ms)
            or self.coordination.on_request(token, request, now_ms)
        ):
            return self._after(now_ms, self.quorum.on_request(source, token, request, now_ms))
        return self._after(now_ms)

    def on_answer(self, source: int, request: Any, answer: Any, now_ms: int) -> Effects:
        if self._standing.phase is Phase.STOPPED:
            return NOTHING
        if isinstance(request, Fetch):
            self._on_fetched(source, request, answer, now_ms)
            return self._after(now_ms)
        match request:
            case AlterPartition():
                self._on_altered(request, answer, now_ms)
            case BrokerHeartbeat() | BrokerRegistration() | AllocateProducerIds() if (
                source != self._standing.controller
            ):
                pass  # of one that is active no longer
            case BrokerHeartbeat():
                if self._standing.on_heartbeat_answer(request, answer, self._taken_up, now_ms):
                    self._close()
            case BrokerRegistration():
                if self._standing.on_registered(answer, now_ms) and self.knows_itself:
                    self._begin(now_ms)
            case AllocateProducerIds():
                backoff_ms = self.config.backoff_ms
                self._serving.replies += self.producer_ids.on_block(answer, now_ms, backoff_ms)
            case _:
                if not self.coordination.on_answer(source, request, answer, now_ms):
                    effects = self.quorum.on_answer(source, request, answer, now_ms)
                    return self._after(now_ms, effects)
        return self._after(now_ms)

    def on_timer(self, now_ms: int) -> Effects:
        if self._standing.phase is Phase.STOPPED:
            return NOTHING
        self._serving.expire(now_ms)
        self._serving.replies += self.producer_ids.expire(now_ms)
        self.coordination.on_timer(now_ms)
        if now_ms >= self._tick_ms:
            self._tick_ms = now_ms + self.config.replica.lag_ms_max // 2
            for replica in self.replicas.values():
                replica.on_tick(now_ms)
                self._serving.touch(replica.partition)
        if now_ms >= self._checkpoint_ms:
            self._checkpoint_ms = now_ms + self.config.checkpoint_ms
            self._write_checkpoint()
        if now_ms >= self._tidy_ms:
            self._tidy_ms = now_ms + self.config.tidy_ms
            for replica in self.replicas.values():
                replica.tidy(now_ms)
        if self._finish_ms is not None and now_ms >= self._finish_ms:
            self._finish_ms = None
            for replica in self.replicas.values():
                replica.finish()
                self._serving.touch(replica.partition)
        return self._after(now_ms, self.quorum.on_timer(now_ms))

    def on_flushed(self, log: str, offset: int, now_ms: int) -> Effects:
        return self._after(now_ms, self.quorum.on_flushed(log, offset, now_ms))

    def defer(self) -> None:
        """Several events are to come. What follows from them follows once, at `settle`, so that a
        follower that waits is answered with all of what was produced."""
        self._deferred = []

    def settle(self, now_ms: int) -> Effects:
        deferred, self._deferred = self._deferred, None
        return self._after(now_ms, merged(*deferred) if deferred else None)

    def stop(self, now_ms: int) -> Effects:
        """A controlled shutdown begins. It ends in `stopped`, where the process may go."""
        self._standing.stop(now_ms)
        return self._after(now_ms)

    def close(self, now_ms: int) -> Effects:
        """At once, though leaders have not moved away: nobody is left who could let them. Nothing
        may come in any more."""
        self._close()
        return self._after(now_ms)

    def _after(self, now_ms: int, quorum: Effects | None = None) -> Effects:
        """What follows from any event: metadata, whom to answer, whom to ask, when to wake."""
        if self._deferred is not None:
            if quorum is not None:
                self._deferred.append(quorum)
            return NOTHING
        if self._standing.phase is Phase.STOPPED:
            return self._last_words()
        self._apply_metadata(now_ms)
        if self._to_destroy:
            self._destroy_some()
        if self._to_open:
            self._open_some(now_ms)
        if not self._to_open and self._taken_up != self.image.end_offset:
            self._taken_up = self.image.end_offset
            self._standing.on_metadata(now_ms)
        self._serving.on_metadata(self._taken_up)
        coordination = self.coordination
        if coordination.released:
            released, coordination.released = coordination.released, []
            for token, request, refused in released:
                self._serving.produce(token, request, refused, now_ms)
        if self._serving.markers:
            markers, self._serving.markers = self._serving.markers, []
            for marker in markers:
                coordination.on_marker(marker)
        for replica in self._serving.complete():
            if replica.proposal is not None:
                self._take_proposal(replica, replica.proposal)
        coordination.complete()
        self._ask_controller(now_ms)
        self._ask_leaders(now_ms)
        if quorum is not None:
            self._quorum_wake_ms = quorum.wake_ms
        wake_ms = self._wake_ms(now_ms)
        if coordination.sends:
            self._send += coordination.sends
            coordination.sends = []
        if coordination.replies:
            self._serving.replies += coordination.replies
            coordination.replies = []
        send, self._send = self._send, []
        reply, self._serving.replies = self._serving.replies, []
        if quorum is None:
            return Effects(tuple(send), tuple(reply), (), wake_ms)
        return Effects((*send, *quorum.send), (*reply, *quorum.reply), quorum.flush, wake_ms)

    def _last_words(self) -> Effects:
        """The logs say that they were closed: what is written is answered, and nothing is any more.
        It would be in no snapshot, and a loss of power could take it unnoticed."""
        replies, self._serving.replies = self._serving.replies, []
        return Effects(reply=tuple(replies))

    def _wake_ms(self, now_ms: int) -> int:
        ids = self.producer_ids
        wake_ms = min(self._tick_ms, self._checkpoint_ms, self._tidy_ms)
        for other_ms in (
            None if self.quorum.leader is None else self._standing.wake_ms,
            self.coordination.wake_ms,
            self._serving.deadline_ms,
            self._quorum_wake_ms,
            ids.deadline_ms,
        ):
            if other_ms is not None and other_ms < wake_ms:
                wake_ms = other_ms
        if ids.wants_block and not ids.is_asking:
            wake_ms = min(wake_ms, ids.ask_ms)
        for leader, at_ms in self._fetch_ms.items():
            if now_ms < at_ms < wake_ms and leader not in self._fetching:
                wake_ms = at_ms
        for at_ms in self._alter_ms.values():
            if now_ms < at_ms < wake_ms:
                wake_ms = at_ms
        if self._may_split:
            self._plan_to_finish(now_ms)
        if self._finish_ms is not None:
            wake_ms = min(wake_ms, self._finish_ms)
        is_busy = self._to_open or self._to_destroy
        return wake_ms if wake_ms > now_ms and not is_busy else now_ms + 1

    def _plan_to_finish(self, now_ms: int) -> None:
        if self._finish_ms is None and any(r.is_unfinished for r in self.replicas.values()):
            self._finish_ms = now_ms + self.config.fetch_wait_ms

    # Metadata

    def _apply_metadata(self, now_ms: int) -> None:
        image = self.image
        if self.quorum.high_watermark <= image.end_offset:
            return
        knew_itself = self.knows_itself
        changed: dict[TopicPartition, None] = {}
        removed: list[str] = []
        for offset, value in self.quorum.committed_values(image.end_offset):
            record = decode(value)
            if isinstance(record, TopicRemoved):
                self._forget(record.topic)
                removed.append(record.topic)
            image.apply(record, offset)
            if isinstance(record, PartitionChanged):
                changed[TopicPartition(record.topic, record.partition)] = None
            elif isinstance(record, ConfigChanged):
                self._topic_configs.clear()
                changed.update((p, None) for p in image.partitions if record.topic in ("", p.topic))
        image.end_offset = max(image.end_offset, self.quorum.high_watermark)
        if self.knows_itself:
            if knew_itself:
                self._act_on(changed, now_ms)
            else:
                self._begin(now_ms)
            if removed:
                self.coordination.on_topics_removed(tuple(removed), now_ms)

    def _begin(self, now_ms: int) -> None:
        """What came before this process's own registration has not been acted on yet."""
        self._act_on(self.image.partitions, now_ms)
        here = {p: self._store_name(p) for p in (*self.replicas, *self._to_open)}
        self._checkpoint = {p: at for p, at in self._checkpoint.items() if p in here}
        for name in strays(self._stored(), {NODE, METADATA, *here.values(), *self._to_destroy}):
            self._destroy_unopened(name)

    def _act_on(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        for partition in partitions:
            if partition not in self.replicas and self._is_kept_here(partition):
                self._to_open[partition] = None
            else:
                self._apply_state(partition, now_ms)
        self._follow()
        self.coordination.on_leadership(now_ms)

    def _destroy_unopened(self, name: str) -> None:
        self._to_destroy[name] = lambda: self._stores(name).destroy()

    def _destroy_some(self) -> None:
        for name in list(islice(self._to_destroy, self.config.logs_at_once_max)):
            self._to_destroy.pop(name)()

    def _open_some(self, now_ms: int) -> None:
        for partition in list(islice(self._to_open, self.config.logs_at_once_max)):
            del self._to_open[partition]
            if self._is_kept_here(partition):
                self._apply_state(partition, now_ms)
                self._follow_too(partition)
            else:
                self._destroy_unopened(self._store_name(partition))
        self.coordination.on_leadership(now_ms)

    def _is_kept_here(self, partition: TopicPartition) -> bool:
        state = self.image.partitions.get(partition)
        return state is not None and self.broker in state.replicas

    @property
    def knows_itself(self) -> bool:
        """Whether its metadata is of this process's own life. Before, it may lack whole topics."""
        known = self.image.brokers.get(self.broker)
        return known is not None and known.epoch == self.broker_epoch

    @property
    def may_be_asked(self) -> bool:
        """Whether clients are to be let in. While all brokers are fenced there is none to tell of,
        and librdkafka forgets every broker it knew when it is told of none."""
        return self.knows_itself and not self.image.brokers[self.broker].fenced

    def _apply_state(self, partition: TopicPartition, now_ms: int) -> None:
        replica = self.replicas.get(partition)
        if not self._is_kept_here(partition):
            if replica is not None:
                self._drop(replica)
            return
        state = self.image.partitions[partition]
        config = self._config_of(partition.topic)
        name = self._store_name(partition)
        if replica is None:
            if name in self._to_destroy:  # what it had before it went elsewhere and came back
                self._to_destroy.pop(name)()
            store = self._lost.undamaged(name, self._stores(name))
            replica = self.replicas[partition] = Replica(
                partition,
                self.broker,
                Log(store, config.log, self._rules),
                high_watermark=self._checkpoint.get(partition, 0),
                config=config.replica,
                rules=self._rules,
                is_eligible=self._is_eligible,
                policy=config.policy,
            )
        replica.log.config, replica.config, replica.policy = config
        told = self._lost.told(name, self.broker, state)
        if replica.on_partition_state(told, self.image.min_isr(partition), now_ms):
            self._altering.pop(partition, None)
            self._alter_ms.pop(partition, None)
            self.coordination.on_follower(partition)
        self._serving.touch(replica.partition)

    def _store_name(self, partition: TopicPartition) -> str:
        """With the topic's id: one that is created again under its name is another one. A long name
        is cut off, as in Kafka: file systems allow 255 bytes, and more may be appended."""
        topic, number = partition
        end = f"-{number}.{self.image.topics[topic]}"
        return topic[: STORE_NAME_MAX - len(end)] + end

    def _is_eligible(self, broker: int, broker_epoch: int) -> bool:
        known = self.image.brokers.get(broker)
        return known is not None and known.is_active and broker_epoch in (-1, known.epoch)

    def _config_of(self, topic: str) -> TopicConfig:
        if self._topic_config is None:
            return TopicConfig(self.config.log, self.config.replica)
        known = self._topic_configs.get(topic)
        if known is None:
            known = self._topic_config(self.image.overrides(topic_resource(topic)))
            self._topic_configs[topic] = known
        return known

    def _forget(self, topic: str) -> None:
        self._topic_configs.pop(topic, None)
        for replica in [r for p, r in self.replicas.items() if p.topic == topic]:
            self._drop(replica)
        for partition in [p for p in self._to_open if p.topic == topic]:
            del self._to_open[partition]
            self._destroy_unopened(self._store_name(partition))

    def _drop(self, replica: Replica) -> None:
        """This broker is to have it no longer, and neither is its disk."""
        partition = replica.partition
        del self.replicas[partition]
        self._altering.pop(partition, None)
        self._alter_ms.pop(partition, None)
        self._checkpoint.pop(partition, None)
        self._serving.touch(partition)
        self._to_destroy[self._store_name(partition)] = replica.log.destroy

    def _follow(self) -> None:
        self._followed = {}
        for partition in self.replicas:
            self._follow_too(partition)

    def _follow_too(self, partition: TopicPartition) -> None:
        replica = self.replicas[partition]
        if replica.role is Role.FOLLOWER and replica.failure is None:
            self._followed.setdefault(replica.leader, []).append(replica)

    def _metadata(self, request: Metadata) -> MetadataAnswer:
        return MetadataAnswer(
            tuple(
                PartitionLeader(partition, state.leader, state.leader_epoch)
                for partition, state in self.image.partitions.items()
                if partition.topic in request.topics
            )
        )

    # The controller

    def _ask_controller(self, now_ms: int) -> None:
        controller = self.quorum.leader
        if controller is None:
            return
        ids = self.producer_ids
        if self._standing.turn_to(controller, now_ms):
            ids.is_asking = False
            self._alter_ms = {p: at_ms for p, at_ms in self._alter_ms.items() if at_ms != _NEVER}
        request = self._standing.request(self._taken_up, now_ms)
        if request is not None:
            self._send.append(Send(controller, request))
        if ids.wants_block and not ids.is_asking and ids.ask_ms <= now_ms:
            ids.is_asking = True
            self._send.append(Send(controller, AllocateProducerIds(self.broker, self.broker_epoch)))
        for partition, change in self._altering.items():
            if self._alter_ms.get(partition, 0) <= now_ms:
                self._alter_ms[partition] = _NEVER
                self._send.append(Send(controller, change))

    def _close(self) -> None:
        self._write_checkpoint()
        for replica in self.replicas.values():
            replica.log.close()
        self._standing.on_closed()

    def _take_proposal(self, replica: Replica, proposal: Proposal) -> None:
        replica.proposal = None
        self._alter_ms.pop(replica.partition, None)
        self._altering[replica.partition] = AlterPartition(
            self.broker,
            self.broker_epoch,
            replica.partition,
            replica.leader_epoch,
            proposal.partition_epoch,
            proposal.isr,
        )

    def _on_altered(
        self, request: AlterPartition, answer: AlterPartitionAnswer | None, now_ms: int
    ) -> None:
        partition = request.partition
        replica = self.replicas.get(partition)
        if replica is None or self._altering.get(partition) is not request:
            return
        if answer is None or answer.error is Error.NOT_CONTROLLER:
            self._alter_ms[partition] = now_ms + self.config.backoff_ms
            return
        del self._altering[partition]
        self._alter_ms.pop(partition, None)
        if answer.error is Error.NONE and answer.leader_epoch == replica.leader_epoch:
            replica.on_isr_changed(answer.isr, answer.partition_epoch, now_ms)
        elif answer.error is Error.INELIGIBLE_REPLICA:
            replica.on_isr_refused(request.partition_epoch)
        self._serving.touch(replica.partition)

    # Following

    def _ask_leaders(self, now_ms: int) -> None:
        for leader, replicas in self._followed.items():
            if leader not in self._fetching and self._fetch_ms.get(leader, 0) <= now_ms:
                self._fetching.add(leader)
                request = Fetch(
                    self.broker,
                    self.broker_epoch,
                    self.config.fetch_wait_ms,
                    1,
                    tuple(replica.next_fetch() for replica in replicas),
                )
                self._send.append(Send(leader, request))

    def _on_fetched(
        self, leader: int, request: Fetch, answer: FetchAnswer | None, now_ms: int
    ) -> None:
        self._fetching.discard(leader)
        if answer is None:
            self._fetch_ms[leader] = now_ms + self.config.backoff_ms
            return
        replicas, touch = self.replicas, self._serving.touch
        for asked, fetched in zip(request.partitions, answer.partitions, strict=True):
            replica = replicas.get(asked.partition)
            if replica is None or replica.leader != leader:
                continue
            if not replica.on_fetched(asked, fetched):
                self._fetch_ms[leader] = now_ms + self.config.backoff_ms
                if replica.failure is not None:
                    self._set_aside(replica, replica.failure)
            touch(replica.partition)

    def _set_aside(self, replica: Replica, failure: str) -> None:
        self._follow()
        self._warn(
            f"broker {self.broker} no longer follows broker {replica.leader} in "
            f"{replica.partition}: {failure}. It retries with the next leader of this partition or "
            "when it is restarted. Other partitions are not affected"
        )

    # What a restart finds

    def _write_checkpoint(self) -> None:
        for partition, replica in self.replicas.items():
            self._checkpoint[partition] = replica.high_watermark
        lines = [
            f"{partition.topic} {partition.partition} {high_watermark}"
            for partition, high_watermark in sorted(self._checkpoint.items())
        ]
        self._store.replace(CHECKPOINT, "\n".join(lines).encode())


_NEVER = 1 << 62
_NOTHING_REFUSED: Mapping[TopicPartition, Error] = {}


def _read_checkpoint(store: Store) -> dict[TopicPartition, int]:
    """What cannot be read is learnt again, from the leader or from those who follow."""
    lines: Iterable[bytes] = store.read(CHECKPOINT, 0, store.size(CHECKPOINT)).splitlines()
    found = {}
    for line in lines:
        with suppress(ValueError):
            topic, partition, high_watermark = line.decode().rsplit(" ", 2)
            found[TopicPartition(topic, int(partition))] = int(high_watermark)
    return found
