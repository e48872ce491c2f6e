"""Commits: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete, and offsets that grow old.

Rules learnt
- Who commits must be in the group now: a member of an earlier generation would undo what its
  successor has done. An empty group takes offsets from anybody.
- Offsets of a group with members do not expire as long as it subscribes to their topics (KIP-211);
  those of an empty classic group all expire together, counted from when it became empty; all
  others one by one, counted from when they were committed.
- An offset with a pending successor is not told to who asks for what is stable (KIP-447), and does
  not expire.
"""

from __future__ import annotations

from collections.abc import Iterable

from lossless.core.groups.classic_group import ClassicGroup, ClassicState
from lossless.core.groups.config import GroupConfig
from lossless.core.groups.consumer_group import ConsumerGroup
from lossless.core.groups.messages import (
    NO_MEMBER_ID,
    NO_RETENTION,
    OffsetCommit,
    OffsetCommitAnswer,
    OffsetDelete,
    OffsetDeleteAnswer,
    OffsetFetch,
    OffsetFetchAnswer,
    OffsetFetched,
    OffsetToCommit,
    PartitionError,
    TxnOffsetCommit,
)
from lossless.core.groups.records import (
    NO_TIMESTAMP,
    OffsetCommitKey,
    OffsetCommitValue,
)
from lossless.core.groups.step import Step
from lossless.core.groups.store import GroupStore
from lossless.core.machine import Token
from lossless.core.messages import Error, TopicPartition

MEMBER_EPOCH_VERSION = 9  # of OffsetCommit: the first that members of consumer groups may use


