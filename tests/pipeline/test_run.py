"""What a run reads, where it starts, when it refuses, and what it leaves behind."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from lossless.errors import BadInput, PromiseBroken, Unavailable
from lossless.pipeline.batch import Batcher
from lossless.pipeline.events import (
    Accepted,
    Committed,
    Event,
    Lag,
    Retrying,
    Started,
    Stopped,
    Warned,
)
from lossless.pipeline.ledger import AcceptedLoss, SourcePartition
from lossless.pipeline.outcomes import CONTENT_HASH, PROVENANCE
from lossless.pipeline.runner import Runner
from lossless.pipeline.sinks.interface import Staged
from lossless.pipeline.watchdog import ManagerWatch
from shop import MakeShop, Shop, order
from topics import create_topic, grow_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def test_everything_there_is_stored_once_and_a_second_run_adds_nothing(shop: MakeShop) -> None:
    orders = shop(partitions=3)
    for partition in range(3):
        orders.produce(range(partition * 10, partition * 10 + 10), partition=partition)
    first = orders.pipeline().run(once=True)
    again = orders.pipeline().run(once=True)
    assert orders.numbers() == list(range(30))
    assert again == first


def test_latest_skips_what_is_there_and_keeps_its_place_even_if_it_stored_nothing(
    shop: MakeShop,
) -> None:
    orders = shop()
    orders.produce(range(10))
    orders.pipeline('start = "latest"').run(once=True)
    orders.produce(range(10, 15))
    orders.pipeline('start = "latest"').run(once=True)
    assert orders.numbers() == [10, 11, 12, 13, 14]


def test_a_timestamp_starts_at_the_first_record_of_that_moment(shop: MakeShop) -> None:
    orders = shop()
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    producer = Producer({"bootstrap.servers": orders.bootstrap_servers})
    for number in range(6):
        at_ms = int(moment.timestamp() * 1000) + (number - 3) * 1000
        producer.produce(orders.topic, order(number), timestamp=at_ms)
    producer.flush()
    orders.pipeline('start = "2026-01-01T00:00:00Z"').run(once=True)
    assert orders.numbers() == [3, 4, 5]


def test_a_batch_holds_no_more_records_than_allowed_and_the_last_lag_is_none(
    shop: MakeShop,
) -> None:
    orders = shop()
    orders.produce(range(25))
    events: list[Event] = []
    orders.pipeline("records_per_batch_max = 10").run(once=True, observe=events.append)
    assert [e.records for e in events if isinstance(e, Committed)] == [10, 10, 5]
    *_, last, stopped = events
    assert isinstance(stopped, Stopped)
    assert isinstance(last, Lag)
    assert list(last.by_partition.values()) == [0]


def test_topics_by_pattern_and_topics_that_appear_later(shop: MakeShop) -> None:
    orders = shop()
    orders.produce(range(5))
    # One is internal by its name, as __lossless_audit is; the other does not match as a whole.
    for other in (f"__{orders.topic}", f"more-{orders.topic}"):
        create_topic(orders.bootstrap_servers, other, partitions=1)
        orders.produce(range(50, 55), topic=other)
    pattern = f'topic_pattern = "(__)?{orders.topic}.*"'
    orders.pipeline(topics=pattern).run(once=True)
    create_topic(orders.bootstrap_servers, f"{orders.topic}-more", partitions=1)
    orders.produce(range(5, 8), topic=f"{orders.topic}-more")
    orders.pipeline('start = "latest"', topics=pattern).run(once=True)
    assert orders.numbers() == list(range(8))


def test_a_partition_added_later_is_read_from_its_first_record(shop: MakeShop) -> None:
    orders = shop()
    orders.produce(range(5))
    orders.pipeline('start = "latest"').run(once=True)
    grow_topic(orders.bootstrap_servers, orders.topic, 2)
    orders.produce(range(5, 9), partition=1)
    orders.pipeline('start = "latest"').run(once=True)
    assert orders.numbers() == [5, 6, 7, 8]


def test_a_partition_added_while_running_is_read_from_its_first_record(shop: MakeShop) -> None:
    orders = shop()
    orders.produce(range(5))
    pipeline = orders.pipeline("trigger_s = 0.1\nconfig.metadata.max.age.ms = 500")

    def grow_then_stop(event: Event) -> None:
        if isinstance(event, Committed) and event.records == 5:
            grow_topic(orders.bootstrap_servers, orders.topic, 2)
            orders.produce(range(5, 9), partition=1)
        elif isinstance(event, Committed):
            pipeline.stop()

    ledger = pipeline.run(observe=grow_then_stop)
    assert orders.numbers() == list(range(9))
    assert {s.partition: p.next_offset for s, p in ledger.positions.items()} == {0: 5, 1: 4}


def test_records_deleted_unread_are_refused_named_and_accepted_on_request(shop: MakeShop) -> None:
    orders = shop()
    orders.produce(range(10))
    orders.pipeline().run(once=True)
    orders.produce(range(10, 20))
    admin = AdminClient({"bootstrap.servers": orders.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(orders.topic, 0, 15)]).values():
        future.result()
    with pytest.raises(PromiseBroken, match=rf"{orders.topic}-0: offsets 10 to 14 \(5\)"):
        orders.pipeline().run(once=True)
    assert orders.numbers() == list(range(10))
    accepted: list[Accepted] = []
    ledger = orders.pipeline().run(
        once=True,
        accept_loss=True,
        observe=lambda e: accepted.append(e) if isinstance(e, Accepted) else None,
    )
    assert orders.numbers() == [*range(10), *range(15, 20)]
    (position,) = ledger.positions.values()
    assert position.accepted_losses == (AcceptedLoss(10, 15),)
    (shown,) = [what for event in accepted for what in event.losses.values()]
    assert "offsets 10 to 14 (5) were deleted before they were read" in shown
    orders.pipeline().run(once=True)


def test_a_loss_is_accepted_at_the_start_only_and_not_by_a_retry(
    shop: MakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = shop()
    orders.produce(range(10))
    asked: list[bool] = []
    begin, watch = Runner._begin, Runner._watch

    def remembered(self: Runner, *, accept_loss: bool) -> Mapping[SourcePartition, int]:
        asked.append(accept_loss)
        return begin(self, accept_loss=accept_loss)

    def failing_once(self: Runner, query: StreamingQuery, manager: ManagerWatch) -> None:
        if len(asked) == 1:
            raise Unavailable("the sink is down for a moment")
        watch(self, query, manager)

    monkeypatch.setattr(Runner, "_begin", remembered)
    monkeypatch.setattr(Runner, "_watch", failing_once)
    orders.pipeline().run(once=True, accept_loss=True)
    assert asked == [True, False]
    assert orders.numbers() == list(range(10))


def test_a_topic_taken_out_and_put_back_is_read_on_from_where_it_was(shop: MakeShop) -> None:
    orders = shop()
    other = f"{orders.topic}-returns"
    create_topic(orders.bootstrap_servers, other, partitions=1)
    orders.produce(range(5))
    orders.produce(range(5, 8), topic=other)
    both, one = f'topics = ["{orders.topic}", "{other}"]', f'topics = ["{orders.topic}"]'
    orders.pipeline(topics=both).run(once=True)
    with pytest.raises(PromiseBroken, match="does not select the topic any more"):
        orders.pipeline(topics=one).run(once=True)
    orders.pipeline(topics=one).run(once=True, accept_loss=True)
    orders.produce(range(8, 12), topic=other)
    orders.pipeline(topics=both).run(once=True)
    assert orders.numbers() == list(range(12))


def test_a_batch_that_spark_hands_over_empty_is_not_committed(
    shop: MakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The symptom of SPARK-41375: the plan of a batch comes back without its records."""
    orders = shop()
    orders.produce(range(10))
    stage, emptied = Batcher.stage, []

    def stage_nothing_once(self: Batcher, records: DataFrame, *arguments: Any) -> Staged:
        if not emptied:
            emptied.append(True)
            records = records.where("false")
        return stage(self, records, *arguments)

    monkeypatch.setattr(Batcher, "stage", stage_nothing_once)
    retried: list[str] = []
    orders.pipeline().run(
        once=True, observe=lambda e: retried.append(e.why) if isinstance(e, Retrying) else None
    )
    assert orders.numbers() == list(range(10))
    assert "Spark handed over no record between offsets 0 and 10" in retried[0]


