"""What must hold after every step, whatever happens. A broken one names itself.

HighWatermarkWithinLog   log start <= high watermark <= log end
HighWatermarkRises       while one broker leads in one epoch, what is committed stays committed
OneLeaderPerEpoch        no two brokers ever lead a partition in one epoch
StrongIsr                who is in sync has everything below the leader's high watermark
ActiveIsr                nobody who is fenced or stopping is in sync, but for the last (KIP-841)
RecoverableLog           what a crash or a loss of power leaves, opens
"""

from __future__ import annotations

from lossless.core.broker import Broker
from lossless.core.controllers import ControllerNode
from lossless.core.messages import NO_LEADER, TopicPartition
from lossless.core.metadata import Image, PartitionState
from lossless.core.replica import Replica, Role
from lossless.simulator.world import FIRST_CONTROLLER, Process, World


class Invariants:
    def __init__(self, world: World) -> None:
        self._world = world
        self._seen: dict[tuple[int, TopicPartition], tuple[int, int, int]] = {}
        self._leaders: dict[tuple[TopicPartition, int], tuple[int, int]] = {}
        self._image_end: dict[int, int] = {}

    def check(self, number: int) -> None:
        """After a step of one process."""
        process = self._world.processes.get(number)
        if process is None:
            return
        machine = process.machine
        if isinstance(machine, Broker):
            for partition, replica in machine.replicas.items():
                state = (replica.high_watermark, replica.log.log_end_offset, replica.leader_epoch)
                if self._seen.get((number, partition)) != state:
                    self._seen[number, partition] = state
                    self._check_replica(number, replica)
        elif isinstance(machine, ControllerNode) and machine.active is not None:
            image = machine.active.image
            if self._image_end.get(number) != image.end_offset:
                self._image_end[number] = image.end_offset
                self._check_image(image)

    def _check_replica(self, number: int, replica: Replica) -> None:
        log, high_watermark = replica.log, replica.high_watermark
        who = f"{self._world.name(number)}, {replica.partition}"
        if not log.log_start_offset <= high_watermark <= log.log_end_offset:
            self._break(
                "HighWatermarkWithinLog",
                f"{who}: {log.log_start_offset} <= {high_watermark} <= {log.log_end_offset}",
            )
        if replica.role is not Role.LEADER:
            return
        key = (replica.partition, replica.leader_epoch)
        leader, before = self._leaders.get(key, (number, high_watermark))
        if leader != number:
            self._break("OneLeaderPerEpoch", f"{who}: epoch {replica.leader_epoch} has two leaders")
        if high_watermark < before:
            self._break("HighWatermarkRises", f"{who}: from {before} to {high_watermark}")
        self._leaders[key] = (number, high_watermark)
        self._check_in_sync(replica, who)

    def _check_in_sync(self, leader: Replica, who: str) -> None:
        state = self._agreed(leader.partition)
        if state is None or state.leader_epoch != leader.leader_epoch:
            return  # somebody else leads by now; this one will be told
        for member in state.isr:
            replica = self._replica(member, leader.partition)
            if replica is None:
                continue
            if replica.log.log_end_offset < leader.high_watermark:
                self._break(
                    "StrongIsr",
                    f"{who} has committed up to {leader.high_watermark}, and broker {member}, in "
                    f"sync, ends at {replica.log.log_end_offset}",
                )
            last = leader.high_watermark - 1
            if last >= 0 and replica.log.epoch_at(last) != leader.log.epoch_at(last):
                self._break(
                    "StrongIsr", f"{who} and broker {member}, in sync, differ at offset {last}"
                )

    def _check_image(self, image: Image) -> None:
        for partition, state in image.partitions.items():
            outside = [member for member in state.isr if not image.is_active(member)]
            if outside and len(state.isr) > 1:
                self._break("ActiveIsr", f"{partition}: broker {outside[0]} of {state.isr}")
            leader = self._replica(state.leader, partition) if state.leader != NO_LEADER else None
            if leader is not None and leader.role is Role.LEADER:
                self._check_in_sync(leader, f"broker {state.leader}, {partition}")

    def _agreed(self, partition: TopicPartition) -> PartitionState | None:
        first = FIRST_CONTROLLER
        for number in range(first, first + self._world.settings.controllers):
            machine = self._world.processes[number].machine
            if isinstance(machine, ControllerNode) and machine.active is not None:
                return machine.active.image.partitions.get(partition)
        return None

    def _replica(self, number: int, partition: TopicPartition) -> Replica | None:
        process: Process = self._world.processes[number]
        machine = process.machine
        return machine.replicas.get(partition) if isinstance(machine, Broker) else None

    def _break(self, name: str, what: str) -> None:
        self._world.broken.append(f"{name}: {what}")