class Commits:
    def __init__(self, store: GroupStore, config: GroupConfig) -> None:
        self._store = store
        self._config = config

    # Committing

    def on_commit(self, token: Token, request: OffsetCommit, step: Step) -> Error:
        error = self._check_commit(request)
        if error is not Error.NONE:
            step.answer(token, refused(request.offsets, error))
            return error
        expires_ms = NO_TIMESTAMP
        if request.retention_time_ms != NO_RETENTION:
            expires_ms = step.now_ms + request.retention_time_ms
        self._write(token, request.group_id, request.offsets, expires_ms, step)
        return Error.NONE

    def on_txn_commit(self, token: Token, request: TxnOffsetCommit, step: Step) -> None:
        error = self._check_txn_commit(request)
        if error is not Error.NONE:
            step.answer(token, refused(request.offsets, error))
            return
        step.producer = request.producer
        self._write(token, request.group_id, request.offsets, NO_TIMESTAMP, step)

    def _write(
        self,
        token: Token,
        group_id: str,
        offsets: tuple[OffsetToCommit, ...],
        expires_ms: int,
        step: Step,
    ) -> None:
        answers = []
        for one in offsets:
            error = Error.NONE
            # As in Kafka, what is counted is characters, whatever the setting is called.
            if len(one.metadata) > self._config.offset_metadata_max_bytes:
                error = Error.OFFSET_METADATA_TOO_LARGE
            else:
                step.write(
                    OffsetCommitKey(group_id, *one.partition),
                    OffsetCommitValue(
                        one.offset, one.leader_epoch, one.metadata, step.now_ms, expires_ms
                    ),
                )
            answers.append(PartitionError(one.partition, error))
        step.answer(token, OffsetCommitAnswer(tuple(answers)))

    def _check_commit(self, request: OffsetCommit) -> Error:
        if not self._config.rules.commit_checks_generation:
            return Error.NONE
        group = self._store.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is None:
            if generation < 0:
                return Error.NONE
            if request.api_version >= MEMBER_EPOCH_VERSION:
                return Error.GROUP_ID_NOT_FOUND
            return Error.ILLEGAL_GENERATION
        if isinstance(group, ClassicGroup):
            return _check_classic(
                group, generation, request.member_id, request.group_instance_id, in_txn=False
            )
        is_new_enough = request.api_version >= MEMBER_EPOCH_VERSION
        return _check_consumer(group, generation, request.member_id, is_new_enough)

    def _check_txn_commit(self, request: TxnOffsetCommit) -> Error:
        if not request.group_id:
            return Error.INVALID_GROUP_ID
        if self._store.offsets.is_fenced(request.producer):
            return Error.INVALID_PRODUCER_EPOCH
        group = self._store.get(request.group_id)
        if group is None:
            return Error.NONE if request.generation_id < 0 else Error.ILLEGAL_GENERATION
        if isinstance(group, ClassicGroup):
            return _check_classic(
                group,
                request.generation_id,
                request.member_id,
                request.group_instance_id,
                in_txn=True,
            )
        error = _check_consumer(group, request.generation_id, request.member_id, True)
        return Error.ILLEGAL_GENERATION if error is Error.STALE_MEMBER_EPOCH else error

    # Fetching

    def on_fetch(self, token: Token, request: OffsetFetch, step: Step) -> None:
        error = self._check_fetch(request)
        if error is not Error.NONE:
            step.answer(token, OffsetFetchAnswer(error, request.group_id))
            return
        offsets = self._store.offsets
        pending = offsets.pending_of(request.group_id) if request.require_stable else set()
        partitions = request.partitions
        if partitions is None:
            partitions = tuple(offsets.of(request.group_id))
        step.answer(
            token,
            OffsetFetchAnswer(
                Error.NONE,
                request.group_id,
                tuple(
                    OffsetFetched(partition, Error.UNSTABLE_OFFSET_COMMIT)
                    if partition in pending
                    else self._fetched(request.group_id, partition)
                    for partition in partitions
                ),
            ),
        )

    def _fetched(self, group_id: str, partition: TopicPartition) -> OffsetFetched:
        value = self._store.offsets.get(group_id, partition)
        if value is None:
            return OffsetFetched(partition)
        return OffsetFetched(
            partition, Error.NONE, value.offset, value.leader_epoch, value.metadata
        )

    def _check_fetch(self, request: OffsetFetch) -> Error:
        group = self._store.consumer.get(request.group_id)
        if group is None or (request.member_id is None and request.member_epoch < 0):
            return Error.NONE
        member = group.members.get(request.member_id or NO_MEMBER_ID)
        if member is None:
            return Error.UNKNOWN_MEMBER_ID
        is_current = member.member_epoch == request.member_epoch
        return Error.NONE if is_current else Error.STALE_MEMBER_EPOCH

    # Deleting

    def on_delete(self, token: Token, request: OffsetDelete, step: Step) -> None:
        group = self._store.get(request.group_id)
        error = _check_delete(request, group)
        if group is None or error is not Error.NONE:
            step.answer(token, OffsetDeleteAnswer(error))
            return
        pending = self._store.offsets.pending_of(request.group_id)
        answers = []
        for partition in request.partitions:
            if group.is_subscribed_to(partition.topic):
                error = Error.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                error = Error.NONE
                known = self._store.offsets.get(request.group_id, partition)
                if known is not None or partition in pending:
                    step.write(OffsetCommitKey(request.group_id, *partition), None)
            answers.append(PartitionError(partition, error))
        step.answer(token, OffsetDeleteAnswer(Error.NONE, tuple(answers)))

    def forget_all(self, group_id: str, step: Step) -> None:
        offsets = self._store.offsets
        self._forget(group_id, {*offsets.of(group_id), *offsets.pending_of(group_id)}, step)

    def on_topics_deleted(self, topics: Iterable[str], step: Step) -> None:
        gone, offsets = set(topics), self._store.offsets
        for group_id in sorted(offsets.groups()):
            known = {*offsets.of(group_id), *offsets.pending_of(group_id)}
            self._forget(group_id, {one for one in known if one.topic in gone}, step)

    def _forget(self, group_id: str, partitions: set[TopicPartition], step: Step) -> None:
        for partition in sorted(partitions):
            step.write(OffsetCommitKey(group_id, *partition), None)

    # Growing old

    def expire(self, step: Step) -> None:
        """Forgets offsets that have been kept long enough, and empty groups that have none."""
        for group in self._store.all():
            expired = self._expired(group, step.now_ms)
            self._forget(group.group_id, expired, step)
            offsets = self._store.offsets
            left = {*offsets.of(group.group_id), *offsets.pending_of(group.group_id)} - expired
            if left or not group.is_empty:
                continue
            for key in group.record_keys():
                step.write(key, None)

    def _expired(self, group: ClassicGroup | ConsumerGroup, now_ms: int) -> set[TopicPartition]:
        if not _may_expire(group):
            return set()
        kept_since_ms = None
        if isinstance(group, ClassicGroup) and group.protocol_type is not None and group.is_empty:
            kept_since_ms = group.state_timestamp_ms
        pending = self._store.offsets.pending_of(group.group_id)
        expired = set()
        for partition, value in self._store.offsets.of(group.group_id).items():
            if partition in pending or group.is_subscribed_to(partition.topic):
                continue
            expires_ms = value.expire_timestamp_ms
            if expires_ms == NO_TIMESTAMP:
                since_ms = value.commit_timestamp_ms
                if kept_since_ms is not None and kept_since_ms != NO_TIMESTAMP:
                    since_ms = kept_since_ms
                expires_ms = since_ms + self._config.offsets_retention_ms
            if now_ms >= expires_ms:
                expired.add(partition)
        return expired


