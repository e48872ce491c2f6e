"""Contradictions in the settings of clients: found by the rules, and as the clients see them."""

from __future__ import annotations

import re
from typing import Any

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossless.contract.faults import FaultKind
from lossless.contract.rules import (
    CONSUMER_RULES,
    PRODUCER_RULES,
    consumer_contradictions,
    producer_contradictions,
    refuse,
)
from lossless.contract.values import Delivery, Guarantee
from lossless.errors import BadInput

TRANSACTIONAL = {"transactional.id": "shop"}
PROMISED = {"delivery": "at-least-once"}
EXACTLY = {"delivery": "exactly-once"}
GROUP = {"group.id": "billing"}
LIBRDKAFKA: dict[str, Any] = {"client": "librdkafka"}
JAVA: dict[str, Any] = {"client": "java"}


def promise(delivery: Delivery = "exactly-once", **of_guarantee: Any) -> dict[str, Any]:
    duplicates = {"duplicates_max": 0 if delivery == "exactly-once" else None}
    given = {"order": "none", **duplicates, **of_guarantee}
    return {"guarantee": Guarantee(delivery=delivery, **given)}


BROKER = {FaultKind.BROKER_CRASH: 1}
CUT = {FaultKind.CLIENT_DISCONNECT: True}
UNSAFE = {"acks": "1", "enable.idempotence": "false"}

