"""Workers: threads, processes or tasks that take records off the lanes.

    thread    the handler runs in one of n threads
    process   in one of n processes, started fresh (spawn): the handler and the record are pickled,
              so that a handler has to be a function of a module. When a process dies, the records
              of all of them are tried again one at a time: the one whose process dies then has
              failed. An exception that cannot be pickled and unpickled becomes a RuntimeError
              with its class and its text
    asyncio   n tasks on one event loop in a thread of its own; the handler is a coroutine function

When a run ends, records in hand may take `drain_timeout_s`. A handler that takes longer is left
behind.

Whichever it is, lanes decide what may run beside what, and failures what becomes of a record.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from confluent_kafka import Message

from lossless.client.consuming.failures import Failures, outage_delay_s
from lossless.client.consuming.lanes import Lane, Lanes
from lossless.client.consuming.settings import WorkerKind
from lossless.client.errors import HandlerFailed, StoreUnavailable, text_of_error
from lossless.errors import BadInput

logger = logging.getLogger(__name__)

Handler = Callable[[Message], Any]

CANCEL_S = 5.0  # for coroutines to end after they were cancelled
LOOK_S = 0.2  # how soon a run notices that it is over while all coroutines are busy


class Workers:
    """One run. `run` returns when the lanes were stopped, or raises what stopped them."""

    def __init__(
        self,
        lanes: Lanes,
        failures: Failures,
        *,
        count: int,
        kind: WorkerKind,
        handler: Handler,
        drain_timeout_s: float,
    ) -> None:
        self._lanes = lanes
        self._failures = failures
        self._count = count
        self._kind = kind
        self._handler = handler
        self._drain_timeout_s = drain_timeout_s
        self._failure: BaseException | None = None
        self._is_stuck = False
        self._ending = False  # tasks are cancelled: the time to finish is over
        self._lock = threading.Lock()

    def run(self) -> None:
        targets = {
            "thread": self._run_threads,
            "process": self._run_processes,
            "asyncio": self._run_tasks,
        }
        try:
            targets[self._kind]()
        finally:
            self._lanes.run_ended()
        failure = self._failure or self._lanes.failure
        if failure is not None:
            raise failure

    def _fail(self, failure: BaseException) -> None:
        with self._lock:
            self._failure = self._failure or failure
        self._lanes.end_run()

    # Threads

    def _run_threads(self) -> None:
        self._run_each(self._handler)

    def _run_each(self, call: Handler) -> None:
        threads = [
            threading.Thread(
                target=self._work, args=(call,), name=f"lossless-worker-{n}", daemon=True
            )
            for n in range(self._count)
        ]
        for thread in threads:
            thread.start()
        try:
            self._lanes.wait_until_over()
        finally:  # also after Ctrl-C
            self._lanes.end_run()
            deadline = time.monotonic() + self._drain_timeout_s
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))
            if any(thread.is_alive() for thread in threads):
                self._leave_behind()

    def _leave_behind(self) -> None:
        self._is_stuck = True
        self._lanes.abandon()
        logger.warning(
            "a handler is still busy after %.0f s; its record is not finished, and will be "
            "repeated",
            self._drain_timeout_s,
        )

    def _work(self, call: Handler) -> None:
        while (lane := self._lanes.take()) is not None:
            began = time.perf_counter()
            try:
                if not self._failures.passes_by(lane.records[0]):
                    call(lane.records[0])
            except HandlerFailed as failure:  # not the handler's doing: it could not be sent on
                self._lanes.leave(lane)
                self._fail(failure)
            except BaseException as error:
                self._on_failure(lane, error, began)
            else:
                self._lanes.finish(lane, time.perf_counter() - began)

    def _on_failure(self, lane: Lane, error: BaseException, began: float) -> None:
        if isinstance(error, StoreUnavailable):
            lane.outages += 1
            self._lanes.wait_for_store(lane, outage_delay_s(error, lane.outages))
            return
        try:
            delay_s = self._failures.decide(lane.records[0], error, lane.attempt)
        except BaseException as failure:
            self._lanes.leave(lane)
            self._fail(failure)
            return
        if delay_s is None:
            self._lanes.finish(lane, time.perf_counter() - began)
        else:
            self._lanes.again(lane, delay_s)

    # Processes

    def _run_processes(self) -> None:
        try:
            pickle.dumps(self._handler)
        except Exception as error:  # whatever the handler's own __reduce__ raises
            raise BadInput(
                'worker_kind="process" with a handler that cannot be pickled: '
                f"{text_of_error(error)}",
                hint="use a function of a module, or an object of a class of a module",
            ) from error
        pool = Processes(self._count)
        try:
            self._run_each(lambda message: pool.call(self._handler, message))
        finally:
            pool.close(kill=self._is_stuck)

    # Tasks

    def _run_tasks(self) -> None:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="lossless-loop", daemon=True)
        thread.start()
        free = threading.Semaphore(self._count)
        try:
            self._feed(loop, free)
        finally:
            deadline = time.monotonic() + self._drain_timeout_s
            for _ in range(self._count):  # those in hand may finish
                if not free.acquire(timeout=max(0.0, deadline - time.monotonic())):
                    self._leave_behind()
                    break
            self._ending = True
            self._end_loop(loop, thread)

    def _end_loop(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        try:
            asyncio.run_coroutine_threadsafe(_end_tasks(), loop).result(CANCEL_S)
        except TimeoutError:
            logger.warning("a coroutine does not end although it was cancelled")
            return  # the thread of the loop ends with the process
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _feed(self, loop: asyncio.AbstractEventLoop, free: threading.Semaphore) -> None:
        try:
            while True:
                while not free.acquire(timeout=LOOK_S):
                    if self._lanes.is_over:
                        return
                try:
                    lane = self._lanes.take()
                except BaseException:  # Ctrl-C
                    free.release()
                    raise
                if lane is None:
                    free.release()
                    return
                asyncio.run_coroutine_threadsafe(self._task(lane, free), loop)
        except BaseException:
            self._lanes.end_run()
            raise

    async def _task(self, lane: Lane, free: threading.Semaphore) -> None:
        began = time.perf_counter()
        try:
            message = lane.records[0]
            if self._failures.waiting_keys is None:
                passes_by = self._failures.is_others(message)
            else:
                passes_by = await asyncio.to_thread(self._failures.passes_by, message)
            if not passes_by:
                await self._handler(message)
        except asyncio.CancelledError as cancelled:
            if self._ending:
                self._lanes.leave(lane)
            else:  # the handler raised it; retry policies are about exceptions of class Exception
                error = RuntimeError("the handler raised CancelledError")
                error.__cause__ = cancelled
                await asyncio.to_thread(self._on_failure, lane, error, began)
        except HandlerFailed as failure:
            self._lanes.leave(lane)
            self._fail(failure)
        except BaseException as error:
            # Sending on waits for an acknowledgement: not on the loop.
            await asyncio.to_thread(self._on_failure, lane, error, began)
        else:
            self._lanes.finish(lane, time.perf_counter() - began)
        finally:
            free.release()


async def _end_tasks() -> None:
    loop = asyncio.get_running_loop()
    mine = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks() if task is not mine]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await loop.shutdown_default_executor()


class Processes:
    """A pool that is made anew when one of its processes was killed."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._alone = threading.Lock()
        self._pool = self._new(count)

    def _new(self, count: int) -> ProcessPoolExecutor:
        # Never forked: a process with threads of librdkafka in it cannot be.
        return ProcessPoolExecutor(
            count,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_follow_the_parent,
        )

    def call(self, handler: Handler, message: Message) -> Any:
        pool = self._pool
        try:
            return pool.submit(_call, handler, message).result()
        except BrokenProcessPool:
            with self._lock:
                if self._pool is pool:
                    logger.warning("a worker process died; starting new ones")
                    pool.shutdown(wait=False, cancel_futures=True)
                    self._pool = self._new(self._count)
            if self._count == 1:  # no other record was in the pool
                raise
        # The executor does not say whose process died.
        with self._alone:
            lonely = self._new(1)
            try:
                return lonely.submit(_call, handler, message).result()
            finally:
                lonely.shutdown(wait=True, cancel_futures=True)

    def close(self, *, kill: bool) -> None:
        """The interpreter waits for processes of a pool when it exits, so stuck ones are killed."""
        pool = self._pool
        processes = list((pool._processes or {}).values()) if kill else []
        pool.shutdown(wait=not kill, cancel_futures=True)
        for process in processes:
            process.kill()


def _call(handler: Handler, message: Message) -> Any:
    """In a process of the pool. An exception that does not unpickle would break the pool."""
    try:
        return handler(message)
    except BaseException as error:
        if _survives_pickling(error):
            raise
        kind = type(error)
        name = f"{kind.__module__}.{kind.__qualname__}: {text_of_error(error)}"
        portable = StoreUnavailable if isinstance(error, StoreUnavailable) else RuntimeError
        raise portable(name) from error


def _survives_pickling(error: BaseException) -> bool:
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        return False


def _follow_the_parent() -> None:
    """Interrupts are the parent's. If it is killed, this process ends: the executor's would wait
    for work for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: Any) -> None:
    parent.join()
    os._exit(1)
