"""What clients and followers ask of a broker's replicas, and whoever has to wait for an answer.

    produce     acks=0 is not answered; 1 at once; all when everybody in sync has it, or too late
    fetch       at once if there is enough, or something to tell; else when there is, or too late
    delete      when all live replicas have moved the start of their logs, or too late
    metadata    when the broker has applied what is committed up to an offset

Whoever waits is looked at again when a replica that it waits for has been touched. Nothing is asked
for its sake: a replica that moves is touched by whatever moved it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lossless.core.machine import Reply, Token
from lossless.core.messages import (
    CONSUMER,
    INTERNAL_TOPICS,
    AwaitMetadata,
    DeleteRecords,
    DeleteRecordsAnswer,
    Error,
    Fetch,
    FetchAnswer,
    Fetched,
    FetchPartition,
    ListOffsets,
    ListOffsetsAnswer,
    OffsetForLeaderEpoch,
    OffsetForLeaderEpochAnswer,
    Produce,
    ProduceAnswer,
    Produced,
    TopicPartition,
    WriteTxnMarker,
    WriteTxnMarkerAnswer,
)
from lossless.core.replica import ALL, NO_ERROR, Replica
from lossless.log.batch import new

MARKER_MS_MAX = 30_000  # then the coordinator asks again, and the marker is written again


class WaitingAppend:
    """Acknowledged by everybody in sync, or by nobody in time."""

    __slots__ = ("deadline_ms", "is_over", "of_marker", "open", "produced", "token")

    def __init__(self, token: Token, deadline_ms: int, *, of_marker: bool = False) -> None:
        self.token = token
        self.deadline_ms = deadline_ms
        self.of_marker = of_marker
        self.is_over = False
        self.produced: list[Produced] = []  # in the order of the request
        self.open: set[int] = set()  # whose place in it has no answer yet


class Appended(NamedTuple):
    """What somebody waits for: that a leader's log is committed up to an offset."""

    end_offset: int
    leader_epoch: int
    waiting: WaitingAppend
    place: int  # among what was produced


@dataclass(slots=True)
class WaitingFetch:
    token: Token
    deadline_ms: int
    request: Fetch
    number: int = 0  # of its first partition; the others have the next
    is_over: bool = False
    available: list[int] = field(default_factory=list)  # bytes for a consumer, by partition
    size: int = 0  # of what is available


@dataclass(slots=True)
class WaitingDeletion:
    """Done once all live replicas have moved their start."""

    token: Token
    deadline_ms: int
    request: DeleteRecords
    is_over: bool = False


Waiting = WaitingAppend | WaitingFetch | WaitingDeletion


