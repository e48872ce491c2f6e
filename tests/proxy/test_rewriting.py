from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.index import api_key_map, schema_name_map

from lossless.proxy.address import Address
from lossless.proxy.apis import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_QUORUM,
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    version_max,
)
from lossless.proxy.rewriting import Role, Unreadable, may_name_brokers, rewritten
from lossless.proxy.skipping import after_fetch_topics, after_share_fetch_topics
from lossless.wire.codec import Fields, make, read, response_class, write
from lossless.wire.frames import has_tagged_answer, response

CORRELATION_ID = 77
OFFSET = 20_000  # between a broker's port and the proxy's
TOPIC = uuid.UUID(int=5)


def relocate(role: Role, node_id: int, address: Address) -> Address:
    return Address(f"proxy-{role}-{node_id}", address.port + OFFSET)


def frame_of(key: int, version: int, fields: Fields) -> bytes:
    message = write(make(response_class(key, version), fields))
    tagged = has_tagged_answer(key, version)
    return response(CORRELATION_ID, message, tagged=tagged)


def message_in(frame: bytes, key: int, version: int) -> Any:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == CORRELATION_ID
    return read(response_class(key, version), frame, 9 if has_tagged_answer(key, version) else 8)


def node(number: int, **more: Any) -> dict[str, Any]:
    return {"node_id": number, "host": f"kafka-{number}", "port": 9000 + number, **more}


def moved(number: int, role: str = "broker", **more: Any) -> dict[str, Any]:
    return {**node(number, **more), "host": f"proxy-{role}-{number}", "port": 29000 + number}


def by_broker_id(fields: dict[str, Any]) -> dict[str, Any]:
    return {"broker_id" if name == "node_id" else name: value for name, value in fields.items()}


def has(key: int, version: int, name: str) -> bool:
    return name in response_class(key, version).__dataclass_fields__


def answers(key: int, version: int) -> tuple[Fields, Fields] | None:
    """An answer, and what it is to become. None if this version names nobody."""
    rest: dict[str, Any]
    match key:
        case _ if key == METADATA:
            partition = {"partition_index": 3, "leader_id": 2, "replica_nodes": (1, 2)}
            topics = [{"name": "orders", "partitions": [partition]}]
            rest = {"topics": topics}
            if has(key, version, "cluster_id"):
                rest |= {"cluster_id": "c", "controller_id": 2}
            return (
                {"brokers": [node(1), node(2)], **rest},
                {"brokers": [moved(1), moved(2)], **rest},
            )
        case _ if key == FIND_COORDINATOR and not has(key, version, "coordinators"):
            return node(2), moved(2)
        case _ if key == FIND_COORDINATOR:
            nobody = {"key": "b", "node_id": -1, "host": "", "port": -1, "error_code": 15}
            return (
                {"coordinators": [node(2, key="a"), nobody]},
                {"coordinators": [moved(2, key="a"), nobody]},
            )
        case _ if key == DESCRIBE_CLUSTER:
            rest = {"cluster_id": "c", "controller_id": 1}
            return (
                {"brokers": [by_broker_id(node(1, rack="r"))], **rest},
                {"brokers": [by_broker_id(moved(1, rack="r"))], **rest},
            )
        case _ if key == DESCRIBE_QUORUM:
            if version < 2:
                return None
            voter = {"replica_id": 1, "log_end_offset": 4, "last_fetch_timestamp": -1}
            partition = {"leader_id": 1, "current_voters": [voter]}
            topics = [{"topic_name": "__cluster_metadata", "partitions": [partition]}]
            listener = {"name": "CONTROLLER", "host": "kafka-1", "port": 9001}
            there = {**listener, "host": "proxy-controller-1", "port": 29001}
            return (
                {"topics": topics, "nodes": [{"node_id": 1, "listeners": [listener]}]},
                {"topics": topics, "nodes": [{"node_id": 1, "listeners": [there]}]},
            )
        case _ if key == PRODUCE:
            by = {"topic_id": TOPIC} if version >= 13 else {"name": "orders"}
            leader = {"leader_id": 2, "leader_epoch": 7}
            partition = {"index": 1, "error_code": 6, "base_offset": -1}
            if version >= 10:
                partition["current_leader"] = leader  # type: ignore[assignment]
            rest = {"responses": [{**by, "partition_responses": [partition]}]}
        case _ if key == FETCH:
            by = {"topic_id": TOPIC} if version >= 13 else {"topic": "orders"}
            partitions = [
                {"partition_index": 0, "high_watermark": 9, "records": b"records" * 50},
                {"partition_index": 1, "error_code": 6, "high_watermark": -1},
            ]
            rest = {"responses": [{**by, "partitions": partitions}]}
        case _:
            partition = {"partition_index": 1, "error_code": 6}
            if key == SHARE_FETCH:
                partition["records"] = b"records"  # type: ignore[assignment]
            rest = {"responses": [{"topic_id": TOPIC, "partitions": [partition]}]}
    if not has(key, version, "node_endpoints"):
        return rest, rest
    return (
        {**rest, "node_endpoints": [node(2, rack="r"), node(3)]},
        {**rest, "node_endpoints": [moved(2, rack="r"), moved(3)]},
    )


