"""Where the embedded cluster has other values than Kafka unless it is told: the whole list.

They become static properties of its brokers, below what the user sets. So every tool that describes
a broker shows both: what counts here, and Kafka's default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from lossless.core.settings.brokers import BROKERS
from lossless.core.settings.kinds import problem

_FEWER = "a cluster on one machine starts sooner with fewer internal partitions"
_REPLICATED = "as many replicas as Kafka advises, if there are as many brokers"
_SOON = "on one machine messages arrive within a millisecond, so an election need not take seconds"


class Deviation(NamedTuple):
    name: str
    value: Callable[[int, Mapping[str, str]], str | None]  # of brokers and what the user sets
    rule: str  # the value in words
    reason: str


def _always(text: str) -> Callable[[int, Mapping[str, str]], str | None]:
    return lambda brokers, properties: text  # noqa: ARG005


def _at_most(most: int) -> Callable[[int, Mapping[str, str]], str | None]:
    return lambda brokers, properties: str(min(most, brokers))  # noqa: ARG005


def _fifth_of_session(_brokers: int, properties: Mapping[str, str]) -> str | None:
    name = "broker.session.timeout.ms"
    text = properties.get(name)
    if text is None or problem(BROKERS[name], text) is not None:
        return None
    return str(max(1, int(text) // 5))


DEVIATIONS = (
    Deviation(
        "default.replication.factor", _at_most(3), "3, or as many as there are brokers", _REPLICATED
    ),
    Deviation(
        "group.initial.rebalance.delay.ms",
        _always("0"),
        "0",
        "a group in a test or on a laptop starts at once; nobody else is about to join",
    ),
    Deviation(
        "group.coordinator.rebalance.protocols",
        _always("classic,consumer"),
        "classic,consumer",
        "streams groups are not served",
    ),
    Deviation("offsets.topic.num.partitions", _always("8"), "8", _FEWER),
    Deviation(
        "offsets.topic.replication.factor",
        _at_most(3),
        "3, or as many as there are brokers",
        _REPLICATED,
    ),
    Deviation("transaction.state.log.num.partitions", _always("8"), "8", _FEWER),
    Deviation(
        "transaction.state.log.replication.factor",
        _at_most(3),
        "3, or as many as there are brokers",
        _REPLICATED,
    ),
    Deviation(
        "transaction.state.log.min.isr",
        _at_most(2),
        "2, or 1 if there is one broker",
        "a single broker could not write with two",
    ),
    Deviation("controller.quorum.election.timeout.ms", _always("100"), "100", _SOON),
    Deviation("controller.quorum.election.backoff.max.ms", _always("100"), "100", _SOON),
    Deviation(
        "controller.quorum.fetch.timeout.ms",
        _always("500"),
        "500",
        "a dead controller is replaced within a second; less, and one that waits for a busy "
        "processor would be taken for dead",
    ),
    Deviation(
        "broker.heartbeat.interval.ms",
        _fifth_of_session,
        "a fifth of broker.session.timeout.ms, if only that is set",
        "a shorter session needs more frequent heartbeats, and Kafka does not derive one from it",
    ),
    Deviation(
        "replica.fetch.backoff.ms",
        _always("100"),
        "100",
        "a follower that loses its leader finds the next one sooner",
    ),
)


def with_deviations(properties: Mapping[str, str], *, brokers: int) -> dict[str, str]:
    """The static properties of a broker in a cluster of so many, from what the user sets."""
    ours = {one.name: one.value(brokers, properties) for one in DEVIATIONS}
    return {name: text for name, text in ours.items() if text is not None} | dict(properties)
