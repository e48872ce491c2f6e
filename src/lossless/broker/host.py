"""The host of one machine: tells it what happens, and does what it asks for.

    effects.send     to another node, by its link; what comes back, or None, is `on_answer`
    effects.reply    whoever asked is a function that takes the answer, or None: there is none
    effects.flush    on disk when `on_flushed` is called; several requests for it become one
    effects.wake_ms  `on_timer` then; a call that comes too early does no harm

Everything happens on one thread, one event after the other: a machine is never entered twice. What
comes in one turn of the loop is told together, if the machine can take it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

from lossless.core.machine import NOTHING, Effects, Machine
from lossless.core.quorum_messages import QuorumBroken
from lossless.log.log import DamagedLog, Log
from lossless.log.store import StoreFailed

ASKED_AT_ONCE_MAX = 500  # requests of one administrator, 20 µs each
FATAL = (StoreFailed, QuorumBroken, DamagedLog)
_logger = logging.getLogger(__name__)
_yield: Callable[[], None] = getattr(os, "sched_yield", lambda: None)  # not on every system

Failure = Callable[[BaseException], None]


@runtime_checkable
class Batching(Protocol):
    """A machine that can be told several events before anything follows from them."""

    def defer(self) -> None: ...

    def settle(self, now_ms: int) -> Effects: ...


class Clock:
    """The time of day at first, and from then on never back."""

    def __init__(self) -> None:
        self._started_ms = time.time() * 1000 - time.monotonic() * 1000

    def now_ms(self) -> int:
        return int(self._started_ms + time.monotonic() * 1000)


class Host:
    def __init__(
        self,
        machine: Machine,
        *,
        clock: Clock,
        send: Callable[[int, Any, Callable[[Any], None]], None],
        logs: Callable[[str], Log],
        on_failure: Failure,
        yield_to_others: Callable[[], object] = _yield,
    ) -> None:
        self.machine = machine
        self._clock = clock
        self._yield_to_others = yield_to_others
        self._send = send
        self._logs = logs
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._to_flush: set[str] = set()
        self._inbox: list[tuple[Callable[..., Effects], tuple[Any, ...]]] = []
        self._untold: list[asyncio.Future[None]] = []
        self._batching: Batching | None = machine if isinstance(machine, Batching) else None
        self._is_stopped = False

    # What happens

    def start(self) -> None:
        self.event(self.machine.on_start)

    def request(self, source: int, token: Callable[[Any], None], request: Any) -> None:
        self._event(self.machine.on_request, (source, token, request))

    def event(self, handler: Callable[..., Effects], *arguments: Any) -> None:
        self._event(handler, arguments)

    def _event(self, handler: Callable[..., Effects], arguments: tuple[Any, ...]) -> None:
        if self._is_stopped:
            return
        if self._batching is None:
            self._tell(handler, arguments, self._clock.now_ms())
            return
        if not self._inbox:
            self._loop.call_soon(self._let_others)
        self._inbox.append((handler, arguments))

    def _let_others(self) -> None:
        """Whoever else is ready to run does so first, and what it sends meanwhile is dealt with in
        the same turn. With nobody else there this takes a microsecond."""
        self._yield_to_others()
        self._loop.call_soon(self._tell_all)

    def _tell_all(self) -> None:
        events, self._inbox = self._inbox, []
        if self._untold:
            self._loop.call_soon(self._wake_untold)
        now_ms = self._clock.now_ms()
        if len(events) == 1:
            self._tell(*events[0], now_ms)
            return
        assert self._batching is not None
        self._batching.defer()
        for handler, arguments in events:
            self._tell(handler, arguments, now_ms)
        self._tell(self._batching.settle, (), now_ms)

    def _wake_untold(self) -> None:
        untold, self._untold = self._untold, []
        for answer in untold:
            resolving(answer)(None)

    def _tell(
        self, handler: Callable[..., Effects], arguments: tuple[Any, ...], now_ms: int
    ) -> None:
        if self._is_stopped:
            return
        try:
            effects = handler(*arguments, now_ms)
        except FATAL as error:
            # The disk or the protocol is broken: whatever this node said next could be wrong.
            self._on_failure(error)
        except Exception as error:
            _logger.exception("%s", getattr(handler, "__qualname__", handler))
            if handler == self.machine.on_request:
                # One that we did not expect: whoever asked is not left to wait for an answer, and
                # everybody else gets theirs.
                _, token, _ = arguments
                token(None)
            else:
                self._on_failure(error)
        else:
            if effects is not NOTHING:
                self._run(effects, now_ms)

    def stop(self) -> None:
        """No more events. What the machine wrote stays as it is."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    async def ask(self, request: Any, source: int = -1) -> Any:
        return await self._asked(request, source)

    async def ask_all(self, requests: Sequence[Any]) -> list[Any]:
        """The answers to many requests, some at a time: others are served in between."""
        answers: list[Any] = []
        for start in range(0, len(requests), ASKED_AT_ONCE_MAX):
            asked = [self._asked(one) for one in requests[start : start + ASKED_AT_ONCE_MAX]]
            answers += [await answer for answer in asked]
        return answers

    def _asked(self, request: Any, source: int = -1) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self._loop.create_future()
        self.request(source, resolving(answer), request)
        return answer

    async def told(self) -> None:
        """Until the machine has been told everything that has happened so far."""
        if self._inbox:
            answer: asyncio.Future[None] = self._loop.create_future()
            self._untold.append(answer)
            await answer

    # What the machine asks for

    def _run(self, effects: Effects, now_ms: int) -> None:
        """Each effect for itself: one that fails is logged, and the others still happen."""
        for to, request in effects.send:
            answered = partial(self._on_answer, to, request)
            try:
                self._send(to, request, answered)
            except Exception:
                _logger.exception("%s to node %d was not sent", type(request).__name__, to)
                self._loop.call_soon(answered, None)
        for token, answer in effects.reply:
            try:
                token(answer)
            except Exception:  # it cannot be encoded, or the connection is gone
                _logger.exception("an answer: %s", type(answer).__name__)
                with contextlib.suppress(Exception):  # the same, once more
                    token(None)
        for log in effects.flush:
            if not self._to_flush:
                self._loop.call_soon(self._flush)
            self._to_flush.add(log)
        if effects.wake_ms is not None:
            self._wake(effects.wake_ms, now_ms)

    def _on_answer(self, source: int, request: Any, answer: Any) -> None:
        self._event(self.machine.on_answer, (source, request, answer))

    def _flush(self) -> None:
        names, self._to_flush = self._to_flush, set()
        for name in names:
            log = self._logs(name)
            try:
                log.flush()
            except StoreFailed as error:
                self._on_failure(error)
                return
            self.event(self.machine.on_flushed, name, log.recovery_point)

    def _wake(self, wake_ms: int, now_ms: int) -> None:
        if self._timer is not None:
            if self._timer_ms <= wake_ms:
                return
            self._timer.cancel()
        self._timer_ms = wake_ms
        delay_s = max(0, wake_ms - now_ms) / 1000
        self._timer = self._loop.call_later(delay_s, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self.event(self.machine.on_timer)


def resolving(answer: asyncio.Future[Any]) -> Callable[[Any], None]:
    def resolve(value: Any) -> None:
        if not answer.done():  # whoever asked may have gone away
            answer.set_result(value)

    return resolve
