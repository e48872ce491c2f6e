"""`lossless run` with bad input: one helpful message, its exit code, and no output files."""

from __future__ import annotations

import subprocess
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from command import lossless

from postgres_server import PostgresServer
from topics import create_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRANSFORMS = """
from pyspark.sql import functions as F

def drops_provenance(rows):
    return rows.select("number")

def raises(rows):
    raise RuntimeError("no such rate")

def raises_on_every_record(rows):
    return rows.withColumn("number", F.raise_error(F.lit("no such rate")))
"""


@pytest.fixture(scope="module")
def topic(lossless_cluster: Any) -> str:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    create_topic(lossless_cluster.bootstrap_servers, name, partitions=1)
    produce(
        lossless_cluster.bootstrap_servers,
        name,
        ((0, None, b'{"number": %d}' % number) for number in range(10)),
    )
    return name


class Shop:
    """A folder with a contract of one pipeline, in which the command runs."""

    def __init__(self, folder: Path, bootstrap_servers: str, topic: str) -> None:
        self.folder = folder
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        (folder / "transforms.py").write_text(TRANSFORMS)

    def run(
        self,
        lines: str = "",
        *,
        topic: str | None = None,
        sink: str = 'type = "parquet"\npath = "./table"',
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        (self.folder / "lossless.toml").write_text(
            f"""
[cluster]
client.bootstrap.servers = "{self._bootstrap_servers}"
[pipelines.orders]
topics = ["{topic or self._topic}"]
format = "json"
schema = "number BIGINT NOT NULL"
{lines}
[pipelines.orders.sink]
{sink}
"""
        )
        return lossless(self.folder, "run", "--once", "--master", "local[2]", **environment)

    def written(self) -> set[str]:
        ours = {"lossless.toml", "transforms.py", "__pycache__", ".lossless"}
        return {entry.name for entry in self.folder.iterdir()} - ours


@pytest.fixture
def shop(tmp_path: Path, lossless_cluster: Any, topic: str) -> Shop:
    return Shop(tmp_path, lossless_cluster.bootstrap_servers, topic)


def message_of(answer: subprocess.CompletedProcess[str], code: int) -> str:
    """Returns the message; asserts the exit code and that there is no other output."""
    assert answer.returncode == code, answer.stderr
    assert "Traceback" not in answer.stderr
    assert answer.stdout == ""
    return answer.stderr


def test_an_unknown_key_is_named_in_the_message(shop: Shop) -> None:
    message = message_of(shop.run("shcema_file = 'x'"), 2)
    assert "shcema_file" in message
    assert "lossless.toml" in message
    assert shop.written() == set()


def test_a_missing_topic_is_named(shop: Shop) -> None:
    assert "no-such-topic" in message_of(shop.run(topic="no-such-topic"), 2)
    assert shop.written() == set()


def test_an_exception_of_a_transform_appears_in_the_message(shop: Shop) -> None:
    message = message_of(shop.run('transform = "transforms:raises"'), 2)
    assert "transforms:raises" in message
    assert "no such rate" in message
    assert shop.written() == set()


@pytest.mark.full
def test_a_transform_that_fails_on_every_record_commits_no_row(
    shop: Shop, spark: SparkSession
) -> None:
    message = message_of(shop.run('transform = "transforms:raises_on_every_record"'), 2)
    assert "no such rate" in message
    assert spark.read.parquet(str(shop.folder / "table")).isEmpty()


def test_a_transform_that_drops_provenance_is_refused_with_the_column_name(shop: Shop) -> None:
    message = message_of(shop.run('transform = "transforms:drops_provenance"'), 2)
    assert "transforms:drops_provenance" in message
    assert "_lossless" in message
    assert shop.written() == set()


def test_a_table_with_another_schema_is_left_unchanged(shop: Shop, spark: SparkSession) -> None:
    path = str(shop.folder / "table")
    spark.sql("SELECT 'ten' AS number").write.format("delta").save(path)
    message = message_of(shop.run(sink='type = "delta"\npath = "./table"'), 2)
    assert "number" in message
    assert [row["number"] for row in spark.read.format("delta").load(path).collect()] == ["ten"]


@pytest.mark.parametrize("sink", ["parquet", "delta"])
def test_a_path_without_permission_is_named(shop: Shop, sink: str) -> None:
    # Not even root may make a folder there.
    message = message_of(shop.run(sink=f'type = "{sink}"\npath = "/sys/lossless"'), 2)
    assert "/sys/lossless" in message
    assert shop.written() == set()


def test_a_wrong_password_does_not_appear_in_the_message(
    shop: Shop, postgres_server: PostgresServer
) -> None:
    database = postgres_server.create_database()
    dsn = postgres_server.dsn(database)
    wrong = postgres_server.dsn(database, password="a-wrong-one")
    message = message_of(shop.run(sink=f'type = "postgres"\ndsn = "{wrong}"\ntable = "orders"'), 2)
    assert "password authentication failed" in message
    assert "a-wrong-one" not in message
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT to_regclass('orders')").fetchone() == (None,)


def test_without_java_the_message_says_what_to_install(shop: Shop) -> None:
    message = message_of(shop.run(PATH="", JAVA_HOME=""), 4)
    assert "Java" in message
    assert "install" in message
    assert shop.written() == set()


def test_missing_jars_without_a_network_are_named_in_the_message(
    shop: Shop, tmp_path: Path
) -> None:
    nowhere = tmp_path / "nowhere.xml"
    nowhere.write_text(
        '<ivysettings><settings defaultResolver="r"/><resolvers>'
        f'<filesystem name="r"><artifact pattern="{tmp_path}/none/[artifact]"/></filesystem>'
        "</resolvers></ivysettings>"
    )
    message = message_of(
        shop.run(LOSSLESS_JARS=str(tmp_path / "none"), LOSSLESS_IVY_SETTINGS=str(nowhere)), 4
    )
    assert "jars" in message
    assert not (shop.folder / "table").exists()
