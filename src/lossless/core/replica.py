"""A replica of a partition: one broker's copy of its log, as leader or as follower.

    offline      nobody leads
    leader       takes records, gives them offsets, and learns from fetches who has them
    follower     fetches what the leader has, and cuts off what the leader does not have

    offline ──▶ leader ◀──▶ follower ◀── offline       each change with a new leader epoch

Invariants
- `HighWatermarkWithinLog`: log start <= high watermark <= log end.
- `HighWatermarkRises`: while one broker leads in one epoch, what is committed stays committed.
- `StrongIsr`: whoever is in the maximal in-sync set has everything below the high watermark.
- A follower's log is a prefix of its leader's, once it has fetched in the leader's epoch.

Rules learnt
- Committed is what every member of the maximal in-sync set has, and, since Kafka 3.7, only while
  the set is not below min.insync.replicas (R2). Whoever has caught up and is about to join is
  waited for too.
- A follower cuts its log where the leader's history of epochs says that theirs part (KIP-101), one
  epoch at a time (KIP-279), and before it believes the leader's high watermark (KAFKA-14704).
- A fetch names the epoch that it believes in and the epoch of the last record it has (KIP-320);
  that epoch is the log's own, whether or not the last answer brought records (KAFKA-15510).
- The high watermark is never before the log's start (KAFKA-9491).
- A follower that cannot append what its leader sent stops fetching this partition, and nothing
  else, until another leader is elected or its process starts again, as in Kafka.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from lossless.core.acceptance import Refused, accepted
from lossless.core.in_sync import InSyncSet, Progress, Proposal
from lossless.core.messages import (
    NO_LEADER,
    UNKNOWN_EPOCH,
    DeleteRecords,
    DeleteRecordsAnswer,
    Error,
    Fetched,
    FetchPartition,
    ListOffsets,
    ListOffsetsAnswer,
    OffsetForLeaderEpoch,
    OffsetForLeaderEpochAnswer,
    OffsetKind,
    Produced,
    Producer,
    RecordError,
    TopicPartition,
    WriteTxnMarker,
)
from lossless.core.metadata import PartitionState
from lossless.core.settings.policies import TopicPolicy
from lossless.log.batch import (
    LENGTH_END,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    CorruptBatch,
    Data,
    Marker,
    MarkerKind,
    NoBatch,
    Record,
    build,
    new,
    parse,
    parse_all,
)
from lossless.log.index import AbortedTransaction
from lossless.log.leader_epochs import EpochEnd
from lossless.log.log import Log, UnexpectedOffset
from lossless.log.producers import Refusal
from lossless.log.rules import RULES, Rules

NONE, ONE, ALL = 0, 1, -1  # acks
LONG_AGO_MS = -(1 << 60)

_REFUSALS = {
    Refusal.OUT_OF_ORDER_SEQUENCE_NUMBER: Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Refusal.INVALID_PRODUCER_EPOCH: Error.INVALID_PRODUCER_EPOCH,
    Refusal.INVALID_TXN_STATE: Error.INVALID_TXN_STATE,
    Refusal.TRANSACTION_COORDINATOR_FENCED: Error.TRANSACTION_COORDINATOR_FENCED,
}


class Role(enum.Enum):
    OFFLINE = "offline"
    LEADER = "leader"
    FOLLOWER = "follower"


# Looking up a member takes longer than most of what is decided by it.
NO_ERROR, LEADER, FOLLOWER = Error.NONE, Role.LEADER, Role.FOLLOWER


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaConfig:
    lag_ms_max: int = 30_000  # replica.lag.time.max.ms
    flush_before_ack: bool = False  # flush.messages=1
    fetch_bytes_max: int = 1 << 20  # replica.fetch.max.bytes


class AppendResult(NamedTuple):
    produced: Produced
    end_offset: int = -1  # committed up to here, the records are safe


class Replica:
    def __init__(
        self,
        partition: TopicPartition,
        broker: int,
        log: Log,
        *,
        high_watermark: int = 0,
        config: ReplicaConfig | None = None,
        rules: Rules = RULES,
        is_eligible: Callable[[int, int], bool],
        policy: TopicPolicy | None = None,
    ) -> None:
        self.partition = partition
        self.broker = broker
        self.log = log
        self.config = config or ReplicaConfig()
        self._rules = rules
        self.policy = policy  # what the topic takes; None: whatever comes
        self._is_eligible = is_eligible  # broker and epoch: may it be in sync, as far as is known?
        self.role = Role.OFFLINE
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.min_isr = 1
        self.high_watermark = self._bounded(high_watermark)
        self.proposal: Proposal | None = None  # for the controller; whoever takes it clears it
        # Of a leader
        self.epoch_start_offset = 0
        self.in_sync = InSyncSet((), -1, rules)
        self.progress: dict[int, Progress] = {}
        self._to_join: set[int] = set()  # only without check_and_act_at_once
        # Of a follower
        self.failure: str | None = None  # why it no longer fetches from this leader
        self._truncate_to: int | None = None  # only without truncate_before_high_watermark
        self._epoch_is_known = True
        self._is_new_follower = True  # without fetch_checks_epoch histories are compared only then

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset(self.high_watermark)

    def _bounded(self, high_watermark: int) -> int:
        end = self.log.log_end_offset
        within = end if end < high_watermark else high_watermark
        if within < self.log.log_start_offset and self._rules.high_watermark_from_log_start:
            return self.log.log_start_offset
        return within

    # The controller's word

    def on_partition_state(self, state: PartitionState, min_isr: int, now_ms: int) -> bool:
        """True if who leads has changed: whoever waits for the old leader waits in vain."""
        self.min_isr = min_isr
        if state.leader_epoch > self.leader_epoch:
            self.partition_epoch = state.partition_epoch
            self.leader, self.leader_epoch = state.leader, state.leader_epoch
            self.proposal = self.failure = None
            if state.leader == self.broker:
                self._become_leader(state, now_ms)
            elif state.leader == NO_LEADER:
                self.role = Role.OFFLINE
            else:
                self._become_follower()
            return True
        if state.partition_epoch > self.partition_epoch:
            self.partition_epoch = state.partition_epoch
            if self.role is LEADER and self.in_sync.on_confirmed(state.isr, state.partition_epoch):
                self.proposal = None
        if self.role is LEADER:
            for replica in state.replicas:  # one may be added within an epoch
                if replica != self.broker and replica not in self.progress:
                    self.progress[replica] = Progress(LONG_AGO_MS)
            self._advance(now_ms)
        return False

    def _become_leader(self, state: PartitionState, now_ms: int) -> None:
        self.role = LEADER
        self.epoch_start_offset = self.log.log_end_offset
        self.in_sync = InSyncSet(state.isr, state.partition_epoch, self._rules)
        self._to_join.clear()
        self._truncate_to = None
        self.progress = {
            replica: Progress(now_ms if replica in state.isr else LONG_AGO_MS)
            for replica in state.replicas
            if replica != self.broker
        }
        self._advance(now_ms)

    def _become_follower(self) -> None:
        self.role = FOLLOWER
        self._truncate_to = None
        self._is_new_follower = True
        if not self._rules.truncate_by_epoch:
            self._truncate(self.high_watermark)

    # Leader: appending

    def append(self, data: Data, acks: int, now_ms: int) -> AppendResult:
        if acks not in (NONE, ONE, ALL):
            return self._refused(Error.INVALID_REQUIRED_ACKS)
        if self.role is not LEADER:
            return self._refused(Error.NOT_LEADER_OR_FOLLOWER)
        if acks == ALL and len(self.in_sync.isr) < self.min_isr:
            return self._refused(Error.NOT_ENOUGH_REPLICAS)
        try:
            batch = parse(data)
        except NoBatch:
            return self._refused(Error.INVALID_RECORD)
        except CorruptBatch:
            return self._refused(Error.CORRUPT_MESSAGE)
        # A second one that is refused would leave the first behind.
        if LENGTH_END + batch.length != len(data) or not batch.may_be_sent:
            return self._refused(Error.INVALID_RECORD)
        log = self.log
        has_own_time = log.config.log_append_time
        if self.policy is not None:
            taken = accepted(batch, self.policy, has_own_time, now_ms)
            if isinstance(taken, Refused):
                return self._refused(*taken)
            batch = taken
        result = log.append(batch, leader_epoch=self.leader_epoch, now_ms=now_ms)
        if isinstance(result, Refusal):
            return self._refused(_REFUSALS[result])
        self._after_append(now_ms)
        time_ms = now_ms if has_own_time else NO_TIMESTAMP
        produced = new(
            Produced,
            (
                self.partition,
                NO_ERROR,
                result.base_offset,
                log.log_start_offset,
                time_ms,
                None,
                (),
            ),
        )
        return new(AppendResult, (produced, result.last_offset + 1))

    def append_marker(self, request: WriteTxnMarker, now_ms: int) -> AppendResult:
        """The end of a transaction. It is written whoever is in sync: the transaction has ended."""
        if self.role is not LEADER:
            return self._refused(Error.NOT_LEADER_OR_FOLLOWER)
        kind = MarkerKind.COMMIT if request.committed else MarkerKind.ABORT
        result = self.log.append_marker(
            Marker(kind, request.coordinator_epoch),
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
        )
        if isinstance(result, Refusal):
            return self._refused(_REFUSALS[result])
        self._after_append(now_ms)
        produced = Produced(self.partition, NO_ERROR, result.base_offset)
        return AppendResult(produced, result.last_offset + 1)

    def append_decided(self, records: list[Record], producer: Producer | None, now_ms: int) -> None:
        """What a coordinator that lives on this replica has decided."""
        batch = build(
            records,
            producer_id=NO_PRODUCER_ID if producer is None else producer.id,
            producer_epoch=NO_PRODUCER_EPOCH if producer is None else producer.epoch,
            transactional=producer is not None,
        )
        self.log.append_decided(batch, leader_epoch=self.leader_epoch)
        self._after_append(now_ms)

    @property
    def may_commit(self) -> bool:
        """Whether enough replicas are in sync for a record to be committed."""
        return len(self.in_sync.isr) >= self.min_isr

    def _after_append(self, now_ms: int) -> None:
        if self.config.flush_before_ack:
            self.log.flush()
        self._advance(now_ms)

    def _refused(
        self, error: Error, reason: str | None = None, records: tuple[RecordError, ...] = ()
    ) -> AppendResult:
        refused = Produced(self.partition, error, reason=reason, record_errors=records)
        return AppendResult(refused)

    def acknowledged(self, end_offset: int, leader_epoch: int) -> Error | None:
        """What a producer that waits for all is told; None: not yet."""
        if self.role is not LEADER or leader_epoch != self.leader_epoch:
            return Error.NOT_LEADER_OR_FOLLOWER
        if self.high_watermark < end_offset:
            return None
        if len(self.in_sync.isr) < self.min_isr:
            return Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return NO_ERROR

    def _advance(self, now_ms: int) -> None:
        """Moves the high watermark to what everybody has who must have it."""
        in_sync, high_watermark = self.in_sync, self.high_watermark
        if len(in_sync.isr) < self.min_isr and self._rules.high_watermark_needs_min_isr:
            return
        end_offset = lowest = self.log.log_end_offset
        maximal = in_sync.maximal
        for broker, progress in self.progress.items():
            if broker in maximal or self._is_waited_for(broker, progress, end_offset, now_ms):
                has = progress.log_end_offset
                if has is None or has <= high_watermark:  # after most appends: it has not come yet
                    return
                if has < lowest:
                    lowest = has
        if lowest > high_watermark:
            self.high_watermark = lowest

    def _is_waited_for(self, broker: int, progress: Progress, end_offset: int, now_ms: int) -> bool:
        return (
            self._rules.check_and_act_at_once
            and progress.log_end_offset is not None
            and progress.is_caught_up(end_offset, now_ms, self.config.lag_ms_max, self._rules)
            and self._may_be_in_sync(broker, progress)
        )

    # Leader: followers

    def on_follower_fetch(
        self, follower: int, broker_epoch: int, asked: FetchPartition, now_ms: int
    ) -> Fetched:
        """A fetch has arrived: where it begins is how far the follower has come."""
        refusal = self._refused_fetch(follower, broker_epoch, asked)
        if refusal is not None:
            return refusal
        progress, end = self.progress[follower], self.log.log_end_offset
        progress.on_fetch(asked.offset, asked.log_start_offset, end, broker_epoch, now_ms)
        if follower not in self.in_sync.maximal:
            self._maybe_expand(follower, progress)
        self._advance(now_ms)
        return self._fetched(self._read(asked, end))

    def read_for_follower(self, follower: int, broker_epoch: int, asked: FetchPartition) -> Fetched:
        """The answer to a fetch that has waited: it was counted when it arrived."""
        refusal = self._refused_fetch(follower, broker_epoch, asked)
        return refusal or self._fetched(self._read(asked, self.log.log_end_offset))

    def _refused_fetch(
        self, follower: int, broker_epoch: int, asked: FetchPartition
    ) -> Fetched | None:
        error = self._checked(asked.leader_epoch)
        progress = self.progress.get(follower)
        if error is NO_ERROR and progress is None:
            error = Error.UNKNOWN_TOPIC_OR_PARTITION
        elif progress is not None and error is NO_ERROR and broker_epoch < progress.broker_epoch:
            error = Error.STALE_BROKER_EPOCH  # a late word of a process that was replaced
        if error is not NO_ERROR:
            return Fetched(self.partition, error)
        diverging = self._divergence(asked)
        if diverging is not None:
            return self._fetched(diverging=diverging)
        start, end = self.log.log_start_offset, self.log.log_end_offset
        if start <= asked.offset <= end:
            return None
        # Where the log begins and ends saves the follower a second question.
        latest = self.log.latest_epoch
        end_of_log = EpochEnd(UNKNOWN_EPOCH if latest is None else latest, end)
        return self._fetched(error=Error.OFFSET_OUT_OF_RANGE, diverging=end_of_log)

    def has_news_for(self, follower: int, asked: FetchPartition) -> bool:
        """Whether a fetch that waits is to be answered now. What is committed is told with the
        next records, or when the fetch has waited long enough: an answer for its sake alone would
        double what followers cost. Kafka does the same."""
        return (
            follower not in self.progress
            or asked.offset < self.log.log_end_offset
            or self.has_later_start(asked)
            or self._checked(asked.leader_epoch) is not NO_ERROR
        )

    def has_later_start(self, asked: FetchPartition) -> bool:
        """Whether a follower can move its start now. An administrator may wait for it."""
        latest = min(self.log.log_start_offset, self.high_watermark)
        return 0 <= asked.log_start_offset < latest

    def _maybe_expand(self, follower: int, progress: Progress) -> None:
        if not self._may_join(follower, progress):
            return
        if self._rules.check_and_act_at_once:
            self._propose(self.in_sync.expand(follower, self._broker_epochs()))
        else:
            self._to_join.add(follower)

    def _may_join(self, follower: int, progress: Progress) -> bool:
        if progress.log_end_offset is None or not self._may_be_in_sync(follower, progress):
            return False
        needed = max(self.high_watermark, self.epoch_start_offset)
        return not self._rules.join_at_high_watermark or progress.log_end_offset >= needed

    def _may_be_in_sync(self, broker: int, progress: Progress) -> bool:
        return not self._rules.fenced_stay_out or self._is_eligible(broker, progress.broker_epoch)

    def _broker_epochs(self) -> dict[int, int]:
        return {broker: progress.broker_epoch for broker, progress in self.progress.items()}

    def _propose(self, proposal: Proposal | None) -> None:
        if proposal is not None:
            self.proposal = proposal

    def on_tick(self, now_ms: int) -> None:
        """From time to time: who has not caught up for too long leaves the in-sync set."""
        if self.role is not LEADER:
            return
        end = self.log.log_end_offset
        lagging = {
            broker
            for broker, progress in self.progress.items()
            if not progress.is_caught_up(end, now_ms, self.config.lag_ms_max, self._rules)
        }
        self._propose(self.in_sync.shrink(lagging, self._broker_epochs()))
        self._advance(now_ms)

    def finish(self) -> None:
        """The second half of what a rule that is off has split in two."""
        if self._truncate_to is not None:
            self._truncate(self._truncate_to)
            self._truncate_to = None
        while self._to_join and self.role is LEADER:
            self._propose(self.in_sync.expand(self._to_join.pop(), self._broker_epochs()))

    @property
    def is_unfinished(self) -> bool:
        return self._truncate_to is not None or bool(self._to_join)

    def on_isr_changed(self, isr: tuple[int, ...], partition_epoch: int, now_ms: int) -> None:
        """The controller has done what was proposed."""
        if self.role is LEADER and self.in_sync.on_confirmed(isr, partition_epoch):
            self.partition_epoch = partition_epoch
            self._advance(now_ms)

    def on_isr_refused(self, partition_epoch: int) -> None:
        """The controller will not do what was proposed of this epoch."""
        if self.in_sync.partition_epoch == partition_epoch:
            self.in_sync.on_refused()

    # Leader: consumers

    def on_consumer_fetch(self, asked: FetchPartition, read_committed: bool) -> Fetched:
        """Consumers may also ask a follower (KIP-392), which knows what was committed a little
        later."""
        error = self._checked(asked.leader_epoch, may_follow=True)
        if error is not NO_ERROR:
            return Fetched(self.partition, error)
        diverging = self._divergence(asked)
        if diverging is not None:
            return self._fetched(diverging=diverging)
        if not self.log.log_start_offset <= asked.offset <= self.log.log_end_offset:
            return self._fetched(error=Error.OFFSET_OUT_OF_RANGE)
        end = self.readable_end(read_committed)
        aborted = self.log.aborted_between(asked.offset, end) if read_committed else []
        return self._fetched(self._read(asked, end), aborted=tuple(aborted))

    def readable_bytes(
        self, asked: FetchPartition, read_committed: bool, enough: int
    ) -> int | None:
        """How much a consumer could read, at least if it is less than `enough`; None: it is to be
        told something else."""
        if (
            self._checked(asked.leader_epoch, may_follow=True) is not NO_ERROR
            or self._divergence(asked) is not None
            or not self.log.log_start_offset <= asked.offset <= self.log.log_end_offset
        ):
            return None
        end = self.readable_end(read_committed)
        if enough <= 1:  # what most consumers ask for needs no reading
            return int(asked.offset < end)
        return len(self._read(asked, end))

    def readable_end(self, read_committed: bool) -> int:
        if read_committed:
            return self.last_stable_offset
        if not self._rules.consumers_read_committed:
            return self.log.log_end_offset
        return self.high_watermark

    def on_list_offsets(self, asked: ListOffsets) -> ListOffsetsAnswer:
        error = self._checked(asked.leader_epoch)
        if error is not NO_ERROR:
            return ListOffsetsAnswer(self.partition, error)
        if asked.at == OffsetKind.EARLIEST:
            return self._listed(self.log.log_start_offset)
        end = self.readable_end(asked.read_committed)
        if asked.at != OffsetKind.LATEST:
            is_latest_time = asked.at == OffsetKind.MAX_TIMESTAMP
            at = self.log.max_timestamp_ms if is_latest_time else asked.at
            record = None if at == NO_TIMESTAMP else self.log.first_at_or_after(at)
            if record is not None and record.offset < end:
                return self._listed(record.offset, record.timestamp_ms)
        # A new leader may not know yet what the old one has committed (KIP-207).
        is_behind = self.high_watermark < self.epoch_start_offset
        if is_behind and self._rules.offset_not_available_after_election:
            return ListOffsetsAnswer(self.partition, Error.OFFSET_NOT_AVAILABLE)
        return self._listed(end if asked.at == OffsetKind.LATEST else -1)

    def _listed(self, offset: int, timestamp_ms: int = NO_TIMESTAMP) -> ListOffsetsAnswer:
        epoch = self.log.epoch_at(offset)
        known_epoch = UNKNOWN_EPOCH if epoch is None else epoch
        return ListOffsetsAnswer(self.partition, NO_ERROR, offset, known_epoch, timestamp_ms)

    def on_offset_for_leader_epoch(self, asked: OffsetForLeaderEpoch) -> OffsetForLeaderEpochAnswer:
        error = self._checked(asked.leader_epoch)
        # Of an epoch that is still to come nobody knows where it ends.
        is_known = error is NO_ERROR and asked.epoch <= self.leader_epoch
        end = self._end_of(asked.epoch) if is_known else None
        return OffsetForLeaderEpochAnswer(self.partition, error, end)

    def on_delete_records(self, asked: DeleteRecords) -> DeleteRecordsAnswer:
        if self.role is not LEADER:
            return DeleteRecordsAnswer(self.partition, Error.NOT_LEADER_OR_FOLLOWER)
        if not 0 <= asked.offset <= self.high_watermark:
            return DeleteRecordsAnswer(self.partition, Error.OFFSET_OUT_OF_RANGE)
        if asked.offset > self.log.log_start_offset:
            self.log.delete_before(asked.offset)
        return DeleteRecordsAnswer(self.partition, NO_ERROR, self.low_watermark)

    def deleted(self, asked: DeleteRecords) -> DeleteRecordsAnswer | None:
        """The answer once all live replicas have moved their start; None: not yet."""
        if self.role is not LEADER:
            return DeleteRecordsAnswer(self.partition, Error.NOT_LEADER_OR_FOLLOWER)
        low_watermark = self.low_watermark
        if low_watermark < asked.offset:
            return None
        return DeleteRecordsAnswer(self.partition, NO_ERROR, low_watermark)

    @property
    def low_watermark(self) -> int:
        """The lowest start of all live replicas, in sync or not: any of them may lead one day."""
        starts = [
            progress.log_start_offset
            for broker, progress in self.progress.items()
            if self._is_eligible(broker, -1)
        ]
        return min([self.log.log_start_offset, *starts])

    def tidy(self, now_ms: int) -> None:
        """Deletes what is too old or too much, and what newer records of the same key replace."""
        self.log.retain(now_ms=now_ms, high_watermark=self.high_watermark)
        if self.policy is not None and self.policy.compacts and self.log.has_more_to_compact:
            self.log.flush()
            self.log.compact(now_ms=now_ms, high_watermark=self.high_watermark)

    # What both kinds of fetch have in common

    def _checked(self, leader_epoch: int, *, may_follow: bool = False) -> Error:
        if self.role is not LEADER and not (may_follow and self.role is FOLLOWER):
            return Error.NOT_LEADER_OR_FOLLOWER
        if leader_epoch == UNKNOWN_EPOCH or not self._rules.fetch_checks_epoch:
            return NO_ERROR
        if leader_epoch < self.leader_epoch:
            return Error.FENCED_LEADER_EPOCH
        return Error.UNKNOWN_LEADER_EPOCH if leader_epoch > self.leader_epoch else NO_ERROR

    def _divergence(self, asked: FetchPartition) -> EpochEnd | None:
        if asked.last_fetched_epoch == UNKNOWN_EPOCH or not self._rules.truncate_by_epoch:
            return None
        log = self.log
        if asked.last_fetched_epoch == log.latest_epoch and asked.offset <= log.log_end_offset:
            return None  # as nearly always: of one epoch, and not beyond the end
        end = self._end_of(asked.last_fetched_epoch)
        is_other_epoch = end.epoch < asked.last_fetched_epoch
        is_named = is_other_epoch and self._rules.diverging_epoch_named
        return end if is_named or end.end_offset < asked.offset else None

    def _end_of(self, epoch: int) -> EpochEnd:
        """Where the latest epoch up to `epoch` ends here. One that is later than all of the log's
        ended with the log: this leader has written nothing in its own yet. Of an empty log that
        knows no epoch, every epoch ended there."""
        found = self.log.end_of_epoch(epoch)
        if found is not None:
            return found
        latest = self.log.latest_epoch
        return EpochEnd(epoch if latest is None else latest, self.log.log_end_offset)

    def _read(self, asked: FetchPartition, end_offset: int) -> bytes:
        if asked.offset >= end_offset or not asked.bytes_max:
            return b""
        return self.log.read(asked.offset, end_offset=end_offset, bytes_max=asked.bytes_max)

    def _fetched(
        self,
        data: bytes = b"",
        *,
        error: Error = NO_ERROR,
        diverging: EpochEnd | None = None,
        aborted: tuple[AbortedTransaction, ...] = (),
    ) -> Fetched:
        log, high_watermark = self.log, self.high_watermark
        stable, start = log.last_stable_offset(high_watermark), log.log_start_offset
        return new(
            Fetched,
            (self.partition, error, high_watermark, stable, start, diverging, aborted, data),
        )

    # Follower

    def next_fetch(self) -> FetchPartition:
        latest = self.log.latest_epoch
        rules = self._rules
        is_told = self._epoch_is_known and (rules.fetch_checks_epoch or self._is_new_follower)
        return new(
            FetchPartition,
            (
                self.partition,
                self.log.log_end_offset,
                self.leader_epoch,
                latest if latest is not None and is_told else UNKNOWN_EPOCH,
                self.log.log_start_offset,
                self.config.fetch_bytes_max,
            ),
        )

    def on_fetched(self, asked: FetchPartition, fetched: Fetched) -> bool:
        """What the leader answered. False: nothing came of it, ask again a little later."""
        log = self.log
        is_stale = asked.offset != log.log_end_offset or (
            asked.leader_epoch != self.leader_epoch and self._rules.fetch_checks_epoch
        )
        if self.role is not FOLLOWER or is_stale:
            return True
        if fetched.error is Error.OFFSET_OUT_OF_RANGE:
            self._on_out_of_range(fetched)
            return True
        if fetched.error is not NO_ERROR:
            return False
        if fetched.diverging is not None:
            self._on_diverging(fetched, fetched.diverging)
            return True
        if fetched.data:
            try:
                batches = parse_all(fetched.data)
            except CorruptBatch:
                return False
            first = batches[0].base_offset
            if first < asked.offset == log.log_start_offset:
                # The leader's log begins within a batch, which came as a whole.
                log.start_anew(first)
            try:
                log.append_from_leader(batches, fetched.data)
            except UnexpectedOffset as error:
                self.failure = str(error)
                return False
            if self.config.flush_before_ack:
                log.flush()
        self._is_new_follower = False
        self._epoch_is_known = bool(fetched.data) or self._rules.epoch_kept_after_empty_fetch
        self.high_watermark = self._bounded(fetched.high_watermark)
        start = min(fetched.log_start_offset, self.high_watermark)
        if start > log.log_start_offset:
            log.delete_before(start)
        return True

    def _on_diverging(self, fetched: Fetched, diverging: EpochEnd) -> None:
        target = diverging.end_offset
        if self._rules.diverging_epoch_named and diverging.epoch != UNKNOWN_EPOCH:
            own = self.log.end_of_epoch(diverging.epoch)
            if own is not None:
                target = min(target, own.end_offset)
        if self._rules.truncate_before_high_watermark:
            self._truncate(target)
        else:
            self.high_watermark = self._bounded(fetched.high_watermark)
            self._truncate_to = target

    def _on_out_of_range(self, fetched: Fetched) -> None:
        """The leader begins after this log's end, or ends before it."""
        if self.log.log_end_offset < fetched.log_start_offset:
            self.log.start_anew(fetched.log_start_offset)
            self.high_watermark = self._bounded(self.high_watermark)
        elif fetched.diverging is not None:
            self._truncate(fetched.diverging.end_offset)

    def _truncate(self, offset: int) -> None:
        self.log.truncate(offset)
        self.high_watermark = self._bounded(self.high_watermark)
