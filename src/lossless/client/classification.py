"""Every error code is of one kind: the broker's (protocol) and librdkafka's own (below zero).

Asked for by code alone, the kind says what can still be done with the operation that failed. It is
not the same as the protocol's flag `retriable`, which says what a client may repeat on its own,
against the same broker, without thinking; the differences are in `DIFFERENT_FROM_PROTOCOL`, each
with its reason. What librdkafka knows of one error in particular (`fatal()`,
`txn_requires_abort()`) wins over the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lossless.client.errors import (
    ClientError,
    ClientFailed,
    Fenced,
    Kind,
    NotDelivered,
    Refused,
    SerializationFailed,
    TransactionAborted,
)

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from lossless.client.connecting import Explanation
    from lossless.client.record import Record

# Protocol codes, by the names that Kafka's Errors has.
_RETRIABLE = {
    -1: "UNKNOWN_SERVER_ERROR",
    2: "CORRUPT_MESSAGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT",
    8: "BROKER_NOT_AVAILABLE",
    9: "REPLICA_NOT_AVAILABLE",
    11: "STALE_CONTROLLER_EPOCH",
    13: "NETWORK_EXCEPTION",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    19: "NOT_ENOUGH_REPLICAS",
    20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    22: "ILLEGAL_GENERATION",
    25: "UNKNOWN_MEMBER_ID",
    27: "REBALANCE_IN_PROGRESS",
    41: "NOT_CONTROLLER",
    51: "CONCURRENT_TRANSACTIONS",
    52: "TRANSACTION_COORDINATOR_FENCED",
    55: "OPERATION_NOT_ATTEMPTED",
    56: "KAFKA_STORAGE_ERROR",
    60: "REASSIGNMENT_IN_PROGRESS",
    70: "FETCH_SESSION_ID_NOT_FOUND",
    71: "INVALID_FETCH_SESSION_EPOCH",
    72: "LISTENER_NOT_FOUND",
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    77: "STALE_BROKER_EPOCH",
    78: "OFFSET_NOT_AVAILABLE",
    79: "MEMBER_ID_REQUIRED",
    80: "PREFERRED_LEADER_NOT_AVAILABLE",
    83: "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    84: "ELECTION_NOT_NEEDED",
    88: "UNSTABLE_OFFSET_COMMIT",
    89: "THROTTLING_QUOTA_EXCEEDED",
    100: "UNKNOWN_TOPIC_ID",
    103: "INCONSISTENT_TOPIC_ID",
    106: "FETCH_SESSION_TOPIC_ID_ERROR",
    108: "NEW_LEADER_ELECTED",
    110: "FENCED_MEMBER_EPOCH",
    111: "UNRELEASED_INSTANCE_ID",
    113: "STALE_MEMBER_EPOCH",
    116: "UNKNOWN_CONTROLLER_ID",
    117: "UNKNOWN_SUBSCRIPTION_ID",
    122: "SHARE_SESSION_NOT_FOUND",
    123: "INVALID_SHARE_SESSION_EPOCH",
    124: "FENCED_STATE_EPOCH",
    129: "REBOOTSTRAP_REQUIRED",
    133: "SHARE_SESSION_LIMIT_REACHED",
}
_PERMANENT = {
    0: "NONE",
    1: "OFFSET_OUT_OF_RANGE",
    4: "INVALID_FETCH_SIZE",
    10: "MESSAGE_TOO_LARGE",
    12: "OFFSET_METADATA_TOO_LARGE",
    17: "INVALID_TOPIC_EXCEPTION",
    18: "RECORD_LIST_TOO_LARGE",
    21: "INVALID_REQUIRED_ACKS",
    23: "INCONSISTENT_GROUP_PROTOCOL",
    24: "INVALID_GROUP_ID",
    26: "INVALID_SESSION_TIMEOUT",
    28: "INVALID_COMMIT_OFFSET_SIZE",
    29: "TOPIC_AUTHORIZATION_FAILED",
    30: "GROUP_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    32: "INVALID_TIMESTAMP",
    36: "TOPIC_ALREADY_EXISTS",
    37: "INVALID_PARTITIONS",
    38: "INVALID_REPLICATION_FACTOR",
    39: "INVALID_REPLICA_ASSIGNMENT",
    40: "INVALID_CONFIG",
    42: "INVALID_REQUEST",
    43: "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    44: "POLICY_VIOLATION",
    46: "DUPLICATE_SEQUENCE_NUMBER",
    54: "SECURITY_DISABLED",
    57: "LOG_DIR_NOT_FOUND",
    61: "DELEGATION_TOKEN_AUTH_DISABLED",
    62: "DELEGATION_TOKEN_NOT_FOUND",
    63: "DELEGATION_TOKEN_OWNER_MISMATCH",
    64: "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    65: "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
    66: "DELEGATION_TOKEN_EXPIRED",
    67: "INVALID_PRINCIPAL_TYPE",
    68: "NON_EMPTY_GROUP",
    69: "GROUP_ID_NOT_FOUND",
    73: "TOPIC_DELETION_DISABLED",
    76: "UNSUPPORTED_COMPRESSION_TYPE",
    81: "GROUP_MAX_SIZE_REACHED",
    85: "NO_REASSIGNMENT_IN_PROGRESS",
    86: "GROUP_SUBSCRIBED_TO_TOPIC",
    87: "INVALID_RECORD",
    91: "RESOURCE_NOT_FOUND",
    92: "DUPLICATE_RESOURCE",
    93: "UNACCEPTABLE_CREDENTIAL",
    94: "INCONSISTENT_VOTER_SET",
    95: "INVALID_UPDATE_VERSION",
    96: "FEATURE_UPDATE_FAILED",
    97: "PRINCIPAL_DESERIALIZATION_FAILURE",
    98: "SNAPSHOT_NOT_FOUND",
    99: "POSITION_OUT_OF_RANGE",
    101: "DUPLICATE_BROKER_REGISTRATION",
    102: "BROKER_ID_NOT_REGISTERED",
    104: "INCONSISTENT_CLUSTER_ID",
    105: "TRANSACTIONAL_ID_NOT_FOUND",
    107: "INELIGIBLE_REPLICA",
    109: "OFFSET_MOVED_TO_TIERED_STORAGE",
    112: "UNSUPPORTED_ASSIGNOR",
    114: "MISMATCHED_ENDPOINT_TYPE",
    115: "UNSUPPORTED_ENDPOINT_TYPE",
    118: "TELEMETRY_TOO_LARGE",
    119: "INVALID_REGISTRATION",
    121: "INVALID_RECORD_STATE",
    125: "INVALID_VOTER_KEY",
    126: "DUPLICATE_VOTER",
    127: "VOTER_NOT_FOUND",
    128: "INVALID_REGULAR_EXPRESSION",
    130: "STREAMS_INVALID_TOPOLOGY",
    131: "STREAMS_INVALID_TOPOLOGY_EPOCH",
    132: "STREAMS_TOPOLOGY_FENCED",
}
_ABORTABLE = {
    48: "INVALID_TXN_STATE",
    49: "INVALID_PRODUCER_ID_MAPPING",
    59: "UNKNOWN_PRODUCER_ID",
    120: "TRANSACTION_ABORTABLE",
}
_FATAL = {
    33: "UNSUPPORTED_SASL_MECHANISM",
    34: "ILLEGAL_SASL_STATE",
    35: "UNSUPPORTED_VERSION",
    45: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    47: "INVALID_PRODUCER_EPOCH",
    50: "INVALID_TRANSACTION_TIMEOUT",
    53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    58: "SASL_AUTHENTICATION_FAILED",
    82: "FENCED_INSTANCE_ID",
    90: "PRODUCER_FENCED",
}

# librdkafka's own, by its names without the leading underscore.
_LOCAL_RETRIABLE = {
    -196: "FAIL",
    -195: "TRANSPORT",
    -194: "CRIT_SYS_RESOURCE",
    -193: "RESOLVE",
    -192: "MSG_TIMED_OUT",
    -187: "ALL_BROKERS_DOWN",
    -185: "TIMED_OUT",
    -184: "QUEUE_FULL",
    -183: "ISR_INSUFF",
    -182: "NODE_UPDATE",
    -181: "SSL",
    -180: "WAIT_COORD",
    -178: "IN_PROGRESS",
    -177: "PREV_IN_PROGRESS",
    -167: "OUTDATED",
    -166: "TIMED_OUT_QUEUE",
    -164: "WAIT_CACHE",
    -163: "INTR",
    -158: "PARTIAL",
    -153: "RETRY",
    -152: "PURGE_QUEUE",
    -151: "PURGE_INFLIGHT",
    -146: "UNKNOWN_BROKER",
    -142: "ASSIGNMENT_LOST",
    -138: "INVALID_DIFFERENT_RECORD",
    -137: "DESTROY_BROKER",
}
_LOCAL_PERMANENT = {
    -199: "BAD_MSG",
    -198: "BAD_COMPRESSION",
    -191: "PARTITION_EOF",
    -190: "UNKNOWN_PARTITION",
    -189: "FS",
    -188: "UNKNOWN_TOPIC",
    -186: "INVALID_ARG",
    -179: "UNKNOWN_GROUP",
    -176: "EXISTING_SUBSCRIPTION",
    -175: "ASSIGN_PARTITIONS",
    -174: "REVOKE_PARTITIONS",
    -173: "CONFLICT",
    -172: "STATE",
    -171: "UNKNOWN_PROTOCOL",
    -170: "NOT_IMPLEMENTED",
    -168: "NO_OFFSET",
    -165: "UNSUPPORTED_FEATURE",
    -162: "KEY_SERIALIZATION",
    -161: "VALUE_SERIALIZATION",
    -160: "KEY_DESERIALIZATION",
    -159: "VALUE_DESERIALIZATION",
    -157: "READ_ONLY",
    -156: "NOENT",
    -155: "UNDERFLOW",
    -154: "INVALID_TYPE",
    -145: "NOT_CONFIGURED",
    -143: "APPLICATION",
    -141: "NOOP",
    -140: "AUTO_OFFSET_RESET",
    -139: "LOG_TRUNCATION",
}
_LOCAL_FATAL = {
    -197: "DESTROY",
    -169: "AUTHENTICATION",
    -150: "FATAL",
    -149: "INCONSISTENT",
    -148: "GAPLESS_GUARANTEE",
    -147: "MAX_POLL_EXCEEDED",
    -144: "FENCED",
}

DIFFERENT_FROM_PROTOCOL: Mapping[int, str] = {
    -1: "the broker does not know what went wrong, so nothing says that it will again",
    8: "librdkafka asks for new metadata and repeats; it is a broker going away",
    11: "an old controller was in between: the next answer comes from the new one",
    22: "for a member: join again, the group goes on",
    25: "for a member: join again, the group goes on",
    27: "for a member: join again, the group goes on",
    52: "an old coordinator was in between: the next answer comes from the new one",
    55: "it was never tried",
    60: "it ends by itself",
    77: "the broker registers again by itself",
    79: "the first answer to a member that joins: it asks again with the id given",
    108: "an election was in between",
    110: "for a member: join again, the group goes on",
    111: "the previous holder's session runs out by itself",
    113: "for a member: take the new epoch and ask again",
    116: "the controllers are being replaced: ask again",
    117: "the client asks for a new subscription by itself",
    124: "an old coordinator was in between: the next answer comes from the new one",
    129: "the client starts again from its bootstrap servers by itself",
}

_KINDS: Mapping[int, Kind] = {
    **dict.fromkeys([*_RETRIABLE, *_LOCAL_RETRIABLE], Kind.RETRIABLE),
    **dict.fromkeys([*_PERMANENT, *_LOCAL_PERMANENT], Kind.PERMANENT),
    **dict.fromkeys(_ABORTABLE, Kind.ABORTABLE),
    **dict.fromkeys([*_FATAL, *_LOCAL_FATAL], Kind.FATAL),
}
_FENCED = frozenset({47, 82, 90, -144})
_SERIALIZATION = frozenset({-162, -161})

# What a record ends with when no broker could be asked, or none has answered.
UNREACHABLE = frozenset({-195, -193, -192, -187, -185, -152, -151})
PURGED = frozenset({-152, -151})  # librdkafka dropped it: this is never the reason itself

_FENCED_HINT = (
    "another producer has the same transactional.id, or a transaction took longer than "
    "transaction.timeout.ms: make a new producer"
)
_HINTS: Mapping[int, str] = {
    3: "create the topic, or look for a typing error in its name",
    10: "raise max.message.bytes of the topic and message.max.bytes of the client, or send less",
    17: "letters, digits, '.', '_' and '-', at most 249",
    29: "grant this client's user WRITE on the topic",
    30: "grant this client's user READ on the group",
    31: "grant this client's user WRITE on a topic, which includes the right to send with "
    "idempotence, or IDEMPOTENT_WRITE on the cluster (brokers before Kafka 2.8 need the latter)",
    53: "grant this client's user WRITE on the transactional id",
    **dict.fromkeys((47, 90, -144), _FENCED_HINT),
    -188: "create the topic, or look for a typing error in its name",
    -190: "the topic has fewer partitions",
    -192: "it may be written or not: whoever sends it again should keep its operation id",
}
_HINTS_OF_READING: Mapping[int, str] = {
    29: "grant this client's user READ on the topic",
    31: "grant this client's user DESCRIBE on the cluster",
}


def kind_of(code: int) -> Kind:
    """A code of neither table comes from a newer broker: nothing says that it will fail again."""
    return _KINDS.get(code, Kind.RETRIABLE)


def is_known(code: int) -> bool:
    return code in _KINDS


def error_from(
    error: KafkaError,
    record: Record | None = None,
    explanation: Explanation | None = None,
    *,
    reading: bool = False,
) -> ClientError:
    """The error of our tree for one of confluent-kafka's; of a record, if it has one.

    explanation: what is known beyond Kafka's own words. reading: of a consumer, which needs other
    permissions than a producer.
    """
    code = error.code()
    what = error.str() if record is None else f"{record}: {error.str()}"
    hint = _HINTS_OF_READING.get(code) if reading else None
    hint = hint or _HINTS.get(code)
    if explanation is not None:
        what = f"{what}; {explanation.what}"
        hint = explanation.hint or hint
    return _class_of(error)(what, hint=hint, code=code, record=record)


def _class_of(error: KafkaError) -> type[ClientError]:
    code = error.code()
    if code in _FENCED:
        return Fenced
    if error.fatal():
        return ClientFailed
    if error.txn_requires_abort():
        return TransactionAborted
    if code in _SERIALIZATION:
        return SerializationFailed
    return {
        Kind.RETRIABLE: NotDelivered,
        Kind.PERMANENT: Refused,
        Kind.ABORTABLE: TransactionAborted,
        Kind.FATAL: ClientFailed,
    }[kind_of(code)]
