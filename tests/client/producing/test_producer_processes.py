"""A process that ends without closing its producer, and one that forks beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lossless.client.producing.giving_up import Park
from lossless.client.producing.producer import Producer
from lossless.engines.local.planned import PlannedCluster
from topics import read_all

NOBODY = "127.0.0.1:1"  # where nothing listens
UNREACHABLE = f"""
from lossless.client.producing import processes
processes.EXIT_S = 0.3
from lossless.client.producing.producer import Producer
producer = Producer({{"bootstrap.servers": "{NOBODY}"}}, application="shop", audit=False)
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# Finding 4


def test_a_process_that_ends_without_close_delivers_what_is_in_memory(
    kafka: PlannedCluster, topic: str
) -> None:
    ended = run(f"""
from lossless.client.producing.producer import Producer
producer = Producer({{"bootstrap.servers": {kafka.bootstrap_servers!r}, "linger.ms": 500}})
for number in range(1_000):
    producer.send({topic!r}, b"%d" % number)
""")
    assert (ended.returncode, ended.stderr) == (0, "")
    found = {message.value() for message in read_all(kafka.bootstrap_servers, topic)}
    assert found == {b"%d" % number for number in range(1_000)}


@pytest.mark.parametrize("ends", ["", "import sys; sys.exit(0)", "raise ZeroDivisionError"])
def test_a_process_that_ends_without_close_reports_what_is_not_delivered(ends: str) -> None:
    ended = run(f"""{UNREACHABLE}
for number in range(4):
    producer.send("orders", b"v", key=f"k{{number}}")
{ends}
""")
    said = "lossless: the producer of 'shop' was not closed before the process ended: 4 records"
    assert said in ended.stderr
    assert "orders, key 'k0'" in ended.stderr


def test_a_failure_that_was_not_looked_at_is_reported_when_the_process_ends() -> None:
    ended = run(f"""
from lossless.client.producing.producer import Producer
settings = {{"bootstrap.servers": "{NOBODY}", "delivery.timeout.ms": 100, "linger.ms": 0}}
producer = Producer(settings, audit=False)
delivery = producer.send("orders", b"v", key="k0")
while not delivery.done:
    pass
""")
    assert "was not closed before the process ended: orders, key 'k0'" in ended.stderr


def test_a_process_with_a_spool_that_ends_without_close_parks_what_is_in_memory(
    tmp_path: Path,
) -> None:
    ended = run(f"""
from lossless.client.producing import Park, Producer, processes
processes.EXIT_S = 0.3
producer = Producer({{"bootstrap.servers": "{NOBODY}"}}, giving_up=Park({str(tmp_path)!r}))
for number in range(4):
    producer.send("orders", b"v", key=f"k{{number}}")
""")
    assert "4 records stay parked" in ended.stderr
    with Producer({"bootstrap.servers": NOBODY}, giving_up=Park(tmp_path), audit=False) as next_one:
        assert next_one.metrics.parked == 4


def test_a_worker_process_that_ends_without_close_reports_what_is_not_delivered() -> None:
    ended = run(f"""
import multiprocessing

def work():
    from lossless.client.producing import processes
    processes.EXIT_S = 0.3
    from lossless.client.producing.producer import Producer
    producer = Producer({{"bootstrap.servers": "{NOBODY}"}}, application="w", audit=False)
    producer.send("orders", b"v", key="k0")

worker = multiprocessing.get_context("fork").Process(target=work)
worker.start()
worker.join()
""")
    assert "the producer of 'w' was not closed before the process ended" in ended.stderr


# Finding 10

FORKED = """
import os, sys
{made}
delivery = producer.send("orders", b"v")
child = os.fork()
if not child:
    try:
        {call}
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0], flush=True)
    sys.exit(0)
print("child:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(
    "call",
    [
        "producer.flush()",
        "producer.close()",
        "producer.__exit__(None, None, None)",
        "producer.send('orders', b'v')",
        "producer.send('orders', b'v', headers={'a': 'b'})",
        "delivery.result()",
    ],
)
def test_a_forked_child_is_refused_whatever_it_does(call: str) -> None:
    ended = run(FORKED.format(made=UNREACHABLE, call=call))
    first, second = ended.stdout.splitlines()
    assert first.startswith("ClientFailed this producer was made by the parent of this process")
    assert second == "child: 0"


def test_a_forked_child_can_make_a_producer_of_its_own(kafka: PlannedCluster, topic: str) -> None:
    ended = run(
        FORKED.format(
            made=UNREACHABLE,
            call=f"""with Producer({{"bootstrap.servers": {kafka.bootstrap_servers!r}}}) as mine:
            mine.send({topic!r}, b"child")""",
        )
    )
    assert ended.stdout == "child: 0\n"
    assert [m.value() for m in read_all(kafka.bootstrap_servers, topic)] == [b"child"]


def test_a_spool_is_free_when_its_owner_is_dead_though_a_forked_child_lives(
    tmp_path: Path,
) -> None:
    program = f"""
import os, signal, sys
from lossless.client.producing import Park, Producer
producer = Producer({{"bootstrap.servers": "{NOBODY}"}}, giving_up=Park({str(tmp_path)!r}))
child = os.fork()
if not child:
    sys.stdin.read()  # until the test closes it
    os._exit(0)
print("forked", flush=True)
signal.pause()
"""
    owner = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    assert owner.stdin is not None
    with owner:
        assert owner.stdout.readline() == "forked\n"
        owner.kill()
        owner.wait(30)
        Producer({"bootstrap.servers": NOBODY}, giving_up=Park(tmp_path), audit=False).close(0)
        owner.stdin.close()
