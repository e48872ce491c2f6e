"""What must hold after every step, whatever happens. A broken one names itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from lossless.core.broker import Broker
from lossless.core.controller_node import ControllerNode
from lossless.core.coordinator import partition_for
from lossless.core.groups.messages import (
    NO_OFFSET,
    OffsetCommit,
    OffsetCommitAnswer,
    OffsetFetch,
    OffsetFetchAnswer,
)
from lossless.core.messages import (
    CONSUMER,
    NO_LEADER,
    OFFSETS_TOPIC,
    AlterPartition,
    Error,
    Fetch,
    Producer,
    TopicPartition,
    WriteTxnMarker,
)
from lossless.core.metadata import Image, PartitionState
from lossless.core.replica import Replica, Role
from lossless.core.transactions.messages import (
    EndTxn,
    EndTxnAnswer,
    InitProducerId,
    InitProducerIdAnswer,
)
from lossless.log.batch import NO_PRODUCER_ID
from lossless.simulator.coordinated import Commit, Generation, client, led, written
from lossless.simulator.exercise import Exercised, election
from lossless.simulator.settings import COORDINATOR_PARTITIONS, RETENTION_MS
from lossless.simulator.world import Process, World, name_of

INVARIANTS = {
    "HighWatermarkWithinLog": "log start <= high watermark <= log end",
    "HighWatermarkRises": "the high watermark of a leader does not fall within an epoch",
    "OneLeaderPerEpoch": "no two brokers ever lead a partition in one epoch",
    "StrongIsr": "an in-sync replica has everything below the leader's high watermark",
    "ActiveLeader": "a leader is neither fenced nor stopping, and is in sync",
    "ActiveIsr": "no fenced or stopping broker is in sync, except the last one (KIP-841)",
    "CompareAndSet": "the in-sync set is changed from the state that the change names",
    "SameProcess": "a replica that joins is the process that caught up, not a later one (KIP-903)",
    "SameEpoch": "the high watermark rises by what was fetched in the leader's own epoch (KIP-320)",
    "RecoverableLog": "a log opens again after a crash or a loss of power",
    "OneOwner": "no two members of a group have a partition in one generation",
    "OwnerCommits": "a group's offset is committed by the member that has the partition now (C13)",
    "OneOutcome": "no transaction is committed here and aborted there",
    "ProducerFenced": "a partition accepts no batch of an older producer epoch than it has seen",
    "CoordinatorFenced": "a partition accepts no marker of an older coordinator than it has seen",
    "OffsetsStay": "a group reads back the last offset that was acknowledged to it, or a later one",
    "MetadataStays": "metadata that the controllers have committed stays at its offset",
    "OneVote": "a controller votes for one candidate in an epoch, also if it restarts",
    "OneProducer": "a producer that starts gets an epoch that no other with its id was given",
}


class _Seen(NamedTuple):
    """Of a replica, when it was last looked at."""

    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    life: int  # of the process


class Invariants:
    """Looks at every state once, and so also counts elections, truncations and rebalances."""

    def __init__(self, world: World, exercised: Exercised | None = None) -> None:
        self._world = world
        self._exercised = Exercised() if exercised is None else exercised
        self._states: dict[tuple[int, TopicPartition], PartitionState] = {}  # by controller
        self._elected: set[tuple[TopicPartition, int]] = set()  # the epochs that were counted
        self._seen: dict[tuple[int, TopicPartition], _Seen] = {}
        self._leaders: dict[tuple[TopicPartition, int], tuple[int, int]] = {}
        self._image_end: dict[int, int] = {}
        self._written: dict[tuple[int, TopicPartition, int], int] = {}  # of a coordinator's log
        self._ends: dict[tuple[int, TopicPartition, int], int] = {}  # of these logs, a step ago
        self._generations: dict[str, Generation] = {}  # the last of each group
        self._counted: set[Generation] = set()
        self._outcomes: dict[Producer, bool] = {}
        self._producers: dict[tuple[int, TopicPartition, int, int], tuple[int, int]] = {}
        self._metadata: dict[int, int] = {}  # committed: the epoch of each batch, by offset
        self._metadata_end: dict[tuple[int, int], int] = {}  # looked at, by node and its life
        self._votes: dict[int, tuple[int, int, int]] = {}  # epoch, candidate and life of the voter
        self._given: set[tuple[str, int, int]] = set()  # ids and epochs of producers
        self._offsets = _Offsets(world, self._exercised)

    def check(self, number: int) -> None:
        """After a step of one process."""
        process = self._world.processes.get(number)
        if process is None:
            return
        machine = process.machine
        if isinstance(machine, Broker):
            for partition, replica in machine.replicas.items():
                state = _Seen(
                    replica.high_watermark,
                    replica.log.log_end_offset,
                    replica.leader_epoch,
                    process.life,
                )
                before = self._seen.get((number, partition))
                if before != state:
                    self._seen[number, partition] = state
                    if before is not None and before.life == state.life:
                        is_shorter = state.log_end_offset < before.log_end_offset
                        self._exercised.truncations += is_shorter
                    self._check_replica(number, replica)
                    self._check_producers(number, replica)
        elif isinstance(machine, ControllerNode):
            self._check_metadata(number, process.life, machine)
            self._check_vote(number, process.life, machine)
            if machine.active is None:
                return
            image = machine.active.image
            if self._image_end.get(number) != image.end_offset:
                self._image_end[number] = image.end_offset
                self._count_elections(number, image)
                self._check_image(image)

    def check_fetch(self, number: int, request: Any) -> None:
        """Of a follower, by its leader. To be asked before `check`, which forgets what was."""
        if not isinstance(request, Fetch) or request.replica == CONSUMER:
            return
        for asked in request.partitions:
            leader = self._replica(number, asked.partition)
            before = self._seen.get((number, asked.partition))
            if leader is None or before is None or leader.high_watermark <= before.high_watermark:
                continue
            if leader.leader_epoch:
                self._examine("SameEpoch")
            if asked.leader_epoch != leader.leader_epoch:
                self._break(
                    "SameEpoch",
                    f"{asked.partition}: broker {number} leads in epoch {leader.leader_epoch}, and "
                    f"commits what broker {request.replica} fetched in {asked.leader_epoch}",
                )

    def check_coordinator(self, number: int, request: Any) -> None:
        """Of what a coordinator has written down, after a step in which it was asked something."""
        machine = self._world.processes[number].machine
        if isinstance(request, WriteTxnMarker):
            self._check_marker(request)
        if not isinstance(machine, Broker):
            return
        self._offsets.on_request(number, machine, request)
        for replica in led(machine):
            key = (number, replica.partition, replica.leader_epoch)
            seen, end = self._written.get(key, 0), replica.log.log_end_offset
            was, self._ends[key] = self._ends.get(key, 0), end
            state = self._world.agreed(replica.partition)
            if state is None or state.leader_epoch != replica.leader_epoch:
                continue  # no controller says who coordinates, or somebody else does by now
            if seen == end:
                continue
            self._written[key] = end
            # What was written while no controller could say came with other requests.
            is_of_this_request = seen == was
            for one in written(replica, seen):
                if isinstance(one, Generation):
                    self._check_generation(one)
                elif isinstance(one, Commit) and seen and is_of_this_request:
                    self._check_commit(one, request)

    def _check_generation(self, generation: Generation) -> None:
        if generation not in self._counted:  # a new coordinator reads what others have written
            self._counted.add(generation)
            self._exercised.rebalances += bool(generation.members)
        if len(generation.members) > 1:
            self._examine("OneOwner")
        self._generations[generation.group] = generation
        given = [partition for _, partitions in generation.members for partition in partitions]
        if len(given) != len(set(given)):
            self._break("OneOwner", generation.told())

    def _check_commit(self, commit: Commit, request: Any) -> None:
        generation = self._generations.get(commit.group)
        if not isinstance(request, OffsetCommit) or generation is None:
            return
        owned = dict(generation.members).get(request.member_id, ())
        if generation.number > 1 or len(generation.members) > 1:
            self._examine("OwnerCommits")
        if commit.partition.partition not in owned:
            self._break(
                "OwnerCommits",
                f"{client(request.member_id)} commits {commit.offset} of {commit.partition}, and "
                f"{generation.told()}",
            )

    def _check_marker(self, request: WriteTxnMarker) -> None:
        """With version 1 a producer's epoch is that of many transactions."""
        if self._world.settings.producer.transaction_version < 2:
            return
        producer = Producer(request.producer_id, request.producer_epoch)
        if producer in self._outcomes:
            self._examine("OneOutcome")
        if self._outcomes.setdefault(producer, request.committed) is not request.committed:
            self._break("OneOutcome", f"producer {producer.id}, epoch {producer.epoch}")

    def check_answer(self, request: Any, answer: Any) -> None:
        """Of the controller to a leader that asked for another in-sync set; of a coordinator."""
        for what in self._offsets.on_answer(request, answer):
            self._break("OffsetsStay", what)
        if isinstance(answer, InitProducerIdAnswer | EndTxnAnswer) and answer.error is Error.NONE:
            self._check_start(request, answer)
        if not isinstance(request, AlterPartition) or answer is None or answer.error:
            return
        partition = request.partition
        self._examine("CompareAndSet")
        if answer.partition_epoch > request.partition_epoch + 1:
            epochs = f"from epoch {request.partition_epoch} to {answer.partition_epoch} at once"
            self._break("CompareAndSet", f"{partition}: {epochs}")
        controller, state = self._world.controller, self._world.agreed(partition)
        if controller is None or state is None or state.partition_epoch != answer.partition_epoch:
            return  # it has changed since
        if any(self._world.processes[member].life > 1 for member, _ in request.isr):
            self._examine("SameProcess")
        for member, epoch in request.isr:
            if epoch not in (-1, controller.image.brokers[member].epoch):
                self._break("SameProcess", f"{partition}: broker {member} joined, and was replaced")

    def _check_replica(self, number: int, replica: Replica) -> None:
        log, high_watermark = replica.log, replica.high_watermark
        who = f"{name_of(number)}, {replica.partition}"
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

    def _check_producers(self, number: int, replica: Replica) -> None:
        """While one broker leads, epochs of producers and of their coordinators only rise."""
        if replica.role is not Role.LEADER:
            return
        for producer_id, known in replica.log.producers.items():
            key = (number, replica.partition, replica.leader_epoch, producer_id)
            epoch, coordinator_epoch = self._producers.get(key, (known.epoch, -1))
            who = f"{name_of(number)}, {replica.partition}, producer {producer_id}"
            if known.epoch < epoch:
                self._break("ProducerFenced", f"{who}: epoch {known.epoch} after {epoch}")
            elif known.coordinator_epoch < coordinator_epoch:
                epochs = f"{known.coordinator_epoch} after {coordinator_epoch}"
                self._break("CoordinatorFenced", f"{who}: a marker of epoch {epochs}")
            if known.epoch > epoch:
                self._examine("ProducerFenced")
            if known.coordinator_epoch > coordinator_epoch > -1:
                self._examine("CoordinatorFenced")
            self._producers[key] = (known.epoch, known.coordinator_epoch)

    def _check_metadata(self, number: int, life: int, node: ControllerNode) -> None:
        """A node that starts again is looked at again from the beginning."""
        end = node.quorum.high_watermark
        seen = self._metadata_end.get((number, life), 0)
        if seen >= end:
            return
        self._metadata_end[number, life] = end
        for batch in node.metadata_log.batches(seen):
            if batch.base_offset >= end:
                break
            if batch.base_offset in self._metadata:
                self._examine("MetadataStays")
            epoch = self._metadata.setdefault(batch.base_offset, batch.leader_epoch)
            if epoch != batch.leader_epoch:
                self._break(
                    "MetadataStays",
                    f"{name_of(number)} has epoch {batch.leader_epoch} at offset "
                    f"{batch.base_offset} of the metadata, and epoch {epoch} was committed there",
                )

    def _check_vote(self, number: int, life: int, node: ControllerNode) -> None:
        epoch, candidate, before = self._votes.get(number, (-1, -1, life))
        voted = node.quorum.voted
        if node.quorum.epoch == epoch:
            if before != life:
                self._examine("OneVote")
            if voted != candidate:
                now = "nobody" if voted is None else name_of(voted)
                self._break(
                    "OneVote",
                    f"in epoch {epoch} {name_of(number)} voted for {name_of(candidate)}, and "
                    f"later for {now}",
                )
        if voted is not None:
            self._votes[number] = (node.quorum.epoch, voted, life)

    def _check_start(
        self, request: InitProducerId | EndTxn, answer: InitProducerIdAnswer | EndTxnAnswer
    ) -> None:
        """The answer to EndTxn names the producer of the next transaction, from version 2 on."""
        given = (request.transactional_id, answer.producer_id, answer.producer_epoch)
        if isinstance(request, InitProducerId) and request.producer_id == NO_PRODUCER_ID:
            if any(one[0] == request.transactional_id for one in self._given):
                self._examine("OneProducer")
            if given in self._given:
                self._break(
                    "OneProducer",
                    f"{request.transactional_id} starts as producer {answer.producer_id}, epoch "
                    f"{answer.producer_epoch}, as one before it did",
                )
        self._given.add(given)

    def _check_in_sync(self, leader: Replica, who: str) -> None:
        state = self._world.agreed(leader.partition)
        if state is None or state.leader_epoch != leader.leader_epoch:
            return  # somebody else leads by now; this one will be told
        for member in state.isr:
            replica = self._replica(member, leader.partition)
            if replica is None:
                continue
            if replica is not leader and leader.high_watermark:
                self._examine("StrongIsr")
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
            if not all(image.is_active(broker) for broker in state.replicas):
                self._examine("ActiveLeader")
                if len(state.replicas) > 1:
                    self._examine("ActiveIsr")
            outside = [member for member in state.isr if not image.is_active(member)]
            if outside and len(state.isr) > 1:
                self._break("ActiveIsr", f"{partition}: broker {outside[0]} of {state.isr}")
            if state.leader == NO_LEADER:
                continue
            if state.leader not in state.isr or not image.is_active(state.leader):
                self._break("ActiveLeader", f"{partition}: broker {state.leader} of {state.isr}")
            leader = self._replica(state.leader, partition)
            if leader is not None and leader.role is Role.LEADER:
                self._check_in_sync(leader, f"broker {state.leader}, {partition}")

    def _count_elections(self, controller: int, image: Image) -> None:
        """By controller: what one has not committed, its successor may not have."""
        for partition, state in image.partitions.items():
            kind = election(self._states.get((controller, partition)), state)
            self._states[controller, partition] = state
            key = (partition, state.leader_epoch)
            if kind is not None and key not in self._elected:
                self._elected.add(key)
                self._exercised.elections[kind.value] += 1
                if len(state.replicas) > 1:
                    self._examine("OneLeaderPerEpoch")

    def _replica(self, number: int, partition: TopicPartition) -> Replica | None:
        process: Process = self._world.processes[number]
        machine = process.machine
        return machine.replicas.get(partition) if isinstance(machine, Broker) else None

    def _examine(self, name: str) -> None:
        """Counts a check of an invariant that this state could have broken."""
        self._exercised.examined[name] += 1

    def _break(self, name: str, what: str) -> None:
        self._world.broken.append(f"{name}: {what}")


