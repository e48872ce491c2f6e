"""Who may use groups and transactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from lossless.broker.security.rules import (
    CLUSTER_DENIED,
    GROUP_DENIED,
    TOPIC_DENIED,
    TRANSACTION_DENIED,
    Asking,
    Rule,
    Shape,
    Verdict,
    each,
    hiding,
    on_cluster,
    topic_refusal,
    visible_topic,
    whole,
    with_message,
    without,
)
from lossless.core.messages import Error
from lossless.core.security.acls import Operation, ResourceType
from lossless.wire import add_partitions_to_txn, offset_fetch
from lossless.wire.codec import Fields, make, response_class

READ, WRITE, ALTER = Operation.READ, Operation.WRITE, Operation.ALTER
DESCRIBE, CLUSTER_ACTION = Operation.DESCRIBE, Operation.CLUSTER_ACTION

# Groups


def group_rule(operation: Operation) -> Rule:
    def error_of(asking: Asking) -> Error | None:
        return None if asking.on_group(operation, asking.message.group_id) else GROUP_DENIED

    return whole(error_of, lambda error: {"error_code": error})


def each_group(field: str, answer: str, operation: Operation) -> Rule:
    def error_of(asking: Asking, name: str) -> Error | None:
        return None if asking.on_group(operation, name) else GROUP_DENIED

    def told(_asking: Asking, name: str, error: Error) -> Fields:
        return {"group_id": name, "error_code": error}

    return each(field, answer, error_of, told)


def _commit_error(asking: Asking, topic: Any) -> Error | None:
    transaction = getattr(asking.message, "transactional_id", None)
    if transaction is not None and not asking.on_transaction(WRITE, transaction):
        return TRANSACTION_DENIED
    if not asking.on_group(READ, asking.message.group_id):
        return GROUP_DENIED
    return topic_refusal(READ)(asking, topic)


COMMIT_RULE = each("topics", "topics", _commit_error, Shape().told)

_OFFSETS = Shape(
    partitions="partition_indexes",
    number=None,
    told_besides={"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""},
)


def offset_fetch_rule(asking: Asking) -> Verdict | None:
    if asking.version < offset_fetch.BATCHED:
        return _fetched_offsets_of_one(asking)
    groups, refused = [], []
    hidden: dict[str, list[Fields]] = {}
    for group in asking.message.groups:
        if not asking.on_group(DESCRIBE, group.group_id):
            refused.append({"group_id": group.group_id, "error_code": GROUP_DENIED})
            continue
        verdict = _EACH_OFFSET(asking._replace(message=group))
        if verdict is not None:
            hidden[group.group_id] = verdict.refused["topics"]
            group = replace(group, topics=()) if verdict.message is None else verdict.message
        groups.append(group)
    if not groups:
        return Verdict(None, {"groups": refused})
    left = replace(asking.message, groups=tuple(groups))
    return Verdict(left, {"groups": refused}, partial(_with_hidden_offsets, asking, hidden))


_EACH_OFFSET = each("topics", "topics", topic_refusal(DESCRIBE), _OFFSETS.told)


def _with_hidden_offsets(asking: Asking, hidden: Mapping[str, list[Fields]], answer: Any) -> Any:
    """The topics that were asked for and refused; and without those that nobody asked for by name
    and that may not be seen."""
    groups = []
    for group in answer.groups:
        seen = without("topics", partial(visible_topic, asking))(group)
        refused = _offset_topics(hidden.get(group.group_id, []), asking.version)
        groups.append(replace(seen, topics=seen.topics + refused))
    return replace(answer, groups=tuple(groups))


def _offset_topics(told: list[Fields], version: int) -> tuple[Any, ...]:
    entity = response_class(offset_fetch.KEY, version)
    made: tuple[Any, ...] = make(entity, {"groups": [{"topics": told}]}).groups[0].topics
    return made


def _fetched_offsets_of_one(asking: Asking) -> Verdict | None:
    if not asking.on_group(DESCRIBE, asking.message.group_id):
        refused = {
            "error_code": GROUP_DENIED,
            # Before version 2 an error has no place but with the partitions.
            "topics": [
                _OFFSETS.told(asking, topic, GROUP_DENIED)
                for topic in (asking.message.topics or ())
                if asking.version < 2
            ],
        }
        return Verdict(None, refused)
    if asking.message.topics is None:
        return hiding("topics", visible_topic)(asking)
    return _EACH_OFFSET(asking)


def coordinator_rule(asking: Asking) -> Verdict | None:
    kind = getattr(asking.message, "key_type", 0)
    on_one, denied = {
        0: (asking.on_group, GROUP_DENIED),
        1: (asking.on_transaction, TRANSACTION_DENIED),
    }.get(kind, (None, Error.NONE))
    if on_one is None:
        return None

    def error_of(_asking: Asking, key: str) -> Error | None:
        return None if on_one(DESCRIBE, key) else denied

    def told(_asking: Asking, key: str, error: Error) -> Fields:
        return {"key": key, "error_code": error, "node_id": -1, "host": "", "port": -1}

    if asking.version >= 4:
        return each("coordinator_keys", "coordinators", error_of, told)(asking)
    error = error_of(asking, asking.message.key)
    if error is None:
        return None
    return Verdict(None, {name: v for name, v in told(asking, "", error).items() if name != "key"})


def list_groups_rule(asking: Asking) -> Verdict | None:
    if asking.on_cluster(DESCRIBE):
        return None
    return hiding("groups", lambda here, group: here.on_group(DESCRIBE, group.group_id))(asking)


def subscription_rule(asking: Asking) -> Verdict | None:
    names = asking.message.subscribed_topic_names or ()
    if all(asking.on_topic(DESCRIBE, name) for name in names):
        return None
    return Verdict(None, with_message(TOPIC_DENIED))


def describe_consumers_rule(asking: Asking) -> Verdict | None:
    verdict = each_group("group_ids", "groups", DESCRIBE)(asking)
    if verdict is None:
        verdict = Verdict(asking.message)
    if verdict.message is None:
        return verdict
    return verdict._replace(edit=partial(_without_hidden_topics, asking))


def _without_hidden_topics(asking: Asking, answer: Any) -> Any:
    def judged(group: Any) -> Any:
        names = {
            topic.topic_name
            for member in group.members
            for assigned in (member.assignment, member.target_assignment)
            for topic in assigned.topic_partitions
        }
        if all(asking.on_topic(DESCRIBE, name) for name in names):
            return group
        return replace(group, members=(), error_code=type(group.error_code)(TOPIC_DENIED.value))

    return replace(answer, groups=tuple(map(judged, answer.groups)))


# Transactions


def init_producer_error(asking: Asking) -> Error | None:
    transaction = asking.message.transactional_id
    if transaction is not None:
        return None if asking.on_transaction(WRITE, transaction) else TRANSACTION_DENIED
    # Whoever may write somewhere may do so without duplicates (KIP-679).
    may_write = asking.permissions.may_some(WRITE, ResourceType.TOPIC)
    is_allowed = may_write or asking.on_cluster(Operation.IDEMPOTENT_WRITE)
    return None if is_allowed else CLUSTER_DENIED


def add_partitions_rule(asking: Asking) -> Verdict | None:
    if asking.version >= add_partitions_to_txn.BATCHED:
        return on_cluster(CLUSTER_ACTION)(asking)
    message = asking.message
    topics = message.v3_and_below_topics
    if not asking.on_transaction(WRITE, message.v3_and_below_transactional_id):
        errors = [TRANSACTION_DENIED for _ in topics]
    else:
        found = [topic_refusal(WRITE)(asking, topic) for topic in topics]
        if not any(found):
            return None
        # One that is refused keeps the others from being added.
        errors = [error or Error.OPERATION_NOT_ATTEMPTED for error in found]
    told = [_ADDED.told(asking, *pair) for pair in zip(topics, errors, strict=True)]
    return Verdict(None, {"results_by_topic_v3_and_below": told})


_ADDED = Shape(
    number=None, told_partitions="results_by_partition", told_error="partition_error_code"
)


def transaction_error(asking: Asking) -> Error | None:
    is_allowed = asking.on_transaction(WRITE, asking.message.transactional_id)
    return None if is_allowed else TRANSACTION_DENIED


def add_offsets_error(asking: Asking) -> Error | None:
    is_allowed = asking.on_group(READ, asking.message.group_id)
    return transaction_error(asking) or (None if is_allowed else GROUP_DENIED)


_MARKED = Shape(partitions="partition_indexes", number=None)


def markers_rule(asking: Asking) -> Verdict | None:
    if asking.on_cluster(CLUSTER_ACTION) or asking.on_cluster(ALTER):
        return None
    told = [
        {
            "producer_id": marker.producer_id,
            "topics": [_MARKED.told(asking, topic, CLUSTER_DENIED) for topic in marker.topics],
        }
        for marker in asking.message.markers
    ]
    return Verdict(None, {"markers": told})


def describe_transactions_rule(asking: Asking) -> Verdict | None:
    def error_of(here: Asking, name: str) -> Error | None:
        return None if here.on_transaction(DESCRIBE, name) else TRANSACTION_DENIED

    def told(_asking: Asking, name: str, error: Error) -> Fields:
        return {"transactional_id": name, "error_code": error}

    verdict = each("transactional_ids", "transaction_states", error_of, told)(asking)
    if verdict is None:
        verdict = Verdict(asking.message)
    if verdict.message is None:
        return verdict

    def edit(answer: Any) -> Any:
        visible = without("topics", lambda said: asking.on_topic(DESCRIBE, said.topic))
        return replace(answer, transaction_states=tuple(map(visible, answer.transaction_states)))

    return verdict._replace(edit=edit)
