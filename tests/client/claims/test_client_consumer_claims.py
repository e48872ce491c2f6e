"""What lossless.Consumer promises of its own (C1 to C7, C9)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from claims.observing import fresh, led_by, messages_of, topic_of
from client.claims.client_claim import ENGINES, NOTHING, Fault, client_claim
from client.claims.client_clusters import CONTROLLER, OFFSETS, kill_leader, reachable, until
from client.claims.client_journal import now_ms
from client.claims.client_seen import JOINING, STAYING, Seen
from lossless.client.consuming.consumer import Consumer
from lossless.client.errors import NoCommittedOffset
from lossless.client.retrying import RetryTopics, read_letter
from lossless.engines.local.planned import PlannedCluster
from lossless.errors import BadInput
from lossless.verifier.anomaly import Kind
from lossless.verifier.history import History
from topics import create_new

SKIPPED = (Kind.UNSEEN, Kind.UNPROCESSED)
ROUNDS = 3  # of joining and leaving
ROUND_MS = 1_000


@contextmanager
def records_all_the_time(seen: Seen, topic: str, partitions: int) -> Iterator[list[str]]:
    """Until the block is left; then all of them are acknowledged."""
    over = threading.Event()
    sent: list[str] = []
    with seen.producer() as sending:

        def send() -> None:
            while not over.wait(0.01):
                sent.extend(sending.send(topic, 1, partition=len(sent) % partitions))

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        try:
            yield sent
        finally:
            over.set()
            thread.join()
            sending.told()
        assert not sending.failed()


@client_claim(
    "C1",
    fault=Fault.CHURN,
    provoked="two members of a group stay, a third joins and leaves every second, while records "
    "come; another group has one member",
    shows={"two groups": NOTHING},
    may_show={"two groups": (Kind.REPEATED,)},
)
def test_a_group_shares_every_record_and_another_group_sees_everything(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    topic = topic_of(kafka, "c1", partitions=4)
    seen = Seen(kafka, tmp_path, topic)
    sharing, other = fresh("sharing"), fresh("other")
    with ExitStack() as stack:
        staying = [stack.enter_context(seen.member(f"a{n}", sharing)) for n in (1, 2)]
        alone = stack.enter_context(seen.member("b1", other))
        with records_all_the_time(seen, topic, 4) as sent:
            for number in range(ROUNDS - 1):
                since_ms = now_ms()
                with seen.member(f"coming-{number}", sharing) as coming:
                    coming.wait_for(lambda: bool(coming.values), "a share of the records")
                    until(lambda: now_ms() - since_ms >= ROUND_MS, "a second")  # noqa: B023
                staying.append(coming)
        alone.wait_for(lambda: set(alone.values) == set(sent), "everything")
        until(
            lambda: {value for member in staying for value in member.values} == set(sent),
            "everything shared",
        )
    assert all(member.values for member in staying)
    return {"two groups": seen.history()}


@client_claim(
    "C2",
    fault=Fault.LEADER_KILL,
    provoked="a group has committed half of the records when its coordinator, the leader of the "
    "committed offsets, is killed; other groups have committed nothing",
    shows={"committed": NOTHING, "earliest": NOTHING, "latest": SKIPPED, "stop": NOTHING},
)
def test_without_an_offset_the_policy_decides_and_with_one_it_never_does(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    topic = topic_of(kafka, "c2")
    committed, earliest, latest, stop = (Seen(kafka, tmp_path, topic) for _ in range(4))
    every = (committed, earliest, latest, stop)
    groups = [fresh(name) for name in ("committed", "earliest", "latest", "stop")]
    with ExitStack() as stack:
        # Each case has a history of its own, of the same records.
        sending = stack.enter_context(committed.producer())
        sending.send_numbers(topic, range(10))
        with committed.member("c1", groups[0], commit_every_records=1) as first:
            first.wait_for(lambda: len(first.values) == 10, "half of the records")
        assert committed.committed(groups[0]) == [10]
        kill_leader(kafka, OFFSETS)
        sending.send_numbers(topic, range(10, 20))
        with committed.member("c2", groups[0], no_offset="stop") as second:
            second.wait_for(lambda: len(second.values) == 10, "the other half")
            assert second.values == [str(number) for number in range(10, 20)]
        with earliest.member("c1", groups[1], no_offset="earliest") as member:
            member.wait_for(lambda: len(member.values) == 20, "everything")
        with latest.member("c1", groups[2], no_offset="latest") as member:
            member.wait_for(lambda: bool(member.owned), "assigned")
            sending.send_numbers(topic, range(20, 21))
            member.wait_for(lambda: member.values == ["20"], "what is new, and nothing else")
            assert member.consumer.metrics.jumps == 1
        with stop.member("c1", groups[3], no_offset="stop", may_fail=True) as member:
            until(lambda: isinstance(member.failure, NoCommittedOffset), "told")
        assert not member.values
        with committed.member("c3", groups[0]) as third:
            third.wait_for(lambda: third.values == ["20"], "the last one")
        with earliest.member("c2", groups[1]) as member:
            member.wait_for(lambda: member.values == ["20"], "the last one")
    stop.groups.clear()  # it was told, and read nothing
    for case in every[1:]:
        case.shares_sends_with(committed)
    return {
        name: case.history()
        for name, case in zip(("committed", "earliest", "latest", "stop"), every, strict=True)
    }


@client_claim(
    "C3",
    fault=Fault.KILLED_BEFORE_COMMIT,
    provoked="a member in a process of its own has processed ten records, and committed none "
    "of them, when it is killed",
    shows={"commit after processing": (Kind.REPEATED,)},
    often=ENGINES,
)
def test_what_was_processed_and_not_committed_is_repeated_and_nothing_is_skipped(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    topic, group = topic_of(kafka, "c3"), fresh("c3")
    seen = Seen(kafka, tmp_path, topic)
    with seen.producer() as sending:
        sending.send_numbers(topic, range(20))
    with seen.remote("c1", group, hold_after="9", options={"commit_every_s": 600}) as killed:
        killed.wait_to_say("holding", "9")
        killed.kill()
    assert len(killed.processed) == 10
    assert seen.committed(group) == [-1]
    with seen.member("c2", group, settings=JOINING) as member:
        member.wait_for(lambda: len(member.values) == 20, "everything")
    assert seen.committed(group) == [20]
    return {"commit after processing": seen.history()}


@client_claim(
    "C4",
    fault=Fault.KILLED_BEFORE_COMMIT,
    provoked="a member hands records to four threads; one of them is still busy with the fourth "
    "record when all others are done, and the process is killed",
    shows={"workers=4": (Kind.REPEATED,)},
)
def test_handing_records_to_threads_commits_none_that_is_unfinished(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    topic, group = topic_of(kafka, "c4"), fresh("c4")
    seen = Seen(kafka, tmp_path, topic)
    settings = {"bootstrap.servers": reachable(kafka)}
    with pytest.raises(BadInput, match=r"enable\.auto\.commit"):
        Consumer(topic, {**settings, "enable.auto.commit": True}, group=group)
    with pytest.raises(BadInput, match=r"enable\.auto\.offset\.store"):
        Consumer(topic, {**settings, "enable.auto.offset.store": True}, group=group)
    with seen.producer() as sending:
        sending.send_numbers(topic, range(20))
    pool = {"workers": 4, "order": "none", "commit_every_records": 1}
    with seen.remote("c1", group, hold_before="3", options=pool, in_order=False) as killed:
        killed.wait_for(lambda: len(killed.processed) == 19, "all others are done")
        seen.wait_for_commit(group, 3)
        killed.kill()
    with seen.member("c2", group, settings=JOINING) as member:
        member.wait_for(lambda: len(member.values) == 17, "what was not committed")
        assert member.values == [str(number) for number in range(3, 20)]
    return {"workers=4": seen.history()}


@client_claim(
    "C5",
    fault=Fault.KILLED_BEFORE_COMMIT,
    provoked="members that commit after every record, after ten and after a thousand are killed "
    "when they have processed 26",
    shows={
        "every record": (Kind.REPEATED,),
        "every 10 records": (Kind.REPEATED,),
        "every 1,000 records": (Kind.REPEATED,),
    },
)
def test_commit_frequency_bounds_what_is_repeated_after_a_crash(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    topic = topic_of(kafka, "c5")
    cases = {"every record": 1, "every 10 records": 10, "every 1,000 records": 1000}
    seen = {case: Seen(kafka, tmp_path, topic) for case in cases}
    groups = {case: fresh("c5") for case in cases}
    first, *others = seen.values()
    with first.producer() as sending:
        sending.send_numbers(topic, range(40))
    with ExitStack() as stack:
        members = {
            case: stack.enter_context(
                seen[case].remote(
                    "c1",
                    groups[case],
                    hold_after="25",
                    options={"commit_every_s": 600, "commit_every_records": every},
                )
            )
            for case, every in cases.items()
        }
        for case, every in cases.items():
            members[case].wait_to_say("holding", "25")
            until(lambda: seen[case].committed(groups[case])[0] > 25 - every, "committed")  # noqa: B023
            members[case].kill()
    for case, every in cases.items():
        with seen[case].member("c2", groups[case], settings=JOINING) as member:
            member.wait_for(lambda: "39" in member.values, "the last one")
        assert len(set(member.values) & set(members[case].processed)) <= every
    for other in others:
        other.shares_sends_with(first)
    return {case: seen[case].history() for case in cases}


@client_claim(
    "C6",
    fault=Fault.CHURN,
    provoked="members with a count of records for each partition in memory join and leave every "
    "second; hooks load the counts and store them",
    shows={"commit before revocation": NOTHING},
)
def test_partitions_change_hands_with_their_state_and_nothing_is_repeated(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    topic, group = topic_of(kafka, "c6", partitions=4), fresh("c6")
    seen = Seen(kafka, tmp_path, topic)
    stored: Counter[int] = Counter()
    settings = {**STAYING, "partition.assignment.strategy": "cooperative-sticky"}

    @contextmanager
    def counting(name: str) -> Iterator[Any]:
        counts: dict[int, int] = {}

        def load(partitions: list[TopicPartition]) -> None:
            counts.update({each.partition: stored[each.partition] for each in partitions})

        def keep(partitions: list[TopicPartition]) -> None:
            stored.update({each.partition: 0 for each in partitions})
            for each in partitions:
                stored[each.partition] = counts.pop(each.partition)

        def count(message: Any) -> None:
            counts[message.partition()] += 1

        with seen.member(
            name,
            group,
            count,
            settings=settings,
            on_assigned=load,
            on_revoked=keep,
            on_lost=lambda partitions: [counts.pop(each.partition) for each in partitions],
        ) as member:
            yield member
        assert not counts

    members = []
    with counting("staying") as staying:
        staying.wait_for(lambda: len(staying.owned) == 4, "all partitions assigned")
        with records_all_the_time(seen, topic, 4) as sent:
            for number in range(ROUNDS):
                since_ms = now_ms()
                with counting(f"coming-{number}") as coming:
                    coming.wait_for(lambda: bool(coming.values), "a share of the records")
                    until(lambda: now_ms() - since_ms >= ROUND_MS, "a second")  # noqa: B023
                members.append(coming)
                staying.wait_for(lambda: len(staying.owned) == 4, "all of it returned")
        members.append(staying)
        until(
            lambda: {value for member in members for value in member.values} == set(sent),
            "everything processed",
        )
    assert len(staying.assignments) > ROUNDS
    assert stored == Counter({n: len(sent[n::4]) for n in range(4)})
    return {"commit before revocation": seen.history()}


@client_claim(
    "C7",
    fault=Fault.KILLED_BEFORE_COMMIT,
    provoked="record 30 fails again and again while the others of its partition are processed; the "
    "process is killed, and the next one can process it",
    shows={"in place": (Kind.REPEATED,)},
)
def test_nobody_commits_past_a_record_that_is_being_retried(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    topic, group = topic_of(kafka, "c7"), fresh("c7")
    seen = Seen(kafka, tmp_path, topic)
    with seen.producer() as sending:
        sending.send_numbers(topic, range(40))
    with seen.remote(
        "c1",
        group,
        fail_on=["30"],
        retry_in_place_s=0.1,
        in_order=False,
        options={"order": "none", "workers": 2, "commit_every_records": 1},
    ) as killed:
        killed.wait_for(lambda: len(killed.processed) == 39, "all others are done")
        killed.wait_for(lambda: len(killed.heard("failed")) >= 3, "tried again")
        seen.wait_for_commit(group, 30)
        killed.kill()
    with seen.member("c2", group, settings=JOINING) as member:
        member.wait_for(lambda: len(member.values) == 10, "what was not committed")
        assert member.values == [str(number) for number in range(30, 40)]
    return {"in place": seen.history()}


@client_claim(
    "C7",
    fault=Fault.LEADER_KILL,
    provoked="record 3 fails; the leader of the retry topic is paused when it is to be sent there, "
    "and killed; another is elected. On the retry topic it fails once more",
    shows={"retry topics": NOTHING},
)
def test_a_failed_record_counts_as_finished_when_its_copy_is_acknowledged_and_not_before(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    coordinator = kafka.leader_of(OFFSETS, 0) if OFFSETS in kafka.metadata().topics else 1
    victim = next(broker for broker in (3, 2) if broker != coordinator)
    first, second = (broker for broker in (1, 2, 3) if broker != victim)
    topic, group = topic_of(kafka, "c7-topics", replicas=[first, second]), fresh("c7")
    seen = Seen(kafka, tmp_path, topic)
    retries = f"{topic}-retry-0"
    _create(kafka, retries, [victim, first, second])
    for name in (f"{topic}-retry-1", f"{topic}-dlt"):
        _create(kafka, name, [first, second])
    tried: list[tuple[str, str]] = []
    paused = threading.Event()

    def handle(message: Any) -> None:
        value = message.value().decode()
        if value == "3":
            tried.append((message.topic(), value))
            paused.wait(60)
            raise RuntimeError("record 3 cannot be processed")

    with seen.producer() as sending:
        sending.send_numbers(topic, range(10))
    with seen.member(
        "c1",
        group,
        handle,
        topics=topic,
        retry=RetryTopics(delays_s=(0.1, 0.1)),
        commit_every_records=1,
        in_order=False,
    ) as member:
        member.wait_for(lambda: bool(tried), "record 3 tried")
        kafka.pause(victim)
        paused.set()
        seen.wait_for_commit(group, 3)
        assert tried == [(topic, "3")]
        kafka.kill(victim)
        led_by(kafka, retries, first, second)
        until(lambda: len(tried) == 3, "tried on both retry topics")
        member.wait_for(lambda: len(member.values) == 9, "all others")
        seen.wait_for_commit(group, 10)
        until(lambda: member.consumer.metrics.dead_lettered == 1, "a dead letter")
    assert [where for where, _ in tried] == [topic, retries, f"{topic}-retry-1"]
    (letter,) = map(read_letter, messages_of(reachable(kafka), f"{topic}-dlt"))
    assert (letter.value, letter.original_topic, letter.original_offset) == (b"3", topic, 3)
    assert (letter.attempts, letter.exception) == (3, "RuntimeError")
    seen.dead_lettered(group, topic, 3, "3")
    return {"retry topics": seen.history()}


def _create(kafka: PlannedCluster, name: str, replicas: list[int]) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": reachable(kafka)})
    new = NewTopic(name, 1, replica_assignment=[replicas])
    create_new(admin, new)
    until(lambda: kafka.in_sync_replicas(name, 0) == sorted(replicas), f"{name} in sync")


@client_claim(
    "C9",
    fault=Fault.CONTROLLER_KILL,
    provoked="a record takes three times as long as max.poll.interval.ms, beside others that are "
    "soon done; the controller is killed meanwhile",
    shows={"workers=4": NOTHING},
)
def test_long_processing_makes_no_rebalance_and_only_contiguous_offsets_are_committed(
    kafka: PlannedCluster, tmp_path: Path
) -> Mapping[str, History]:
    topic, group = topic_of(kafka, "c9", partitions=2), fresh("c9")
    seen = Seen(kafka, tmp_path, topic)
    released = threading.Event()

    def handle(message: Any) -> None:
        if message.value() == b"3":
            released.wait(60)

    settings = {**JOINING, "session.timeout.ms": 2_000, "max.poll.interval.ms": 2_000}
    with seen.producer() as sending:
        sending.send_numbers(topic, range(100))
        sending.send_numbers(topic, range(100, 110), partition=1)
        with seen.member(
            "c1",
            group,
            handle,
            settings=settings,
            workers=4,
            order="none",
            buffered_max=10,
            commit_every_records=1,
            in_order=False,
        ) as member:
            member.wait_for(lambda: "109" in member.values, "the other partition")
            kafka.kill(CONTROLLER)
            since_ms = now_ms()
            seen.wait_for_commit(group, 3, 10)
            assert member.consumer.metrics.buffered > 0
            until(lambda: now_ms() - since_ms >= 6_000, "three intervals")
            assert member.assignments == [[0, 1]]
            sending.send_numbers(topic, range(110, 115), partition=1)
            member.wait_for(lambda: "114" in member.values, "others go on")
            kafka.restart(CONTROLLER)
            assert seen.committed(group) == [3, 15]
            released.set()
            member.wait_for(lambda: len(member.values) == 115, "everything")
            seen.wait_for_commit(group, 100, 15)
            assert member.assignments == [[0, 1]]
    return {"workers=4": seen.history()}
