"""Connections that do nothing, do not read, or are too many: what they cost is bounded."""

from __future__ import annotations

import contextlib
import itertools
import resource
import selectors
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from victim import TIMEOUT_S, TOPIC, Client, Victim, framed, running

from lossless.engines.waiting import wait_until
from lossless.log.batch import Record, build

IDLE_CONNECTIONS = 5_000
IDLE_BYTES_MAX = 64 * 1024
IDLE_MS = 1_000
API_VERSIONS, METADATA, FETCH = 18, 3, 1


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """This process opens as many connections as the broker does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = IDLE_CONNECTIONS + 500
    may_have_enough = hard == resource.RLIM_INFINITY or hard >= wanted
    assert may_have_enough, f"{wanted} descriptors are needed, and {hard} allowed: ulimit -Hn"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_broker_raises_its_own_limit_of_descriptors(victim: Victim) -> None:
    soft, hard = victim.process.rlimit(psutil.RLIMIT_NOFILE)
    assert soft == hard


@contextlib.contextmanager
def _descriptors(victim: Victim, few: int) -> Iterator[None]:
    limits = victim.process.rlimit(psutil.RLIMIT_NOFILE)
    victim.process.rlimit(psutil.RLIMIT_NOFILE, (few, limits[1]))
    try:
        yield
    finally:
        victim.process.rlimit(psutil.RLIMIT_NOFILE, limits)


def test_when_descriptors_run_out_connections_are_refused_and_it_is_said_once(
    victim: Victim,
) -> None:
    in_use = victim.process.num_fds()
    with _descriptors(victim, in_use + 100), contextlib.ExitStack() as held:
        served = refused = 0
        for _ in range(200):
            client = held.enter_context(victim.client())
            if client.ask(API_VERSIONS, {}, version=0) is None:
                refused += 1
            else:
                served += 1
        assert served
        assert refused > 50
        # Some are kept back: a log must be able to open its next segment.
        assert victim.process.num_fds() < in_use + 95
        assert victim.process.cpu_percent(interval=0.3) < 90
    assert victim.log().count("connections are refused") == 1


@pytest.mark.usefixtures("many_descriptors")
def test_five_thousand_idle_connections_cost_little_and_the_broker_goes_on(victim: Victim) -> None:
    victim.assert_unharmed()
    before = victim.process.memory_info().rss
    with contextlib.ExitStack() as held:
        for number in range(1, IDLE_CONNECTIONS + 1):
            client = held.enter_context(victim.client())
            client.ask(API_VERSIONS, {}, version=0)  # open at the other end too
            if number % 1_000 == 0:
                victim.assert_unharmed()
        each = (victim.process.memory_info().rss - before) / IDLE_CONNECTIONS
        print(f"{each / 1024:.1f} KiB for each of {IDLE_CONNECTIONS} idle connections")
        assert each <= IDLE_BYTES_MAX
        victim.assert_unharmed()


# Who does not read


def _held_back(client: Client, requests: bytes) -> int:
    """Sends, and reads nothing, until the other end takes no more; how many bytes it took."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.socket.setblocking(False)
    sent = 0
    with selectors.DefaultSelector() as selector:
        selector.register(client.socket, selectors.EVENT_WRITE)
        for data in itertools.repeat(requests):
            if not selector.select(timeout=0.4):
                return sent
            with contextlib.suppress(BlockingIOError):
                sent += client.socket.send(data)
            assert sent < 100 << 20, "the broker takes whatever comes"
    raise AssertionError


def _fetch(bytes_max: int = 1 << 20, **fields: object) -> bytes:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": bytes_max}
    topics = [{"topic": "large", "partitions": [partition]}]
    return framed(FETCH, 12, {"max_wait": 0, "min_bytes": 0, "topics": topics, **fields})


@pytest.fixture(scope="module")
def large_topic(one_broker: Victim) -> None:
    """20 MB of records."""
    one_broker.create_topic("large")
    records = build([Record(0, 1, None, b"x" * 900_000)]).data
    with one_broker.client() as client:
        for _ in range(22):
            assert one_broker.produce(client, "large", records).error_code.value == 0