PRODUCERS: list[tuple[dict[str, object], dict[str, Any], set[str]]] = [
    ({}, {}, set()),
    ({}, {**EXACTLY, "order": "per-key"}, set()),
    ({"acks": "all", "enable.idempotence": "true"}, {}, set()),
    ({"acks": -1, "enable.idempotence": True, "retries": 2147483647}, {}, set()),
    ({"acks": "1"}, {}, {"idempotence-needs-acks"}),
    ({"request.required.acks": "1"}, {}, {"idempotence-needs-acks"}),
    ({"acks": "1", "enable.idempotence": "true"}, LIBRDKAFKA, {"idempotence-needs-acks"}),
    ({"acks": "1", "enable.idempotence": "true"}, JAVA, {"idempotence-needs-acks"}),
    ({"acks": "1"}, LIBRDKAFKA, set()),
    ({"acks": "1", "enable.idempotence": "false"}, {}, set()),
    ({"acks": "1", "enable.idempotence": "false"}, PROMISED, {"promise-needs-acks"}),
    ({"acks": "1", "enable.idempotence": "false"}, {"delivery": "at-most-once"}, set()),
    ({"acks": "0", "enable.idempotence": "false"}, {}, {"nobody-says-that-it-arrived"}),
    ({"acks": "0"}, LIBRDKAFKA, set()),
    ({"acks": "1"}, JAVA, {"idempotence-silently-off"}),
    ({"retries": "0"}, JAVA, {"idempotence-silently-off"}),
    ({"acks": "1", "enable.idempotence": "false"}, JAVA, set()),
    ({"max.in.flight": "6"}, {}, {"idempotence-in-flight"}),
    ({"max.in.flight.requests.per.connection": "6"}, JAVA, {"idempotence-silently-off"}),
    ({**TRANSACTIONAL, "max.in.flight": "6"}, LIBRDKAFKA, {"idempotence-in-flight"}),
    ({"retries": "0"}, {}, {"idempotence-needs-retries"}),
    ({"message.send.max.retries": "0"}, {}, {"idempotence-needs-retries"}),
    ({"retries": "0"}, LIBRDKAFKA, set()),
    ({"retries": "0"}, {**LIBRDKAFKA, **PROMISED}, {"promise-needs-retries"}),
    ({}, {**LIBRDKAFKA, **EXACTLY}, {"exactly-once-needs-idempotence"}),
    ({}, {**JAVA, **EXACTLY}, set()),
    (TRANSACTIONAL, {}, set()),
    (TRANSACTIONAL, LIBRDKAFKA, set()),
    (
        {**TRANSACTIONAL, "enable.idempotence": "false"},
        LIBRDKAFKA,
        {"transactions-need-idempotence"},
    ),
    (
        {**TRANSACTIONAL, "acks": "1"},
        JAVA,
        {"idempotence-silently-off", "transactions-need-idempotence"},
    ),
    ({**TRANSACTIONAL, "delivery.timeout.ms": "90000"}, {}, {"transaction-outlives-delivery"}),
    ({**TRANSACTIONAL, "message.timeout.ms": "0"}, {}, {"transaction-outlives-delivery"}),
    (
        {**TRANSACTIONAL, "delivery.timeout.ms": "90000", "transaction.timeout.ms": "90000"},
        {},
        set(),
    ),
    ({"delivery.timeout.ms": "5", "linger.ms": "5"}, {}, {"time-for-one-attempt"}),
    ({"delivery.timeout.ms": "6", "linger.ms": "5"}, {}, set()),
    ({"delivery.timeout.ms": "0", "linger.ms": "5"}, {}, set()),
    ({"delivery.timeout.ms": "1000", "request.timeout.ms": "2000"}, {}, {"time-for-one-attempt"}),
    ({"delivery.timeout.ms": "20000"}, JAVA, {"time-for-one-attempt"}),
    ({"delivery.timeout.ms": "30005"}, JAVA, set()),
    ({"enable.idempotence": "false"}, {"order": "per-key"}, {"retry-reorders"}),
    ({}, {**LIBRDKAFKA, "order": "per-partition"}, {"retry-reorders"}),
    ({"max.in.flight": "1"}, {**LIBRDKAFKA, "order": "per-partition"}, set()),
    ({"retries": "0"}, {**LIBRDKAFKA, "order": "per-partition"}, set()),
    ({"queuing.strategy": "lifo"}, {}, {"last-in-first-out"}),
    ({"queuing.strategy": "lifo"}, LIBRDKAFKA, set()),
    ({"partitioner": "random"}, {"order": "per-key"}, {"keys-scattered"}),
    ({"partitioner": "random"}, {"order": "per-partition"}, set()),
    ({"partitioner.ignore.keys": "true"}, {**JAVA, "order": "per-key"}, {"keys-scattered"}),
    ({"delivery.report.only.error": "true"}, {}, {"successes-unreported"}),
    (UNSAFE, promise("at-least-once", survives=BROKER), {"promise-needs-acks"}),
    (UNSAFE, promise("at-least-once", survives=CUT), set()),
    (UNSAFE, promise("at-most-once", survives=BROKER), set()),
    ({**UNSAFE, "acks": "0"}, {**JAVA, **promise("at-least-once", survives={})}, set()),
    (
        {**UNSAFE, "acks": "0"},
        {**JAVA, **promise("at-least-once", survives=CUT)},
        {"promise-needs-acks"},
    ),
    (
        {"enable.idempotence": "false"},
        promise("at-least-once", duplicates_max=0),
        {"exactly-once-needs-idempotence"},
    ),
    ({"enable.idempotence": "false"}, promise("at-least-once", duplicates_max=None), set()),
    (
        {"enable.idempotence": "false", "retries": "0"},
        promise("at-most-once", duplicates_max=0),
        set(),
    ),
    ({"delivery.timeout.ms": "30000"}, promise(), {"given-up-during-a-failover"}),
    ({"delivery.timeout.ms": "30001"}, promise(), set()),
    ({"delivery.timeout.ms": "0"}, promise(), set()),
    ({"delivery.timeout.ms": "30000"}, promise(pause_max_s=10.0), set()),
    ({"delivery.timeout.ms": "30000"}, promise(survives=CUT), {"given-up-during-a-failover"}),
    ({"delivery.timeout.ms": "30000"}, promise(survives={}), set()),
    ({}, {**JAVA, **promise(pause_max_s=120.0)}, {"given-up-during-a-failover"}),
    ({}, promise(pause_max_s=500.0), set()),  # the reliable producer's own default follows
    ({"acks": "2"}, {}, {"misread"}),
    ({"acks": "most"}, {}, {"misread"}),
    ({"retries": "many"}, {}, {"misread"}),
    ({"enable.idempotence": "yes"}, {}, {"misread"}),
    ({"compression.type": "zstandard"}, {}, {"misread"}),
    ({"partitioner": "murmur3"}, {}, {"misread"}),
    ({"linger.ms": "5", "queue.buffering.max.ms": "50"}, {}, {"misread"}),
    ({"linger.ms": "5", "queue.buffering.max.ms": "5"}, {}, set()),
]

