"""What Spark's Kafka sources are told: our defaults, and the contract's word over them."""

from __future__ import annotations

from lossless.pipeline.source import consumer_options


def test_a_task_does_not_wait_at_the_end_of_the_log_unless_told_to() -> None:
    assert consumer_options({})["kafka.fetch.max.wait.ms"] == "10"
    told = consumer_options({"fetch.max.wait.ms": "500", "client.id": "ours"})
    assert told["kafka.fetch.max.wait.ms"] == "500"
    assert told["kafka.client.id"] == "ours"