def refused(offsets: tuple[OffsetToCommit, ...], error: Error) -> OffsetCommitAnswer:
    return OffsetCommitAnswer(tuple(PartitionError(one.partition, error) for one in offsets))


def _may_expire(group: ClassicGroup | ConsumerGroup) -> bool:
    if isinstance(group, ConsumerGroup) or group.protocol_type is None or group.is_empty:
        return True
    # Of a group with members only if it is known what they subscribe to, and nothing moves.
    return group.state is ClassicState.STABLE and group.subscribed_topics() is not None


def _check_classic(
    group: ClassicGroup,
    generation_id: int,
    member_id: str,
    group_instance_id: str | None,
    in_txn: bool,
) -> Error:
    if generation_id < 0 and group.is_empty:
        return Error.NONE
    if generation_id >= 0 or member_id != NO_MEMBER_ID or group_instance_id is not None:
        error = group.check_member(member_id, group_instance_id)
        if error is not Error.NONE:
            return error
        if generation_id != group.generation_id:
            return Error.ILLEGAL_GENERATION
    elif not in_txn:
        return Error.UNKNOWN_MEMBER_ID
    # Older producers do not say who they commit for, so their transactions are let through.
    is_completing = group.state is ClassicState.COMPLETING_REBALANCE
    return Error.REBALANCE_IN_PROGRESS if is_completing and not in_txn else Error.NONE


def _check_consumer(
    group: ConsumerGroup, member_epoch: int, member_id: str, is_new_enough: bool
) -> Error:
    if member_epoch < 0 and group.is_empty:
        return Error.NONE
    member = group.members.get(member_id)
    if member is None:
        return Error.UNKNOWN_MEMBER_ID
    if not is_new_enough:
        return Error.UNSUPPORTED_VERSION
    return Error.NONE if member.member_epoch == member_epoch else Error.STALE_MEMBER_EPOCH


def _check_delete(request: OffsetDelete, group: ClassicGroup | ConsumerGroup | None) -> Error:
    if not request.group_id:
        return Error.INVALID_GROUP_ID
    if group is None:
        return Error.GROUP_ID_NOT_FOUND
    if isinstance(group, ClassicGroup) and not group.is_empty and not group.is_for_consumers:
        return Error.NON_EMPTY_GROUP
    return Error.NONE