CONSUMERS: list[tuple[dict[str, object], dict[str, Any], set[str]]] = [
    (GROUP, {}, set()),
    ({}, {}, {"group-missing"}),
    ({"group.id": ""}, {}, {"group-missing"}),
    ({**GROUP, "enable.auto.commit": "true"}, {}, {"committed-unprocessed"}),
    ({**GROUP, "enable.auto.commit": False}, {}, set()),
    (GROUP, LIBRDKAFKA, {"committed-unprocessed"}),
    (GROUP, JAVA, {"committed-unprocessed"}),
    ({**GROUP, "enable.auto.offset.store": "false"}, LIBRDKAFKA, set()),
    ({**GROUP, "enable.auto.offset.store": "true"}, {}, {"stored-unprocessed"}),
    (GROUP, {**LIBRDKAFKA, "commit": "auto"}, set()),
    (
        {**GROUP, "auto.offset.reset": "earliest"},
        {**LIBRDKAFKA, **PROMISED, "commit": "auto"},
        {"promise-needs-commit-after"},
    ),
    (
        {**GROUP, "auto.offset.reset": "earliest"},
        {**JAVA, **PROMISED, "commit": "auto"},
        set(),
    ),
    (
        {**GROUP, "auto.offset.reset": "earliest"},
        {**JAVA, **PROMISED, "commit": "auto", "workers": 4},
        {"promise-needs-commit-after"},
    ),
    (
        {**GROUP, "enable.auto.commit": "false", "auto.offset.reset": "earliest"},
        {**LIBRDKAFKA, **PROMISED, "commit": "before-processing"},
        {"promise-needs-commit-after"},
    ),
    (GROUP, {"processing_s_max": 299}, set()),
    (GROUP, {"processing_s_max": 300}, {"longer-than-the-poll-interval"}),
    (GROUP, {"processing_s_max": 3600, "workers": 2}, set()),
    (GROUP, {"processing_s_max": 3600, "polls_meanwhile": True}, set()),
    (
        {**GROUP, "enable.auto.commit": "false"},
        {**JAVA, "processing_s_max": 1},
        {"longer-than-the-poll-interval"},
    ),
    (
        {**GROUP, "enable.auto.commit": "false", "max.poll.records": "100"},
        {**JAVA, "processing_s_max": 1},
        set(),
    ),
    ({**GROUP, "max.poll.interval.ms": "30000"}, {}, {"poll-interval-below-session"}),
    (
        {**GROUP, "max.poll.interval.ms": "30000", "session.timeout.ms": "10000"},
        {},
        set(),
    ),
    ({**GROUP, "heartbeat.interval.ms": "45000"}, {}, {"heartbeat-reaches-session"}),
    ({**GROUP, "group.protocol": "consumer"}, {}, set()),
    (
        {**GROUP, "group.protocol": "consumer", "session.timeout.ms": "9000"},
        {},
        {"brokers-decide"},
    ),
    (
        {**GROUP, "group.protocol": "consumer", "partition.assignment.strategy": "range"},
        {},
        {"brokers-decide"},
    ),
    (
        {**GROUP, "group.protocol": "consumer", "heartbeat.interval.ms": "90000"},
        {},
        {"brokers-decide"},
    ),
    (
        {**GROUP, "group.remote.assignor": "uniform"},
        {},
        {"assignor-of-the-other-protocol"},
    ),
    ({**GROUP, "auto.offset.reset": "latest"}, {}, {"policy-replaces-reset"}),
    ({**GROUP, "auto.offset.reset": "earliest"}, {}, {"policy-replaces-reset"}),
    ({**GROUP, "auto.offset.reset": "none"}, {}, set()),
    (
        {**GROUP, "enable.auto.commit": "false"},
        {**JAVA, **PROMISED},
        {"latest-skips"},
    ),
    (
        {**GROUP, "enable.auto.commit": "false", "auto.offset.reset": "earliest"},
        {**JAVA, **EXACTLY},
        {"uncommitted-read"},
    ),
    ({**GROUP, "isolation.level": "read_uncommitted"}, EXACTLY, {"uncommitted-read"}),
    ({**GROUP, "isolation.level": "read_uncommitted"}, PROMISED, set()),
    (
        {**GROUP, "isolation.level": "read_uncommitted"},
        promise("at-least-once", duplicates_max=0),
        {"uncommitted-read"},
    ),
    (GROUP, {"commit": "auto"}, {"reliable-consumer-commits-after"}),
    (GROUP, {"commit": "before-processing"}, {"reliable-consumer-commits-after"}),
    (
        {**GROUP, "enable.auto.commit": "false", "auto.offset.reset": "earliest"},
        {**LIBRDKAFKA, "commit": "before-processing", **promise(survives=BROKER)},
        set(),
    ),
    (
        {**GROUP, "enable.auto.commit": "false", "auto.offset.reset": "earliest"},
        {**LIBRDKAFKA, "commit": "before-processing", **promise()},
        {"promise-needs-commit-after"},
    ),
    ({**GROUP, "auto.offset.reset": "earliest"}, promise(), set()),
    ({**GROUP, "auto.offset.reset": "latest"}, promise(), {"latest-skips"}),
    ({**GROUP, "auto.offset.reset": "latest"}, promise("at-most-once"), set()),
    ({**GROUP, "group.instance.id": "a"}, {}, set()),
    ({**GROUP, "group.instance.id": "a"}, {"members": 3}, {"instance-shared"}),
    ({**GROUP, "session.timeout.ms": "long"}, {}, {"misread"}),
    ({**GROUP, "auto.offset.reset": "erliest"}, {}, {"misread", "policy-replaces-reset"}),
]


