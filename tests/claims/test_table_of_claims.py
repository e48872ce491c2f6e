"""docs/claims.md says what the tests state, and every claim has one."""

from __future__ import annotations

import pytest
from table import DOCUMENT, LIVE, render, stated


def test_the_table_is_current() -> None:
    assert DOCUMENT.read_text() == render(), "scripts/document-claims writes it"


@pytest.mark.parametrize("claim", LIVE)
def test_every_claim_has_a_test_on_live_clusters(claim: str) -> None:
    assert any(claim in state.ids for state in stated())


def test_no_test_names_a_claim_that_is_not_listed() -> None:
    assert {claim for state in stated() for claim in state.ids} <= set(LIVE)


@pytest.mark.parametrize("claim", LIVE)
def test_every_claim_is_shown_on_embedded_brokers_every_time(claim: str) -> None:
    assert any(claim in state.ids and "embedded" in state.often for state in stated())


def test_the_most_telling_run_on_apache_kafka_every_time() -> None:
    assert 1 <= sum("apache" in state.often for state in stated()) <= 6
