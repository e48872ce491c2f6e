"""A loop over records: what is finished when, and what is committed of it."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from consumed import Kafka, eventually, number

from lossless.client.consuming import Consumer
from lossless.client.consuming.settings import read_settings
from lossless.client.errors import HandlerFailed
from lossless.client.retrying import RetryTopics
from lossless.errors import BadInput


def test_what_the_loop_has_passed_is_committed_on_close(kafka: Kafka) -> None:
    kafka.make_topic(partitions=2)
    kafka.fill(1000, partitions=2)
    seen = []
    with kafka.consumer() as consumer:
        for message in consumer:
            seen.append(number(message))
            if len(seen) == 1000:
                consumer.stop()
    assert sorted(seen) == list(range(1000))
    assert kafka.committed(2) == [500, 500]
    assert consumer.metrics.finished == 1000
    assert consumer.metrics.buffered == 0


def test_the_record_that_a_loop_was_left_with_is_not_finished(kafka: Kafka) -> None:
    """Claim C3: nobody knows whether it is done."""
    kafka.make_topic()
    kafka.fill(100)
    with kafka.consumer() as consumer:
        for message in consumer:
            if number(message) == 41:
                break
        for message in consumer:  # the same consumer goes on with it
            assert number(message) == 41
            break
    assert kafka.committed() == [41]

    def loop(consumer: Consumer) -> None:
        for message in consumer:
            assert number(message) >= 41
            if number(message) == 43:
                raise ValueError("record 43")

    with kafka.consumer() as consumer, pytest.raises(ValueError, match="record 43"):
        loop(consumer)
    assert kafka.committed() == [43]


def test_stop_ends_the_loop_after_the_record_in_hand(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(100)
    with kafka.consumer() as consumer:
        for message in consumer:
            if number(message) == 9:
                consumer.stop()
        assert number(message) == 9
        assert number(next(iter(consumer))) == 10
    assert kafka.committed() == [10]


def test_stop_before_the_loop_ends_it_at_once(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(1)
    with kafka.consumer() as consumer:
        consumer.stop()
        assert list(consumer) == []


def test_a_batch_is_finished_as_a_whole(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(100)
    batches = []
    with kafka.consumer() as consumer:
        for batch in consumer.batches(30):
            batches.append([number(message) for message in batch])
            if batches[-1][-1] >= 50:
                break
    assert [n for batch in batches for n in batch] == list(range(batches[-1][-1] + 1))
    assert max(len(batch) for batch in batches) <= 30
    assert kafka.committed() == [batches[-1][0]]


def test_records_are_committed_every_few_while_the_loop_goes_on(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(50)
    with kafka.consumer(commit_every_records=10, commit_every_s=3600) as consumer:
        for message in consumer:
            if number(message) == 45:
                eventually(lambda: 35 < kafka.committed()[0] <= 45)
                break


def test_a_slow_loop_commits_by_time_within_what_was_read_at_once(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(50)
    with kafka.consumer(commit_every_s=0.1) as consumer:
        for message in consumer:
            if number(message) == 7:
                eventually(lambda: kafka.committed() == [7])  # 7 itself is in hand
                break


def test_a_loop_that_waits_is_woken_by_records_and_by_stop(kafka: Kafka) -> None:
    kafka.make_topic()
    seen = []
    with kafka.consumer() as consumer:

        def loop() -> None:
            seen.extend(number(message) for message in consumer)

        thread = threading.Thread(target=loop)
        thread.start()
        eventually(lambda: consumer.metrics.rebalances == 1)
        kafka.fill(3)
        eventually(lambda: seen == [0, 1, 2])
        consumer.stop()
        thread.join(10)
        assert not thread.is_alive()
    assert kafka.committed() == [3]


def test_gaps_at_the_end_are_committed_too(kafka: Kafka) -> None:
    """The end of a transaction takes an offset, and is no record."""
    from confluent_kafka import Producer

    kafka.make_topic()
    producer = Producer(
        {"bootstrap.servers": kafka.servers, "transactional.id": kafka.topic, "linger.ms": 0}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(kafka.topic, value=b"0")
    producer.commit_transaction()
    kafka.fill(1, first=1)
    with kafka.consumer() as consumer:
        for message in consumer:
            if number(message) == 1:
                consumer.stop()
    assert kafka.committed() == [3]


def test_a_group_shares_partitions_and_another_group_sees_everything(kafka: Kafka) -> None:
    """Claim C1."""
    kafka.make_topic(partitions=2)
    kafka.fill(20, partitions=2)
    for group in ("one", "another"):
        with kafka.consumer(group=f"{kafka.group}-{group}") as consumer:
            seen = set()
            for message in consumer:
                seen.add(number(message))
                if len(seen) == 20:
                    consumer.stop()


def test_run_with_one_worker_is_the_same_loop(kafka: Kafka) -> None:
    """Record 30 failed: nothing from it on is committed (claim C7)."""
    kafka.make_topic()
    kafka.fill(100)

    def handler(message: object) -> None:
        if number(message) == 30:  # type: ignore[arg-type]
            raise ValueError("no such customer")

    with (
        kafka.consumer() as consumer,
        pytest.raises(HandlerFailed, match=r"@30.*no such") as failed,
    ):
        consumer.run(handler)
    assert isinstance(failed.value.__cause__, ValueError)
    assert kafka.committed() == [30]


def test_committed_positions_carry_leader_epochs(kafka: Kafka) -> None:
    """Without them nobody could tell that the log was truncated behind the group's back."""
    kafka.make_topic()
    kafka.fill(10)
    with kafka.consumer() as consumer:
        for message in consumer:
            if number(message) == 9:
                consumer.stop()
    (position,) = kafka.positions()
    assert position.leader_epoch == 0