NAMING = (
    METADATA,
    FIND_COORDINATOR,
    DESCRIBE_CLUSTER,
    DESCRIBE_QUORUM,
    PRODUCE,
    FETCH,
    SHARE_FETCH,
    SHARE_ACKNOWLEDGE,
)


def versions(keys: tuple[int, ...]) -> list[Any]:
    return [
        pytest.param(key, version, id=f"{api_key_map[key]}-{version}")
        for key in keys
        for version in sorted(schema_name_map[api_key_map[key]])
    ]


@pytest.mark.parametrize(("key", "version"), versions(NAMING))
def test_an_answer_names_the_proxy_and_says_everything_else_as_before(
    key: int, version: int
) -> None:
    pair = answers(key, version)
    if pair is None or pair[0] == pair[1]:
        assert not may_name_brokers(key, version)
        return
    before, after = pair
    assert may_name_brokers(key, version)
    changed = rewritten(key, version, frame_of(key, version, before), relocate)
    assert changed is not None
    assert message_in(changed, key, version) == make(response_class(key, version), after)


@pytest.mark.parametrize(("key", "version"), versions(NAMING))
def test_an_answer_that_names_nobody_stays_as_it_is(key: int, version: int) -> None:
    if may_name_brokers(key, version):
        assert rewritten(key, version, frame_of(key, version, {}), relocate) is None


def test_the_versions_in_which_produce_and_fetch_name_brokers_are_those_of_the_schema() -> None:
    for key in (PRODUCE, FETCH, DESCRIBE_QUORUM):
        for version in schema_name_map[api_key_map[key]]:
            names = has(key, version, "node_endpoints") or has(key, version, "nodes")
            assert may_name_brokers(key, version) == names


def test_controllers_that_describe_cluster_names_are_told_apart_from_brokers() -> None:
    fields = {"endpoint_type": 2, "brokers": [by_broker_id(node(1))]}
    changed = rewritten(60, 1, frame_of(60, 1, fields), relocate)
    assert changed is not None
    assert message_in(changed, 60, 1).brokers[0].host == "proxy-controller-1"


@pytest.mark.parametrize(("key", "version"), versions((API_VERSIONS,)))
def test_no_version_is_offered_whose_answer_could_not_be_read(key: int, version: int) -> None:
    offered = [
        {"api_key": METADATA, "min_version": 0, "max_version": 99},
        {"api_key": FETCH, "min_version": 4, "max_version": 12},
        {"api_key": 36, "min_version": 0, "max_version": 99},
    ]
    changed = rewritten(key, version, frame_of(key, version, {"api_keys": offered}), relocate)
    assert changed is not None
    told = {api.api_key: api.max_version for api in message_in(changed, key, version).api_keys}
    assert told == {METADATA: version_max(METADATA), FETCH: 12, 36: 99}


@pytest.mark.parametrize(("key", "version"), versions((API_VERSIONS,)))
def test_versions_that_can_all_be_read_are_offered_as_they_came(key: int, version: int) -> None:
    offered = [{"api_key": METADATA, "min_version": 0, "max_version": 12}]
    assert rewritten(key, version, frame_of(key, version, {"api_keys": offered}), relocate) is None


def test_an_unsupported_version_of_api_versions_is_answered_in_version_0_and_limited() -> None:
    offered = [{"api_key": METADATA, "min_version": 0, "max_version": 99}]
    frame = frame_of(API_VERSIONS, 0, {"error_code": 35, "api_keys": offered})
    for asked in (3, 4, 32767):
        changed = rewritten(API_VERSIONS, asked, frame, relocate)
        assert changed is not None
        message = message_in(changed, API_VERSIONS, 0)
        assert message.error_code == 35
        assert message.api_keys[0].max_version == version_max(METADATA)


@pytest.mark.parametrize("key", NAMING)
def test_a_version_that_is_not_known_is_none_of_our_business(key: int) -> None:
    assert not may_name_brokers(key, version_max(key) + 1)
    assert not may_name_brokers(999, 0)


def test_an_answer_that_should_be_read_and_cannot_be_is_refused() -> None:
    with pytest.raises(Unreadable, match="metadata version 12"):
        rewritten(METADATA, 12, frame_of(METADATA, 12, {"brokers": [node(1)]})[:-6], relocate)
    with pytest.raises(Unreadable, match="fetch version 16"):
        rewritten(FETCH, 16, frame_of(FETCH, 16, {})[:-3], relocate)


