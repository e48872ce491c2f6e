"""What a good contract is read into, and where it is found."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lossless.contract import (
    Contract,
    ContractError,
    DeltaSinkContract,
    Guarantee,
    ParquetSinkContract,
    PostgresSinkContract,
    find_contract,
    load_contract,
)
from lossless.contract.faults import FaultKind

Load = Callable[..., Contract]

SMALLEST = """
[pipelines.orders]
topics = ["shop.orders"]
format = "raw"
[pipelines.orders.sink]
type = "delta"
path = "./warehouse/orders"
"""

WHOLE = """
[guarantee]
delivery = "at-least-once"
order = "none"
pause_max_s = 5.5
duplicates_max = 0
survives = { broker-crash = 2, power-loss = false }

[cluster]
brokers = 5
controllers = 3
racks = ["a", "b"]
config.unclean.leader.election.enable = false
config."log.retention.hours" = 72
client.bootstrap.servers = "${KAFKA:-}"
client.security.protocol = "SSL"

[topics."shop.orders"]
partitions = 6
replication_factor = 4
config.min.insync.replicas = 2
config.cleanup.policy = ["compact", "delete"]

[topics.payments]

[producers.shop]
client = "java"
config.acks = "all"
config.enable.idempotence = true

[consumers.billing]
client = "librdkafka"
commit = "after-processing"
config.auto.offset.reset = "earliest"

