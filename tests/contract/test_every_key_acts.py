"""Each key of the contract is changed here, and something else happens, or something is refused.

What needs a cluster or Spark to be seen is shown by the test that `SHOWN_BY` names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

import lossless
from lossless.cli import up
from lossless.contract import Contract, ContractError
from lossless.contract.document import render
from lossless.contract.keys import KEYS
from lossless.contract.rules.judging import judge_all
from lossless.pipeline.decode import decoder
from lossless.pipeline.runner import Runner
from lossless.pipeline.sinks import open_sink
from lossless.pipeline.source import spark_options

Load = Callable[..., Contract]
Seen = Callable[[Contract], Any]

ROOT = Path(__file__).parents[2]
TOPIC = "[topics.a]\nconfig.min.insync.replicas = 2\n"
PRODUCER = "[cluster]\nclient.bootstrap.servers = 'here:1'\n[producers.p]\n"
CONSUMER = "[cluster]\nclient.bootstrap.servers = 'here:1'\n[consumers.c]\n"
PIPELINE = """[pipelines.p]
topics = ["a"]
schema = "number BIGINT"
sink = { type = "delta", path = "/table" }
"""


def verdict(contract: Contract) -> list[str]:
    return [each.rule for each in judge_all(contract)]


def built(contract: Contract) -> Any:
    """What `up` starts."""
    return up._spec(contract, contract.folder / "no-data", None, None, None, {})


def read(contract: Contract) -> Any:
    """What Spark is told to read."""
    return spark_options(contract.pipelines["p"], {"bootstrap.servers": "here:1"})


def decoded(contract: Contract) -> Any:
    pipeline = contract.pipelines["p"]
    return decoder(pipeline.format, pipeline.schema, group=pipeline.group).schema.jsonValue()


def stored(contract: Contract) -> Any:
    """The sink that is opened, and for which table."""
    spark = MagicMock()
    with pytest.MonkeyPatch.context() as patch:
        opened = MagicMock()
        for kind in ("delta.DeltaSink", "parquet.ParquetSink", "postgres.PostgresSink"):
            patch.setattr(f"lossless.pipeline.sinks.{kind}", getattr(opened, kind.split(".")[1]))
        open_sink(spark, contract.pipelines["p"])
        return [(name, arguments[1:]) for name, arguments, _ in opened.mock_calls]


def triggered(contract: Contract) -> Any:
    runner = MagicMock(pipeline=contract.pipelines["p"], client_settings={})
    Runner._start_query(runner, {}, once=False)
    return [call.kwargs for call in runner.mock_calls if call[0].endswith(".trigger")]


def stuck(contract: Contract) -> float:
    return contract.pipelines["p"].stuck_after_s


def given_to(client: type, make: Callable[[Contract], object]) -> Seen:
    """The settings that a client of ours is made with."""

    def seen(contract: Contract) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            made = MagicMock(return_value=None)
            patch.setattr(client, "__init__", made)
            make(contract)
            return made.call_args

    return seen


sent = given_to(lossless.Producer, lambda contract: lossless.Producer.from_contract("p", contract))
consumed = given_to(
    lossless.Consumer, lambda contract: lossless.Consumer.from_contract("c", "a", contract=contract)
)


def session(contract: Contract) -> Any:
    """The settings that a pipeline's Spark session is built with."""

    class Built(Exception):
        pass

    with pytest.MonkeyPatch.context() as patch:
        make = MagicMock(side_effect=Built)
        for name in ("connect", "SourceLog"):
            patch.setattr(f"lossless.pipeline.pipeline.{name}", MagicMock())
        patch.setattr("lossless.pipeline.pipeline.build_session", make)
        with pytest.raises(Built):
            lossless.Pipeline("p", contract=contract).dry_run()
        return make.call_args.kwargs["settings"]


def pipeline(*lines: str) -> str:
    return PIPELINE + "\n".join(lines)


def sink(written: str) -> str:
    return re.sub(r"sink = .*", f"sink = {{ {written} }}", PIPELINE)


OUTAGE = "guarantee.survives = { sink-outage = true }"
UNSAFE = (
    PRODUCER + "config.acks = 1\nconfig.enable.idempotence = false\n[guarantee]\norder = 'none'"
)
UNCOMMITTED = 'isolation = "read_uncommitted"'

