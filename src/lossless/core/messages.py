"""What brokers, controllers and clients say to each other: Kafka's requests, without their bytes.

The names and the error codes are Kafka's; `wire/` will turn them into frames and back.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from lossless.log.index import AbortedTransaction
from lossless.log.leader_epochs import EpochEnd

NO_LEADER = -1
CONSUMER = -1  # as replica id in a fetch
UNKNOWN_EPOCH = -1


class Error(enum.IntEnum):
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    TRANSACTION_COORDINATOR_FENCED = 52
    KAFKA_STORAGE_ERROR = 56
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    INVALID_RECORD = 87
    INVALID_UPDATE_VERSION = 95
    DUPLICATE_BROKER_REGISTRATION = 101
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


# Clients and followers to brokers


class Produce(NamedTuple):
    acks: int  # 0, 1, or -1 for all
    timeout_ms: int
    batches: tuple[tuple[TopicPartition, bytes], ...]


class Produced(NamedTuple):
    partition: TopicPartition
    error: Error
    base_offset: int = -1
    log_start_offset: int = -1


class ProduceAnswer(NamedTuple):
    partitions: tuple[Produced, ...]


class FetchPartition(NamedTuple):
    partition: TopicPartition
    offset: int
    leader_epoch: int = UNKNOWN_EPOCH  # that the asker believes in; unknown: do not check
    last_fetched_epoch: int = UNKNOWN_EPOCH  # of the record before `offset`
    log_start_offset: int = -1
    bytes_max: int = 1 << 20


class Fetch(NamedTuple):
    replica: int  # CONSUMER, or the id of a broker
    broker_epoch: int
    wait_ms_max: int
    bytes_min: int
    partitions: tuple[FetchPartition, ...]
    read_committed: bool = False


class Fetched(NamedTuple):
    partition: TopicPartition
    error: Error
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging: EpochEnd | None = None
    aborted: tuple[AbortedTransaction, ...] = ()
    data: bytes = b""


class FetchAnswer(NamedTuple):
    partitions: tuple[Fetched, ...]


class OffsetKind(enum.IntEnum):
    LATEST = -1
    EARLIEST = -2


class ListOffsets(NamedTuple):
    partition: TopicPartition
    leader_epoch: int
    at: int  # an OffsetKind, or a time
    read_committed: bool = False


class ListOffsetsAnswer(NamedTuple):
    partition: TopicPartition
    error: Error
    offset: int = -1
    leader_epoch: int = UNKNOWN_EPOCH


class OffsetForLeaderEpoch(NamedTuple):
    partition: TopicPartition
    leader_epoch: int
    epoch: int


class OffsetForLeaderEpochAnswer(NamedTuple):
    partition: TopicPartition
    error: Error
    end: EpochEnd | None = None


class WriteTxnMarker(NamedTuple):
    """A coordinator ends a transaction in one partition."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool


class WriteTxnMarkerAnswer(NamedTuple):
    partition: TopicPartition
    error: Error


class DeleteRecords(NamedTuple):
    partition: TopicPartition
    offset: int


class DeleteRecordsAnswer(NamedTuple):
    partition: TopicPartition
    error: Error
    log_start_offset: int = -1


class Metadata(NamedTuple):
    topics: tuple[str, ...]


class PartitionLeader(NamedTuple):
    partition: TopicPartition
    leader: int
    leader_epoch: int


class MetadataAnswer(NamedTuple):
    partitions: tuple[PartitionLeader, ...]


# Brokers to the controller


class BrokerRegistration(NamedTuple):
    broker: int
    incarnation: int  # of the process: another one after every start
    rack: str | None = None
    previous_broker_epoch: int = -1  # known only after a clean shutdown


class BrokerRegistrationAnswer(NamedTuple):
    error: Error
    broker_epoch: int = -1


class BrokerHeartbeat(NamedTuple):
    broker: int
    broker_epoch: int
    metadata_offset: int
    want_shut_down: bool = False


class BrokerHeartbeatAnswer(NamedTuple):
    error: Error
    is_fenced: bool = True
    should_shut_down: bool = False


class InSyncReplica(NamedTuple):
    broker: int
    broker_epoch: int  # -1: unknown


class AlterPartition(NamedTuple):
    broker: int
    broker_epoch: int
    partition: TopicPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[InSyncReplica, ...]


class AlterPartitionAnswer(NamedTuple):
    partition: TopicPartition
    error: Error
    isr: tuple[int, ...] = ()
    leader_epoch: int = -1
    partition_epoch: int = -1


# Administrators to the controller


class CreateTopic(NamedTuple):
    topic: str
    partitions: int
    replication_factor: int
    config: tuple[tuple[str, str], ...] = ()
    assignment: tuple[tuple[int, ...], ...] = ()  # empty: the controller places


class DeleteTopic(NamedTuple):
    topic: str


class AlterConfig(NamedTuple):
    topic: str  # "" for the default of all topics
    key: str
    value: str | None


class ElectLeader(NamedTuple):
    partition: TopicPartition
    unclean: bool = False  # else: the preferred replica


class AdminAnswer(NamedTuple):
    error: Error
    what: str = ""
