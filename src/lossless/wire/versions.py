"""Which of Kafka's APIs are spoken, in which versions, and by whom.

The ranges are those of Apache Kafka 4.1 as its brokers and controllers advertise them, where kio
has them too; a test compares the two. Produce is advertised from version 0, though nobody serves
versions below 3: librdkafka takes a broker without them for one that is too old (KAFKA-18659).
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class Listener(enum.Flag):
    BROKER = enum.auto()
    CONTROLLER = enum.auto()


BROKER, CONTROLLER = Listener.BROKER, Listener.CONTROLLER
BOTH = BROKER | CONTROLLER


class Api(NamedTuple):
    key: int
    name: str  # as kio has it
    lowest: int
    highest: int
    listeners: Listener
    is_forwarded: bool = False  # a broker hands it on to the active controller

    @property
    def advertised_from(self) -> int:
        return 0 if self.key == PRODUCE else self.lowest


PRODUCE, FETCH = 0, 1
API_VERSIONS, ENVELOPE = 18, 58

APIS: dict[int, Api] = {
    api.key: api
    for api in (
        Api(PRODUCE, "produce", 3, 13, BROKER),
        Api(FETCH, "fetch", 4, 18, BOTH),
        Api(2, "list_offsets", 1, 10, BROKER),
        Api(3, "metadata", 0, 13, BROKER),
        Api(8, "offset_commit", 2, 9, BROKER),
        Api(9, "offset_fetch", 1, 9, BROKER),
        Api(10, "find_coordinator", 0, 6, BROKER),
        Api(11, "join_group", 0, 9, BROKER),
        Api(12, "heartbeat", 0, 4, BROKER),
        Api(13, "leave_group", 0, 5, BROKER),
        Api(14, "sync_group", 0, 5, BROKER),
        Api(15, "describe_groups", 0, 6, BROKER),
        Api(16, "list_groups", 0, 5, BROKER),
        Api(17, "sasl_handshake", 0, 1, BOTH),
        Api(API_VERSIONS, "api_versions", 0, 4, BOTH),
        Api(19, "create_topics", 2, 7, BOTH, is_forwarded=True),
        Api(20, "delete_topics", 1, 6, BOTH, is_forwarded=True),
        Api(21, "delete_records", 0, 2, BROKER),
        Api(22, "init_producer_id", 0, 5, BROKER),
        Api(23, "offset_for_leader_epoch", 2, 4, BROKER),
        Api(24, "add_partitions_to_txn", 0, 5, BROKER),
        Api(25, "add_offsets_to_txn", 0, 4, BROKER),
        Api(26, "end_txn", 0, 5, BROKER),
        Api(27, "write_txn_markers", 1, 1, BROKER),
        Api(28, "txn_offset_commit", 0, 5, BROKER),
        Api(29, "describe_acls", 1, 3, BOTH),
        Api(30, "create_acls", 1, 3, BOTH, is_forwarded=True),
        Api(31, "delete_acls", 1, 3, BOTH, is_forwarded=True),
        Api(32, "describe_configs", 1, 4, BOTH),
        Api(33, "alter_configs", 0, 2, BOTH, is_forwarded=True),
        Api(35, "describe_log_dirs", 1, 4, BROKER),
        Api(36, "sasl_authenticate", 0, 2, BOTH),
        Api(37, "create_partitions", 0, 3, BOTH, is_forwarded=True),
        Api(43, "elect_leaders", 0, 2, BOTH, is_forwarded=True),
        Api(44, "incremental_alter_configs", 0, 1, BOTH, is_forwarded=True),
        Api(45, "alter_partition_reassignments", 0, 1, BOTH, is_forwarded=True),
        Api(46, "list_partition_reassignments", 0, 0, BOTH, is_forwarded=True),
        Api(42, "delete_groups", 0, 2, BROKER),
        Api(47, "offset_delete", 0, 0, BROKER),
        Api(48, "describe_client_quotas", 0, 1, BROKER),
        Api(49, "alter_client_quotas", 0, 1, BOTH, is_forwarded=True),
        Api(50, "describe_user_scram_credentials", 0, 0, BOTH),
        Api(51, "alter_user_scram_credentials", 0, 0, BOTH, is_forwarded=True),
        Api(52, "vote", 0, 2, CONTROLLER),
        Api(53, "begin_quorum_epoch", 0, 1, CONTROLLER),
        Api(54, "end_quorum_epoch", 0, 1, CONTROLLER),
        Api(55, "describe_quorum", 0, 2, BOTH, is_forwarded=True),
        Api(56, "alter_partition", 2, 3, CONTROLLER),
        Api(57, "update_features", 0, 2, BOTH, is_forwarded=True),
        Api(ENVELOPE, "envelope", 0, 0, CONTROLLER),
        Api(60, "describe_cluster", 0, 2, BROKER),
        Api(61, "describe_producers", 0, 0, BROKER),
        Api(62, "broker_registration", 0, 4, CONTROLLER),
        Api(63, "broker_heartbeat", 0, 1, CONTROLLER),
        Api(65, "describe_transactions", 0, 0, BROKER),
        Api(66, "list_transactions", 0, 2, BROKER),
        Api(64, "unregister_broker", 0, 0, BOTH, is_forwarded=True),
        Api(67, "allocate_producer_ids", 0, 0, CONTROLLER),
        Api(74, "list_config_resources", 0, 1, BROKER),
        Api(68, "consumer_group_heartbeat", 0, 1, BROKER),
        Api(69, "consumer_group_describe", 0, 1, BROKER),
        Api(75, "describe_topic_partitions", 0, 0, BROKER),
    )
}


class LeftOut(NamedTuple):
    """An API that Apache Kafka 4.1 speaks by default, and these brokers or controllers do not."""

    key: int
    name: str
    listeners: Listener
    why: str


_TOKENS = "Delegation tokens: a client of a cluster for tests and development has its password."
_SHARE = "Share groups (KIP-932): a preview in Kafka 4.1, off by default."
_VOTERS = "Voters are fixed when a cluster is made (static quorum)."
_DISKS = "A broker has one folder for its logs."

LEFT_OUT: tuple[LeftOut, ...] = (
    LeftOut(34, "alter_replica_log_dirs", BROKER, _DISKS),
    LeftOut(38, "create_delegation_token", BOTH, _TOKENS),
    LeftOut(39, "renew_delegation_token", BOTH, _TOKENS),
    LeftOut(40, "expire_delegation_token", BOTH, _TOKENS),
    LeftOut(41, "describe_delegation_token", BOTH, _TOKENS),
    LeftOut(59, "fetch_snapshot", CONTROLLER, "The metadata log is kept as a whole."),
    LeftOut(60, "describe_cluster", CONTROLLER, "Administrators ask brokers (--bootstrap-server)."),
    LeftOut(70, "controller_registration", CONTROLLER, "All nodes are of one release."),
    LeftOut(73, "assign_replicas_to_dirs", CONTROLLER, _DISKS),
    LeftOut(76, "share_group_heartbeat", BROKER, _SHARE),
    LeftOut(77, "share_group_describe", BROKER, _SHARE),
    LeftOut(78, "share_fetch", BROKER, _SHARE),
    LeftOut(79, "share_acknowledge", BROKER, _SHARE),
    LeftOut(80, "add_raft_voter", BOTH, _VOTERS),
    LeftOut(81, "remove_raft_voter", BOTH, _VOTERS),
    LeftOut(82, "update_raft_voter", CONTROLLER, _VOTERS),
    LeftOut(83, "initialize_share_group_state", BROKER, _SHARE),
    LeftOut(84, "read_share_group_state", BROKER, _SHARE),
    LeftOut(85, "write_share_group_state", BROKER, _SHARE),
    LeftOut(86, "delete_share_group_state", BROKER, _SHARE),
    LeftOut(87, "read_share_group_state_summary", BROKER, _SHARE),
    LeftOut(90, "describe_share_group_offsets", BROKER, _SHARE),
    LeftOut(91, "alter_share_group_offsets", BROKER, _SHARE),
    LeftOut(92, "delete_share_group_offsets", BROKER, _SHARE),
)