def test_a_transform_that_fails_once_is_retried_and_makes_no_dead_letters(
    shop: MakeShop,
) -> None:
    """The failure of a service that the transform asks: no record is to blame."""
    orders = shop()
    failed = orders.folder / "failed"
    (orders.folder / "asks_a_service.py").write_text(
        "import pathlib\n"
        "from pyspark.sql import functions as F\n"
        "@F.udf('bigint')\n"
        "def ask(number):\n"
        f"    failed = pathlib.Path({str(failed)!r})\n"
        "    if number in (3, 7) and not failed.exists():\n"
        "        failed.touch()\n"
        "        raise ConnectionError('the service is away')\n"
        "    return number\n"
        "def transform(rows):\n"
        "    return rows.withColumn('number', ask('number'))\n"
    )
    orders.produce(range(10))
    ledger = orders.pipeline('transform = "asks_a_service:transform"').run(once=True)
    assert failed.exists()
    assert orders.numbers() == list(range(10))
    assert sum(p.dead.count for p in ledger.positions.values()) == 0


def test_a_transform_that_adds_rows_of_a_table_is_refused_before_the_commit(
    shop: MakeShop,
) -> None:
    orders = shop()
    orders.produce(range(4))
    (orders.folder / "unions.py").write_text(
        "from pyspark.sql import functions as F\n"
        "def again(rows):\n"
        "    table = rows.sparkSession.read.parquet(TABLE)\n"
        "    return rows.where('number >= 9').unionByName(table.select(rows.columns))\n"
        f"TABLE = {str(orders.folder / 'table')!r}\n"
    )
    orders.pipeline().run(once=True)
    before = orders.numbers()
    orders.produce(range(4, 14))
    with pytest.raises(BadInput, match=r"rows of offset 0 of .*, below the batch's first, 4"):
        orders.pipeline('transform = "unions:again"').run(once=True)
    assert orders.numbers() == before