@pytest.mark.parametrize(
    ("options", "settings", "says"),
    [
        ({"group": None}, {}, "group.id is missing"),
        ({}, {"enable.auto.commit": True}, "enable.auto.commit"),
        ({}, {"group.id": "another"}, "which one"),
        ({"workers": 0}, {}, "workers=0"),
        ({"order": "some"}, {}, "order"),
        ({"remember_finished": True}, {}, "nothing to remember"),
        ({"commit_every_records": 0}, {}, "commit_every_records"),
        ({"topics": []}, {}, "topics"),
        ({}, {"on_commit": print}, "on_commit is taken"),
        ({"buffered_bytes_max": 100}, {}, "at least 16384"),
        ({"drain_timeout_s": -1}, {}, "drain_timeout_s"),
        ({"commit_every_s": float("nan")}, {}, "commit_every_s"),
        ({}, {"check.crcs": False}, "check.crcs = false: a record that was damaged"),
        ({}, {"enable.partition.eof": "true"}, "enable.partition.eof = true: .* no ends"),
        ({}, {"sesion.timeout.ms": 6000}, "No such configuration property: .sesion.timeout.ms"),
        ({}, {"fetch.min.bytes": -1}, "fetch.min.bytes"),
        ({}, {"ssl.ca.location": "/nowhere/ca.pem"}, "/nowhere/ca.pem cannot be read"),
        ({"buffered_bytes_max": 10**6}, {"queued.max.messages.kbytes": 500}, "counts twice"),
    ],
)
def test_contradictions_are_refused_at_once(
    kafka: Kafka, options: dict[str, object], settings: dict[str, object], says: str
) -> None:
    with pytest.raises(BadInput, match=says):
        kafka.consumer(settings=settings, **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topics": None}, "not the name of a topic"),
        ({"topics": ["orders", 5]}, "not the name of a topic"),
        ({"workers": "4"}, "workers='4': not an integer"),
        ({"workers": 2.5}, "workers=2.5: not an integer"),
        ({"buffered_max": None}, "buffered_max=None: not an integer"),
        ({"buffered_bytes_max": "64 MB"}, "buffered_bytes_max='64 MB': not an integer"),
        ({"commit_every_records": 2.5}, "commit_every_records=2.5: not an integer"),
        ({"commit_every_s": None}, "commit_every_s=None: not a time"),
        ({"drain_timeout_s": float("inf")}, "drain_timeout_s=inf: not a time"),
        ({"connect_timeout_s": "x"}, "connect_timeout_s='x': not a time"),
        ({"on_assigned": 5}, "on_assigned=5: not a function"),
        ({"retry": "dead-letters"}, "retry='dead-letters' cannot be used as one"),
        ({"retry": RetryTopics}, "retry=<class .* cannot be used as one"),
        ({"store": "store.db"}, "store='store.db' cannot be used as one"),
        ({"producer": 5}, "producer=5 cannot be used as one"),
    ],
)
def test_what_is_not_of_its_kind_is_refused_by_name(
    kafka: Kafka, options: dict[str, object], says: str
) -> None:
    with pytest.raises(BadInput, match=says):
        kafka.consumer(**options)


@pytest.mark.parametrize("settings", [None, "localhost:9092", {}, {"bootstrap.servers": ""}])
def test_a_consumer_without_a_cluster_is_refused_with_an_example(settings: Any) -> None:
    with pytest.raises(BadInput, match=r"as a mapping|needs bootstrap\.servers") as refused:
        Consumer("orders", settings, group="billing")
    assert '{"bootstrap.servers": "localhost:9092"}' in (refused.value.hint or "")