@pytest.mark.parametrize(("settings", "promises", "expected"), PRODUCERS)
def test_producer_settings_that_contradict_are_found_and_no_others(
    settings: dict[str, object], promises: dict[str, Any], expected: set[str]
) -> None:
    found = producer_contradictions(settings, **promises)
    assert {each.rule for each in found} == expected
    assert all(each.reason and each.fix and each.settings for each in found)


@pytest.mark.parametrize(("settings", "promises", "expected"), CONSUMERS)
def test_consumer_settings_that_contradict_are_found_and_no_others(
    settings: dict[str, object], promises: dict[str, Any], expected: set[str]
) -> None:
    found = consumer_contradictions(settings, **promises)
    assert {each.rule for each in found} == expected
    assert all(each.reason and each.fix and each.settings for each in found)


def test_every_rule_is_shown_by_a_case_and_keeps_a_claim() -> None:
    shown = {name for _, _, names in (*PRODUCERS, *CONSUMERS) for name in names}
    for rule in (*PRODUCER_RULES, *CONSUMER_RULES):
        assert rule.name in shown
        assert rule.says.endswith(".")
        assert all(re.fullmatch(r"[RPC]\d+|(KAFKA|KIP)-\d+", claim) for claim in rule.claims)
        assert rule.claims


@pytest.mark.parametrize(
    ("settings", "expected"),
    [(each, names) for each, promises, names in PRODUCERS if promises == LIBRDKAFKA]
    + [
        ({"enable.idempotence": "true", "max.in.flight": "6"}, {"idempotence-in-flight"}),
        ({"enable.idempotence": "true", "retries": "0"}, {"idempotence-needs-retries"}),
        ({"enable.idempotence": "true", "queuing.strategy": "lifo"}, {"last-in-first-out"}),
        ({**TRANSACTIONAL, "delivery.timeout.ms": "90000"}, {"transaction-outlives-delivery"}),
        ({"delivery.timeout.ms": "5", "linger.ms": "5"}, {"time-for-one-attempt"}),
        ({"delivery.timeout.ms": "6", "linger.ms": "5"}, set()),
        ({"compression.type": "zstandard"}, {"misread"}),
    ],
)
def test_librdkafka_refuses_a_producer_exactly_where_the_rules_do(
    settings: dict[str, Any], expected: set[str]
) -> None:
    found = {each.rule for each in producer_contradictions(settings, client="librdkafka")}
    assert found == expected
    if expected:
        with pytest.raises(confluent_kafka.KafkaException):
            confluent_kafka.Producer(settings)
    else:
        confluent_kafka.Producer(settings)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (GROUP, set()),
        ({}, {"group-missing"}),
        ({**GROUP, "max.poll.interval.ms": 30000}, {"poll-interval-below-session"}),
        (
            {**GROUP, "group.protocol": "consumer", "session.timeout.ms": 9000},
            {"brokers-decide"},
        ),
        (
            {**GROUP, "group.protocol": "consumer", "heartbeat.interval.ms": 900},
            {"brokers-decide"},
        ),
        ({**GROUP, "group.protocol": "consumer"}, set()),
        ({**GROUP, "isolation.level": "none"}, {"misread"}),
    ],
)
def test_librdkafka_refuses_a_consumer_exactly_where_the_rules_do(
    settings: dict[str, Any], expected: set[str]
) -> None:
    found = {
        each.rule for each in consumer_contradictions(settings, client="librdkafka", commit="auto")
    }
    assert found == expected
    if expected:
        with pytest.raises((confluent_kafka.KafkaException, ValueError)):
            confluent_kafka.Consumer(settings)
    else:
        confluent_kafka.Consumer(settings).close()


