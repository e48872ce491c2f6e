"""Whether the log store of a Delta table lets one of two drivers win, found out by a race.

Delta publishes a version by creating a file that must not exist yet. On a store that cannot do
that in one step, a log store that only coordinates the writers of its own JVM lets both drivers
win, and the rows of one are lost. Its name does not tell: recent releases of a store's client can
create conditionally, and a class for another store can be configured for this one.

Two instances of the session's log store race for the same new file, each loaded by a class loader
of its own, so that they share no locks: as two JVMs would. They begin together, and each is held
until the other has written its contents too, so that both publish at the same moment. A store that
refuses the second writer at once may have been lucky, so the race is repeated.
"""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import inheritable_thread_target
from pyspark.java_gateway import ensure_callback_server_started

from lossless.errors import BadInput
from lossless.pipeline.sinks.delta_log import DeltaLog

ROUNDS = 6
# A log store that takes a lock before it writes lets the other one wait: then they never meet.
MEET_S_MAX = 5.0
PROBE_PREFIX = "_lossless_probe_"  # the underscore hides it from Delta, VACUUM and Spark
_HINT = (
    "set spark.delta.logStore.SCHEME.impl to a log store that coordinates all drivers, such as "
    "io.delta.storage.S3DynamoDBLogStore for s3a, or write to a file system that creates "
    "files atomically"
)
_ALREADY_EXISTS = (
    "java.nio.file.FileAlreadyExistsException",
    "org.apache.hadoop.fs.FileAlreadyExistsException",
)


def require_coordination(delta: DeltaLog, described: str) -> None:
    """BadInput if two drivers could both publish the same version of the table."""
    if delta.is_local:
        return  # a lock is held around every commit
    store = delta.log_store()
    kind = store.getClass()
    if not kind.getClassLoader().loadClass("io.delta.storage.LogStore").isInstance(store):
        raise BadInput(
            f"{described}: {kind.getName()} is not an io.delta.storage.LogStore, so that nothing "
            "shows whether it coordinates several drivers",
            hint=_HINT,
        )
    folder = f"{PROBE_PREFIX}{secrets.token_hex(8)}"
    try:
        for number in range(ROUNDS):
            log = f"{folder}/{number}/_delta_log"
            delta.make_folder(log)
            winners, has_waited = _race(delta, kind, f"{log}/{0:020d}.json")
            if winners > 1:
                raise BadInput(
                    f"{described}: two drivers that publish the same version through the log "
                    f"store {kind.getName()} both succeed, and the rows of one are lost",
                    hint=_HINT,
                )
            if has_waited:
                return
    finally:
        with suppress(Py4JJavaError):  # what is left is hidden, and small
            delta.remove(folder)


def _race(delta: DeltaLog, kind: Any, target: str) -> tuple[int, bool]:
    """How many of two writers have created the target, and whether one waited for the other."""
    gateway = delta.spark.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    start = threading.Barrier(2, timeout=MEET_S_MAX)
    barrier = threading.Barrier(2, timeout=MEET_S_MAX)
    refused: list[int] = []
    writers = [_isolated(delta, kind) for _ in range(2)]

    def write(number: int) -> bool:
        contents = _Contents(f'{{"writer":{number}}}', barrier)
        with suppress(threading.BrokenBarrierError):
            start.wait()
        try:
            writers[number].write(delta.child(target), contents, False, delta.configuration)
        except Py4JJavaError as error:
            refused.append(number)
            barrier.abort()
            if str(error.java_exception.getClass().getName()) in _ALREADY_EXISTS:
                return False
            raise
        return True

    with ThreadPoolExecutor(max_workers=2) as pool:
        racing = [pool.submit(inheritable_thread_target(delta.spark)(write), n) for n in range(2)]
        winners = sum(each.result() for each in racing)
    return winners, barrier.broken and not refused


class _Contents:
    """A java.util.Iterator over one line, whose end is held until the other writer is there."""

    def __init__(self, line: str, barrier: threading.Barrier) -> None:
        self._lines = [line]
        self._barrier: threading.Barrier | None = barrier

    def hasNext(self) -> bool:  # noqa: N802
        if not self._lines and self._barrier is not None:
            with suppress(threading.BrokenBarrierError):
                self._barrier.wait()
            self._barrier = None
        return bool(self._lines)

    def next(self) -> str:
        return self._lines.pop()

    class Java:
        implements = ("java.util.Iterator",)


def _isolated(delta: DeltaLog, kind: Any) -> Any:
    """An instance of the log store that shares no static state with any other."""
    jvm, gateway = delta.jvm, delta.spark.sparkContext._gateway
    assert gateway is not None
    parent = kind.getClassLoader()
    sources = [kind, parent.loadClass("io.delta.storage.LogStore")]
    urls = gateway.new_array(jvm.java.net.URL, len(sources))
    for index, each in enumerate(sources):
        urls[index] = each.getProtectionDomain().getCodeSource().getLocation()
    loader = jvm.org.apache.spark.util.ChildFirstURLClassLoader(urls, parent)
    types = gateway.new_array(jvm.java.lang.Class, 1)
    types[0] = parent.loadClass("org.apache.hadoop.conf.Configuration")
    arguments = gateway.new_array(jvm.java.lang.Object, 1)
    arguments[0] = delta.configuration
    return loader.loadClass(kind.getName()).getConstructor(types).newInstance(arguments)
