"""What is wrong with a pipeline is said before Spark starts: here there is no Java to start it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.command import lossless

PIPELINES = """
[cluster]
client.bootstrap.servers = "127.0.0.1:1"
[pipelines.good]
topics = ["orders"]
format = "raw"
sink = {{ type = "delta", path = "good" }}
[pipelines.orders]
topics = ["orders"]
schema = "orders.json"
{line}
sink = {{ type = "delta", path = "orders" }}
"""
SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}}}


@pytest.mark.parametrize("names", [("orders",), ("good", "orders")], ids=" ".join)
@pytest.mark.parametrize(
    ("schema", "line", "message"),
    [
        ({**SCHEMA, "oneOf": []}, "", "oneOf"),
        (SCHEMA, 'transform = "no_such_module:clean"', "no module 'no_such_module'"),
        (SCHEMA, 'transform = "json.no_such:clean"', "no module 'json.no_such'"),
    ],
)
def test_a_mistake_in_a_pipeline_needs_no_spark_to_be_found(
    tmp_path: Path, schema: dict[str, object], line: str, message: str, names: tuple[str, ...]
) -> None:
    (tmp_path / "lossless.toml").write_text(PIPELINES.format(line=line))
    (tmp_path / "orders.json").write_text(json.dumps(schema))
    answer = lossless(tmp_path, "run", "--once", *names, PATH="", JAVA_HOME="")
    assert answer.returncode == 2, answer.stderr
    assert message in answer.stderr
    assert "Java" not in answer.stderr


@pytest.mark.parametrize("names", [("orders",), ("good", "orders")], ids=" ".join)
def test_a_module_is_looked_for_without_being_run(tmp_path: Path, names: tuple[str, ...]) -> None:
    """It may define UDFs, which need a session; then Kafka is the first that is missing."""
    (tmp_path / "lossless.toml").write_text(PIPELINES.format(line='transform = "orders_:clean"'))
    (tmp_path / "orders.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "orders_.py").write_text("raise SystemExit('it was run')")
    answer = lossless(tmp_path, "run", "--once", *names, PATH="", JAVA_HOME="")
    assert answer.returncode == 4
    assert "127.0.0.1:1" in answer.stderr
    assert "it was run" not in answer.stderr
