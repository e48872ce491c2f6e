"""One broker, its own controller, for all tests of this folder: none of them may harm it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from victim import Victim, running


@pytest.fixture(scope="package")
def one_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    folder = tmp_path_factory.mktemp("victim")
    # Large frames are refused from a million bytes on: a test need not send a hundred million.
    with running(folder, socket_request_max_bytes="1000000") as victim:
        yield victim


@pytest.fixture
def victim(one_broker: Victim) -> Iterator[Victim]:
    """Whatever a test does to it, afterwards it serves as ever."""
    yield one_broker
    one_broker.assert_unharmed()
