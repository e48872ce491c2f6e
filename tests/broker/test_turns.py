"""Brokers that share few cores take turns: what comes in one turn is dealt with in one go."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import pytest

from lossless.broker.host import Clock, Host
from lossless.broker.loop import new_event_loop
from lossless.core.machine import NOTHING, Effects, Reply, Token
from lossless.engines import cluster


class _Machine:
    """Notes what it is told, and when it was told all."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_start(self, _now_ms: int) -> Effects:
        return NOTHING

    def on_request(self, _source: int, _token: Token, request: Any, _now_ms: int) -> Effects:
        self.told.append(request)
        return NOTHING

    def on_answer(self, _source: int, _request: Any, _answer: Any, _now_ms: int) -> Effects:
        raise AssertionError

    def on_timer(self, _now_ms: int) -> Effects:
        raise AssertionError

    def on_flushed(self, _log: str, _offset: int, _now_ms: int) -> Effects:
        raise AssertionError

    def defer(self) -> None:
        self.told.append("several")

    def settle(self, _now_ms: int) -> Effects:
        self.told.append("settled")
        return NOTHING


def _fail(error: BaseException) -> None:
    raise error


def _host(machine: _Machine, **other: Any) -> Host:
    return Host(
        machine,
        clock=Clock(),
        send=lambda *_: None,
        logs=lambda _: pytest.fail("nothing is flushed"),
        **{"on_failure": _fail, **other},
    )


def test_what_others_send_when_they_are_let_run_first_is_of_the_same_turn() -> None:
    here, there = socket.socketpair()

    async def run() -> list[str]:
        machine = _Machine()
        host = _host(machine, yield_to_others=lambda: there.send(b"second"))
        loop = asyncio.get_running_loop()
        loop.add_reader(here, lambda: host.request(2, print, here.recv(100).decode()))
        host.request(1, print, "first")
        async with asyncio.timeout(10):
            while "settled" not in machine.told:
                await asyncio.sleep(0)
        loop.remove_reader(here)
        return machine.told

    with here, there, asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert runner.run(run()) == ["several", "first", "second", "settled"]


class _Mistaken(_Machine):
    """Has a mistake in what it does with some requests."""

    def on_request(self, _source: int, token: Token, request: Any, now_ms: int) -> Effects:
        if request == "what nobody thought of":
            raise KeyError(request)
        return Effects(reply=(Reply(token, request),), wake_ms=now_ms)

    def on_timer(self, _now_ms: int) -> Effects:
        self.told.append("time")
        return NOTHING

    def settle(self, _now_ms: int) -> Effects:
        return NOTHING


@pytest.mark.parametrize("odd", ["what nobody thought of", "what cannot be said"])
def test_a_mistake_in_one_request_leaves_nobody_waiting(
    odd: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[tuple[str, Any]] = []

    def said(answer: Any) -> None:
        if answer == "what cannot be said":
            raise ValueError(answer)
        heard.append(("odd", answer))

    async def run() -> list[str]:
        machine = _Mistaken()
        host = _host(machine)
        host.request(1, said, odd)
        host.request(1, lambda answer: heard.append(("plain", answer)), "as ever")
        async with asyncio.timeout(10):
            while "time" not in machine.told:  # what else followed from it is done
                await asyncio.sleep(0)
        return machine.told

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run())
    assert heard == [("odd", None), ("plain", "as ever")]
    assert "Error" in caplog.text


def test_a_mistake_in_anything_else_stops_the_node_and_says_where() -> None:
    class Late(_Machine):
        def on_timer(self, _now_ms: int) -> Effects:
            raise KeyError("nobody thought of it")

    failed: list[BaseException] = []

    async def run() -> None:
        host = _host(Late(), on_failure=failed.append)
        host.event(host.machine.on_timer)
        async with asyncio.timeout(10):
            while not failed:
                await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.get_loop().set_exception_handler(
            lambda _loop, context: failed.append(context["exception"])
        )
        runner.run(run())
    assert [str(error) for error in failed] == ["'nobody thought of it'"]


def test_a_broker_does_not_interrupt_whoever_runs() -> None:
    if not hasattr(os, "SCHED_BATCH"):
        return  # only Linux can be asked for it
    with cluster(kafka="embedded", brokers=1, processes=True) as started:
        (row,) = started.status()
        assert row.pid is not None
        assert os.sched_getscheduler(row.pid) == os.SCHED_BATCH