class _Offsets:
    """The offsets that groups commit, as clients and coordinators see them.

    A coordinator that has been replaced without being aware of it may answer with what it had, as
    Kafka's does: it is not held to this.
    """

    def __init__(self, world: World, exercised: Exercised) -> None:
        self._world = world
        self._exercised = exercised
        self._may_expire = world.settings.offsets_retention_ms < RETENTION_MS
        # By group and partition, in the order in which they arrived at a coordinator.
        self._arrived: dict[tuple[str, TopicPartition], list[int]] = {}
        self._acknowledged: dict[tuple[str, TopicPartition], int] = {}  # the last, in that order
        # Of requests, by id: the world keeps them all.
        self._places: dict[int, list[int]] = {}
        self._least: dict[int, dict[TopicPartition, int]] = {}

    def on_request(self, number: int, broker: Broker, request: Any) -> None:
        if isinstance(request, OffsetCommit):
            places = self._places[id(request)] = []
            for one in request.offsets:
                arrived = self._arrived.setdefault((request.group_id, one.partition), [])
                places.append(len(arrived))
                arrived.append(one.offset)
        elif isinstance(request, OffsetFetch) and self._coordinates(broker, request.group_id):
            self._least[id(request)] = {
                partition: place
                for (group, partition), place in self._acknowledged.items()
                if group == request.group_id
            }

    def _coordinates(self, broker: Broker, group: str) -> bool:
        number = partition_for(group, COORDINATOR_PARTITIONS)
        partition = TopicPartition(OFFSETS_TOPIC, number)
        replica, state = broker.replicas.get(partition), self._world.agreed(partition)
        return (
            replica is not None
            and state is not None
            and replica.role is Role.LEADER
            and replica.leader_epoch == state.leader_epoch
        )

    def on_answer(self, request: Any, answer: Any) -> Iterator[str]:
        """What a group was answered, and should not have been."""
        if isinstance(request, OffsetCommit) and isinstance(answer, OffsetCommitAnswer):
            places = self._places.get(id(request), [])
            for place, one in zip(places, answer.partitions, strict=False):
                if one.error is Error.NONE:
                    key = (request.group_id, one.partition)
                    self._acknowledged[key] = max(place, self._acknowledged.get(key, 0))
        elif isinstance(request, OffsetFetch) and isinstance(answer, OffsetFetchAnswer):
            least = self._least.get(id(request), {})
            for fetched in answer.partitions if answer.error is Error.NONE else ():
                first = least.get(fetched.partition)
                is_expired = fetched.offset == NO_OFFSET and self._may_expire
                if first is None or fetched.error is not Error.NONE or is_expired:
                    continue
                self._exercised.examined["OffsetsStay"] += 1
                arrived = self._arrived[request.group_id, fetched.partition]
                if fetched.offset not in arrived[first:]:
                    offset = "nothing" if fetched.offset == NO_OFFSET else fetched.offset
                    yield (
                        f"group {request.group_id} finds {offset} for {fetched.partition}, and "
                        f"{arrived[first]} was acknowledged to it"
                    )
