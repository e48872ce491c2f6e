"""Which file of wire/ serves which API: of a broker, of a controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from lossless.broker.server import Serve
from lossless.wire import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call, Controller, Node

_Served = TypeVar("_Served")


class NodeApi(Protocol):
    KEY: int

    def serve(self, call: Call, node: Node, /) -> Awaitable[Fields]: ...


class BrokerApi(Protocol):
    KEY: int

    def serve(self, call: Call, broker: Broker, /) -> Awaitable[Fields]: ...


class ControllerApi(Protocol):
    KEY: int

    def serve(self, call: Call, controller: Controller, /) -> Awaitable[Fields]: ...


_OF_EVERY_NODE: tuple[NodeApi, ...] = (
    api_versions,
    describe_acls,
    describe_configs,
    describe_user_scram_credentials,
    sasl_authenticate,
    sasl_handshake,
)
_OF_A_BROKER: tuple[BrokerApi, ...] = (
    *_OF_EVERY_NODE,
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,  # the controller decides it, after the broker has looked at it
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    delete_records,
    describe_client_quotas,
    describe_cluster,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    end_txn,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,  # likewise
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
_FORWARDED: tuple[ControllerApi, ...] = (
    alter_client_quotas,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    describe_quorum,
    elect_leaders,
    list_partition_reassignments,
    unregister_broker,
    update_features,
)


def served_by_a_broker(broker: Broker) -> dict[int, Serve]:
    return {api.KEY: partial(_serve, api.serve, broker) for api in _OF_A_BROKER}


def forwarded_to(controller: Controller) -> dict[int, Serve]:
    """What brokers hand on: to be decided by the active controller."""
    return {
        **{api.KEY: partial(_serve, api.serve, controller) for api in _FORWARDED},
        alter_configs.KEY: partial(_serve, alter_configs.decide, controller),
        incremental_alter_configs.KEY: partial(
            _serve, incremental_alter_configs.decide, controller
        ),
    }


def served_by_a_controller(controller: Controller) -> dict[int, Serve]:
    own = {api.KEY: partial(_serve, api.serve, controller) for api in _OF_EVERY_NODE}
    return {**own, **forwarded_to(controller)}


def _serve(
    serve: Callable[[Call, _Served], Awaitable[Fields]], node: _Served, call: Call
) -> Awaitable[Fields]:
    return serve(call, node)