partitions = st.fixed_dictionaries(
    {
        "partition_index": st.integers(0, 2**31 - 1),
        "records": st.none() | st.binary(max_size=300) | st.just(bytes(70_000)),
    },
    optional={
        "aborted_transactions": st.none()
        | st.lists(st.fixed_dictionaries({"producer_id": st.integers(0, 9)}), max_size=3),
        "current_leader": st.fixed_dictionaries({"leader_id": st.integers(0, 9)}),
        "diverging_epoch": st.fixed_dictionaries({"epoch": st.integers(0, 9)}),
    },
)
share_partitions = st.fixed_dictionaries(
    {
        "partition_index": st.integers(0, 2**31 - 1),
        "records": st.binary(max_size=300) | st.just(bytes(70_000)),
    },
    optional={
        "error_message": st.none() | st.text(max_size=200),
        "acknowledge_error_message": st.none() | st.text(max_size=200),
        "acquired_records": st.lists(
            st.fixed_dictionaries({"first_offset": st.integers(0, 9)}), max_size=3
        ),
    },
)
endpoints = st.fixed_dictionaries(
    {"node_id": st.integers(0, 9), "host": st.text(max_size=9), "port": st.integers(0, 65535)},
    optional={"rack": st.none() | st.text(max_size=200)},
)


def topics(of: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    topic = {"topic_id": st.uuids(), "partitions": st.lists(of, max_size=4)}
    return st.lists(st.fixed_dictionaries(topic), max_size=3)


@given(
    version=st.integers(16, version_max(FETCH)),
    responses=topics(partitions),
    nodes=st.lists(endpoints, max_size=3),
)
def test_the_tags_of_a_fetch_answer_are_found_whatever_comes_before_them(
    version: int, responses: list[Any], nodes: list[Any]
) -> None:
    entity = response_class(FETCH, version)
    without = write(make(entity, {"responses": responses}))
    assert after_fetch_topics(without, 0) == len(without) - 1
    message = write(make(entity, {"responses": responses, "node_endpoints": nodes}))
    at = after_fetch_topics(message, 0)
    assert message[:at] == without[:-1]
    assert (message[at] != 0) == bool(nodes)


@given(
    version=st.integers(1, version_max(SHARE_FETCH)),
    message=st.none() | st.text(max_size=200),
    responses=topics(share_partitions),
    nodes=st.lists(endpoints, max_size=3),
)
def test_the_brokers_of_a_share_fetch_answer_are_found_whatever_comes_before_them(
    version: int, message: str | None, responses: list[Any], nodes: list[Any]
) -> None:
    entity = response_class(SHARE_FETCH, version)
    fields = {"error_message": message, "responses": responses}
    without = write(make(entity, fields))
    assert after_share_fetch_topics(without, 0) == len(without) - 2
    whole = write(make(entity, {**fields, "node_endpoints": nodes}))
    at = after_share_fetch_topics(whole, 0)
    assert whole[:at] == without[:-2]
    assert whole[at] == len(nodes) + 1


def test_a_partition_without_records_in_a_share_fetch_answer_is_no_obstacle() -> None:
    """Kafka writes null there, which kio does not take."""
    partition = {"partition_index": 1, "error_code": 6, "records": b"RECORDS"}
    topics = [{"topic_id": TOPIC, "partitions": [partition]}]
    frame = frame_of(SHARE_FETCH, 1, {"responses": topics, "node_endpoints": [node(2)]})
    null = frame.replace(b"\x08RECORDS", b"\0")
    frame = (len(null) - 4).to_bytes(4, "big") + null[4:]
    changed = rewritten(SHARE_FETCH, 1, frame, relocate)
    assert changed is not None
    assert b"proxy-broker-2" in changed
    assert b"kafka-2" not in changed
    assert int.from_bytes(changed[:4], "big") == len(changed) - 4


def test_a_fetch_answer_stays_as_it_is_up_to_where_it_names_brokers() -> None:
    records = bytes(range(256)) * 1000
    fields = {"topic_id": TOPIC, "partitions": [{"partition_index": 0, "records": records}]}
    frame = frame_of(FETCH, 17, {"responses": [fields], "node_endpoints": [node(2)]})
    changed = rewritten(FETCH, 17, frame, relocate)
    assert changed is not None
    at = after_fetch_topics(frame, 9)
    assert changed[4:at] == frame[4:at]


def test_an_api_whose_every_version_is_too_old_to_be_read_is_not_offered() -> None:
    offered = [
        {"api_key": SHARE_FETCH, "min_version": 0, "max_version": 0},
        {"api_key": PRODUCE, "min_version": 0, "max_version": 2},  # names nobody
    ]
    changed = rewritten(API_VERSIONS, 3, frame_of(API_VERSIONS, 3, {"api_keys": offered}), relocate)
    assert changed is not None
    told = [api.api_key for api in message_in(changed, API_VERSIONS, 3).api_keys]
    assert told == [PRODUCE]
