"""The world: what becomes of messages, flushes and disks when processes die and come back."""

from __future__ import annotations

from typing import Any

from lossless.core.controller_node import ControllerNode
from lossless.core.machine import Effects, Machine, Reply, Send, Token
from lossless.simulator.cluster import build
from lossless.simulator.faults import Action, strike
from lossless.simulator.settings import Settings
from lossless.simulator.world import (
    FIRST_CONTROLLER,
    Connection,
    Label,
    OnConnection,
    Process,
    World,
)


class Speaker:
    """Says a word to process 2 when it starts, and remembers what it hears."""

    def __init__(self, process: Process, heard: list[str]) -> None:
        self._process = process
        self._heard = heard

    def on_start(self, *_: Any, **__: Any) -> Effects:
        if self._process.id == 2:
            return Effects()
        return Effects(send=(Send(2, f"life {self._process.life}"),))

    def on_request(self, _: int, token: Token, request: Any, *__: Any, **___: Any) -> Effects:
        self._heard.append(request)
        return Effects(reply=(Reply(token, "yes"),))

    def on_answer(self, _: int, request: Any, answer: Any, *__: Any, **___: Any) -> Effects:
        self._heard.append(f"{request}: {answer}")
        return Effects()

    def on_timer(self, *_: Any, **__: Any) -> Effects:
        return Effects()

    def on_flushed(self, *_: Any, **__: Any) -> Effects:
        return Effects()


def two() -> tuple[World, list[str]]:
    heard: list[str] = []
    world = World(Settings())

    def speaker(process: Process) -> Machine:
        return Speaker(process, heard)

    for number in (1, 2):
        world.add(number, speaker)
    world.start(2)
    world.start(1)
    return world, heard


def to_2(life: int) -> Connection:
    return Connection(1, 2, "str", life)


def test_what_a_process_has_sent_arrives_though_it_dies_and_nobody_is_answered() -> None:
    world, heard = two()
    world.crash(1)
    assert world.execute(Label("deliver", to_2(1)))
    assert heard == ["life 1"]
    assert not world.execute(Label("answer", to_2(1)))


def test_a_process_that_starts_again_may_overtake_what_it_sent_before() -> None:
    world, heard = two()
    world.crash(1)
    world.start(1)
    assert world.execute(Label("deliver", to_2(2)))
    assert world.execute(Label("deliver", to_2(1)))
    assert heard == ["life 2", "life 1"]
    assert world.execute(Label("answer", to_2(2)))
    assert heard[-1] == "life 2: yes"


def test_what_is_on_its_way_to_a_process_that_dies_is_gone_and_whoever_asked_finds_out() -> None:
    world, heard = two()
    world.crash(2)
    assert not world.execute(Label("deliver", to_2(1)))
    assert world.execute(Label("lose", to_2(1)))
    assert heard == ["life 1: None"]


def test_who_asks_itself_and_dies_is_not_told_that_nobody_answered() -> None:
    world, heard = two()
    world.ask(2, 2, "to myself")
    world._links[Connection(2, 2, "str", 1)].unanswered.append(1)
    world.crash(2)
    assert not world.execute(Label("lose", Connection(2, 2, "str", 1)))
    assert heard == []


def test_what_is_sent_on_another_connection_may_overtake() -> None:
    world, heard = two()
    process = world.processes[1]
    world.run(process, Effects(send=(Send(2, OnConnection("again", 1)),)))
    assert world.execute(Label("deliver", Connection(1, 2, "str 2", 1)))
    assert world.execute(Label("deliver", to_2(1)))
    assert heard == ["again", "life 1"]


def test_a_timer_that_was_moved_there_and_back_is_planned_once() -> None:
    world, _ = two()
    process = world.processes[1]
    for wake_ms in (100, 50, 100, 60, 100):
        world.run(process, Effects(wake_ms=wake_ms))
    world.planned.clear()
    world.now_ms = 50
    assert not world.execute(Label("wake", 1))
    assert [planned.after_ms for planned in world.planned] == [50]
    world.planned.clear()
    world.now_ms = 60
    assert not world.execute(Label("wake", 1))
    assert world.planned == []
    world.now_ms = 100
    assert world.execute(Label("wake", 1))


def test_a_process_that_stands_still_learns_of_its_flush_when_it_goes_on() -> None:
    world = _with_a_controller()
    flush = Label("flush", FIRST_CONTROLLER)
    world.pause(FIRST_CONTROLLER)
    world.planned.clear()
    assert not world.execute(flush)
    assert [planned.label for planned in world.planned] == [flush]
    world.resume(FIRST_CONTROLLER)
    assert world.execute(flush)


def test_a_process_whose_disk_fails_dies_when_it_flushes_and_comes_back_with_a_good_one() -> None:
    world = _with_a_controller()
    process = world.processes[FIRST_CONTROLLER]
    assert strike(world, Action("fail", FIRST_CONTROLLER))
    assert world.execute(Label("flush", FIRST_CONTROLLER))
    assert process.machine is None
    assert not strike(world, Action("fail", FIRST_CONTROLLER))
    assert world.start(FIRST_CONTROLLER)
    assert isinstance(process.machine, ControllerNode)


def test_a_clock_that_is_ahead_is_ahead_for_its_process_alone() -> None:
    world = _with_a_controller()
    world.now_ms = 1_000
    assert strike(world, Action("skew", FIRST_CONTROLLER, 500))
    assert world._time(world.processes[FIRST_CONTROLLER]) == 1_500
    assert world._time(world.processes[1]) == 1_000


def _with_a_controller() -> World:
    world = build(Settings(), 1)
    world.start(FIRST_CONTROLLER)
    return world