# A key: how it is seen, and two contracts that differ in it.
CASES: dict[tuple[str, str], tuple[Seen, str, str]] = {
    ("guarantee", "delivery"): (
        verdict,
        PRODUCER
        + "config.acks = 1\nconfig.enable.idempotence = false\n[guarantee]\norder = 'none'",
        PRODUCER
        + "config.acks = 1\nconfig.enable.idempotence = false\n[guarantee]\norder = 'none'\n"
        "delivery = 'at-most-once'",
    ),
    ("guarantee", "order"): (
        verdict,
        PRODUCER + "config.partitioner = 'random'\n[guarantee]\norder = 'per-key'",
        PRODUCER + "config.partitioner = 'random'\n[guarantee]\norder = 'per-partition'",
    ),
    ("guarantee", "pause_max_s"): (
        sent,
        PRODUCER,
        PRODUCER + "[guarantee]\npause_max_s = 60",
    ),
    ("guarantee", "duplicates_max"): (
        verdict,
        PRODUCER + "config.enable.idempotence = false\n"
        "[guarantee]\norder = 'none'\ndelivery = 'at-least-once'",
        PRODUCER + "config.enable.idempotence = false\n"
        "[guarantee]\norder = 'none'\ndelivery = 'at-least-once'\nduplicates_max = 0",
    ),
    ("guarantee", "survives"): (
        verdict,
        "[topics.a]",
        "[topics.a]\n[guarantee]\nsurvives = { client-disconnect = true }",
    ),
    ("cluster", "brokers"): (built, "", "[cluster]\nbrokers = 5"),
    ("cluster", "controllers"): (built, "", "[cluster]\ncontrollers = 3"),
    ("cluster", "racks"): (built, "", "[cluster]\nracks = ['a', 'b']"),
    ("cluster", "config.*"): (built, "", "[cluster]\nconfig.num.partitions = 6"),
    ("cluster", "client.*"): (
        sent,
        PRODUCER,
        PRODUCER.replace("[producers.p]", "client.client.id = 'a'\n[producers.p]"),
    ),
    ("cluster", "properties"): (
        sent,
        PRODUCER,
        PRODUCER.replace("[producers.p]", "properties = 'settings.properties'\n[producers.p]"),
    ),
    ("topics.NAME", "replication_factor"): (verdict, TOPIC, TOPIC + "replication_factor = 1"),
    ("topics.NAME", "config.*"): (verdict, TOPIC, TOPIC.replace("2", "3")),
    ("producers.NAME", "client"): (
        verdict,
        PRODUCER + "client = 'lossless'",
        PRODUCER + "client = 'librdkafka'",
    ),
    ("producers.NAME", "config.*"): (sent, PRODUCER, PRODUCER + "config.linger.ms = 50"),
    ("producers.NAME", "properties"): (
        sent,
        PRODUCER,
        PRODUCER + "properties = 'settings.properties'",
    ),
    ("consumers.NAME", "client"): (
        verdict,
        CONSUMER + "client = 'lossless'",
        CONSUMER + "client = 'java'",
    ),
    ("consumers.NAME", "commit"): (
        verdict,
        CONSUMER + "commit = 'after-processing'",
        CONSUMER + "commit = 'before-processing'",
    ),
    ("consumers.NAME", "config.*"): (consumed, CONSUMER, CONSUMER + "config.fetch.min.bytes = 9"),
    ("consumers.NAME", "properties"): (
        consumed,
        CONSUMER,
        CONSUMER + "properties = 'settings.properties'",
    ),
    ("pipelines.NAME", "topics"): (read, PIPELINE, PIPELINE.replace('["a"]', '["a", "b"]')),
    ("pipelines.NAME", "topic_pattern"): (
        read,
        PIPELINE,
        PIPELINE.replace('topics = ["a"]', 'topic_pattern = "a"'),
    ),
    ("pipelines.NAME", "format"): (
        decoded,
        PIPELINE,
        PIPELINE.replace('schema = "number BIGINT"', 'format = "raw"'),
    ),
    ("pipelines.NAME", "schema"): (decoded, PIPELINE, PIPELINE.replace("BIGINT", "STRING")),
    ("pipelines.NAME", "isolation"): (
        read,
        PIPELINE,
        pipeline(UNCOMMITTED, "guarantee.delivery = 'at-least-once'"),
    ),
    ("pipelines.NAME", "records_per_batch_max"): (
        read,
        PIPELINE,
        pipeline("records_per_batch_max = 9"),
    ),
    ("pipelines.NAME", "trigger_s"): (triggered, PIPELINE, pipeline("trigger_s = 9")),
    ("pipelines.NAME", "retry_max_s"): (
        verdict,
        pipeline(OUTAGE),
        pipeline(OUTAGE, "retry_max_s = 9"),
    ),
    ("pipelines.NAME", "config.*"): (read, PIPELINE, pipeline("config.fetch.min.bytes = 9")),
    ("pipelines.NAME", "properties"): (
        read,
        PIPELINE,
        pipeline("properties = 'settings.properties'"),
    ),
    ("pipelines.NAME", "spark.*"): (session, PIPELINE, pipeline("spark.sql.x = 9")),
    ("pipelines.NAME", "sink"): (stored, PIPELINE, sink('type = "delta", path = "/other"')),
    ("pipelines.NAME", "guarantee"): (
        verdict,
        pipeline(UNCOMMITTED),
        pipeline(UNCOMMITTED, "guarantee = { delivery = 'at-least-once' }"),
    ),
    ("pipelines.NAME.guarantee", "delivery"): (
        verdict,
        pipeline(UNCOMMITTED, "guarantee.delivery = 'exactly-once'"),
        pipeline(UNCOMMITTED, "guarantee.delivery = 'at-least-once'"),
    ),
    ("pipelines.NAME.guarantee", "pause_max_s"): (
        stuck,
        PIPELINE,
        pipeline("guarantee.pause_max_s = 5"),
    ),
    ("pipelines.NAME.guarantee", "duplicates_max"): (
        verdict,
        pipeline(UNCOMMITTED, "guarantee = { delivery = 'at-least-once' }"),
        pipeline(UNCOMMITTED, "guarantee = { delivery = 'at-least-once', duplicates_max = 0 }"),
    ),
    ("pipelines.NAME.guarantee", "survives"): (
        verdict,
        pipeline("retry_max_s = 9"),
        pipeline("retry_max_s = 9", OUTAGE),
    ),
    ("pipelines.NAME.sink", "type"): (stored, PIPELINE, sink('type = "parquet", path = "/table"')),
    ("pipelines.NAME.sink", "path"): (stored, PIPELINE, sink('type = "delta", path = "/other"')),
    ("pipelines.NAME.sink", "dsn"): (
        stored,
        sink('type = "postgres", dsn = "host=a", table = "t"'),
        sink('type = "postgres", dsn = "host=b", table = "t"'),
    ),
    ("pipelines.NAME.sink", "table"): (
        stored,
        sink('type = "postgres", dsn = "host=a", table = "t"'),
        sink('type = "postgres", dsn = "host=a", table = "u"'),
    ),
    ("contract", "allow_settings"): (
        verdict,
        TOPIC + "config.new.setting = 1",
        TOPIC + "config.new.setting = 1\n[contract]\nallow_settings = ['new.setting']",
    ),
}
SHOWN_BY: dict[tuple[str, str], str] = {
    ("topics.NAME", "partitions"): "tests/cli/test_cluster_commands.py::"
    "test_commands_work_on_a_detached_cluster_until_down",
    ("pipelines.NAME", "transform"): "tests/pipeline/test_transform.py::"
    "test_what_a_transform_drops_is_counted_as_filtered",
    ("pipelines.NAME", "start"): "tests/pipeline/test_run.py::"
    "test_latest_skips_what_is_there_and_keeps_its_place_even_if_it_stored_nothing",
    ("pipelines.NAME", "dead_letters_max"): "tests/pipeline/test_run.py::"
    "test_more_dead_letters_than_allowed_stop_the_stream_before_they_are_committed",
    ("pipelines.NAME", "add_columns"): "tests/sinks/delta/test_delta_table.py::"
    "test_columns_are_added_only_when_allowed",
    ("pipelines.NAME", "group"): "tests/pipeline/test_run.py::"
    "test_lag_tools_see_the_pipeline_and_its_group_never_goes_back",
    ("pipelines.NAME", "stuck_after_s"): "tests/pipeline/test_run.py::"
    "test_a_transaction_left_open_is_reported",
}
# Keys with one value that can be kept: any other is refused when the contract is read.
REFUSED = {("pipelines.NAME", "mode"): pipeline('mode = "upsert"')}


