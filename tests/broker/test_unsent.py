"""What waits in memory for clients that do not read is bounded, on all connections together."""

from __future__ import annotations

import pytest

from lossless.broker.unsent import BYTES_MAX, FREELY_BYTES_MAX, SCARCE_BYTES, Unsent


class _Client:
    peer_host = "127.0.0.1"

    def __init__(self, unread: int) -> None:
        self.unread = unread
        self.is_open = True

    def unsent_bytes(self) -> int:
        return self.unread

    def abort(self) -> None:
        self.is_open = False


def test_a_fetch_gets_what_it_asks_for_while_little_waits() -> None:
    unsent = Unsent()
    assert unsent.fetch_bytes(55 << 20) == 55 << 20
    unsent.add(_Client(FREELY_BYTES_MAX))
    assert unsent.fetch_bytes(55 << 20) == 55 << 20


def test_a_fetch_gets_little_while_much_waits() -> None:
    unsent = Unsent()
    slow = _Client(FREELY_BYTES_MAX + 1)
    unsent.add(slow)
    assert unsent.fetch_bytes(55 << 20) == SCARCE_BYTES
    assert unsent.fetch_bytes(10) == 10
    unsent.discard(slow)
    assert unsent.fetch_bytes(55 << 20) == 55 << 20
    unsent.discard(slow)  # twice does no harm: it read, and then it left


def test_the_client_that_has_not_read_for_the_longest_time_goes_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unsent = Unsent()
    clients = [_Client(BYTES_MAX // 4) for _ in range(6)]
    for client in clients:
        unsent.add(client)
    assert [client.is_open for client in clients] == [False] * 2 + [True] * 4
    assert unsent.total_bytes() == BYTES_MAX
    assert "does not read" in caplog.text


def test_one_answer_that_is_larger_than_everything_still_goes_out() -> None:
    unsent = Unsent()
    only = _Client(BYTES_MAX + 1)
    unsent.add(only)
    assert only.is_open
