"""What brokers, controllers and clients say to each other: Kafka's requests, without their bytes.

The names and the error codes are Kafka's; `wire/` will turn them into frames and back.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from lossless.core.error_codes import Error as Error
from lossless.core.quotas.limits import Client
from lossless.log.batch import Data
from lossless.log.index import AbortedTransaction
from lossless.log.leader_epochs import EpochEnd

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)

NO_LEADER = -1
CONSUMER = -1  # as replica id in a fetch
UNKNOWN_EPOCH = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Producer(NamedTuple):
    """Whose transaction some records belong to."""

    id: int
    epoch: int


# Clients and followers to brokers


class Produce(NamedTuple):
    acks: int  # 0, 1, or -1 for all
    timeout_ms: int
    batches: tuple[tuple[TopicPartition, Data], ...]
    transactional_id: str | None = None
    version: int = 0  # of the request: what the producer knows of transactions


class RecordError(NamedTuple):
    """A record because of which its whole batch is refused."""

    place: int  # in the batch
    reason: str


class Produced(NamedTuple):
    partition: TopicPartition
    error: Error
    base_offset: int = -1
    log_start_offset: int = -1
    append_time_ms: int = -1  # when the topic's records carry the broker's time
    reason: str | None = None
    record_errors: tuple[RecordError, ...] = ()


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
    bytes_max: int = 1 << 30  # of the whole answer, but for the first batch in it


class Fetched(NamedTuple):
    partition: TopicPartition
    error: Error
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging: EpochEnd | None = None
    aborted: tuple[AbortedTransaction, ...] = ()
    data: Data = b""


class FetchAnswer(NamedTuple):
    partitions: tuple[Fetched, ...]


class OffsetKind(enum.IntEnum):
    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


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
    timestamp_ms: int = -1


class OffsetForLeaderEpoch(NamedTuple):
    partition: TopicPartition
    leader_epoch: int
    epoch: int


class OffsetForLeaderEpochAnswer(NamedTuple):
    partition: TopicPartition
    error: Error
    end: EpochEnd | None = None


class InitProducerId(NamedTuple):
    """An id for a producer that is idempotent, and not in transactions."""


class InitProducerIdAnswer(NamedTuple):
    error: Error
    producer_id: int = -1
    producer_epoch: int = -1


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
    timeout_ms: int = 30_000


class DeleteRecordsAnswer(NamedTuple):
    partition: TopicPartition
    error: Error
    low_watermark: int = -1  # the lowest start of all live replicas


class Metadata(NamedTuple):
    topics: tuple[str, ...]


class PartitionLeader(NamedTuple):
    partition: TopicPartition
    leader: int
    leader_epoch: int


class MetadataAnswer(NamedTuple):
    partitions: tuple[PartitionLeader, ...]


# Brokers to the controller


class Endpoint(NamedTuple):
    """Where a broker can be reached, by those who use this listener."""

    listener: str
    host: str
    port: int
    protocol: int = 0  # Kafka's number: plain, TLS, with or without SASL


class BrokerRegistration(NamedTuple):
    broker: int
    incarnation: int  # of the process: another one after every start
    rack: str | None = None
    previous_broker_epoch: int = -1  # known only after a clean shutdown
    endpoints: tuple[Endpoint, ...] = ()


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


class AllocateProducerIds(NamedTuple):
    broker: int
    broker_epoch: int


class AllocateProducerIdsAnswer(NamedTuple):
    error: Error
    first: int = -1
    size: int = 0


# Administrators to the controller


class CreateTopic(NamedTuple):
    topic: str
    partitions: int
    replication_factor: int
    config: tuple[tuple[str, str | None], ...] = ()
    assignment: tuple[tuple[int, ...], ...] = ()  # empty: the controller places
    validate_only: bool = False
    client: Client | None = None  # whose limit counts


class DeleteTopic(NamedTuple):
    topic: str
    client: Client | None = None


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
    throttle_ms: int = 0  # how long the client should wait


class AwaitMetadata(NamedTuple):
    """Answered, with the request itself, once the broker has applied metadata up to an offset."""

    end_offset: int
