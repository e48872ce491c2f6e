"""What consumers can rely on (C1 to C4, C11, C13, C14)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from claim import NOTHING, claim
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from observing import (
    QUICK,
    Seen,
    fresh,
    in_sync,
    led_by,
    now_ms,
    reachable,
    topic_of,
    until,
    watermarks,
)
from remote_member import RemoteMember, remote_member

from lossless.engines.local.planned import PlannedCluster
from lossless.engines.waiting import wait_until
from lossless.verifier.anomaly import Kind
from lossless.verifier.history import (
    Committed,
    Group,
    History,
    Processed,
    Read,
    Reset,
    TransactionEnded,
)

JOINING = {
    **QUICK,
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "session.timeout.ms": 2500,  # a busy machine may stand still for a second
    "heartbeat.interval.ms": 200,
}


def settings_of(kafka: PlannedCluster, group: str, **settings: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": reachable(kafka),
        **JOINING,
        "group.id": group,
        **{key.replace("_", "."): value for key, value in settings.items()},
    }


def committed_by(kafka: PlannedCluster, group: str, topic: str) -> int:
    """Negative: nothing."""
    consumer = Consumer(settings_of(kafka, group))
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
        return int(found.offset)
    finally:
        consumer.close()


class Member:
    """A member of a group here, which writes down what it reads."""

    def __init__(self, seen: Seen, name: str, topic: str, settings: dict[str, Any]) -> None:
        self._seen = seen
        self._name = name
        self.read: list[tuple[int, str]] = []  # partitions and values
        self.errors: list[KafkaError] = []
        self.is_at_end = False
        self.consumer = Consumer(settings)
        self.consumer.subscribe([topic])

    def poll(self, timeout_s: float = 0.02) -> None:
        message = self.consumer.poll(timeout_s)
        if message is None:
            return
        error = message.error()
        if error is None:
            self._on_record(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            self.is_at_end = True
        elif error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:  # a broker that has not heard yet
            self.errors.append(error)

    def _on_record(self, message: Message) -> None:
        value, partition = (message.value() or b"").decode(), message.partition() or 0
        at = f"{message.topic()}-{partition}"
        self._seen.note(Read(now_ms(), self._name, at, message.offset() or 0, value))
        self.read.append((partition, value))


@contextmanager
def member(seen: Seen, name: str, topic: str, group: str, **settings: Any) -> Iterator[Member]:
    joined = Member(seen, name, topic, settings_of(seen.kafka, group, **settings))
    try:
        yield joined
    finally:
        joined.consumer.close()


@claim(
    "C1",
    provoked="two members of one group and one of another, on four partitions",
    shows={"two groups": NOTHING},
)
def test_a_group_shares_partitions_and_another_group_sees_everything(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    topic = topic_of(kafka, "c1", partitions=4)
    seen = Seen(kafka, topic)
    sharing, other = fresh("sharing"), fresh("other")
    starts = {f"{topic}-{partition}": 0 for partition in range(4)}
    seen.groups += [Group(sharing, ("a1", "a2"), starts), Group(other, ("b1",), starts)]
    producer = seen.producer(acks="all")
    with (
        member(seen, "a1", topic, sharing) as first,
        member(seen, "a2", topic, sharing) as second,
        member(seen, "b1", topic, other) as alone,
    ):

        def assigned() -> list[int]:
            for polled in (first, second, alone):
                polled.poll()
            return [len(at.consumer.assignment()) for at in (first, second, alone)]

        until(lambda: assigned() == [2, 2, 4], "all partitions given out")
        for partition in range(4):
            producer.stored(topic, 3, partition)

        def all_read() -> bool:
            assigned()
            return len(first.read) + len(second.read) == len(alone.read) == 12

        until(all_read, "everything read")
        ours, theirs = ({at for at, _ in polled.read} for polled in (first, second))
        assert len(ours) == len(theirs) == 2
        assert not ours & theirs
    return {"two groups": seen.history()}


@claim(
    "C2",
    provoked="groups without a committed offset, and one with, begin to read a topic that has "
    "records; more are written",
    shows={
        "latest": (Kind.UNSEEN,),
        "earliest": NOTHING,
        "none": NOTHING,
        "latest, with an offset committed": NOTHING,
    },
)
def test_without_a_committed_offset_the_reset_decides_what_a_group_sees(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    topic = topic_of(kafka, "c2")
    cases = {
        "latest": "latest",
        "earliest": "earliest",
        "none": "error",
        "latest, with an offset committed": "latest",
    }
    seen = {case: Seen(kafka) for case in cases}
    writing = Seen(kafka, topic)
    producer = writing.producer(acks="all")
    before = producer.stored(topic, 3)
    with ExitStack() as open_members:
        members = {}
        for case, reset in cases.items():
            group = fresh("c2")
            start = 0
            if "committed" in case:
                start = 1
                commit(kafka, group, topic, start)
            seen[case].groups.append(Group(group, ("c1",), {f"{topic}-0": start}))
            members[case] = open_members.enter_context(
                member(
                    seen[case],
                    "c1",
                    topic,
                    group,
                    auto_offset_reset=reset,
                    enable_partition_eof=True,
                )
            )

        def begun() -> bool:
            for polled in members.values():
                polled.poll()
            return all(polled.is_at_end or polled.errors for polled in members.values())

        until(begun, "everybody has begun")
        # The application is asked, and begins at the beginning.
        undecided = members["none"]
        assert [error.code() for error in undecided.errors] == [KafkaError._AUTO_OFFSET_RESET]
        undecided.consumer.assign([TopicPartition(topic, 0, 0)])
        after = producer.stored(topic, 2)

        def caught_up() -> bool:
            for polled in members.values():
                polled.poll()
            return all((0, after[-1]) in polled.read for polled in members.values())

        until(caught_up, "everybody has read the last record")
        read = {case: [value for _, value in polled.read] for case, polled in members.items()}
        assert read == {
            "latest": after,
            "earliest": [*before, *after],
            "none": [*before, *after],
            "latest, with an offset committed": [*before[1:], *after],
        }
    written = writing.history()
    return {
        case: History(
            (*written.events, *those.events), written.final, tuple(those.groups), settled=True
        )
        for case, those in seen.items()
    }


def commit(kafka: PlannedCluster, group: str, topic: str, offset: int) -> None:
    consumer = Consumer(settings_of(kafka, group))

    def is_committed() -> bool:
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        except KafkaException as refused:
            if refused.args[0].name() != "_WAIT_COORD":  # it is being looked for
                raise
            return False
        return True

    try:
        assert wait_until(is_committed, timeout_s=30)
    finally:
        consumer.close()


class Working:
    """A group whose members, in processes of their own, read and finish records of one topic."""

    def __init__(self, kafka: PlannedCluster, about: str, **settings: Any) -> None:
        self.kafka = kafka
        self.topic = topic_of(kafka, about)
        self.seen = Seen(kafka, self.topic)
        self.group = fresh(about)
        self.seen.groups.append(Group(self.group, ("a", "b"), {f"{self.topic}-0": 0}))
        self.producer = self.seen.producer(acks="all")
        self.settings = settings_of(kafka, self.group, **settings)

    def read(self, name: str, remote: RemoteMember, count: int) -> list[tuple[int, int, str]]:
        records = remote.poll(count)
        partition = f"{self.topic}-0"
        self.seen.note(Reset(now_ms(), name, partition, None, records[0][1], "assigned"))
        for _, offset, value in records:
            self.seen.note(Read(now_ms(), name, partition, offset, value))
        return records

    def process(self, name: str, records: list[tuple[int, int, str]]) -> None:
        for _, offset, value in records:
            self.seen.note(Processed(now_ms(), name, self.group, f"{self.topic}-0", offset, value))

    def committed(self, offset: int) -> None:
        """Waits until the group has committed exactly this."""
        until(
            lambda: committed_by(self.kafka, self.group, self.topic) == offset,
            f"{self.group} has committed {offset}",
        )
        self.seen.note(Committed(now_ms(), self.group, f"{self.topic}-0", offset))

    def commit(self, remote: RemoteMember, offset: int) -> None:
        assert remote.commit(offset) is None
        self.committed(offset)


@claim(
    "C3",
    provoked="a member that has read ten records and finished four is killed (kill -9); another "
    "takes over",
    shows={
        "commits what it has read": (Kind.UNPROCESSED,),
        "commits what it has finished": (Kind.REPEATED,),
    },
)
def test_what_is_committed_before_it_is_processed_is_lost_to_the_group(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    early, late = Working(kafka, "c3-early"), Working(kafka, "c3-late")
    with ExitStack() as members:
        firsts = [start(members, working) for working in (early, late)]
        for working, first in zip((early, late), firsts, strict=True):
            working.producer.stored(working.topic, 10)
            records = working.read("a", first, 10)
            if working is early:
                working.commit(first, 10)
                working.process("a", records[:4])
            else:
                working.process("a", records[:3])
                working.commit(first, 3)
                working.process("a", records[3:4])
        seconds = [start(members, working) for working in (early, late)]
        for working, first, second, left in zip(
            (early, late), firsts, seconds, (0, 7), strict=True
        ):
            first.kill()
            working.producer.stored(working.topic, 2)
            records = working.read("b", second, left + 2)
            working.process("b", records)
            working.commit(second, 12)
    return {
        "commits what it has read": early.seen.history(),
        "commits what it has finished": late.seen.history(),
    }


def start(members: ExitStack, working: Working) -> RemoteMember:
    return members.enter_context(remote_member(working.topic, working.settings))


@claim(
    "C4",
    provoked="a member is killed (kill -9) while it works on its third record, once the offset "
    "was committed in the background; another takes over",
    shows={
        "enable.auto.offset.store=true": (Kind.UNPROCESSED,),
        "enable.auto.offset.store=false, stored when finished": NOTHING,
    },
)
def test_auto_commit_of_librdkafka_loses_the_record_in_process(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    automatic = {"enable_auto_commit": True, "auto_commit_interval_ms": 50}
    default = Working(kafka, "c4", **automatic)
    stored = Working(kafka, "c4-stored", **automatic, enable_auto_offset_store=False)
    with ExitStack() as members:
        firsts = [start(members, working) for working in (default, stored)]
        for working, first in zip((default, stored), firsts, strict=True):
            working.producer.stored(working.topic, 3)
            records = working.read("a", first, 3)
            working.process("a", records[:2])
            if working is stored:
                first.store(2)
        default.committed(3)
        stored.committed(2)
        seconds = [start(members, working) for working in (default, stored)]
        for working, first, second, left in zip(
            (default, stored), firsts, seconds, (0, 1), strict=True
        ):
            first.kill()
            working.producer.stored(working.topic)
            working.process("b", working.read("b", second, left + 1))
            if working is stored:
                second.store(4)
            working.committed(4)
    return {
        "enable.auto.offset.store=true": default.seen.history(),
        "enable.auto.offset.store=false, stored when finished": stored.seen.history(),
    }


@claim(
    "C13",
    provoked="a member is paused (SIGSTOP) until another has its partition; it goes on and commits",
    shows={"generation": (Kind.REPEATED,)},
)
def test_a_member_that_wakes_after_its_partition_moved_cannot_commit(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    working = Working(kafka, "c13")
    with ExitStack() as members:
        zombie = start(members, working)
        working.producer.stored(working.topic, 5)
        working.process("a", working.read("a", zombie, 5)[:3])
        zombie.pause()
        successor = start(members, working)
        working.process("b", working.read("b", successor, 5))
        working.commit(successor, 5)
        zombie.resume()
        assert zombie.commit(3) in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION")
        working.committed(5)
    return {"generation": working.seen.history()}


@claim(
    "C13",
    provoked="a second producer begins with the transactional.id of one whose transaction is open",
    shows={"producer epoch": NOTHING},
)
def test_a_producer_that_was_replaced_cannot_write(kafka: PlannedCluster) -> Mapping[str, History]:
    topic = topic_of(kafka, "c13-epoch")
    seen = Seen(kafka, topic)
    name = fresh("transactional")
    zombie = seen.producer("p1", transactional_id=name)
    zombie.client.init_transactions(30)
    zombie.client.begin_transaction()
    zombie.within = "of the zombie"
    zombie.stored(topic, 2)
    successor = seen.producer("p2", transactional_id=name)
    successor.client.init_transactions(30)  # aborts what was open
    with pytest.raises(KafkaException) as raised:
        zombie.client.commit_transaction(30)
    assert raised.value.args[0].code() in (
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    )
    seen.note(TransactionEnded(now_ms(), "p1", "of the zombie", committed=False))
    successor.client.begin_transaction()
    successor.within = "of the successor"
    kept = successor.stored(topic, 2)
    successor.client.commit_transaction(30)
    seen.note(TransactionEnded(now_ms(), "p2", "of the successor", committed=True))
    seen.groups.append(Group("readers", ("c1",), {f"{topic}-0": 0}))
    assert seen.read("c1", topic, isolation_level="read_committed") == kept
    return {"producer epoch": seen.history()}


@claim(
    "C14",
    provoked="a transaction is committed, one aborted, one left open for a while",
    shows={"read_committed": NOTHING, "read_uncommitted": NOTHING},
)
def test_read_committed_hides_open_and_aborted_transactions(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    topic = topic_of(kafka, "c14")
    seen = Seen(kafka, topic)
    producer = seen.producer("p1", transactional_id=fresh("transactional"))
    producer.client.init_transactions(30)

    def write(transaction: str) -> list[str]:
        producer.client.begin_transaction()
        producer.within = transaction
        return producer.stored(topic, 2)

    def end(transaction: str, *, committed: bool) -> None:
        client = producer.client
        (client.commit_transaction if committed else client.abort_transaction)(30)
        seen.note(TransactionEnded(now_ms(), "p1", transaction, committed))

    committed = write("committed")
    end("committed", committed=True)
    aborted = write("aborted")
    end("aborted", committed=False)
    late = write("open for a while")
    plain = seen.producer("p2", acks="all").stored(topic, 1)

    servers = reachable(kafka)
    assert watermarks(servers, topic) == (0, 9)
    assert watermarks(servers, topic, isolation_level="read_committed") == (0, 6)
    everything = [*committed, *aborted, *late, *plain]
    assert seen.read("c1", topic, isolation_level="read_committed") == committed
    assert seen.read("c2", topic, isolation_level="read_uncommitted") == everything
    end("open for a while", committed=True)

    def is_stable() -> bool:
        return watermarks(servers, topic, isolation_level="read_committed")[1] == 10

    until(is_stable, "nothing is open any more")
    visible = [*committed, *late, *plain]
    assert seen.read("c3", topic, isolation_level="read_committed") == visible
    assert seen.read("c4", topic, isolation_level="read_uncommitted") == everything
    starts = {f"{topic}-0": 0}
    careful = Group("read_committed", ("c3",), starts)
    careless = Group("read_uncommitted", ("c2", "c4"), starts, read_uncommitted=True)
    seen.groups += [careful, careless]
    history = seen.history()
    return {"read_committed": history, "read_uncommitted": history}


@claim(
    "C11",
    provoked="readers are at the end when an unclean election shortens the log, and others write "
    "past where they were",
    shows={
        "auto.offset.reset=error": (Kind.LOST, Kind.INCONSISTENT_OFFSET, Kind.PRECOMMITTED_READ),
        "auto.offset.reset=earliest": (
            Kind.LOST,
            Kind.INCONSISTENT_OFFSET,
            Kind.PRECOMMITTED_READ,
            Kind.REORDERED,
        ),
    },
)
def test_a_reader_past_a_truncation_is_told_or_goes_back_silently(
    kafka: PlannedCluster,
) -> Mapping[str, History]:
    topic = topic_of(kafka, "c11", unclean_leader_election_enable="true")
    writing = Seen(kafka, topic)
    cases = {"auto.offset.reset=error": "error", "auto.offset.reset=earliest": "earliest"}
    seen = {case: Seen(kafka) for case in cases}
    producer = writing.producer(acks="all")
    with ExitStack() as open_members:
        readers = {}
        for case, reset in cases.items():
            readers[case] = open_members.enter_context(
                member(
                    seen[case],
                    "c1",
                    topic,
                    fresh("c11"),
                    auto_offset_reset=reset,
                    # Who has heard of no successor yet asks the dead leader, until it hears more.
                    topic_metadata_refresh_interval_ms=200,
                )
            )
            readers[case].consumer.unsubscribe()
            readers[case].consumer.assign([TopicPartition(topic, 0, 0)])

        def polled() -> list[int]:
            for reader in readers.values():
                reader.poll()
            return [len(reader.read) for reader in readers.values()]

        producer.stored(topic, 3)
        until(lambda: polled() == [3, 3], "both know the brokers")
        for follower in (2, 3):
            kafka.pause(follower)
        in_sync(kafka, topic, 1)
        producer.stored(topic, 3)
        until(lambda: polled() == [6, 6], "both have read everything")
        kafka.kill(1)
        for follower in (2, 3):
            kafka.resume(follower)
        led_by(kafka, topic, 2, 3)
        after = writing.producer("p2", acks="all").stored(topic, 5)

        stopped, silent = readers.values()
        until(lambda: any(polled()) and bool(stopped.errors), "one is told")
        until(lambda: any(polled()) and (0, after[-1]) in silent.read, "the other has gone back")
        (error,) = stopped.errors
        assert error.code() == KafkaError._AUTO_OFFSET_RESET
        assert "truncation detected at offset 6" in error.str()
        assert "end offset is 3" in error.str()
        assert stopped.read[6:] == []
        assert [value for _, value in silent.read[6:]] == after
    written = writing.history()
    return {
        case: History((*written.events, *those.events), written.final, settled=True)
        for case, those in seen.items()
    }
