"""The controllers' listener serves nodes that have the cluster's secret, and nobody else."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from secured import Raw

from lossless.broker.security.login import Login, LoginFailed
from lossless.broker.security.nodes import NODE_MECHANISM, NODE_USER, node_login, node_settings
from lossless.core.settings.kinds import InvalidSetting
from lossless.engines.interface import ClusterSpec
from lossless.engines.local.cluster import LocalCluster
from lossless.engines.local.in_process import InProcessCluster
from lossless.engines.local.plan import make_plan
from lossless.engines.local.probe import has_quorum
from lossless.engines.local.security import connected_as_node, receive_frame
from lossless.engines.local.start import start_cluster
from lossless.errors import Unavailable
from lossless.wire import frames
from lossless.wire.codec import Fields
from lossless.wire.outgoing import outgoing
from lossless.wire.versions import API_VERSIONS, APIS, CONTROLLER

CREATE_ACLS, ALTER_SCRAM, ENVELOPE = 30, 51, 58
RULE = {
    "resource_type": 2,
    "resource_name": "diary",
    "resource_pattern_type": 3,
    "principal": "User:stranger",
    "host": "*",
    "operation": 2,
    "permission_type": 3,
}
USER = {
    "name": "stranger",
    "mechanism": 1,
    "iterations": 4096,
    "salt": b"salt",
    "salted_password": b"x" * 32,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[InProcessCluster]:
    started = InProcessCluster(
        ClusterSpec(
            brokers=2,
            config={
                "security.inter.broker.protocol": "SASL_PLAINTEXT",
                "lossless.sasl.users": "admin:admin-secret",
                "authorizer.class.name": "StandardAuthorizer",
            },
        )
    )
    yield started
    started.stop()


def controller_of(cluster: InProcessCluster) -> str:
    return f"127.0.0.1:{cluster.plan.controllers[0].controller_port}"


def test_a_stranger_gets_no_user_and_no_rights_from_a_controller(
    cluster: InProcessCluster,
) -> None:
    envelope = outgoing(CREATE_ACLS, 3, {"creations": [RULE]})
    inner = frames.request(CREATE_ACLS, 3, 1, "stranger", envelope.message, tagged=True)[4:]
    asked: dict[int, Fields] = {
        CREATE_ACLS: {"creations": [RULE]},
        ALTER_SCRAM: {"deletions": [], "upsertions": [USER]},
        ENVELOPE: {"request_data": inner, "client_host_address": b"\x7f\0\0\1"},
    }
    for key, fields in asked.items():
        with Raw(controller_of(cluster)) as stranger:
            assert stranger.ask(key, APIS[key].highest, fields) is None
    for node in cluster._nodes.values():
        assert node.broker is not None
        assert not set(node.broker.image.acls)
        assert {user for user, _ in node.broker.image.scram} == {"admin"}


def test_before_a_login_a_controller_answers_nothing_but_what_it_speaks(
    cluster: InProcessCluster,
) -> None:
    for api in APIS.values():
        if api.listeners & CONTROLLER and api.key not in (API_VERSIONS, 17, 36):
            with Raw(controller_of(cluster)) as stranger:
                assert stranger.ask(api.key, api.highest, {}) is None, api.name
    with Raw(controller_of(cluster)) as stranger:
        assert stranger.ask(API_VERSIONS, 0, {}) is not None


@pytest.mark.parametrize(
    "login",
    [
        (NODE_MECHANISM, NODE_USER, "another secret"),
        (NODE_MECHANISM, NODE_USER, ""),
        (NODE_MECHANISM, "admin", "admin-secret"),
        ("PLAIN", "admin", "admin-secret"),
    ],
)
def test_without_the_secret_a_login_with_a_controller_fails(
    cluster: InProcessCluster, login: tuple[str, str, str]
) -> None:
    port = cluster.plan.controllers[0].controller_port
    assert port is not None
    with ExitStack() as held, pytest.raises(LoginFailed):
        connected_as_node(login, port, 10, held)


def test_a_recorded_login_lets_nobody_in(cluster: InProcessCluster) -> None:
    port = cluster.plan.controllers[0].controller_port
    recorded = []
    login = Login(NODE_MECHANISM, NODE_USER, cluster.plan.secret, "recorded")
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        frame: bytes | None = login.first()
        while frame is not None:
            recorded.append(frame)
            connection.sendall(frame)
            frame = login.answer(receive_frame(connection))
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        for frame in recorded[:-1]:
            connection.sendall(frame)
            receive_frame(connection)
        connection.sendall(recorded[-1])
        assert b"Authentication failed" in receive_frame(connection)
        assert connection.recv(1) == b""


def test_every_cluster_has_a_secret_of_its_own() -> None:
    spec = ClusterSpec(brokers=1)
    plans = [make_plan(spec, engine="embedded", temporary=True) for _ in range(3)]
    assert len({plan.secret for plan in plans}) == 3
    assert min(len(plan.secret) for plan in plans) >= 43
    assert plans[0].secret not in repr(plans[0])


def test_a_node_without_the_secret_does_not_start() -> None:
    assert node_login(node_settings("s")).password == "s"
    with pytest.raises(InvalidSetting, match="no username and password"):
        node_login({})
    with pytest.raises(InvalidSetting, match="SASL_PLAINTEXT"):
        node_login({**node_settings("s"), "listener.security.protocol.map": "CONTROLLER:PLAINTEXT"})


def without_secret(folder: Path) -> None:
    """As an earlier version left it."""
    file = folder / "cluster.json"
    state = json.loads(file.read_text())
    del state["plan"]["secret"]
    file.write_text(json.dumps(state))


def test_the_secret_is_kept_with_mode_600_and_a_folder_without_one_gets_one(
    tmp_path: Path,
) -> None:
    before = os.umask(0)
    try:
        spec = ClusterSpec(brokers=1, data=tmp_path)
        InProcessCluster(spec).stop()
        without_secret(tmp_path)
        started = InProcessCluster(spec)
        assert has_quorum(started.plan, started.plan.controllers[0])
        started.stop()
    finally:
        os.umask(before)
    file = tmp_path / "cluster.json"
    assert json.loads(file.read_text())["plan"]["secret"] == started.plan.secret != ""
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = InProcessCluster(spec)
    again.stop()
    assert again.plan.secret == started.plan.secret


def test_processes_log_in_and_a_cluster_of_an_earlier_version_says_how_to_go_on(
    tmp_path: Path,
) -> None:
    cluster = start_cluster(ClusterSpec(brokers=1), tmp_path, temporary=True)
    try:
        assert has_quorum(cluster.plan, cluster.plan.controllers[0])
        stranger = dataclasses.replace(cluster.plan, secret="another")
        assert not has_quorum(stranger, cluster.plan.controllers[0])
        without_secret(tmp_path)
        with pytest.raises(Unavailable, match="earlier version"):
            LocalCluster(tmp_path).restart(1)
    finally:
        cluster.stop()


def test_apache_kafkas_controllers_serve_no_strangers_either(tmp_path: Path) -> None:
    """Also where everybody is a super user of the brokers' listener."""
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    spec = ClusterSpec(brokers=1, config=config)
    cluster = start_cluster(spec, tmp_path, engine="apache", temporary=True)
    try:
        (node,) = cluster.plan.controllers
        with Raw(f"127.0.0.1:{node.controller_port}") as stranger:
            assert stranger.ask(CREATE_ACLS, 3, {"creations": [RULE]}) is None
        assert has_quorum(cluster.plan, node)
        assert not has_quorum(dataclasses.replace(cluster.plan, secret="another"), node)
    finally:
        cluster.stop()
