"""Requests that are well-formed and mean no good: each gets the protocol's error, or is let be.

Kafka's answer is named where there is one. Whatever it is, the broker serves as before.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from victim import TOPIC, Client, Victim

from lossless.log.batch import Record, build
from lossless.wire.codec import Fields
from lossless.wire.versions import APIS, BROKER

MAX16, MAX32, MAX64 = 0x7FFF, 0x7FFFFFFF, 0x7FFFFFFFFFFFFFFF
MIN32, MIN64 = -0x80000000, -0x8000000000000000
NOBODY = uuid.UUID(int=77)
BIG = "x" * MAX16


def _of(topic: str, **partition: Any) -> list[Fields]:
    return [{"name": topic, "partitions": [partition]}]


def _by_index(topic: str, **partition: Any) -> list[Fields]:
    return _of(topic, partition_index=0, **partition)


def _fetch(partition: Fields, **fields: Any) -> Fields:
    topics = [{"topic": TOPIC, "partitions": [{"partition": 0, **partition}]}]
    return {"max_wait": 10, "min_bytes": 0, "topics": topics, **fields}


def _member(**fields: Any) -> Fields:
    joined = {
        "group_id": "hostile",
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    return {**joined, **fields}


def _topic(**fields: Any) -> Fields:
    new = {"name": "never", "num_partitions": 1, "replication_factor": 1, **fields}
    return {"topics": [new], "timeout": 1000}


# Key, version (None: the highest), fields, and the errors that the answer must have among its own.
Case = tuple[int, int | None, Fields, set[int]]

CASES: dict[str, Case] = {
    # Fetch
    "fetch an offset that is no offset": (1, 12, _fetch({"fetch_offset": MIN64}), {1}),
    "fetch beyond the end": (1, 12, _fetch({"fetch_offset": MAX64}), {1}),
    "fetch in an epoch to come": (1, 12, _fetch({"current_leader_epoch": MAX32}), {75}),
    "fetch in an epoch below all": (1, 12, _fetch({"current_leader_epoch": MIN32}), {74}),
    "fetch after an epoch to come": (1, 12, _fetch({"last_fetched_epoch": MAX32}), {0}),
    "fetch less than nothing": (
        1,
        12,
        _fetch({"partition_max_bytes": MIN32}, max_bytes=MIN32, min_bytes=MIN32),
        {0},
    ),
    "fetch for less than no time": (1, 12, _fetch({}, max_wait=MIN32, min_bytes=MAX32), {0}),
    "fetch in a session that is none": (1, 12, _fetch({}, session_id=5, session_epoch=9), {70}),
    "fetch in a session below zero": (
        1,
        12,
        _fetch({}, session_id=MIN32, session_epoch=MIN32),
        {70},
    ),
    "fetch as a follower that is none": (1, 12, _fetch({}, replica_id=99), {3}),
    "fetch as a follower of an epoch": (
        1,
        None,
        {"replica_state": {"replica_id": 1, "replica_epoch": MAX64}, "max_wait": 10},
        {0},
    ),
    "fetch what nobody knows": (
        1,
        None,
        {"topics": [{"topic_id": NOBODY, "partitions": [{"partition": MIN32}]}]},
        {100},
    ),
    "fetch one partition a thousand times": (
        1,
        12,
        {"topics": [{"topic": TOPIC, "partitions": [{"partition": 0}] * 1000}]},
        {0},
    ),
    # ListOffsets
    "offsets at a time below all": (
        2,
        None,
        {"replica_id": -1, "topics": _by_index(TOPIC, timestamp=MIN64)},
        {35},
    ),
    "offsets at the end of time": (
        2,
        None,
        {"replica_id": -1, "topics": _by_index(TOPIC, timestamp=MAX64)},
        {0},
    ),
    "offsets in an epoch to come": (
        2,
        None,
        {
            "replica_id": MIN32,
            "isolation_level": 99,
            "topics": _by_index(TOPIC, timestamp=-1, current_leader_epoch=MAX32),
        },
        {75},
    ),
    "offsets of a partition below zero": (
        2,
        None,
        {"topics": _of(TOPIC, partition_index=MIN32, timestamp=0)},
        {3},
    ),
    # Metadata
    "metadata of no name": (3, None, {"topics": [{"name": ""}]}, {17}),
    "metadata of a path": (3, None, {"topics": [{"name": "../../etc"}]}, {17}),
    "metadata of a name of 32 KB": (3, None, {"topics": [{"name": BIG}]}, {17}),
    "metadata of an id": (3, None, {"topics": [{"name": None, "topic_id": NOBODY}]}, {100}),
    "metadata of the same many times": (3, None, {"topics": [{"name": TOPIC}] * 500}, {0}),
    # Offsets of groups
    "commit below zero": (
        8,
        None,
        {"group_id": "hostile", "topics": _by_index(TOPIC, committed_offset=MIN64)},
        {0, 42},
    ),
    "commit for a generation to come": (
        8,
        None,
        {
            "group_id": "hostile",
            "generation_id_or_member_epoch": MAX32,
            "member_id": BIG,
            "topics": _by_index(TOPIC, committed_offset=1),
        },
        {25, 22, 69},  # 69 if nobody has made the group before
    ),
    "commit with much to say": (
        8,
        None,
        {
            "group_id": "hostile",
            "topics": _by_index(TOPIC, committed_offset=1, committed_metadata=BIG),
        },
        {12},
    ),
    "commit without a group": (
        8,
        None,
        {"group_id": "", "topics": _by_index(TOPIC, committed_offset=1)},
        {0, 24},
    ),
    "offsets of a group of 32 KB": (9, None, {"groups": [{"group_id": BIG}]}, {0}),
    "offsets of no groups": (9, None, {"groups": []}, set()),
    "coordinator of nothing": (10, None, {"key_type": 0, "coordinator_keys": [""]}, {0, 15, 24}),
    "coordinator of a kind that is none": (
        10,
        None,
        {"key_type": 99, "coordinator_keys": ["a"]},
        {42},
    ),
    # Groups
    "join with no protocols": (11, None, _member(protocols=[]), {23}),
    "join with no type": (11, None, _member(protocol_type=""), {23}),
    "join without a group": (11, None, _member(group_id=""), {24}),
    "join for no time": (11, None, _member(session_timeout=MIN32), {26}),
    "join for ever": (11, None, _member(session_timeout=MAX32, rebalance_timeout=MIN32), {26}),
    "join as someone": (11, None, _member(member_id="someone"), {25}),
    "join with much to say": (
        11,
        3,
        _member(
            group_id="talkative",
            protocols=[{"name": "range", "metadata": b"\xff" * 900_000}],
        ),
        {0, 10, -1, 18},
    ),
    "join with subscriptions that are none": (
        11,
        3,
        _member(group_id="garbled", protocols=[{"name": "range", "metadata": b"\0\1\x7f\xff\xff"}]),
        {0},
    ),
    "heartbeat of nobody": (
        12,
        None,
        {"group_id": "hostile", "generation_id": MIN32, "member_id": BIG},
        {25},
    ),
    "leave as nobody": (
        13,
        None,
        {"group_id": "nobody", "members": [{"member_id": "", "group_instance_id": BIG}]},
        {25},
    ),
    "sync as nobody": (
        14,
        None,
        {
            "group_id": "hostile",
            "generation_id": MAX32,
            "member_id": "x",
            "assignments": [{"member_id": "y", "assignment": b"\xff" * 1000}],
        },
        {23, 25},
    ),
    "describe a group of no name": (15, None, {"groups": ["", BIG]}, {69}),
    "list groups of states that are none": (
        16,
        None,
        {"states_filter": ["\0", BIG], "types_filter": ["none"]},
        {0},
    ),
    "delete groups that are none": (42, None, {"groups_names": ["", "never"]}, {69}),
    "delete offsets of no group": (
        47,
        None,
        {"group_id": "never", "topics": _of(TOPIC, partition_index=MIN32)},
        {69},
    ),
    "a consumer of no group": (
        68,
        None,
        {"group_id": "", "member_id": "m", "member_epoch": 0},
        {42},
    ),
    "a consumer of an epoch below all": (
        68,
        None,
        {
            "group_id": "hostile-consumers",
            "member_id": "m",
            "member_epoch": MIN32,
            "rebalance_timeout": 1000,
            "subscribed_topic_names": ["a"],
        },
        {42, 110, 25, 69},
    ),
    "a consumer with an expression that is none": (
        68,
        1,
        {
            "group_id": "hostile-expression",
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout": 1000,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": "(" * 1000,
            "topic_partitions": [],
        },
        {42, 128},
    ),
    "a consumer with an expression that takes for ever": (
        68,
        1,
        {
            "group_id": "hostile-expression",
            "member_id": "m2",
            "member_epoch": 0,
            "rebalance_timeout": 1000,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": "(s|se|ser|serv|e|r|v|d)*(s|se|ser|serv|e|r|v|d)*x" * 5,
            "topic_partitions": [],
        },
        {0, 42, 128},
    ),
    "describe consumers of no group": (69, None, {"group_ids": ["", "never"]}, {69}),
    # Topics
    "create without partitions": (19, None, _topic(num_partitions=0), {37}),
    "create with partitions below zero": (19, None, _topic(num_partitions=MIN32), {37}),
    "create with all the partitions": (19, None, _topic(num_partitions=MAX32), {37, 44}),
    "create with no replicas": (19, None, _topic(replication_factor=0), {38}),
    "create with many replicas": (19, None, _topic(replication_factor=MAX16), {38}),
    "create a path": (19, None, _topic(name="../../etc/passwd"), {17}),
    "create with nonsense": (
        19,
        None,
        _topic(configs=[{"name": "retention.ms", "value": "yes"}]),
        {40},
    ),
    "create on brokers that are none": (
        19,
        None,
        _topic(
            num_partitions=-1,
            replication_factor=-1,
            assignments=[{"partition_index": MAX32, "broker_ids": [MIN32, MIN32]}],
        ),
        {39},
    ),
    "create the same twice": (
        19,
        None,
        {"topics": [_topic()["topics"][0]] * 2, "timeout": MIN32},
        {42, 36},
    ),
    "delete what is not there": (
        20,
        None,
        {"topics": [{"name": "never"}, {"name": None, "topic_id": NOBODY}], "timeout": 1000},
        {3, 100},
    ),
    "delete neither a name nor an id": (
        20,
        None,
        {"topics": [{"name": None}], "timeout": 1000},
        {42, 100},
    ),
    "delete records beyond the end": (
        21,
        None,
        {"topics": _by_index(TOPIC, offset=MAX64), "timeout": 1000},
        {1},
    ),
    "delete records below zero": (
        21,
        None,
        {"topics": _by_index(TOPIC, offset=MIN64), "timeout": 1000},
        {1},
    ),
    "fewer partitions": (
        37,
        None,
        {"topics": [{"name": TOPIC, "count": MIN32, "assignments": None}], "timeout": 1000},
        {37},
    ),
    "all the partitions": (
        37,
        None,
        {"topics": [{"name": TOPIC, "count": MAX32, "assignments": None}], "timeout": 1000},
        {37, 44},
    ),
    "levels that features do not have": (
        57,
        1,
        {
            "timeout": MIN32,
            "feature_updates": [
                {"feature": "metadata.version", "max_version_level": -MAX16, "upgrade_type": 99},
                {"feature": BIG, "max_version_level": MAX16, "upgrade_type": 1},
            ],
            "validate_only": True,
        },
        {95},
    ),
    "elect among none": (
        43,
        None,
        {
            "election_type": 99,
            "topic_partitions": [{"topic": TOPIC, "partitions": [0]}],
            "timeout": 1000,
        },
        {42},
    ),
    "reassign to brokers that are none": (
        45,
        None,
        {
            "topics": [
                {"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": [MIN32]}]}
            ],
            "timeout": 1000,
        },
        {39},
    ),
    "list reassignments of none": (
        46,
        None,
        {"topics": [{"name": "never", "partition_indexes": [MIN32]}], "timeout": 1000},
        {0},
    ),
    # Settings
    "settings of a kind that is none": (
        32,
        None,
        {"resources": [{"resource_type": 99, "resource_name": BIG}]},
        {42},
    ),
    "settings of a broker that is none": (
        32,
        None,
        {"resources": [{"resource_type": 4, "resource_name": "many"}]},
        {42},
    ),
    "alter settings of a kind that is none": (
        33,
        None,
        {"resources": [{"resource_type": 99, "resource_name": "x", "configs": []}]},
        {42},
    ),
    "alter by an operation that is none": (
        44,
        None,
        {
            "resources": [
                {
                    "resource_type": 2,
                    "resource_name": TOPIC,
                    "configs": [
                        {"name": "retention.ms", "config_operation": 99, "value": "1"},
                    ],
                }
            ]
        },
        {42},
    ),
    "alter to nothing": (
        44,
        None,
        {
            "resources": [
                {
                    "resource_type": 2,
                    "resource_name": TOPIC,
                    "configs": [{"name": "retention.ms", "config_operation": 0, "value": None}],
                }
            ]
        },
        {42},
    ),
    "resources of kinds that are none": (74, None, {"resource_types": [99, -1]}, {35, 42}),
    # Producers and transactions
    "a transaction of no name": (
        22,
        None,
        {"transactional_id": "", "transaction_timeout": 1000},
        {42},
    ),
    "a transaction for ever": (
        22,
        None,
        {"transactional_id": "t", "transaction_timeout": MAX32},
        {50},
    ),
    "a transaction for less than no time": (
        22,
        None,
        {"transactional_id": "t", "transaction_timeout": MIN32},
        {50},
    ),
    "a producer of an epoch below all": (
        22,
        None,
        {
            "transactional_id": "t2",
            "transaction_timeout": 1000,
            "producer_id": MAX64,
            "producer_epoch": -0x8000,
        },
        {0, 42, 47, 49, 90},
    ),
    "where an epoch below all ends": (
        23,
        None,
        {
            "replica_id": -1,
            "topics": [
                {
                    "topic": TOPIC,
                    "partitions": [
                        {"partition": 0, "current_leader_epoch": -1, "leader_epoch": MIN32}
                    ],
                }
            ],
        },
        {0},
    ),
    "partitions for a transaction of nobody": (
        24,
        3,
        {
            "v3_and_below_transactional_id": "never",
            "v3_and_below_producer_id": MIN64,
            "v3_and_below_producer_epoch": MAX16,
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [0, MIN32]}],
        },
        {49, 3},
    ),
    "offsets for a transaction of nobody": (
        25,
        None,
        {"transactional_id": "never", "producer_id": 1, "producer_epoch": 0, "group_id": ""},
        {49},
    ),
    "end of a transaction of nobody": (
        26,
        None,
        {"transactional_id": "never", "producer_id": MAX64, "producer_epoch": MAX16},
        {49},
    ),
    "offsets in a transaction of nobody": (
        28,
        None,
        {
            "transactional_id": "never",
            "group_id": "hostile",
            "producer_id": 1,
            "producer_epoch": 0,
            "topics": _by_index(TOPIC, committed_offset=MIN64),
        },
        {0, 49, 48, 15, 16},
    ),
    "describe producers of nothing": (
        61,
        None,
        {"topics": [{"name": "never", "partition_indexes": [MIN32]}]},
        {3},
    ),
    "describe transactions of nobody": (65, None, {"transactional_ids": ["", "never"]}, {105}),
    "list transactions by an expression that is none": (
        66,
        2,
        {
            "state_filters": ["\0"],
            "producer_id_filters": [MIN64],
            "transactional_id_pattern": "(" * 100,
        },
        {42, 128},
    ),
    # The cluster
    "log folders of topics that are none": (
        35,
        None,
        {"topics": [{"topic": "never", "partitions": [MIN32]}]},
        {0},
    ),
    "quorum of a topic that is none": (
        55,
        None,
        {"topics": [{"topic_name": "never", "partitions": [{"partition_index": MIN32}]}]},
        {42, 3, 17},
    ),
    "unregister a broker that is none": (64, None, {"broker_id": MIN32}, {102}),
    "the cluster as seen from nowhere": (60, None, {"endpoint_type": 99}, {42, 115}),
    "topics from a place that is none": (
        75,
        None,
        {
            "topics": [{"name": TOPIC}],
            "response_partition_limit": MIN32,
            "cursor": {"topic_name": BIG, "partition_index": MIN32},
        },
        set(),
    ),
    "topics from the end": (
        75,
        None,
        {"topics": [], "response_partition_limit": MAX32},
        {0},
    ),
    # Quotas
    "quotas by a filter of an unknown kind": (
        48,
        None,
        {"components": [{"entity_type": BIG, "match_type": 99, "match": None}]},
        {42},
    ),
    "quotas of an entity that is not one": (
        49,
        None,
        {
            "entries": [
                {
                    "entity": [{"entity_type": "moon", "entity_name": BIG}],
                    "ops": [{"key": "producer_byte_rate", "value": float("nan")}],
                }
            ]
        },
        {42},
    ),
    "the same client twice with quotas that are not numbers": (
        49,
        None,
        {
            "entries": [
                {
                    "entity": [{"entity_type": "client-id", "entity_name": "hostile"}],
                    "ops": [{"key": "producer_byte_rate", "value": value}],
                }
                for value in (float("nan"), float("-inf"))
            ]
        },
        {42},
    ),
    # What is spoken
    "versions for a client of no name": (
        18,
        None,
        {"client_software_name": "\n", "client_software_version": ""},
        {42},
    ),
}


def errors_of(message: Any) -> set[int]:
    """Every error in an answer, however deep."""
    found = set()
    if isinstance(message, tuple):
        for part in message:
            found |= errors_of(part)
    for name in getattr(message, "__dataclass_fields__", ()):
        value = getattr(message, name)
        if name.endswith("error_code"):
            found.add(int(getattr(value, "value", value)))
        else:
            found |= errors_of(value)
    return found


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_request_that_means_no_good_gets_the_protocols_error(victim: Victim, case: Case) -> None:
    key, version, fields, expected = case
    with victim.client() as client:
        answer = client.ask(key, fields, version)
        assert answer is not None, "the connection was closed"
        found = errors_of(answer)
        assert not expected or found & expected, (found, answer)
        _still_speaks(client)


def test_a_topic_may_have_the_longest_name_that_there_is(victim: Victim) -> None:
    """The folder of a partition has the topic's name and more, and may not be as long."""
    batch = build([Record(0, 1, None, b"v")]).data
    for name in ("x" * 249, "x" * 248 + "y"):
        victim.create_topic(name)
        with victim.client() as client:
            assert victim.produce(client, name, batch).base_offset == 0
            assert victim.produce(client, name, batch).base_offset == 1


def _still_speaks(client: Client) -> None:
    assert client.ask(18, {}, version=0).error_code.value == 0


def test_every_api_of_a_broker_is_treated_badly() -> None:
    elsewhere = {0, 27}  # Produce has a file of its own; WriteTxnMarkers is for brokers
    security = {17, 29, 30, 31, 36, 50, 51}
    spoken = {api.key for api in APIS.values() if api.listeners & BROKER}
    assert spoken - elsewhere - security == {key for key, _, _, _ in CASES.values()}
