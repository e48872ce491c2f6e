"""Everything that a broker coordinates: groups, transactions, and who may write for one.

a group's request          ──▶ the shard of its partition of __consumer_offsets
a transaction's request    ──▶ the shard of its partition of __transaction_state
what concerns all          ──▶ every shard that is here; their answers become one
records of a transaction   ──▶ held until its coordinator has said that they belong to it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lossless.core.coordinator import Coordinators, partition_for
from lossless.core.groups import messages as groups
from lossless.core.groups.config import GroupConfig, TopicView
from lossless.core.groups.shard import GroupShard
from lossless.core.groups.shard import refusal as group_refusal
from lossless.core.machine import Reply, Send, Token
from lossless.core.messages import (
    NO_LEADER,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    Error,
    Produce,
    Producer,
    TopicPartition,
    WriteTxnMarker,
)
from lossless.core.metadata import Image
from lossless.core.replica import Replica, Role
from lossless.core.transactions import messages as transactions
from lossless.core.transactions.config import TransactionConfig, VerificationConfig
from lossless.core.transactions.shard import TransactionShard
from lossless.core.transactions.verification import (
    Release,
    Support,
    TransactionalBatch,
    Verdict,
    Verification,
    produce_error,
    txn_offset_commit_error,
)
from lossless.log.batch import NO_SEQUENCE, transactional_producer

# Offsets, and what an administrator asks, may be of the group without a name, as ever.
_OF_NAMED_GROUPS = (
    groups.JoinGroup
    | groups.SyncGroup
    | groups.Heartbeat
    | groups.LeaveGroup
    | groups.ConsumerGroupDescribe
    | groups.OffsetDelete
)


class TransactionalCommit(NamedTuple):
    """A group's offsets, committed within a transaction."""

    transactional_id: str
    version: int  # of TxnOffsetCommit
    commit: groups.TxnOffsetCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinationConfig:
    groups: GroupConfig = field(default_factory=GroupConfig)
    transactions: TransactionConfig = field(default_factory=TransactionConfig)
    verification: VerificationConfig = field(default_factory=VerificationConfig)


@dataclass(slots=True, eq=False)
class _Gathering:
    """One question to every shard. It is its own token for each of them."""

    token: Token
    merge: Callable[[list[Any]], Any]
    missing: int
    answers: list[Any] = field(default_factory=list)


class _Part(NamedTuple):
    """A shard's part of a gathering, as a token."""

    gathering: _Gathering | None  # None: nobody wants to know
    number: int


