"""Which file of wire/ serves which API of a broker."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Protocol

from lossless.broker.server import Serve
from lossless.wire import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    describe_transactions,
    end_txn,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_transactions,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call


class BrokerApi(Protocol):
    KEY: int

    def serve(self, call: Call, broker: Broker, /) -> Awaitable[Fields]: ...


APIS: tuple[BrokerApi, ...] = (
    add_offsets_to_txn,
    add_partitions_to_txn,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    describe_transactions,
    end_txn,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_transactions,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)


def served_by(broker: Broker) -> dict[int, Serve]:
    return {api.KEY: partial(_serve, api, broker) for api in APIS}


def _serve(api: BrokerApi, broker: Broker, call: Call) -> Awaitable[Fields]:
    return api.serve(call, broker)