[pipelines.orders]
topics = ["shop.orders", "payments"]
format = "json"
schema = "schemas/orders.json"
transform = "my_app.orders:clean"
mode = "append"
start = 2025-01-31T12:00:00Z
isolation = "read_uncommitted"
records_per_batch_max = 10
trigger_s = 0
dead_letters_max = 0
add_columns = true
group = "billing"
retry_max_s = 1
stuck_after_s = 0.5
config.fetch.max.wait.ms = 100
spark.sql.shuffle.partitions = 4
spark.executor.memory = "2g"
sink = { type = "postgres", dsn = "postgresql://shop:${PW}@db/shop", table = "shop.orders" }
[pipelines.orders.guarantee]
delivery = "exactly-once"
[contract]
allow_settings = ["linger.max.ms"]
"""


def test_every_section_and_key_is_read_into_its_type(load: Load, tmp_path: Path) -> None:
    contract = load(WHOLE, {"PW": "hunter2"})

    assert contract.path == tmp_path / "lossless.toml"
    assert contract.folder == tmp_path
    assert contract.guarantee == Guarantee(
        delivery="at-least-once",
        order="none",
        pause_max_s=5.5,
        duplicates_max=0,
        survives={FaultKind.BROKER_CRASH: 2, FaultKind.POWER_LOSS: False},
    )
    cluster = contract.cluster
    assert (cluster.brokers, cluster.controllers, cluster.racks) == (5, 3, ("a", "b"))
    assert cluster.config == {
        "unclean.leader.election.enable": "false",
        "log.retention.hours": "72",
    }
    assert cluster.client == {"security.protocol": "SSL"}  # KAFKA is empty: no address
    assert list(contract.topics) == ["shop.orders", "payments"]
    topic = contract.topics["shop.orders"]
    assert (topic.name, topic.partitions, topic.replication_factor) == ("shop.orders", 6, 4)
    assert topic.config == {"min.insync.replicas": "2", "cleanup.policy": "compact,delete"}
    producer = contract.producers["shop"]
    assert (producer.name, producer.client) == ("shop", "java")
    assert producer.config == {"acks": "all", "enable.idempotence": "true"}
    consumer = contract.consumers["billing"]
    assert (consumer.client, consumer.commit) == ("librdkafka", "after-processing")
    assert consumer.config == {"auto.offset.reset": "earliest"}

    pipeline = contract.pipelines["orders"]
    assert pipeline.name == "orders"
    assert pipeline.topics == ("shop.orders", "payments")
    assert pipeline.topic_pattern is None
    assert pipeline.schema == tmp_path / "schemas" / "orders.json"
    assert pipeline.transform == "my_app.orders:clean"
    assert (pipeline.format, pipeline.mode) == ("json", "append")
    assert pipeline.start == datetime(2025, 1, 31, 12, tzinfo=UTC)
    assert pipeline.isolation == "read_uncommitted"
    assert (pipeline.records_per_batch_max, pipeline.trigger_s) == (10, 0.0)
    assert (pipeline.dead_letters_max, pipeline.add_columns) == (0, True)
    assert pipeline.group == "billing"
    assert (pipeline.retry_max_s, pipeline.stuck_after_s) == (1.0, 0.5)
    assert pipeline.config == {"fetch.max.wait.ms": "100"}
    assert pipeline.spark == {"spark.sql.shuffle.partitions": "4", "spark.executor.memory": "2g"}
    assert pipeline.sink == PostgresSinkContract(
        dsn="postgresql://shop:hunter2@db/shop", table="shop.orders"
    )
    assert pipeline.sink.type == "postgres"
    assert pipeline.guarantee.delivery == "exactly-once"
    assert pipeline.guarantee.survives == contract.guarantee.survives
    assert contract.allow_settings == ("linger.max.ms",)


def test_what_is_not_said_has_the_documented_default(load: Load, tmp_path: Path) -> None:
    contract = load(SMALLEST)

    assert contract.guarantee == Guarantee()
    assert contract.guarantee.delivery == "exactly-once"
    assert contract.guarantee.survives[FaultKind.BROKER_CRASH] == 1
    assert (contract.cluster.brokers, contract.cluster.controllers) == (3, 0)
    pipeline = contract.pipelines["orders"]
    assert pipeline.sink == DeltaSinkContract(path=str(tmp_path / "warehouse" / "orders"))
    assert pipeline.schema is None
    assert pipeline.start == "earliest"
    assert pipeline.isolation == "read_committed"
    assert pipeline.group == "lossless-orders"
    assert (pipeline.trigger_s, pipeline.retry_max_s, pipeline.stuck_after_s) == (1.0, 300.0, 60.0)
    assert pipeline.records_per_batch_max is None
    assert pipeline.dead_letters_max is None
    assert not pipeline.add_columns
    assert pipeline.guarantee == contract.guarantee


def test_what_a_client_commits_by_default_follows_the_client(load: Load) -> None:
    contract = load('[consumers.ours]\n[consumers.theirs]\nclient = "java"')
    assert contract.consumers["ours"].client == "lossless"
    assert contract.consumers["ours"].commit == "after-processing"
    assert contract.consumers["theirs"].commit == "auto"


def test_duplicates_are_limited_where_exactly_once_is_promised_or_none_may_be(load: Load) -> None:
    assert load("").guarantee.may_not_duplicate
    promise = '[guarantee]\ndelivery = "at-least-once"\n'
    assert not load(promise).guarantee.may_not_duplicate
    assert load(promise + "duplicates_max = 0").guarantee.may_not_duplicate
    overridden = load(SMALLEST + '[pipelines.orders.guarantee]\ndelivery = "at-least-once"')
    assert not overridden.pipelines["orders"].guarantee.may_not_duplicate
    assert overridden.guarantee.may_not_duplicate


def test_a_topic_is_replicated_three_times_or_as_often_as_there_are_brokers(load: Load) -> None:
    assert load("[topics.a]").topics["a"].replication_factor == 3
    assert load("[cluster]\nbrokers = 1\n[topics.a]").topics["a"].replication_factor == 1


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("s3a://bucket/orders", "s3a://bucket/orders"),
        ("/data/orders", "/data/orders"),
        ("file:///data/my%20orders", "/data/my orders"),
        ("file:/data/orders", "/data/orders"),
        ("../orders", "{parent}/orders"),
    ],
)
def test_a_delta_path_is_absolute_or_a_uri(
    load: Load, tmp_path: Path, written: str, kept: str
) -> None:
    contract = load(SMALLEST.replace("./warehouse/orders", written))
    assert contract.pipelines["orders"].sink == DeltaSinkContract(
        path=kept.format(parent=tmp_path.parent)
    )


def test_a_parquet_path_is_local(load: Load) -> None:
    contract = load(SMALLEST.replace("delta", "parquet").replace("./warehouse", "file:/data"))
    assert contract.pipelines["orders"].sink == ParquetSinkContract(path="/data/orders")


def test_ddl_is_told_from_a_file_name(load: Load, tmp_path: Path) -> None:
    def schema(text: str) -> str | Path | None:
        return (
            load(SMALLEST.replace('format = "raw"', f"schema = {text!r}"))
            .pipelines["orders"]
            .schema
        )

    assert schema("order_id BIGINT, customer STRING") == "order_id BIGINT, customer STRING"
    assert schema("schemas/orders.json") == tmp_path / "schemas" / "orders.json"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('"latest"', "latest"),
        ('"2025-01-31T12:00:00Z"', datetime(2025, 1, 31, 12, tzinfo=UTC)),
        ('"2025-01-31T13:00:00+01:00"', datetime(2025, 1, 31, 12, tzinfo=UTC)),
    ],
)
def test_a_start_is_a_word_or_a_moment(load: Load, written: str, read: object) -> None:
    text = SMALLEST.replace('format = "raw"', f'format = "raw"\nstart = {written}')
    assert load(text).pipelines["orders"].start == read


def test_a_properties_file_is_included_and_the_contract_wins(load: Load, tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text(
        "# ours\nacks=1\nlinger.ms: 5\nsasl.jaas.config=a \\\n  b;\n"
    )
    contract = load('[producers.shop]\nproperties = "client.properties"\nconfig.acks = "all"')
    assert contract.producers["shop"].config == {
        "acks": "all",
        "linger.ms": "5",
        "sasl.jaas.config": "a b;",
    }


def test_certificates_are_found_relative_to_the_contract(load: Load, tmp_path: Path) -> None:
    contract = load('[cluster]\nclient.ssl.truststore.location = "certs/ca.pem"')
    assert contract.cluster.client["ssl.truststore.location"] == str(tmp_path / "certs" / "ca.pem")


def test_an_empty_reference_is_not_given_but_a_literal_empty_string_is_a_value(
    load: Load,
) -> None:
    contract = load(
        '[cluster]\nclient.client.id = "${NOBODY:-}"\nclient.bootstrap.servers = ""\n'
        'client.ssl.endpoint.identification.algorithm = ""'
    )
    assert contract.cluster.client == {"ssl.endpoint.identification.algorithm": ""}


def test_the_contract_is_found_by_argument_then_variable_then_folder_then_parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer, inner, other = tmp_path / "outer", tmp_path / "outer" / "a" / "b", tmp_path / "other"
    inner.mkdir(parents=True)
    other.mkdir()
    (outer / "lossless.toml").write_text("[cluster]\nbrokers = 1")
    (other / "lossless.toml").write_text("[cluster]\nbrokers = 2")
    (other / "second.toml").write_text("[cluster]\nbrokers = 3")
    named = {"LOSSLESS_CONTRACT": str(other / "second.toml")}
    monkeypatch.chdir(inner)

    assert load_contract(environment={}).path == outer / "lossless.toml"
    assert load_contract(environment=named).cluster.brokers == 3
    assert load_contract(other, environment=named).cluster.brokers == 2  # a folder will do
    monkeypatch.chdir(other)
    assert find_contract(environment={}) == other / "lossless.toml"


def test_no_contract_is_none_to_find_and_an_error_to_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_contract(environment={}) is None
    with pytest.raises(ContractError, match=r"no lossless.toml here or in any folder above") as e:
        load_contract(environment={})
    assert "lossless init" in str(e.value)
    with pytest.raises(ContractError, match=r"no contract at gone.toml, named by LOSSLESS_CONTR"):
        find_contract(environment={"LOSSLESS_CONTRACT": "gone.toml"})
    with pytest.raises(ContractError, match=r"no contract at gone.toml"):
        load_contract(Path("gone.toml"), environment={})


def test_no_repr_shows_a_secret(load: Load) -> None:
    text = WHOLE + '[consumers.other]\nconfig.sasl.jaas.config = "password=\\"${PW}\\";"\n'
    assert "hunter2" not in repr(load(text, {"PW": "hunter2"}))
