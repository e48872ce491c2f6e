"""`group.coordinator.rebalance.protocols` says which groups the brokers take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from admin_cluster import AdminCluster

from lossless.core.messages import Error

HEARTBEAT, DESCRIBE = 68, 69


@pytest.fixture(params=["classic", "classic,consumer"])
def taken(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[AdminCluster, bool]]:
    protocols = str(request.param)
    cluster = AdminCluster(tmp_path, 1, group_coordinator_rebalance_protocols=protocols)
    yield cluster, "consumer" in protocols
    cluster.stop()


def test_groups_of_a_protocol_that_is_left_out_are_refused(
    taken: tuple[AdminCluster, bool],
) -> None:
    cluster, takes_consumers = taken
    joined = cluster.ask(HEARTBEAT, 1, {"group_id": "g", "member_id": "m", "member_epoch": 0})
    (described,) = cluster.ask(DESCRIBE, 1, {"group_ids": ["g"]}).groups
    codes = {joined.error_code.value, described.error_code.value}
    if takes_consumers:  # refused for other reasons, at most
        assert Error.UNSUPPORTED_VERSION not in codes
    else:
        assert codes == {Error.UNSUPPORTED_VERSION}
