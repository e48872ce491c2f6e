"""A controller whose decisions are committed at once, for tests of what it decides."""

from __future__ import annotations

from collections.abc import Mapping

from machines import PARTITION

from lossless.core.controller import Answer, Controller, Decision
from lossless.core.messages import (
    AdminAnswer,
    AlterConfig,
    AlterPartition,
    BrokerHeartbeat,
    BrokerRegistration,
    CreateTopic,
    ElectLeader,
    Error,
    InSyncReplica,
    TopicPartition,
)
from lossless.core.metadata import Image, MetadataRecord, PartitionState
from lossless.log.rules import RULES, Rules


class Cluster:
    """A controller whose decisions are committed at once, and brokers that behave."""

    def __init__(
        self, *brokers: int, rules: Rules = RULES, properties: Mapping[str, str] | None = None
    ) -> None:
        self.controller = Controller(Image(properties or {}), rules)
        for broker in brokers:
            self.start(broker)

    @property
    def image(self) -> Image:
        return self.controller.image

    def committed(self, decision: Decision) -> Answer:
        self.apply(decision.records)
        return decision.answer

    def apply(self, records: tuple[MetadataRecord, ...]) -> None:
        for record in records:
            self.image.apply(record, self.image.end_offset)

    def register(
        self,
        broker: int,
        *,
        incarnation: int = 1,
        previous_epoch: int = -1,
        has_session: bool = False,
        rack: str | None = None,
    ) -> Answer:
        request = BrokerRegistration(broker, incarnation, rack, previous_epoch)
        return self.committed(
            self.controller.on_registration(request, has_session, self.image.end_offset)
        )

    def beat(self, broker: int, *, want_shut_down: bool = False) -> Answer:
        epoch = self.image.brokers[broker].epoch
        request = BrokerHeartbeat(broker, epoch, self.image.end_offset, want_shut_down)
        return self.committed(self.controller.on_heartbeat(request))

    def start(self, broker: int, *, incarnation: int = 1, rack: str | None = None) -> None:
        self.register(broker, incarnation=incarnation, rack=rack)
        self.beat(broker)

    def fence(self, *brokers: int) -> None:
        for broker in brokers:
            self.apply(self.controller.fence(broker))

    def restart(self, broker: int, *, clean: bool) -> None:
        """Registers as another process; does not send a heartbeat yet."""
        known = self.image.brokers[broker]
        previous = known.epoch if clean else -1
        self.register(broker, incarnation=known.incarnation + 1, previous_epoch=previous)

    def create(self, partitions: int = 1, *, copies: int = 3, **config: str) -> None:
        settings = tuple((key.replace("_", "."), value) for key, value in config.items())
        request = CreateTopic("orders", partitions, copies, settings)
        assert self.committed(
            self.controller.on_create_topic(request, self.image.end_offset)
        ) == AdminAnswer(Error.NONE)

    def elect(self, *, unclean: bool = False) -> Error:
        request = ElectLeader(PARTITION, unclean)
        return self.committed(self.controller.on_elect_leader(request)).error

    def configure(self, key: str, value: str | None, topic: str = "orders") -> Error:
        request = AlterConfig(topic, key, value)
        return self.committed(self.controller.on_alter_config(request)).error

    def alter(self, *isr: int, epochs: dict[int, int] | None = None, **other: int) -> Answer:
        """As the leader would ask for it, knowing everything, but for what is given."""
        state = self.state()
        members = tuple(
            InSyncReplica(broker, (epochs or {}).get(broker, self.epoch(broker))) for broker in isr
        )
        request = AlterPartition(
            state.leader,
            self.epoch(state.leader),
            PARTITION,
            state.leader_epoch,
            state.partition_epoch,
            members,
        )._replace(**other)
        return self.committed(self.controller.on_alter_partition(request))

    def epoch(self, broker: int) -> int:
        known = self.image.brokers.get(broker)
        return -1 if known is None else known.epoch

    def state(self, partition: int = 0) -> PartitionState:
        return self.image.partitions[TopicPartition("orders", partition)]

    @property
    def leads(self) -> int:
        return self.state().leader

    @property
    def isr(self) -> tuple[int, ...]:
        return self.state().isr
