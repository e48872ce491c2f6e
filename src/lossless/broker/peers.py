"""The other nodes: where they are, and how a machine's requests reach them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from lossless.broker.links import Address, Link
from lossless.core.messages import (
    AllocateProducerIds,
    AlterPartition,
    BrokerHeartbeat,
    BrokerRegistration,
    Fetch,
    FetchAnswer,
    WriteTxnMarker,
)
from lossless.core.metadata import Image
from lossless.core.quorum_messages import BeginQuorumEpoch, EndQuorumEpoch, QuorumFetch, Vote
from lossless.core.transactions.messages import AddPartitionsToTxn
from lossless.log.batch import Data, new
from lossless.wire import (
    add_partitions_to_txn,
    allocate_producer_ids,
    alter_partition,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    end_quorum_epoch,
    fetch,
    quorum_fetch,
    vote,
    write_txn_markers,
)
from lossless.wire.outgoing import Outgoing, outgoing

Open = Callable[[Callable[[], asyncio.BaseProtocol], Address], Awaitable[None]]
# What waits at the other end must not keep anything else waiting.
_CHANNELS: dict[type[Any], str] = {
    Fetch: "fetch",
    QuorumFetch: "fetch",
    WriteTxnMarker: "markers",
}


class Peers:
    def __init__(
        self,
        name: str,
        cluster_id: str,
        image: Callable[[], Image],
        address_of: Callable[[int], Address | None],
        open_to: Callable[[int], Open],
    ) -> None:
        self._name = name
        self._cluster_id = cluster_id
        self._image = image
        self._address_of = address_of
        self._open_to = open_to
        self._links: dict[tuple[int, str], Link] = {}
        self._cut: frozenset[int] = frozenset()

    def send(self, to: int, request: Any, answered: Callable[[Any], None]) -> None:
        channel = _CHANNELS.get(type(request), "other")
        self.link(to, channel).ask(self._outgoing(to, request), answered)

    def link(self, to: int, channel: str) -> Link:
        link = self._links.get((to, channel))
        if link is None:
            link = Link(partial(self._reachable, to), self._name, self._open_to(to))
            self._links[to, channel] = link
        return link

    def cut_off(self, nodes: frozenset[int]) -> None:
        """These cannot be reached any more, and others can again."""
        self._cut = nodes
        for (node, _), link in self._links.items():
            if node in nodes:
                link.reset()

    def _reachable(self, node: int) -> Address | None:
        return None if node in self._cut else self._address_of(node)

    def close(self) -> None:
        for link in self._links.values():
            link.close()

    def _outgoing(self, to: int, request: Any) -> Outgoing:
        match request:
            case Fetch():
                message = fetch.asked(request, self._image().topics)
                read = partial(self._fetched, request)
                return new(Outgoing, (fetch.KEY, fetch.VERSION, True, message, read))
            case QuorumFetch():
                fields = quorum_fetch.asked(request, self._cluster_id)
                return outgoing(
                    quorum_fetch.KEY, quorum_fetch.VERSION, fields, quorum_fetch.answered
                )
            case BrokerHeartbeat():
                fields = broker_heartbeat.asked(request)
                return outgoing(
                    broker_heartbeat.KEY,
                    broker_heartbeat.VERSION,
                    fields,
                    broker_heartbeat.answered,
                )
            case AlterPartition():
                return outgoing(
                    alter_partition.KEY,
                    alter_partition.VERSION,
                    alter_partition.asked(request, self._image().topics),
                    lambda message: alter_partition.answered(message, request),
                )
            case BrokerRegistration():
                return outgoing(
                    broker_registration.KEY,
                    broker_registration.VERSION,
                    broker_registration.asked(request, self._cluster_id),
                    broker_registration.answered,
                )
            case AllocateProducerIds():
                return outgoing(
                    allocate_producer_ids.KEY,
                    allocate_producer_ids.VERSION,
                    allocate_producer_ids.asked(request),
                    allocate_producer_ids.answered,
                )
            case AddPartitionsToTxn():
                return outgoing(
                    add_partitions_to_txn.KEY,
                    add_partitions_to_txn.VERSION,
                    add_partitions_to_txn.asked(request),
                    lambda message: add_partitions_to_txn.answered(message, request),
                )
            case WriteTxnMarker():
                return outgoing(
                    write_txn_markers.KEY,
                    write_txn_markers.VERSION,
                    write_txn_markers.asked(request),
                    lambda message: write_txn_markers.answered(message, request),
                )
            case Vote():
                fields = vote.asked(request, self._cluster_id, to)
                return outgoing(vote.KEY, vote.VERSION, fields, vote.answered)
            case BeginQuorumEpoch():
                return outgoing(
                    begin_quorum_epoch.KEY,
                    begin_quorum_epoch.VERSION,
                    begin_quorum_epoch.asked(request, self._cluster_id, to),
                    begin_quorum_epoch.answered,
                )
            case EndQuorumEpoch():
                return outgoing(
                    end_quorum_epoch.KEY,
                    end_quorum_epoch.VERSION,
                    end_quorum_epoch.asked(request, self._cluster_id),
                    end_quorum_epoch.answered,
                )
        raise TypeError(f"no API carries {type(request).__name__}")

    def _fetched(self, request: Fetch, frame: Data, at: int) -> FetchAnswer:
        return fetch.answered(frame, at, request, self._image().topic_names)


def names_of(nodes: Iterable[int]) -> frozenset[str]:
    """The client ids by which nodes are known to each other."""
    return frozenset(f"{role}-{node}" for node in nodes for role in ("broker", "controller"))
