"""Whatever clients do, and whoever coordinates: the log knows everything that has to be known,
nobody waits for ever, and no partition has two owners.

After every step the host compares the shard with a twin that has seen nothing but the log.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from group_host import GROUP, ORDERS, ORDERS_0, ORDERS_1, PAYMENTS_0, Host, consuming, joining
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lossless.core.groups.classic_group import ClassicState
from lossless.core.groups.config import GroupConfig, TopicView
from lossless.core.groups.messages import (
    ConsumerGroupHeartbeatAnswer,
    DeleteGroup,
    Heartbeat,
    JoinGroupAnswer,
    LeaveGroup,
    MemberIdentity,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    SyncGroup,
    TopicPartitions,
    TopicsDeleted,
    TxnOffsetCommit,
)
from lossless.core.messages import Error, Producer

GROUPS = st.sampled_from([GROUP, "other"])
PARTITIONS = st.sampled_from([ORDERS_0, ORDERS_1, PAYMENTS_0])
INSTANCES = st.sampled_from([None, None, "i1", "i2"])
PROTOCOLS = st.sampled_from(
    [(("range", b"x"),), (("range", b"y"), ("robin", b"z")), (("robin", b"z"), ("range", b"y"))]
)
PRODUCERS = st.builds(Producer, st.integers(1, 2), st.integers(0, 2))
CONFIG = GroupConfig(
    min_session_timeout_ms=1_000,
    initial_rebalance_delay_ms=500,
    max_size=4,
    consumer_max_size=4,
    consumer_session_timeout_ms=10_000,
    offsets_retention_minutes=1,
    offsets_retention_check_interval_ms=20_000,
    new_member_join_timeout_ms=30_000,
)


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.host = Host(CONFIG)
        self.ids: list[str] = []  # of classic members, past and present
        self.generations: dict[str, int] = {}
        self.epochs: dict[str, int] = {}

    def some_id(self, data: st.DataObject) -> str:
        known = [member for group in self._classic() for member in group.members]
        return data.draw(st.sampled_from([*self.ids[-4:], *known, "stranger"]))

    def some_generation(self, data: st.DataObject, group_id: str) -> int:
        group = self.host.shard._store.classic.get(group_id)
        now = 0 if group is None else group.generation_id
        return data.draw(st.sampled_from([now, now, now, now - 1, -1]))

    def _classic(self) -> list[Any]:
        return list(self.host.shard._store.classic.values())

    # The classic protocol

    @rule(group=GROUPS, instance=INSTANCES, protocols=PROTOCOLS, version=st.sampled_from([3, 8, 9]))
    def come(self, group: str, instance: str | None, protocols: Any, version: int) -> None:
        request = joining(
            group_id=group,
            group_instance_id=instance,
            protocols=protocols,
            api_version=version,
            session_timeout_ms=6_000,
            rebalance_timeout_ms=9_000,
        )
        token = self.host.send(request)
        answer = self.host.answer(token)
        if isinstance(answer, JoinGroupAnswer) and answer.error is Error.MEMBER_ID_REQUIRED:
            self.ids.append(answer.member_id)

    @rule(data=st.data(), group=GROUPS, instance=INSTANCES, protocols=PROTOCOLS)
    def join(self, data: st.DataObject, group: str, instance: str | None, protocols: Any) -> None:
        member = self.some_id(data)
        known = self.host.shard._store.classic.get(group)
        if known is not None and member in known.members:
            instance = known.members[member].group_instance_id
        self.host.send(
            joining(
                member,
                group_id=group,
                group_instance_id=instance,
                protocols=protocols,
                session_timeout_ms=6_000,
                rebalance_timeout_ms=9_000,
            )
        )

    @rule(data=st.data(), group=GROUPS)
    def sync(self, data: st.DataObject, group: str) -> None:
        member = self.some_id(data)
        generation = self.some_generation(data, group)
        self.host.send(SyncGroup(group, generation, member, assignments=((member, b"all"),)))

    @precondition(lambda self: any(group.members for group in self._classic()))
    @rule()
    def everybody_syncs(self) -> None:
        for group in self._classic():
            for member in list(group.members):
                self.host.send(SyncGroup(group.group_id, group.generation_id, member))

    @rule(data=st.data(), group=GROUPS)
    def beat(self, data: st.DataObject, group: str) -> None:
        member = self.some_id(data)
        self.host.ask(Heartbeat(group, self.some_generation(data, group), member))

    @rule(data=st.data(), group=GROUPS, instance=INSTANCES)
    def leave(self, data: st.DataObject, group: str, instance: str | None) -> None:
        member = data.draw(st.sampled_from(["", self.some_id(data)]))
        self.host.ask(LeaveGroup(group, (MemberIdentity(member, instance),)))

    # The consumer protocol

    @rule(
        data=st.data(),
        group=GROUPS,
        member=st.sampled_from("pqrst"),
        instance=INSTANCES,
        names=st.sampled_from([None, (), ("orders",), ("orders", "payments")]),
        regex=st.sampled_from([None, None, "", "o.*"]),
    )
    def consume(
        self,
        data: st.DataObject,
        group: str,
        member: str,
        instance: str | None,
        names: tuple[str, ...] | None,
        regex: str | None,
    ) -> None:
        known = self.host.shard._store.consumer.get(group)
        found = None if known is None else known.members.get(member)
        epoch = 0 if found is None else found.member_epoch
        epoch = data.draw(st.sampled_from([epoch, epoch, epoch, epoch, 0, -1, -2]))
        assigned = [] if found is None else sorted(found.assigned)
        has = data.draw(st.sampled_from([None, assigned, assigned]))
        owned = None
        if has is not None:
            owned = tuple(TopicPartitions(topic, (number,)) for topic, number in has)
        if found is not None:
            instance = found.instance_id
        said = {"group_id": group, "instance_id": instance, "topic_partitions": owned}
        if epoch == 0:
            said["topic_partitions"] = ()
        self.host.ask(
            consuming(
                member, epoch, subscribed_topic_names=names, subscribed_topic_regex=regex, **said
            )
        )

    @rule(partitions=st.integers(0, 5), is_there=st.booleans())
    def change_topics(self, partitions: int, is_there: bool) -> None:
        self.host.topics["orders"] = TopicView(ORDERS.id, partitions)
        if is_there:
            self.host.topics["others"] = TopicView(0xC3, 2)
        else:
            self.host.topics.pop("others", None)

    # Offsets

    @rule(group=GROUPS, partition=PARTITIONS, offset=st.integers(0, 9), retention=st.just(-1))
    def commit(self, group: str, partition: Any, offset: int, retention: int) -> None:
        offsets = (OffsetToCommit(partition, offset),)
        self.host.ask(OffsetCommit(group, offsets, retention_time_ms=retention))

    @rule(group=GROUPS, partition=PARTITIONS, producer=PRODUCERS)
    def commit_in_transaction(self, group: str, partition: Any, producer: Producer) -> None:
        self.host.ask(TxnOffsetCommit(group, (OffsetToCommit(partition, 7),), producer))

    @rule(producer=PRODUCERS, committed=st.booleans())
    def end_transaction(self, producer: Producer, committed: bool) -> None:
        if not self.host.shard._store.offsets.is_fenced(producer):
            self.host.end_transaction(producer, committed=committed)

    @rule(group=GROUPS, partition=PARTITIONS)
    def delete_offset(self, group: str, partition: Any) -> None:
        self.host.ask(OffsetDelete(group, (partition,)))

    @rule(topic=st.sampled_from(["orders", "payments"]))
    def delete_topic(self, topic: str) -> None:
        self.host.ask(TopicsDeleted((topic,)))
        for group in (GROUP, "other"):
            for found in self.host.ask(OffsetFetch(group)).partitions:
                assert found.partition.topic != topic

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        self.host.ask(DeleteGroup(group))

    # Time, and another coordinator

    @rule(duration_ms=st.sampled_from([0, 1, 499, 500, 3_000, 6_000, 9_000, 61_000]))
    def wait(self, duration_ms: int) -> None:
        self.host.pass_ms(duration_ms)

    @rule()
    def fail_over(self) -> None:
        self.host.fail_over()

    # What holds

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        for group in self.host.shard._store.consumer.values():
            members = group.members.values()
            owned = [one for member in members for one in member.assigned]
            owned += [one for member in members for one in member.pending_revocation]
            assert len(owned) == len(set(owned))
            assert group.targets.keys() <= group.members.keys()
            if group.assignment_epoch == group.group_epoch:
                assert group.targets.keys() == group.members.keys()

    @invariant()
    def a_group_id_names_one_group(self) -> None:
        store = self.host.shard._store
        assert not store.classic.keys() & store.consumer.keys()
        assert store.offsets.groups() <= store.classic.keys() | store.consumer.keys()

    @invariant()
    def a_group_has_a_leader_and_knows_its_static_members(self) -> None:
        for group in self._classic():
            assert (group.leader_id in group.members) == bool(group.members)
            assert group.static_members == {
                member.group_instance_id: member.member_id
                for member in group.members.values()
                if member.group_instance_id is not None
            }
            assert group.pending_sync.keys() <= group.members.keys()
            assert not group.pending_join.keys() & group.members.keys()
            if group.state is ClassicState.STABLE:
                assert group.stored is not None
                assert group.stored.generation == group.generation_id
                assert all(member.sync_token is None for member in group.members.values())

    @invariant()
    def nobody_is_forgotten(self) -> None:
        members = [member for group in self._classic() for member in group.members.values()]
        tokens = [member.join_token for member in members if member.join_token is not None]
        tokens += [member.sync_token for member in members if member.sync_token is not None]
        assert sorted(tokens) == sorted(self.host.waiting)

    def teardown(self) -> None:
        self.host.pass_ms(600_000)
        assert not self.host.waiting
        assert all(group.state != "Stable" for group in self.host.groups())


Groups.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestGroups = Groups.TestCase


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from(["come", "go", "beat", "fail over"])),
        max_size=25,
    ),
    st.sampled_from(["uniform", "range"]),
)
def test_members_that_do_what_they_are_told_end_up_with_everything_once(
    history: list[tuple[str, str]], assignor: str
) -> None:
    host = Host()
    epochs: dict[str, int] = {}
    owned: dict[str, tuple[TopicPartitions, ...]] = {}

    def beat(member: str) -> None:
        epoch = epochs.get(member, 0)
        said = {"topic_partitions": owned.get(member, ()), "server_assignor": assignor}
        answer: ConsumerGroupHeartbeatAnswer = host.consume(member, epoch, **said)
        assert answer.error is Error.NONE
        epochs[member] = answer.member_epoch
        if answer.assignment is not None:
            owned[member] = answer.assignment
        everything = [part for parts in owned.values() for one in parts for part in one.partitions]
        assert len(everything) == len(set(everything)), "two members read one partition"

    for member, what in history:
        if what == "come" or (what == "beat" and member in epochs):
            beat(member)
        elif what == "go" and member in epochs:
            host.consume(member, -1)
            del epochs[member]
            owned.pop(member, None)
        elif what == "fail over":
            host.fail_over()
    for _ in range(5):
        for member in list(epochs):
            beat(member)
    if epochs:
        assert host.state() == "Stable"
        numbers = [part for parts in owned.values() for one in parts for part in one.partitions]
        assert sorted(numbers) == [0, 1, 2]