def test_nothing_is_refused_when_nothing_contradicts() -> None:
    refuse([])


def test_one_contradiction_is_refused_with_its_reason_and_its_fix() -> None:
    with pytest.raises(BadInput) as refused:
        refuse(producer_contradictions({"acks": "1"}), where="producers.shop")
    assert refused.value.what.startswith("producers.shop: acks = 1 with enable.idempotence = true")
    assert refused.value.hint is not None
    assert "acks = all" in refused.value.hint


def test_several_contradictions_are_refused_together_each_with_its_fix() -> None:
    found = producer_contradictions({"acks": "1", "max.in.flight": "10", "retries": "0"})
    assert len(found) == 3
    with pytest.raises(BadInput) as refused:
        refuse(found)
    told = str(refused.value)
    assert "3 contradictions" in told
    assert all(each.reason in told and each.fix in told for each in found)


def test_a_setting_is_told_by_the_name_it_was_given() -> None:
    [found] = producer_contradictions({"max.in.flight": "10"})
    assert "max.in.flight = 10 " in found.reason


NAMES = sorted({name for settings, _, _ in (*PRODUCERS, *CONSUMERS) for name in settings})
VALUES = st.one_of(
    st.sampled_from(["all", "0", "1", "-1", "true", "false", "", "consumer", "latest", "x"]),
    st.integers().map(str),
    st.text(max_size=5),
    st.booleans(),
    st.integers(),
    st.floats(),
)


@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6), st.data())
def test_no_settings_break_the_rules_themselves(
    settings: dict[str, object], data: st.DataObject
) -> None:
    client = data.draw(st.sampled_from(["java", "librdkafka", "lossless"]))
    delivery = data.draw(st.sampled_from([None, "at-most-once", "at-least-once", "exactly-once"]))
    producer_contradictions(settings, client=client, delivery=delivery, order="per-key")
    consumer_contradictions(
        settings, client=client, delivery=delivery, processing_s_max=1.0, workers=1
    )
