"""A cluster in a world: controllers, brokers, and the administrator who creates the topic."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from lossless.core.broker import Broker
from lossless.core.controller_node import ControllerNode
from lossless.core.machine import Effects, Machine, Send, Token
from lossless.core.messages import AdminAnswer, CreateTopic, Error
from lossless.simulator.settings import BACKOFF_MS, COMPACTED, COORDINATOR_PARTITIONS, Settings
from lossless.simulator.world import FIRST_CONTROLLER, OUTPUT_TOPIC, TOPIC, Process, World


def build(settings: Settings, seed: int) -> World:
    """Brokers and controllers, not started."""
    world = World(settings)
    voters = tuple(range(FIRST_CONTROLLER, FIRST_CONTROLLER + settings.controllers))

    def draw(number: int) -> Callable[[int], int]:
        return random.Random(f"{seed}/{number}").randrange

    def controller(process: Process) -> Machine:
        return ControllerNode(
            process.id,
            voters=voters,
            stores=process.store,
            draw=draw(process.id),
            config=settings.controller_config,
            rules=settings.rules,
        )

    def broker(process: Process) -> Machine:
        racks = settings.racks
        return Broker(
            process.id,
            voters=voters,
            stores=process.store,
            stored=lambda: tuple(process.disk),
            incarnation=process.life,
            draw=draw(process.id),
            config=settings.broker_config,
            rules=settings.rules,
            topic_config=settings.topic_config if settings.compaction else None,
            rack=racks[(process.id - 1) % len(racks)] if racks else None,
        )

    for number in voters:
        world.add(number, controller)
    for number in range(1, settings.brokers + 1):
        world.add(number, broker)
    return world


def topics(settings: Settings) -> list[CreateTopic]:
    """Those of the clients, and those of the coordinators, which never elect uncleanly."""
    min_isr = ("min.insync.replicas", str(settings.min_isr))
    unclean = ("unclean.leader.election.enable", "true" if settings.unclean else "false")
    compacted = (COMPACTED,) if settings.compaction else ()
    replicas = settings.replication_factor
    return [
        *(
            CreateTopic(topic, settings.partitions, replicas, (min_isr, unclean))
            for topic in ((TOPIC, OUTPUT_TOPIC) if settings.transforms else (TOPIC,))
        ),
        *(
            CreateTopic(topic, COORDINATOR_PARTITIONS, replicas, (min_isr, *compacted))
            for topic in settings.internal_topics
        ),
    ]


class Admin:
    """Creates the topics, and asks until somebody has."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._next = 0
        self._topics = topics(settings)

    def on_start(self, now_ms: int) -> Effects:
        return self.on_timer(now_ms)

    def on_timer(self, now_ms: int) -> Effects:
        self._next += 1
        controller = FIRST_CONTROLLER + self._next % self._settings.controllers
        return Effects(send=(Send(controller, self._topics[0]),))

    def on_answer(
        self,
        source: int,
        request: Any,
        answer: AdminAnswer | None,
        now_ms: int,
    ) -> Effects:
        if answer is not None and answer.error in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
            del self._topics[0]
            return self.on_timer(now_ms) if self._topics else Effects()
        return Effects(wake_ms=now_ms + BACKOFF_MS)

    def on_request(self, source: int, token: Token, request: Any, now_ms: int) -> Effects:
        raise NotImplementedError("nobody asks the administrator")

    def on_flushed(self, log: str, offset: int, now_ms: int) -> Effects:
        raise NotImplementedError("the administrator has no log")
