"""What a client counts, and how Prometheus reads it.

Numbers are plain attributes that their owner's thread changes; whoever reads them takes a
`snapshot()`. `PrometheusCollector` gives snapshots to prometheus_client, when that is installed:

    prometheus_client.REGISTRY.register(PrometheusCollector(producer.metrics, consumer.metrics))
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol

from lossless.extras import require_extra

MetricKind = Literal["counter", "gauge"]


def _metric(kind: MetricKind, says: str) -> Any:
    return field(default=0, metadata={"kind": kind, "says": says})


@dataclass(frozen=True, slots=True)
class Metric:
    name: str  # as Prometheus has it, without _total
    kind: MetricKind
    says: str
    value: float
    labels: Mapping[str, str]


class Measured(Protocol):
    """Whatever has numbers to show."""

    def snapshot(self) -> list[Metric]: ...


@dataclass(slots=True)
class ProducerMetrics:
    client: str
    sent: int = _metric("counter", "Records given to send.")
    acknowledged: int = _metric("counter", "Records that Kafka acknowledged.")
    failed: int = _metric("counter", "Records that were given up; what is parked is not.")
    retried: int = _metric("counter", "Requests that were sent again.")
    retries_left_s: float = _metric("gauge", "Seconds until the oldest record is given up.")
    dropped: int = _metric("counter", "Records given up and dropped, as the policy says.")
    dead_lettered: int = _metric("counter", "Records given up and sent to a dead letter topic.")
    parked: int = _metric("gauge", "Records in the spool, waiting to be sent again.")
    parked_bytes: int = _metric("gauge", "Bytes in the spool.")
    in_flight: int = _metric("gauge", "Records sent and not answered yet.")

    def snapshot(self) -> list[Metric]:
        return _snapshot(self, "lossless_producer_", {"client": self.client})


@dataclass(slots=True)
class ConsumerMetrics:
    group: str
    received: int = _metric("counter", "Records read from Kafka.")
    finished: int = _metric("counter", "Records that are done with: processed well, or sent on.")
    failed: int = _metric("counter", "Attempts that raised.")
    retried: int = _metric("counter", "Attempts after the first.")
    forwarded: int = _metric("counter", "Records sent on to a retry topic.")
    dead_lettered: int = _metric("counter", "Records sent to a dead letter topic.")
    commits: int = _metric("counter", "Commits of offsets that succeeded.")
    commits_failed: int = _metric("counter", "Commits of offsets that failed.")
    rebalances: int = _metric("counter", "Times that partitions came or went.")
    jumps: int = _metric("counter", "Times that a position was moved by policy.")
    buffered: int = _metric("gauge", "Records read and not finished.")
    paused: int = _metric("gauge", "Partitions paused because enough is buffered.")
    processing_s: float = _metric("counter", "Seconds spent in handlers.")
    lag: dict[str, int] = field(default_factory=dict)  # by "topic-partition"

    def snapshot(self) -> list[Metric]:
        found = _snapshot(self, "lossless_consumer_", {"group": self.group})
        for place, lag in list(self.lag.items()):
            topic, _, partition = place.rpartition("-")
            labels = {"group": self.group, "topic": topic, "partition": partition}
            says = "Records between what is committed and the end of the partition."
            found.append(Metric("lossless_consumer_lag", "gauge", says, lag, labels))
        return found


class PrometheusCollector:
    """A collector for prometheus_client's registry."""

    def __init__(self, *measured: Measured) -> None:
        self._measured = measured

    def collect(self) -> Iterator[Any]:
        require_extra("metrics")
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        families: dict[str, Any] = {}
        for metric in [found for measured in self._measured for found in measured.snapshot()]:
            family = families.get(metric.name)
            if family is None:
                kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
                family = kind(metric.name, metric.says, labels=list(metric.labels))
                families[metric.name] = family
            family.add_metric(list(metric.labels.values()), metric.value)
        yield from families.values()


def _snapshot(measured: Any, prefix: str, labels: Mapping[str, str]) -> list[Metric]:
    return [
        Metric(
            prefix + re.sub("_s$", "_seconds", known.name),  # Prometheus spells units out
            known.metadata["kind"],
            known.metadata["says"],
            getattr(measured, known.name),
            labels,
        )
        for known in fields(measured)
        if known.metadata
    ]