class Serving:
    def __init__(
        self,
        replicas: Mapping[TopicPartition, Replica],
        exists: Callable[[TopicPartition], bool],
    ) -> None:
        self._replicas = replicas
        self._exists = exists  # in the cluster, with or without a replica here
        self._appends: dict[TopicPartition, list[Appended]] = {}
        self._fetches: dict[TopicPartition, dict[int, WaitingFetch]] = {}  # by their numbers
        self._deletions: dict[TopicPartition, list[WaitingDeletion]] = {}
        self._deadlines: list[tuple[int, int, Waiting]] = []
        self._waiting_count = 0
        self._touched: dict[TopicPartition, None] = {}
        self._awaiting: list[Reply] = []  # AwaitMetadata, until it is applied
        self.replies: list[Reply] = []  # whoever takes them clears them
        self.markers: list[WriteTxnMarker] = []  # that were written; likewise

    @property
    def deadline_ms(self) -> int | None:
        """When the first who waits has waited long enough."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][2].is_over:
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else None

    def touch(self, partition: TopicPartition) -> None:
        """Its replica may have moved."""
        self._touched[partition] = None

    # Requests

    def on_request(self, token: Token, request: Any, now_ms: int) -> bool:
        """Other than to produce and to fetch. False for what no replica answers."""
        match request:
            case ListOffsets():
                self._ask(token, request, ListOffsetsAnswer, lambda r: r.on_list_offsets(request))
            case OffsetForLeaderEpoch():
                self._ask(
                    token,
                    request,
                    OffsetForLeaderEpochAnswer,
                    lambda r: r.on_offset_for_leader_epoch(request),
                )
            case AwaitMetadata():
                self._awaiting.append(Reply(token, request))
            case WriteTxnMarker():
                self._on_marker(token, request, now_ms)
            case DeleteRecords():
                self._delete(token, request, now_ms)
            case _:
                return False
        return True

    def _missing(self, partition: TopicPartition) -> Error:
        """Why no replica of it is here: others have it, or it is none."""
        if self._exists(partition):
            return Error.NOT_LEADER_OR_FOLLOWER
        return Error.UNKNOWN_TOPIC_OR_PARTITION

    def _ask(
        self,
        token: Token,
        request: ListOffsets | OffsetForLeaderEpoch,
        refusal: Callable[[TopicPartition, Error], Any],
        ask: Callable[[Replica], Any],
    ) -> None:
        partition = request.partition
        replica = self._replicas.get(partition)
        if replica is None:
            answer = refusal(partition, self._missing(partition))
        else:
            answer = ask(replica)
            self.touch(partition)
        self.replies.append(Reply(token, answer))

    def _delete(self, token: Token, request: DeleteRecords, now_ms: int) -> None:
        replica = self._replicas.get(request.partition)
        if replica is None:
            error = self._missing(request.partition)
            self.replies.append(Reply(token, DeleteRecordsAnswer(request.partition, error)))
            return
        answer = replica.on_delete_records(request)
        self.touch(request.partition)
        if answer.error is not NO_ERROR or answer.low_watermark >= request.offset:
            self.replies.append(Reply(token, answer))
            return
        waiting = WaitingDeletion(token, now_ms + request.timeout_ms, request)
        self._deletions.setdefault(request.partition, []).append(waiting)
        self._wait(waiting)

    def produce(
        self,
        token: Token,
        request: Produce,
        refused: Mapping[TopicPartition, Error],
        now_ms: int,
    ) -> None:
        waiting = WaitingAppend(token, now_ms + request.timeout_ms)
        acks, replicas = request.acks, self._replicas
        for partition, data in request.batches:
            replica = replicas.get(partition)
            if partition.topic in INTERNAL_TOPICS:
                # A coordinator believes what it finds there: nobody else may write it.
                waiting.produced.append(Produced(partition, Error.INVALID_TOPIC_EXCEPTION))
            elif replica is None or partition in refused:
                error = refused.get(partition, self._missing(partition))
                waiting.produced.append(Produced(partition, error))
            else:
                produced, end_offset = replica.append(data, acks, now_ms)
                self._touched[partition] = None
                if acks == ALL and produced.error is NO_ERROR:
                    self._open(waiting, replica, end_offset)
                waiting.produced.append(produced)
        if acks != 0:
            self._await(waiting)
        elif any(produced.error is not NO_ERROR for produced in waiting.produced):
            self._finish(waiting)

    def _on_marker(self, token: Token, request: WriteTxnMarker, now_ms: int) -> None:
        """Answered once everybody in sync has it: the coordinator will not ask a second time."""
        partition = request.partition
        replica = self._replicas.get(partition)
        waiting = WaitingAppend(token, now_ms + MARKER_MS_MAX, of_marker=True)
        if replica is None:
            waiting.produced.append(Produced(partition, Error.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            produced, end_offset = replica.append_marker(request, now_ms)
            self.touch(partition)
            if produced.error is NO_ERROR:
                self.markers.append(request)
                self._open(waiting, replica, end_offset)
            waiting.produced.append(produced)
        self._await(waiting)

    def _open(self, waiting: WaitingAppend, replica: Replica, end_offset: int) -> None:
        """The next of what was produced has to be committed up to there."""
        place = len(waiting.produced)
        waiting.open.add(place)
        appended = new(Appended, (end_offset, replica.leader_epoch, waiting, place))
        waiters = self._appends.get(replica.partition)
        if waiters is None:
            waiters = self._appends[replica.partition] = []
        waiters.append(appended)

    def _await(self, waiting: WaitingAppend) -> None:
        if waiting.open:
            self._wait(waiting)
        else:
            self._finish(waiting)

    def fetch(self, token: Token, request: Fetch, now_ms: int) -> None:
        waiting = WaitingFetch(token, now_ms + request.wait_ms_max, request)
        answers = []
        size, is_odd = 0, False
        for asked in request.partitions:
            fetched = self._arrived(request, _within(asked, request, size), now_ms)
            answers.append(fetched)
            size += len(fetched.data)
            if (
                fetched.error is not NO_ERROR
                or fetched.diverging is not None
                or (
                    request.replica != CONSUMER
                    and asked.log_start_offset < fetched.log_start_offset
                    and self._replicas[asked.partition].has_later_start(asked)
                )
            ):
                is_odd = True
        if size >= request.bytes_min or is_odd or request.wait_ms_max <= 0:
            self._answer_fetch(waiting, answers)
            return
        self._wait(waiting)
        waiting.number = self._waiting_count
        for number, asked in enumerate(request.partitions, waiting.number):
            self._fetches.setdefault(asked.partition, {})[number] = waiting
            self._waiting_count = number

    def _arrived(self, request: Fetch, asked: FetchPartition, now_ms: int) -> Fetched:
        if request.replica == CONSUMER or (replica := self._replicas.get(asked.partition)) is None:
            return self._read(request, asked)
        before = replica.high_watermark
        fetched = replica.on_follower_fetch(request.replica, request.broker_epoch, asked, now_ms)
        if (
            replica.high_watermark != before
            or replica.proposal is not None
            or asked.partition in self._deletions
        ):
            self.touch(asked.partition)
        return fetched

    def _read(self, request: Fetch, asked: FetchPartition) -> Fetched:
        replica = self._replicas.get(asked.partition)
        if replica is None:
            return Fetched(asked.partition, self._missing(asked.partition))
        if request.replica == CONSUMER:
            return replica.on_consumer_fetch(asked, request.read_committed)
        return replica.read_for_follower(request.replica, request.broker_epoch, asked)

    # Whoever waits

    def _wait(self, waiting: Waiting) -> None:
        self._waiting_count += 1
        heapq.heappush(self._deadlines, (waiting.deadline_ms, self._waiting_count, waiting))

    def on_metadata(self, end_offset: int) -> None:
        """Answers requests for metadata that is applied by now."""
        if self._awaiting:
            awaiting, self._awaiting = self._awaiting, []
            for reply in awaiting:
                is_applied = reply.answer.end_offset <= end_offset
                (self.replies if is_applied else self._awaiting).append(reply)

    def complete(self) -> list[Replica]:
        """Answers whoever can be answered, until nothing moves any more; what has been touched."""
        moved = []
        while self._touched:
            partition, _ = self._touched.popitem()
            replica = self._replicas.get(partition)
            if replica is not None:
                moved.append(replica)
            if self._appends.get(partition):
                self._complete_appends(partition, replica)
            if self._fetches.get(partition):
                self._complete_fetches(partition)
            if partition in self._deletions:
                self._complete_deletions(partition, replica)
        return moved

    def expire(self, now_ms: int) -> None:
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, _, waiting = heapq.heappop(self._deadlines)
            if waiting.is_over:
                continue
            if isinstance(waiting, WaitingFetch):
                self._answer_fetch(waiting)
                continue
            if isinstance(waiting, WaitingDeletion):
                self._expire_deletion(waiting)
                continue
            for place in waiting.open:
                waiting.produced[place] = waiting.produced[place]._replace(
                    error=Error.REQUEST_TIMED_OUT
                )
            self._finish(waiting)

    def _complete_appends(self, partition: TopicPartition, replica: Replica | None) -> None:
        left = []
        for appended in self._appends[partition]:
            end_offset, leader_epoch, waiting, place = appended
            if waiting.is_over:
                continue
            error = (
                self._missing(partition)
                if replica is None
                else replica.acknowledged(end_offset, leader_epoch)
            )
            if error is None:
                left.append(appended)
                continue
            if error is not NO_ERROR:
                waiting.produced[place] = waiting.produced[place]._replace(error=error)
            waiting.open.discard(place)
            if not waiting.open:
                self._finish(waiting)
        self._appends[partition] = left

    def _complete_deletions(self, partition: TopicPartition, replica: Replica | None) -> None:
        left = []
        for waiting in self._deletions.pop(partition):
            answer = (
                DeleteRecordsAnswer(partition, self._missing(partition))
                if replica is None
                else replica.deleted(waiting.request)
            )
            if answer is None:
                left.append(waiting)
            else:
                waiting.is_over = True
                self.replies.append(Reply(waiting.token, answer))
        if left:
            self._deletions[partition] = left

    def _expire_deletion(self, waiting: WaitingDeletion) -> None:
        """Some live replica has not fetched: it may still have the records, and the leader has
        deleted them."""
        waiting.is_over = True
        partition = waiting.request.partition
        left = [one for one in self._deletions.pop(partition) if one is not waiting]
        if left:
            self._deletions[partition] = left
        low_watermark = self._replicas[partition].low_watermark
        error = Error.REQUEST_TIMED_OUT
        answer = DeleteRecordsAnswer(partition, error, low_watermark)
        self.replies.append(Reply(waiting.token, answer))

    def _finish(self, waiting: WaitingAppend) -> None:
        waiting.is_over = True
        token, waiting.token = waiting.token, None  # its deadline may be far away
        produced = waiting.produced
        answer: ProduceAnswer | WriteTxnMarkerAnswer
        if waiting.of_marker:
            answer = WriteTxnMarkerAnswer(produced[0].partition, produced[0].error)
        else:
            answer = ProduceAnswer(tuple(produced))
        self.replies.append(Reply(token, answer))

    def _complete_fetches(self, partition: TopicPartition) -> None:
        """Each may now be worth an answer; what is not goes on waiting until its time is up."""
        for number, waiting in list(self._fetches[partition].items()):
            if not waiting.is_over and self._has_news(waiting, number - waiting.number):
                self._answer_fetch(waiting)

    def _has_news(self, waiting: WaitingFetch, place: int) -> bool:
        """Now that one of its partitions was touched. The others are not looked at again: a request
        may have thousands, and all of them may be touched at once."""
        request = waiting.request
        if request.replica != CONSUMER:
            asked = request.partitions[place]
            replica = self._replicas.get(asked.partition)
            return replica is None or replica.has_news_for(request.replica, asked)
        known = waiting.available
        for at in (place,) if known else range(len(request.partitions)):
            asked = request.partitions[at]
            replica = self._replicas.get(asked.partition)
            if replica is None:
                return True
            available = replica.readable_bytes(asked, request.read_committed, request.bytes_min)
            if available is None:
                return True
            waiting.size += available - (known[at] if at < len(known) else 0)
            known[at : at + 1] = (available,)
        return waiting.size >= request.bytes_min

    def _answer_fetch(self, waiting: WaitingFetch, answers: list[Fetched] | None = None) -> None:
        waiting.is_over = True
        request = waiting.request
        if answers is None:
            answers = []
            size = 0
            for asked in request.partitions:
                fetched = self._read(request, _within(asked, request, size))
                answers.append(fetched)
                size += len(fetched.data)
        self.replies.append(Reply(waiting.token, FetchAnswer(tuple(answers))))
        # Its deadline may be far away, and some of its partitions are never touched: nothing of it
        # is kept for them, its answer with all the records least of all.
        waiting.token = None
        for number, asked in enumerate(
            request.partitions if waiting.number else (), waiting.number
        ):
            self._fetches[asked.partition].pop(number, None)


def _within(asked: FetchPartition, request: Fetch, size: int) -> FetchPartition:
    """What is left of the whole answer's limit. Nothing at all once it is reached; before that at
    least one batch, so that a large one is read some day (KIP-74)."""
    left = request.bytes_max - size
    return asked if asked.bytes_max <= left else asked._replace(bytes_max=max(0, left))
