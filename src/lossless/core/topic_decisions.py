"""The controller's decisions on topics: which there are, how many partitions, and where.

Rules learnt
- Settings are judged before places: Kafka names the wrong setting of a topic that would not find
  enough brokers either.
- Names that differ only in '.' and '_' would be one in the names of metrics: the second is refused.
"""

from __future__ import annotations

from lossless.core.admin_messages import CreatePartitions
from lossless.core.decision import Decision, accepted, refused
from lossless.core.messages import CreateTopic, DeleteTopic, Error, TopicPartition
from lossless.core.metadata import (
    ConfigChanged,
    Image,
    MetadataRecord,
    PartitionChanged,
    PartitionState,
    TopicCreated,
    TopicRemoved,
)
from lossless.core.placement import NotEnoughBrokers, place
from lossless.core.reassignment import assignment_of
from lossless.core.settings.topics import problem_with_topic

Assigned = tuple[tuple[int, ...], ...]


def create_topic(image: Image, request: CreateTopic, topic_id: int) -> Decision:
    if request.topic in image.topics:
        return refused(Error.TOPIC_ALREADY_EXISTS, request.topic)
    if other := _colliding(image, request.topic):
        return refused(Error.INVALID_TOPIC_EXCEPTION, f"{request.topic} collides with {other}")
    problem = problem_with_topic(dict(request.config), image.effective_properties())
    if problem is not None:
        return refused(Error.INVALID_CONFIG, problem)
    if request.partitions < 1:
        return refused(Error.INVALID_PARTITIONS, "at least 1")
    if request.assignment and len(request.assignment) != request.partitions:
        return refused(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"{len(request.assignment)} partitions are placed, not {request.partitions}",
        )
    made = _new_partitions(
        image, request.assignment, None, request.partitions, request.replication_factor
    )
    if isinstance(made, Decision):
        return made
    records: list[MetadataRecord] = [TopicCreated(request.topic, topic_id)]
    records += [ConfigChanged(request.topic, key, value) for key, value in request.config]
    records += [PartitionChanged(request.topic, at, state) for at, state in enumerate(made)]
    return accepted(tuple(records), validate_only=request.validate_only)


def _colliding(image: Image, topic: str) -> str | None:
    unified = topic.replace(".", "_")
    if "_" not in unified:
        return None
    return next((other for other in image.topics if other.replace(".", "_") == unified), None)


def create_partitions(image: Image, request: CreatePartitions) -> Decision:
    """More partitions for a topic that there is; keys may go elsewhere from now on."""
    if request.topic not in image.topics:
        return refused(Error.UNKNOWN_TOPIC_OR_PARTITION, request.topic)
    count = image.partition_count(request.topic)
    if request.partitions <= count:
        return refused(
            Error.INVALID_PARTITIONS,
            f"{request.topic} has {count} partitions: {request.partitions} would not be more",
        )
    more = request.partitions - count
    if request.assignment is not None and len(request.assignment) != more:
        return refused(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"{len(request.assignment)} partitions are placed, not {more}",
        )
    like = image.partitions[TopicPartition(request.topic, 0)]
    copies = len(assignment_of(like).wanted)
    made = _new_partitions(image, request.assignment or (), copies, more, copies, first=count)
    if isinstance(made, Decision):
        return made
    records = tuple(
        PartitionChanged(request.topic, at, state) for at, state in enumerate(made, count)
    )
    return accepted(records, validate_only=request.validate_only)


def delete_topic(image: Image, request: DeleteTopic) -> Decision:
    if request.topic not in image.topics:
        return refused(Error.UNKNOWN_TOPIC_OR_PARTITION, request.topic)
    return accepted((TopicRemoved(request.topic),))


def _new_partitions(
    image: Image,
    assignment: Assigned,
    copies_each: int | None,
    partitions: int,
    replication_factor: int,
    *,
    first: int = 0,
) -> list[PartitionState] | Decision:
    """As many as are asked for, or why not. Those that are not active are not in sync."""
    if problem := _misplaced(image, assignment, copies_each):
        return refused(Error.INVALID_REPLICA_ASSIGNMENT, problem)
    # Whoever is fenced will be back; whoever is stopping is about to go.
    usable = {
        broker: known.rack
        for broker, known in image.brokers.items()
        if known.fenced or not known.stopping
    }
    active = {broker for broker, known in image.brokers.items() if known.is_active}
    try:
        placed = assignment or place(
            usable, partitions, replication_factor, first=first, away=usable.keys() - active
        )
    except NotEnoughBrokers as error:
        return refused(Error.INVALID_REPLICATION_FACTOR, str(error))
    made = []
    for replicas in placed:
        isr = tuple(broker for broker in replicas if broker in active)
        made.append(PartitionState(replicas, isr, isr[0]))
    return made


def _misplaced(image: Image, assignment: Assigned, copies: int | None) -> str | None:
    for replicas in assignment:
        if problem := problem_with_replicas(image, replicas):
            return problem
        if not any(image.is_active(broker) for broker in replicas):
            return f"of {replicas} nobody is there to lead"
        if copies is not None and len(replicas) != copies:
            return f"{replicas} are not {copies} replicas, as other partitions have"
    return None


def problem_with_replicas(image: Image, replicas: tuple[int, ...]) -> str | None:
    if not replicas or len(set(replicas)) < len(replicas):
        return f"replicas are on different brokers, not on {replicas}"
    unknown = [broker for broker in replicas if broker not in image.brokers]
    return f"there is no broker {unknown[0]}" if unknown else None