@pytest.mark.parametrize("records_max", [0, 2.5, "10"])
def test_batches_of_no_number_of_records_are_refused(kafka: Kafka, records_max: Any) -> None:
    with kafka.consumer() as consumer, pytest.raises(BadInput, match="records"):
        consumer.batches(records_max)


def test_settings_without_an_effect_are_named_at_once(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.consumer(settings={"max.poll.records": 100, "metric.reporters": "x"}).close()
    assert "no effect here: max.poll.records, metric.reporters; batches(" in caplog.text


def test_checksums_are_checked() -> None:
    settings = read_settings({"check.crcs": "TRUE"}, group="g", workers=1)
    assert settings.librdkafka["check.crcs"] is True
    assert read_settings({}, group="g", workers=1).librdkafka["check.crcs"] is True


def test_closing_takes_no_negative_time(kafka: Kafka) -> None:
    consumer = kafka.consumer()
    for seconds in (-1, float("nan"), float("inf"), "5"):
        with pytest.raises(BadInput, match="not a time to wait"):
            consumer.close(seconds)  # type: ignore[arg-type]
    consumer.close()


def test_a_loop_refuses_what_only_a_handler_can_have(kafka: Kafka) -> None:
    with kafka.consumer(workers=4) as consumer, pytest.raises(BadInput, match="for loop"):
        iter(consumer)


def test_closing_twice_and_closing_what_never_began(kafka: Kafka) -> None:
    consumer: Consumer = kafka.consumer()
    consumer.close()
    consumer.close()
    with pytest.raises(BadInput, match="closed"):
        iter(consumer)


def test_commits_go_on_from_where_the_group_is(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(10)
    kafka.commit(TopicPartition(kafka.topic, 0, 6))
    with kafka.consumer() as consumer:
        first = next(iter(consumer))
    assert number(first) == 6
    assert kafka.committed() == [6]


FORKED = """
import os, sys, warnings
warnings.simplefilter("ignore")  # of forking with threads, which is what this is about
import lossless
from confluent_kafka import TopicPartition
with lossless.Consumer({topic!r}, {{"bootstrap.servers": {servers!r}}}, group="g") as consumer:
    for message in consumer:
        if message.offset() == 1:
            child = os.fork()
            if not child:
                try:
                    {call}
                except Exception as error:
                    print(str(error).splitlines()[0], flush=True)
                    sys.exit(0)
            print("child:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        if message.offset() == 9:
            consumer.stop()
"""


@pytest.mark.parametrize(
    "call", ["next(iter(consumer))", "consumer.seek(TopicPartition({topic!r}, 0, 0))"]
)
def test_a_forked_child_is_refused_and_the_parent_continues(kafka: Kafka, call: str) -> None:
    kafka.make_topic()
    kafka.fill(10)
    program = FORKED.format(
        topic=kafka.topic,
        servers=kafka.servers,
        call=call.format(topic=kafka.topic),
    )
    assert _run(program) == "the consumer was made before this process was forked\nchild: 0\n"


def test_a_loop_that_is_continued_in_a_forked_child_processes_nothing_twice(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(10)
    program = f"""
import os, warnings
warnings.simplefilter("ignore")
import lossless, lossless.errors
consumer = lossless.Consumer({kafka.topic!r}, {{"bootstrap.servers": {kafka.servers!r}}}, group="g")
child = None
try:
    with consumer:
        for message in consumer:
            print("child" if child == 0 else "parent", message.offset(), flush=True)
            if message.offset() == 1:
                child = os.fork()
                if child:
                    os.waitpid(child, 0)
            if message.offset() == 3:
                consumer.stop()
except lossless.errors.BadInput as error:
    print(str(error).splitlines()[0], flush=True)
"""
    refused = "the consumer was made before this process was forked"
    expected = ["parent 0", "parent 1", refused, "parent 2", "parent 3"]
    assert _run(program).splitlines() == expected


def _run(program: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    return ended.stdout


def test_closing_in_a_hook_is_refused_instead_of_waiting_for_itself(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(1)
    consumer = kafka.consumer(on_assigned=lambda _: consumer.close())
    with consumer, pytest.raises(BadInput, match="called in a hook"):
        next(iter(consumer))


def test_a_loop_in_a_hook_is_refused_instead_of_waiting_for_itself(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(1)
    with (
        kafka.consumer(on_assigned=lambda _: next(iter(consumer))) as consumer,
        pytest.raises(BadInput, match="called in a hook"),
    ):
        next(iter(consumer))
