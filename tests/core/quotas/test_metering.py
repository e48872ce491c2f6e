"""How long clients wait that have used too much. Expected times are those of Kafka's formula."""

from __future__ import annotations

import pytest

from lossless.core.quotas.limits import CONNECTIONS, CONSUMED, PRODUCED, REQUEST_TIME, Limit
from lossless.core.quotas.metering import (
    CLIENTS_MAX,
    WAIT_MS_MAX,
    Rate,
    Tokens,
    Use,
    fetch_bytes_max,
)

LIMIT = Limit(100.0, "alice", "")


def test_a_client_waits_until_its_rate_is_within_the_limit() -> None:
    use = Use()
    assert use.produced(PRODUCED, LIMIT, 1_000, 0) == 0  # ten seconds' worth
    # 1,100 in a window of 10 s is 110 a second: a tenth too much, so a tenth of the window.
    assert use.produced(PRODUCED, LIMIT, 100, 0) == 1_000
    assert use.produced(PRODUCED, LIMIT, 0, 1_000) == 1_000  # ten whole seconds with this one
    assert use.produced(PRODUCED, LIMIT, 0, 11_000) == 0


def test_clients_that_share_a_limit_use_it_together_and_others_do_not() -> None:
    use = Use()
    use.produced(PRODUCED, LIMIT, 2_000, 0)
    assert use.produced(PRODUCED, LIMIT, 1, 0) > 0
    assert use.produced(PRODUCED, Limit(100.0, "bob", ""), 1, 0) == 0
    assert use.produced(CONSUMED, LIMIT, 1, 0) == 0


def test_a_changed_limit_counts_at_once() -> None:
    use = Use()
    assert use.produced(PRODUCED, LIMIT, 2_000, 0) > 0
    assert use.produced(PRODUCED, LIMIT._replace(value=1_000.0), 1, 0) == 0


def test_an_answer_that_is_held_back_is_not_counted() -> None:
    use = Use()
    assert use.fetched(CONSUMED, LIMIT, 900, 0) == 0
    assert use.fetched(CONSUMED, LIMIT, 900, 0) == 8_000
    assert use.fetched(CONSUMED, LIMIT, 900, 0) == 8_000
    assert use.fetched(CONSUMED, LIMIT, 100, 0) == 0


def test_an_answer_that_is_larger_than_the_whole_window_is_sent_to_a_client_that_used_nothing() -> (
    None
):
    use = Use()
    assert use.fetched(CONSUMED, LIMIT, 50_000, 0) == 0
    assert use.fetched(CONSUMED, LIMIT, 1, 0) > 0
    assert use.fetched(CONSUMED, LIMIT, 50_000, 20_000) == 0


def test_requests_wait_for_a_second_at_most() -> None:
    use = Use()
    assert use.worked(REQUEST_TIME, LIMIT, 100_000, 0) == 1_000


@pytest.mark.parametrize("value", [5e-324, 1e-320, 1e-12, 1.0])
def test_a_wait_fits_the_field_of_the_answer_however_small_the_limit_is(value: float) -> None:
    use, limit, tokens = Use(), Limit(value, "alice", ""), Tokens()
    assert use.produced(PRODUCED, limit, 100_000_000, 0) == WAIT_MS_MAX
    assert use.fetched(PRODUCED, limit, 100_000_000, 0) == WAIT_MS_MAX
    assert use.worked(REQUEST_TIME, limit, 100_000_000, 0) == 1_000
    use.connected(CONNECTIONS, limit, 0)
    assert use.connected(CONNECTIONS, limit, 0) <= 1_000
    tokens.take(100_000_000, value, 0)
    assert tokens.wait_ms(value, 0) == WAIT_MS_MAX


def test_more_than_the_window_allows_is_not_asked_for() -> None:
    assert fetch_bytes_max(LIMIT) == 1_000
    assert fetch_bytes_max(Limit(0.01, "", "")) == 1


def test_samples_are_forgotten_after_eleven_seconds() -> None:
    rate = Rate()
    for second in range(30):
        rate.record(100, second * 1_000)
    observed = rate.observed(29_000)
    assert observed.window_ms == 10_000
    assert observed.rate == 110.0  # eleven samples, of which the last one has just begun


def test_tokens_are_taken_below_zero_once_and_come_back_at_the_rate() -> None:
    tokens = Tokens()
    assert tokens.wait_ms(1.0, 0) == 0
    tokens.take(13, 1.0, 0)  # of eleven
    assert tokens.wait_ms(1.0, 0) == 2_000
    assert tokens.wait_ms(1.0, 1_500) == 500
    assert tokens.wait_ms(1.0, 2_000) == 0
    tokens.take(0, 1.0, 60_000)
    tokens.take(11, 1.0, 60_000)
    assert tokens.wait_ms(1.0, 60_000) == 0
    tokens.take(1, 1.0, 60_000)
    assert tokens.wait_ms(1.0, 60_000) == 1_000


def test_clients_that_use_nothing_any_more_are_forgotten() -> None:
    use = Use()
    for number in range(CLIENTS_MAX):
        use.produced(PRODUCED, Limit(1.0, f"user-{number}", ""), 1, 0)
    use.produced(PRODUCED, LIMIT, 1, 60_000)
    assert len(use._rates._meters) == 1
