"""Which Kafka is meant, and a clear word when there is none."""

from __future__ import annotations

import dataclasses
import socket
import time
from pathlib import Path

import pytest

from lossless.contract import Contract, load_contract
from lossless.contract.faults import Fault, FaultKind, Unsupported
from lossless.engines.choose import connect
from lossless.engines.external import ExternalCluster
from lossless.engines.local.planned import PlannedCluster
from lossless.errors import BadInput, Unavailable


@pytest.fixture
def contract(tmp_path: Path) -> Contract:
    (tmp_path / "lossless.toml").write_text("[cluster]\nbrokers = 3\n")
    return load_contract(tmp_path)


def with_client(contract: Contract, **client: str) -> Contract:
    settings = {name.replace("_", "."): value for name, value in client.items()}
    return dataclasses.replace(
        contract, cluster=dataclasses.replace(contract.cluster, client=settings)
    )


def test_an_address_is_a_cluster_that_can_be_asked_but_not_broken(
    lossless_cluster: PlannedCluster,
) -> None:
    kafka = connect(lossless_cluster.bootstrap_servers, None)
    assert isinstance(kafka, ExternalCluster)
    assert [row.broker for row in kafka.status()] == [1, 2, 3]
    answer = kafka.inject(Fault(kind=FaultKind.BROKER_CRASH, broker=1))
    assert isinstance(answer, Unsupported)
    assert "not a cluster that Lossless started" in answer.why
    kafka.stop()
    assert {row.state for row in lossless_cluster.status()} == {"running"}


def test_the_option_wins_over_the_contract_and_keeps_its_security_settings(
    lossless_cluster: PlannedCluster, contract: Contract
) -> None:
    contract = with_client(contract, bootstrap_servers="127.0.0.1:1", security_protocol="PLAINTEXT")
    kafka = connect(lossless_cluster.bootstrap_servers, contract)
    assert kafka.client_settings == {
        "bootstrap.servers": lossless_cluster.bootstrap_servers,
        "security.protocol": "PLAINTEXT",
    }


def test_without_an_option_the_contracts_address_is_used(
    lossless_cluster: PlannedCluster, contract: Contract
) -> None:
    address = lossless_cluster.bootstrap_servers
    assert connect(None, with_client(contract, bootstrap_servers=address)).bootstrap_servers == (
        address
    )


def test_an_address_where_nobody_answers_is_named_within_seconds() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        before = time.monotonic()
        with pytest.raises(Unavailable, match=address) as raised:
            connect(address, None)
    assert time.monotonic() - before < 10
    assert "refused" in str(raised.value)


def test_nothing_named_and_nothing_running_says_how_to_start(contract: Contract) -> None:
    for kafka in (None, "apache"):
        with pytest.raises(Unavailable, match="no broker is running") as raised:
            connect(kafka, contract)
        assert "lossless up" in str(raised.value)


@pytest.mark.parametrize("choice", ["embeded", "apche", "host:", ":9092", "a:1,,b:2", ""])
def test_what_is_neither_an_engine_nor_an_address_is_refused(choice: str) -> None:
    with pytest.raises(BadInput, match="--kafka"):
        connect(choice, None)
