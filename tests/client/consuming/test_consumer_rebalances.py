"""Members that come and go: nothing is lost, and little is repeated."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition
from consumed import PATIENCE_S, Kafka, Seen, eventually, number, running

PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer", "session.timeout.ms": None},
}
CLASSIC = ("eager", "cooperative")
WORKERS = {"workers": 4, "order": "key"}
PARTITIONS = 6


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> dict[str, Any]:
    return PROTOCOLS[request.param]


@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        *((protocol, {}) for protocol in PROTOCOLS),
        ("consumer", WORKERS),
        *(pytest.param(protocol, WORKERS, marks=pytest.mark.full) for protocol in CLASSIC),
    ],
    indirect=["protocol"],
)
def test_members_join_and_leave_and_every_record_is_processed(
    kafka: Kafka, protocol: dict[str, Any], options: dict[str, Any]
) -> None:
    """Claim C6. With orderly departures nothing is processed twice either."""
    kafka.make_topic(partitions=PARTITIONS)
    seen = Seen()
    members: list[Any] = []
    sent = 0
    try:
        for round_number in range(5):
            members.append(
                running_member(kafka, seen, settings=protocol, commit_every_s=0.2, **options)
            )
            kafka.fill(300, first=sent, partitions=PARTITIONS, keys=60)
            sent += 300
            if round_number >= 2:
                members.pop(0).close()
        seen.wait_for(range(sent))
    finally:
        for member in members:
            member.close()
    for member in members:
        assert member.failure is None
    assert sorted(seen.numbers) == list(range(sent))
    assert sum(kafka.committed(PARTITIONS)) == sent


def running_member(kafka: Kafka, seen: Seen, **options: Any) -> Any:
    from consumed import Running

    return Running(kafka.consumer(**options), seen)


def test_state_is_loaded_before_the_first_record_and_dropped_after_the_last_commit(
    kafka: Kafka, protocol: dict[str, Any]
) -> None:
    kafka.make_topic(partitions=2)
    kafka.fill(20, partitions=2)
    told: list[str] = []
    loaded: set[int] = set()

    def on_assigned(partitions: list[TopicPartition]) -> None:
        loaded.update(each.partition for each in partitions)
        told.append("assigned")

    def on_revoked(partitions: list[TopicPartition]) -> None:
        told.append(f"revoked at {kafka.committed(2)}")
        loaded.difference_update(each.partition for each in partitions)

    count = 0
    with kafka.consumer(
        settings=protocol, on_assigned=on_assigned, on_revoked=on_revoked
    ) as consumer:
        for message in consumer:
            assert message.partition() in loaded
            count += 1
            if count == 20:
                consumer.stop()
    assert told == ["assigned", "revoked at [10, 10]"]
    assert not loaded


def test_what_the_group_gives_to_a_member_that_leaves_is_not_begun(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    """The other member leaves at the same time, so that this one is to have everything."""
    settings = PROTOCOLS["consumer"]
    kafka.make_topic(partitions=2)
    is_leaving = threading.Event()
    given: list[int] = []

    def on_revoked(_: list[TopicPartition]) -> None:
        if is_leaving.is_set():
            other.close()
            eventually(lambda: kafka.assigned() == [2])

    leaving = running_member(
        kafka,
        Seen(),
        settings=settings,
        on_assigned=lambda partitions: given.append(len(partitions)),
        on_revoked=on_revoked,
    )
    eventually(lambda: given == [2])
    other = running_member(kafka, Seen(), settings=settings)
    eventually(lambda: kafka.assigned() == [1, 1])
    is_leaving.set()
    leaving.consumer.close(timeout_s=PATIENCE_S)
    leaving.join()
    assert "is not left" not in caplog.text
    assert given == [2]
    assert leaving.failure is None


def test_a_revocation_waits_for_the_record_in_hand_and_commits_it(
    kafka: Kafka, protocol: dict[str, Any]
) -> None:
    kafka.make_topic(partitions=2)
    kafka.fill(20, partitions=2)
    in_hand, go_on = threading.Event(), threading.Event()
    first, second = Seen(), Seen()

    def slow(message: Message) -> None:
        if number(message) >= 10 and not go_on.is_set():
            in_hand.set()
            assert go_on.wait(PATIENCE_S)
        first(message)

    with running(kafka.consumer(settings=protocol, commit_every_s=3600), slow) as slow_member:
        assert in_hand.wait(PATIENCE_S)
        with running(kafka.consumer(settings=protocol), second):
            # Half of the partitions go to the second, but not before the record in hand is done.
            eventually(lambda: slow_member.consumer.metrics.buffered <= 20)
            assert second.numbers == [] or min(second.numbers) >= 0
            go_on.set()
            eventually(lambda: len(first.numbers) + len(second.numbers) >= 20)
    assert sorted(first.numbers + second.numbers) == list(range(20))


@pytest.mark.parametrize("workers", [1, 2])
def test_partitions_are_not_given_back_while_a_record_of_theirs_is_in_hand(
    kafka: Kafka, workers: int
) -> None:
    kafka.make_topic()
    kafka.fill(10)
    given_back = threading.Event()
    told: list[str] = []

    def on_revoked(_: list[TopicPartition]) -> None:
        told.append("given back")
        given_back.set()

    def handler(message: Message) -> None:
        if number(message) == 3:
            closing.start()
            given_back.wait(1)  # which only happens when nobody waits for this record
            told.append("finished")

    consumer = kafka.consumer(workers=workers, on_revoked=on_revoked)
    closing = threading.Thread(target=consumer.close)
    with running(consumer, handler):
        assert given_back.wait(PATIENCE_S)
        closing.join(PATIENCE_S)
    assert told == ["finished", "given back"]
    assert kafka.committed() == [4]


def test_what_is_not_finished_in_time_is_repeated_by_the_next_owner(kafka: Kafka) -> None:
    """And when it finishes here after all, that changes nothing (claim C13)."""
    kafka.make_topic()
    kafka.fill(10)
    in_hand, go_on = threading.Event(), threading.Event()
    second = Seen()

    def stuck(message: Message) -> None:
        if number(message) == 3:
            in_hand.set()
            assert go_on.wait(PATIENCE_S)

    with running(
        kafka.consumer(drain_timeout_s=0.2, workers=2, order="partition"), stuck
    ) as member:
        assert in_hand.wait(PATIENCE_S)
        closing = threading.Thread(target=member.consumer.close)
        closing.start()
        with running(kafka.consumer(), second):
            second.wait_for(range(3, 10))
            eventually(lambda: kafka.committed() == [3] or kafka.committed() == [10])
            go_on.set()
            closing.join(PATIENCE_S)
    assert min(second.numbers) == 3
    assert kafka.committed() == [10]


def test_errors_of_hooks_reach_the_loop(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(1)

    def on_assigned(partitions: list[TopicPartition]) -> None:
        raise LookupError(f"no state for {len(partitions)} partitions")

    with (
        kafka.consumer(on_assigned=on_assigned) as consumer,
        pytest.raises(LookupError, match="no state for 1"),
    ):
        next(iter(consumer))
    assert kafka.committed()[0] < 0


@pytest.mark.parametrize(
    ("protocol", "workers"),
    [
        ("eager", 1),
        ("consumer", 1),
        pytest.param("cooperative", 1, marks=pytest.mark.full),
        *(pytest.param(protocol, 2, marks=pytest.mark.full) for protocol in PROTOCOLS),
    ],
    indirect=["protocol"],
)
def test_a_partition_that_went_away_paused_is_read_when_it_comes_back(
    kafka: Kafka, protocol: dict[str, Any], workers: int
) -> None:
    if "group.protocol" not in protocol:  # there brokers say when a member hears of a rebalance
        protocol = {**protocol, "heartbeat.interval.ms": 300}
    kafka.make_topic(partitions=2)
    kafka.fill(2000, partitions=2)
    go_on = threading.Event()
    first, second = Seen(), Seen()

    def stuck(message: Message) -> None:
        assert go_on.wait(PATIENCE_S)
        first(message)

    consumer = kafka.consumer(
        settings=protocol, workers=workers, buffered_max=50, drain_timeout_s=0.1
    )
    with running(consumer, stuck):
        eventually(lambda: consumer.metrics.paused == 2)
        rebalances = consumer.metrics.rebalances
        with running(kafka.consumer(settings=protocol), second):
            eventually(lambda: len(second.numbers) > 0)
            eventually(lambda: consumer.metrics.rebalances > rebalances)
        kafka.fill(20, first=2000, partitions=2)
        go_on.set()
        eventually(lambda: set(first.numbers) | set(second.numbers) >= set(range(2020)))
