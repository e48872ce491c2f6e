"""What clients count, as Prometheus reads it."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from lossless.client.metrics import ConsumerMetrics, ProducerMetrics, PrometheusCollector


@pytest.fixture
def registry() -> CollectorRegistry:
    producer = ProducerMetrics(client="shop", sent=7, acknowledged=5, retries_left_s=1.5)
    consumer = ConsumerMetrics(group="billing", received=3, processing_s=0.25)
    consumer.lag = {"orders-0": 4, "eu-orders-12": 0}
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(producer, consumer))
    return registry


def test_every_number_is_exposed_with_its_kind_and_what_it_says(
    registry: CollectorRegistry,
) -> None:
    families = {
        family.name: family
        for family in text_string_to_metric_families(generate_latest(registry).decode())
    }
    for prefix, kind in (
        ("lossless_producer_", ProducerMetrics),
        ("lossless_consumer_", ConsumerMetrics),
    ):
        for known in fields(kind):
            if known.metadata:
                family = families[
                    prefix + known.name.removesuffix("_s") + "_seconds" * known.name.endswith("_s")
                ]
                assert family.type == known.metadata["kind"]
                assert family.documentation == known.metadata["says"]
    assert registry.get_sample_value("lossless_producer_sent_total", {"client": "shop"}) == 7
    assert (
        registry.get_sample_value("lossless_producer_retries_left_seconds", {"client": "shop"})
        == 1.5
    )
    assert (
        registry.get_sample_value(
            "lossless_consumer_processing_seconds_total", {"group": "billing"}
        )
        == 0.25
    )


def test_lag_is_told_by_partition_also_of_topics_with_dashes(registry: CollectorRegistry) -> None:
    def lag(topic: str, partition: str) -> float | None:
        return registry.get_sample_value(
            "lossless_consumer_lag",
            {"group": "billing", "topic": topic, "partition": partition},
        )

    assert lag("orders", "0") == 4
    assert lag("eu-orders", "12") == 0


def test_several_clients_share_a_family_and_differ_by_their_label() -> None:
    first, second = ProducerMetrics(client="one"), ProducerMetrics(client="two")
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(first, second))
    first.sent += 1
    second.sent += 2
    for client, sent in (("one", 1), ("two", 2)):
        assert registry.get_sample_value("lossless_producer_sent_total", {"client": client}) == sent
    assert generate_latest(registry).decode().count("# TYPE lossless_producer_sent_total") == 1


def test_a_snapshot_does_not_change_with_what_is_counted_later() -> None:
    metrics = ConsumerMetrics(group="billing")
    before = {metric.name: metric.value for metric in metrics.snapshot()}
    metrics.received += 1
    assert before["lossless_consumer_received"] == 0


def test_names_are_as_prometheus_wants_them() -> None:
    for metric in [
        *ProducerMetrics(client="shop").snapshot(),
        *ConsumerMetrics(group="billing").snapshot(),
    ]:
        assert re.fullmatch(r"lossless_(producer|consumer)_[a-z_]+", metric.name)
        assert not metric.name.endswith("_total")  # prometheus_client adds it to counters
        assert metric.says.endswith(".")