class Coordination:
    def __init__(
        self,
        config: CoordinationConfig,
        *,
        image: Callable[[], Image],
        replicas: Mapping[TopicPartition, Replica],
        touch: Callable[[TopicPartition], None],
        draw: Callable[[int], int],
        next_producer_id: Callable[[], int | None],
    ) -> None:
        self._image = image
        self._replicas = replicas
        self.groups = Coordinators(
            OFFSETS_TOPIC,
            replicas,
            lambda number: GroupShard(number, config=config.groups, draw=draw, topics=self._topics),
            group_refusal,
            touch,
        )
        self.transactions = Coordinators(
            TRANSACTIONS_TOPIC,
            replicas,
            lambda number: TransactionShard(
                config.transactions,
                coordinator_epoch=replicas[TopicPartition(TRANSACTIONS_TOPIC, number)].leader_epoch,
                next_producer_id=next_producer_id,
                leader_of=self._leader_of,
                exists=lambda partition: partition in image().partitions,
                offsets_partition_count=lambda: image().partition_count(OFFSETS_TOPIC),
            ),
            transactions.refusal,
            touch,
        )
        self.verification = Verification(config.verification, self._is_open)
        self._held: dict[Token, Produce | TransactionalCommit] = {}
        self._asked: dict[transactions.AddPartitionsToTxn, int] = {}  # who has not answered
        self.replies: list[Reply] = []  # whoever takes them clears them
        self.sends: list[Send] = []  # likewise
        # Produce requests that may be appended, and what of them may not; likewise.
        self.released: list[tuple[Token, Produce, dict[TopicPartition, Error]]] = []

    @property
    def wake_ms(self) -> int | None:
        first: int | None = None
        for wake in (self.groups.wake_ms, self.transactions.wake_ms, self.verification.wake_ms):
            if wake is not None and (first is None or wake < first):
                first = wake
        return first

    def _topics(self) -> Mapping[str, TopicView]:
        image = self._image()
        return {
            name: TopicView(number, image.partition_count(name))
            for name, number in image.topics.items()
        }

    def _leader_of(self, partition: TopicPartition) -> int | None:
        state = self._image().partitions.get(partition)
        return None if state is None or state.leader == NO_LEADER else state.leader

    # What happens

    def on_request(self, token: Token, request: Any, now_ms: int) -> bool:
        """False for what no coordinator answers."""
        if isinstance(request, groups.GroupRequest):
            self._ask_group(token, request, now_ms)
        elif isinstance(request, transactions.KeyedRequest):
            number = self._partition(TRANSACTIONS_TOPIC, transactions.key_of(request))
            self.transactions.on_request(number, token, request, now_ms)
        elif isinstance(request, TransactionalCommit):
            self._verify_commit(token, request, now_ms)
        elif isinstance(request, groups.ListGroups):
            self._gather(self.groups, token, request, _merged_groups, now_ms)
        elif isinstance(request, transactions.ListTransactions):
            merge = transactions.merged_listings
            self._gather(self.transactions, token, request, merge, now_ms)
        else:
            return False
        return True

    def _ask_group(self, token: Token, request: groups.GroupRequest, now_ms: int) -> None:
        if not request.group_id and isinstance(request, _OF_NAMED_GROUPS):
            refused = group_refusal(request, Error.INVALID_GROUP_ID)  # whoever coordinates
            self.replies.append(Reply(token, refused))
            return
        number = self._partition(OFFSETS_TOPIC, groups.key_of(request))
        self.groups.on_request(number, token, request, now_ms)

    def _partition(self, topic: str, key: str) -> int:
        """No topic, no partition: then nobody coordinates, and the shard of none refuses."""
        count = self._image().partition_count(topic)
        return partition_for(key, count) if count else -1

    def on_leadership(self, now_ms: int) -> None:
        self.groups.on_leadership(now_ms)
        self.transactions.on_leadership(now_ms)
        self.transactions.tell_all(lambda shard: shard.on_leaders_changed(now_ms))
        # A coordinator that is frozen keeps its connections and never answers.
        for question, asked in list(self._asked.items()):
            if self._coordinator_of(question) != asked:
                del self._asked[question]
                self._act(self.verification.on_answer(question, None, now_ms), now_ms)

    def on_follower(self, partition: TopicPartition) -> None:
        """This broker no longer leads it."""
        self.verification.on_leadership_lost(partition)

    def on_topics_removed(self, topics: tuple[str, ...], now_ms: int) -> None:
        request = groups.TopicsDeleted(topics)
        for number in self.groups.numbers:
            self.groups.on_request(number, _Part(None, number), request, now_ms)

    def on_marker(self, request: WriteTxnMarker) -> None:
        self.verification.on_marker(request.partition, request.producer_id)
        if request.partition.topic == OFFSETS_TOPIC:
            self.groups.on_marker(request)

    def on_answer(self, source: int, request: Any, answer: Any, now_ms: int) -> bool:
        match request:
            case WriteTxnMarker():
                self.transactions.on_answer(source, request, answer, now_ms)
            case transactions.AddPartitionsToTxn():
                if self._asked.get(request) != source:
                    return True  # somebody else coordinates by now, and is or will be asked
                del self._asked[request]
                self._act(self.verification.on_answer(request, answer, now_ms), now_ms)
            case _:
                return False
        return True

    def on_timer(self, now_ms: int) -> None:
        self.groups.on_timer(now_ms)
        self.transactions.on_timer(now_ms)
        self._act(self.verification.on_timer(now_ms), now_ms)

    # One question to all

    def _gather(
        self,
        coordinators: Coordinators,
        token: Token,
        request: Any,
        merge: Callable[[list[Any]], Any],
        now_ms: int,
    ) -> None:
        numbers = coordinators.numbers
        if not numbers:
            self.replies.append(Reply(token, merge([])))
            return
        gathering = _Gathering(token, merge, len(numbers))
        for number in numbers:
            coordinators.on_request(number, _Part(gathering, number), request, now_ms)

    # Records of a transaction

    def holds(self, token: Token, request: Produce, now_ms: int) -> bool:
        """Whether a request has to wait for the coordinator of its transaction."""
        batches = []
        for partition, data in request.batches:
            known = transactional_producer(data)
            replica = self._replicas.get(partition)
            # What is no leader here is refused without anybody's help.
            if known is not None and replica is not None and replica.role is Role.LEADER:
                producer_id, epoch, sequence = known
                producer = Producer(producer_id, epoch)
                batches.append(TransactionalBatch(partition, producer, sequence))
        if not batches:
            return False
        self._held[token] = request
        support = Support.of_produce(request.version)
        transactional_id = request.transactional_id
        verdict = self.verification.on_produce(
            token, transactional_id, tuple(batches), support, now_ms
        )
        self._act(verdict, now_ms)
        return True

    def _verify_commit(self, token: Token, request: TransactionalCommit, now_ms: int) -> None:
        number = self._partition(OFFSETS_TOPIC, request.commit.group_id)
        if number not in self.groups.numbers:
            self._ask_group(token, request.commit, now_ms)  # to be refused
            return
        partition = TopicPartition(OFFSETS_TOPIC, number)
        batch = TransactionalBatch(partition, request.commit.producer, NO_SEQUENCE)
        self._held[token] = request
        support = Support.of_txn_offset_commit(request.version)
        verdict = self.verification.on_produce(
            token, request.transactional_id, (batch,), support, now_ms
        )
        self._act(verdict, now_ms)

    def _act(self, verdict: Verdict, now_ms: int) -> None:
        for question in verdict.send:
            self._ask_coordinator(question, now_ms)
        for release in verdict.release:
            request = self._held.pop(release.token)
            if isinstance(request, Produce):
                support = Support.of_produce(request.version)
                refused = {
                    partition: produce_error(error, support) for partition, error in release.refused
                }
                self.released.append((release.token, request, refused))
            else:
                self._commit(release, request.commit, now_ms)

    def _commit(self, release: Release, commit: groups.TxnOffsetCommit, now_ms: int) -> None:
        if release.refused:
            error = txn_offset_commit_error(release.refused[0][1])
            self.replies.append(Reply(release.token, group_refusal(commit, error)))
        else:
            self._ask_group(release.token, commit, now_ms)

    def _ask_coordinator(self, question: transactions.AddPartitionsToTxn, now_ms: int) -> None:
        leader = self._coordinator_of(question)
        if leader is None:
            error = Error.COORDINATOR_NOT_AVAILABLE
            answer = transactions.refusal(question, error)
            assert isinstance(answer, transactions.AddPartitionsToTxnAnswer)
            self._act(self.verification.on_answer(question, answer, now_ms), now_ms)
        else:
            self._asked[question] = leader
            self.sends.append(Send(leader, question))

    def _coordinator_of(self, question: transactions.AddPartitionsToTxn) -> int | None:
        number = self._partition(TRANSACTIONS_TOPIC, question.transactional_id)
        return self._leader_of(TopicPartition(TRANSACTIONS_TOPIC, number))

    def _is_open(self, partition: TopicPartition, producer: Producer) -> bool:
        replica = self._replicas.get(partition)
        known = None if replica is None else replica.log.producers.get(producer.id)
        return (
            known is not None
            and known.epoch == producer.epoch
            and known.transaction_first_offset is not None
        )

    # What may be told

    def complete(self) -> None:
        for coordinators in (self.groups, self.transactions):
            coordinators.complete()
            if coordinators.sends:
                self.sends += coordinators.sends
                coordinators.sends = []
            if coordinators.replies:
                replies, coordinators.replies = coordinators.replies, []
                for reply in replies:
                    self._reply(reply)

    def _reply(self, reply: Reply) -> None:
        if not isinstance(reply.token, _Part):
            self.replies.append(reply)
            return
        gathering = reply.token.gathering
        if gathering is None:
            return
        gathering.answers.append(reply.answer)
        if len(gathering.answers) == gathering.missing:
            merged = gathering.merge(gathering.answers)
            self.replies.append(Reply(gathering.token, merged))


def _merged_groups(answers: list[groups.ListGroupsAnswer]) -> groups.ListGroupsAnswer:
    """A shard that cannot tell makes the whole incomplete."""
    for answer in answers:
        if answer.error is not Error.NONE:
            return answer
    return groups.ListGroupsAnswer(
        Error.NONE, tuple(group for answer in answers for group in answer.groups)
    )