def test_the_leader_epoch_is_kept_with_each_position(shop: MakeShop) -> None:
    orders = shop()
    orders.produce(range(4))
    ledger = orders.pipeline().run(once=True)
    assert [position.leader_epoch for position in ledger.positions.values()] == [0]


def test_a_recreated_topic_is_refused_and_accepted_on_request(shop: MakeShop) -> None:
    orders = shop()
    orders.produce(range(4))
    orders.pipeline().run(once=True)
    admin = AdminClient({"bootstrap.servers": orders.bootstrap_servers})
    for future in admin.delete_topics([orders.topic]).values():
        future.result()
    with pytest.raises((PromiseBroken, BadInput), match=r"deleted|does not exist"):
        orders.pipeline().run(once=True)
    create_topic(orders.bootstrap_servers, orders.topic, partitions=1)
    orders.produce(range(100, 103))
    with pytest.raises(PromiseBroken, match="re-created"):
        orders.pipeline().run(once=True)
    orders.pipeline().run(once=True, accept_loss=True)
    assert orders.numbers() == [0, 1, 2, 3, 100, 101, 102]


def test_aborted_transactions_are_not_stored(shop: MakeShop) -> None:
    orders = shop()
    producer = Producer(
        {"bootstrap.servers": orders.bootstrap_servers, "transactional.id": orders.topic}
    )
    producer.init_transactions()
    for start, commit in ((0, True), (10, False), (20, True)):
        producer.begin_transaction()
        for number in range(start, start + 3):
            producer.produce(orders.topic, order(number))
        producer.flush()  # an abort would otherwise throw away what was not sent yet
        producer.commit_transaction() if commit else producer.abort_transaction()
    ledger = orders.pipeline().run(once=True)
    assert orders.numbers() == [0, 1, 2, 20, 21, 22]
    (position,) = ledger.positions.values()
    # Three markers and three aborted records: offsets are not counts.
    assert (position.next_offset, position.read.count) == (12, 6)


