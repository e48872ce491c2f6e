"""docs/client-claims.md says what the tests state; every claim and every fault has one."""

from __future__ import annotations

import pytest

from client.claims.client_claim import WANTED, Fault
from client.claims.client_table import DOCUMENT, render, stated


def test_the_table_of_client_claims_is_current() -> None:
    assert DOCUMENT.read_text() == render(), "scripts/document-client-claims writes it"


@pytest.mark.parametrize("claim", WANTED)
def test_every_claim_of_the_client_is_shown_on_embedded_brokers_every_time(claim: str) -> None:
    assert any(claim in state.ids and "embedded" in state.often for state in stated())


@pytest.mark.parametrize("fault", Fault)
def test_every_fault_is_used(fault: Fault) -> None:
    assert any(state.fault is fault for state in stated())


def test_no_test_names_a_claim_that_the_client_does_not_make() -> None:
    assert {claim for state in stated() for claim in state.ids} <= set(WANTED)


def test_the_most_telling_run_on_apache_kafka_every_time_too() -> None:
    assert 2 <= sum("apache" in state.often for state in stated()) <= 3