UNREAD: dict[str, Callable[[], bytes]] = {
    "small answers": lambda: framed(API_VERSIONS, 0, {}) * 1000,
    "metadata of everything": lambda: framed(METADATA, 12, {"topics": None}) * 1000,
    "fetches of a megabyte": lambda: _fetch() * 1000,
    "fetches of everything": lambda: _fetch(1 << 30) * 1000,
    "fetches that wait for more than there is": lambda: (
        _fetch(1 << 30, max_wait=500, min_bytes=1 << 30) * 1000
    ),
}


@pytest.mark.usefixtures("large_topic")
@pytest.mark.parametrize("requests", UNREAD.values(), ids=UNREAD)
def test_whoever_does_not_read_its_answers_is_not_read_any_more(
    victim: Victim, requests: Callable[[], bytes]
) -> None:
    before = victim.process.memory_info().rss
    with contextlib.ExitStack() as held:
        for _ in range(2):
            client = held.enter_context(victim.client())
            assert _held_back(client, requests()) > 0
        grown = victim.process.memory_info().rss - before
        # An answer of 20 MB each, and what was sent.
        assert grown < 150 << 20, f"{grown >> 20} MB"
        victim.assert_unharmed()


@pytest.mark.usefixtures("large_topic")
def test_many_clients_that_do_not_read_take_no_more_memory_than_a_few(victim: Victim) -> None:
    before = victim.process.memory_info().rss
    with contextlib.ExitStack() as held:
        for _ in range(20):
            client = held.enter_context(victim.client())
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.send(_fetch(1 << 30))
            # The answer has begun: what is left of it waits at the broker.
            assert client.received(4) is not None
        grown = victim.process.memory_info().rss - before
        assert grown < 200 << 20, f"{grown >> 20} MB"
        victim.assert_unharmed()


@pytest.mark.usefixtures("large_topic")
def test_a_slow_reader_gets_everything_in_the_end(victim: Victim) -> None:
    count = 10
    with victim.client() as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        client.send(b"".join([_fetch()] * count) + framed(API_VERSIONS, 0, {}))
        for _ in range(count):
            answer = client.answer(FETCH, 12)
            assert len(answer.responses[0].partitions[0].records) > 900_000
        assert client.answer(API_VERSIONS, 0).error_code.value == 0


def test_what_is_announced_and_not_sent_takes_no_memory(victim: Victim) -> None:
    before = victim.process.memory_info().rss
    with contextlib.ExitStack() as held:
        for _ in range(300):
            client = held.enter_context(victim.client())
            client.send(struct.pack(">i", 999_999) + b"\0\0\0\7")
        victim.assert_unharmed()
        grown = victim.process.memory_info().rss - before
        assert grown < 300 * 100_000, f"{grown >> 20} MB"


# Who is silent


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    folder: Path = tmp_path_factory.mktemp("impatient")
    with running(folder, connections_max_idle_ms=str(IDLE_MS)) as victim:
        yield victim


def test_idle_connections_are_closed_and_busy_ones_are_not(impatient: Victim) -> None:
    with impatient.client() as idle, impatient.client() as busy, impatient.client() as waiting:
        assert idle.ask(API_VERSIONS, {}, version=0) is not None
        # Who waits for an answer is not idle, however long it takes.
        end = impatient.end_offset(busy, TOPIC)
        partition = {"partition": 0, "fetch_offset": end, "partition_max_bytes": 1}
        topics = [{"topic": TOPIC, "partitions": [partition]}]
        wait = {"max_wait": 2 * IDLE_MS, "min_bytes": 1, "topics": topics}
        waiting.send(framed(FETCH, 12, wait))
        idle.socket.setblocking(False)

        def is_closed() -> bool:
            assert busy.ask(API_VERSIONS, {}, version=0) is not None
            try:
                return idle.socket.recv(1) == b""
            except BlockingIOError:
                return False
            except ConnectionResetError:
                return True

        assert not is_closed()
        assert wait_until(is_closed, timeout_s=TIMEOUT_S)
        assert waiting.answer(FETCH, 12).responses[0].partitions[0].error_code.value == 0
    impatient.assert_unharmed()


def test_whoever_does_not_read_is_let_go_as_if_it_were_silent(impatient: Victim) -> None:
    with impatient.client() as unread:
        _held_back(unread, framed(METADATA, 12, {"topics": None}) * 1000)

        def is_let_go() -> bool:
            try:
                return unread.socket.send(b"\0") < 0
            except BlockingIOError:
                return False
            except ConnectionError:
                return True

        assert wait_until(is_let_go, timeout_s=TIMEOUT_S)
    impatient.assert_unharmed()