def test_a_transaction_left_open_is_reported(shop: MakeShop) -> None:
    orders = shop()
    orders.produce(range(3))
    producer = Producer(
        {"bootstrap.servers": orders.bootstrap_servers, "transactional.id": orders.topic}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(orders.topic, order(3))
    producer.flush()
    orders.produce(range(4, 6))
    pipeline = orders.pipeline("stuck_after_s = 0.5\ntrigger_s = 0.1")
    warnings: list[str] = []

    def stop_when_warned(event: Event) -> None:
        if isinstance(event, Warned):
            warnings.append(event.message)
            pipeline.stop()

    pipeline.run(observe=stop_when_warned)
    producer.abort_transaction()
    assert "last stable offset has stood at 3" in warnings[0]
    assert orders.numbers() == [0, 1, 2]
    orders.pipeline().run(once=True)
    assert orders.numbers() == [0, 1, 2, 4, 5]


def test_lag_tools_see_the_pipeline_and_its_group_never_goes_back(shop: MakeShop) -> None:
    orders = shop()
    orders.produce(range(7))
    orders.pipeline().run(once=True)
    assert _committed(orders) == 7
    ahead = Consumer(
        {"bootstrap.servers": orders.bootstrap_servers, "group.id": "lossless-orders-ahead"}
    )
    ahead.commit(offsets=[TopicPartition(orders.topic, 0, 100)], asynchronous=False)
    ahead.close()
    orders.produce(range(7, 9))
    orders.pipeline('group = "lossless-orders-ahead"').run(once=True)
    assert _committed(orders, "lossless-orders-ahead") == 100


def _committed(orders: Shop, group: str = "lossless-orders") -> int:
    consumer = Consumer({"bootstrap.servers": orders.bootstrap_servers, "group.id": group})
    (found,) = consumer.committed([TopicPartition(orders.topic, 0)], timeout=10)
    consumer.close()
    return int(found.offset)


def test_more_dead_letters_than_allowed_stop_the_stream_before_they_are_committed(
    shop: MakeShop,
) -> None:
    orders = shop()
    orders.produce(range(3))
    produce(orders.bootstrap_servers, orders.topic, [(0, b"k", b"not json")] * 3)
    with pytest.raises(PromiseBroken, match="3 dead letters, and dead_letters_max = 2"):
        orders.pipeline("dead_letters_max = 2").run(once=True)
    ledger = orders.pipeline("dead_letters_max = 3").run(once=True)
    assert orders.numbers() == [0, 1, 2]
    assert sum(p.dead.count for p in ledger.positions.values()) == 3


def test_stopping_finishes_the_batch_under_way(shop: MakeShop) -> None:
    orders = shop()
    orders.produce(range(30))
    pipeline = orders.pipeline("records_per_batch_max = 10\ntrigger_s = 0.1")
    ledger = pipeline.run(observe=lambda e: pipeline.stop() if isinstance(e, Committed) else None)
    assert orders.numbers() == list(range(10))
    assert orders.pipeline().run(once=True).sequence == ledger.sequence + 1
    assert orders.numbers() == list(range(30))


def test_a_dry_run_shows_the_offsets_and_writes_nothing(shop: MakeShop) -> None:
    orders = shop()
    orders.produce(range(12))
    login = "required username='shop' password='hunter2';"
    plan = orders.pipeline(f'config.sasl.jaas.config = "{login}"').dry_run()
    assert {s.partition: o for s, o in plan.offsets.items()} == {0: 0}
    assert {s.partition: o for s, o in plan.latest.items()} == {0: 12}
    assert "hunter2" not in str(plan)
    assert plan.row_schema.names[-2:] == [PROVENANCE, CONTENT_HASH]
    assert not plan.schema_difference.exists
    assert not (orders.folder / "table").exists()


def test_a_missing_topic_is_named_before_anything_is_written(shop: MakeShop) -> None:
    orders = shop()
    with pytest.raises(BadInput, match="topic nowhere does not exist"):
        orders.pipeline(topics='topics = ["nowhere"]').run(once=True)
    assert not (orders.folder / "table").exists()


def test_a_spark_connect_session_is_refused() -> None:
    from lossless.pipeline.session import check_session

    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(BadInput, match="Spark Connect"):
        check_session(session)


def test_two_pipelines_in_one_session_do_not_mind_each_other(
    shop: MakeShop, tmp_path: Path
) -> None:
    orders = shop()
    orders.produce(range(20))
    pipelines = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        other = Shop(
            folder=folder,
            topic=orders.topic,
            bootstrap_servers=orders.bootstrap_servers,
            spark=orders.spark,
        )
        pipelines.append((other, other.pipeline(f'group = "{name}"')))
    threads = [
        threading.Thread(target=pipeline.run, kwargs={"once": True}) for _, pipeline in pipelines
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [other.numbers() for other, _ in pipelines] == [list(range(20))] * 2


def test_a_run_says_where_it_starts(shop: MakeShop) -> None:
    orders = shop()
    orders.produce(range(2))
    orders.pipeline().run(once=True)
    started: list[Started] = []
    orders.pipeline().run(
        once=True, observe=lambda e: started.append(e) if isinstance(e, Started) else None
    )
    assert [dict(event.offsets).popitem()[1] for event in started] == [2]


def test_a_table_that_lost_its_ledger_is_not_filled_again(
    spark: SparkSession, shop: MakeShop
) -> None:
    orders = shop()
    orders.produce(range(3))
    assert orders.pipeline(sink='type = "delta"').run(once=True).sequence == 2
    table, copy = orders.folder / "table", orders.folder / "copy"
    spark.read.format("delta").load(str(table)).write.format("delta").save(str(copy))
    shutil.rmtree(table)
    copy.rename(table)
    with pytest.raises(BadInput, match="has no ledger in the delta table") as refused:
        orders.pipeline(sink='type = "delta"').run(once=True)
    assert "holds 3 rows with provenance of ours" in refused.value.what
    assert spark.read.format("delta").load(str(table)).count() == 3