@pytest.mark.parametrize(("section", "name"), CASES)
def test_a_key_that_is_changed_changes_what_happens(
    load: Load, tmp_path: Path, section: str, name: str
) -> None:
    (tmp_path / "settings.properties").write_text("client.id = given\n")
    see, before, after = CASES[section, name]
    assert see(load(before)) != see(load(after))


@pytest.mark.parametrize("key", REFUSED, ids=".".join)
def test_a_key_with_one_value_is_refused_with_another(load: Load, key: tuple[str, str]) -> None:
    with pytest.raises(ContractError, match="is not supported yet"):
        load(REFUSED[key])


@pytest.mark.parametrize("key", SHOWN_BY, ids=".".join)
def test_a_key_that_needs_a_cluster_to_be_seen_has_a_test_of_its_own(key: tuple[str, str]) -> None:
    file, _, test = SHOWN_BY[key].partition("::")
    assert f"\ndef {test}(" in (ROOT / file).read_text()


def test_every_key_of_the_contract_has_a_case() -> None:
    assert {(key.section, key.name) for key in KEYS} == {*CASES, *SHOWN_BY, *REFUSED}


def test_the_reference_is_what_the_tables_say() -> None:
    written = (ROOT / "docs" / "contract.md").read_text()
    assert written == render(), "run scripts/document-contract"
