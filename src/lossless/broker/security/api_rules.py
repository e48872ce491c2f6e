"""What every API of a broker asks for: the resource, the operation, and how a refusal is told.

The table at the end is the whole of it. As in Kafka (its documentation has the same table, under
"Authorization and ACLs"), with these differences:

- Whoever is no super user has no fetch sessions: each fetch names all of its partitions, and each
  is looked at. So what is taken away is taken away at once, and nobody can use another's session.
- What a group subscribes to by a pattern is not looked at; what it then fetches is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lossless.broker.security.group_rules import (
    COMMIT_RULE,
    add_offsets_error,
    add_partitions_rule,
    coordinator_rule,
    describe_consumers_rule,
    describe_transactions_rule,
    each_group,
    group_rule,
    init_producer_error,
    list_groups_rule,
    markers_rule,
    offset_fetch_rule,
    subscription_rule,
    transaction_error,
)
from lossless.broker.security.rules import (
    CLUSTER_DENIED,
    Asking,
    Rule,
    Shape,
    Verdict,
    each,
    everybody,
    first_of,
    hiding,
    on_cluster,
    topic_refusal,
    whole,
    with_message,
)
from lossless.broker.security.topic_rules import (
    PRODUCED,
    create_rule,
    delete_rule,
    describe_partitions_rule,
    epoch_error,
    fetch_rule,
    metadata_rule,
    named,
    produce_error,
    settings_rule,
)
from lossless.core.messages import Error
from lossless.core.security.acls import Operation
from lossless.wire import alter_client_quotas
from lossless.wire.codec import Fields

READ, DELETE, ALTER = Operation.READ, Operation.DELETE, Operation.ALTER
DESCRIBE, DESCRIBE_CONFIGS = Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS
ALTER_CONFIGS = Operation.ALTER_CONFIGS

# Users and access


def _all(field: str, answer: str) -> Rule:
    """Each element has an answer, and they stand or fall together."""

    def error_of(asking: Asking, _said: Any) -> Error | None:
        return None if asking.on_cluster(ALTER) else CLUSTER_DENIED

    def refused(_asking: Asking, _said: Any, error: Error) -> Fields:
        return with_message(error)

    return each(field, answer, error_of, refused)


def _altered_users(asking: Asking) -> Verdict | None:
    if asking.on_cluster(ALTER):
        return None
    names = {said.name for said in (*asking.message.deletions, *asking.message.upsertions)}
    told = [{"user": name, **with_message(CLUSTER_DENIED)} for name in sorted(names)]
    return Verdict(None, {"results": told})


def _altered_quotas(asking: Asking) -> Verdict | None:
    if asking.on_cluster(ALTER_CONFIGS):
        return None
    told = [
        {"entity": alter_client_quotas.entity_told(said), **with_message(CLUSTER_DENIED)}
        for said in asking.message.entries
    ]
    return Verdict(None, {"entries": told})


_ELECTED = Shape(
    number=None, name="topic", told_partitions="partition_result", told_number="partition_id"
)


def _elected(asking: Asking) -> Verdict | None:
    if asking.on_cluster(ALTER):
        return None
    topics = asking.message.topic_partitions or ()
    told = [_ELECTED.told(asking, topic, CLUSTER_DENIED) for topic in topics]
    return Verdict(None, {"error_code": CLUSTER_DENIED, "replica_election_results": told})


def _error(error: Error) -> Fields:
    return {"error_code": error}


RULES: Mapping[int, Rule] = {
    0: each("topic_data", "responses", produce_error, PRODUCED.told),
    1: fetch_rule,
    2: each(
        "topics",
        "topics",
        topic_refusal(DESCRIBE),
        Shape(told_besides={"timestamp": -1, "offset": -1, "leader_epoch": -1}).told,
    ),
    3: metadata_rule,
    8: COMMIT_RULE,
    9: offset_fetch_rule,
    10: coordinator_rule,
    11: group_rule(READ),
    12: group_rule(READ),
    13: group_rule(READ),
    14: group_rule(READ),
    15: each_group("groups", "groups", DESCRIBE),
    16: list_groups_rule,
    17: everybody,
    18: everybody,
    19: create_rule,
    20: delete_rule,
    21: each(
        "topics", "topics", topic_refusal(DELETE), Shape(told_besides={"low_watermark": -1}).told
    ),
    22: whole(
        init_producer_error,
        lambda error: {"error_code": error, "producer_id": -1, "producer_epoch": -1},
    ),
    23: each(
        "topics",
        "topics",
        epoch_error,
        Shape(
            number="partition",
            name="topic",
            told_number="partition",
            told_besides={"leader_epoch": -1, "end_offset": -1},
        ).told,
    ),
    24: add_partitions_rule,
    25: whole(add_offsets_error, _error),
    26: whole(transaction_error, _error),
    27: markers_rule,
    28: COMMIT_RULE,
    29: on_cluster(DESCRIBE, with_message),
    30: _all("creations", "results"),
    31: _all("filters", "filter_results"),
    32: settings_rule(DESCRIBE_CONFIGS, "results"),
    33: settings_rule(ALTER_CONFIGS, "responses"),
    35: on_cluster(DESCRIBE),
    36: everybody,
    37: each("topics", "results", topic_refusal(ALTER), named),
    42: each_group("groups_names", "results", DELETE),
    43: _elected,
    44: settings_rule(ALTER_CONFIGS, "responses"),
    45: on_cluster(ALTER, with_message),
    46: on_cluster(DESCRIBE, with_message),
    47: first_of(group_rule(DELETE), each("topics", "topics", topic_refusal(READ), Shape().told)),
    48: on_cluster(DESCRIBE_CONFIGS, with_message),
    49: _altered_quotas,
    50: on_cluster(DESCRIBE, with_message),
    51: _altered_users,
    55: on_cluster(DESCRIBE),
    57: on_cluster(ALTER, with_message),
    60: everybody,
    61: each(
        "topics",
        "topics",
        topic_refusal(READ),
        Shape(partitions="partition_indexes", number=None).told,
    ),
    64: on_cluster(ALTER, with_message),
    65: describe_transactions_rule,
    66: hiding(
        "transaction_states",
        lambda asking, said: asking.on_transaction(DESCRIBE, said.transactional_id),
    ),
    68: first_of(group_rule(READ), subscription_rule),
    69: describe_consumers_rule,
    74: on_cluster(DESCRIBE_CONFIGS),
    75: describe_partitions_rule,
}
