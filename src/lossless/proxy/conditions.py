"""What the network is like: rules say whom they strike, and of each kind the latest rule holds.

    delay, throttle     bytes take longer; none is lost
    half open           bytes of one direction vanish, and nobody is told
    cut                 connections are reset, and new ones refused
    drop after          one answer is lost, and its connection with it

A rule for a client strikes a connection once its first request has named the client. That request
is struck too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """Connections to one broker or to all, of one client or of all."""

    broker: int | None = None
    client_id: str | None = None

    def covers(self, broker: int | None, client_id: str | None) -> bool:
        return (self.broker is None or self.broker == broker) and (
            self.client_id is None or self.client_id == client_id
        )

    def __str__(self) -> str:
        to = "to all brokers" if self.broker is None else f"to broker {self.broker}"
        return to if self.client_id is None else f"of client {self.client_id!r} {to}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What holds for one connection."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    bytes_per_second: float | None = None
    swallows_requests: bool = False
    swallows_answers: bool = False
    is_cut: bool = False

    @property
    def is_slow(self) -> bool:
        return bool(self.delay_ms or self.jitter_ms or self.bytes_per_second)


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    target: Target
    changes: Mapping[str, Any]  # fields of Conditions


class Drop:
    """Every `count`-th request of an API loses its answer and its connection, `times` times."""

    def __init__(self, key: int, target: Target, *, count: int, times: int) -> None:
        self.key = key
        self.target = target
        self._count = count
        self._times = times
        self._seen = 0

    def strikes(self, key: int, broker: int | None, client_id: str | None) -> bool:
        if not self._times or key != self.key or not self.target.covers(broker, client_id):
            return False
        self._seen += 1
        if self._seen < self._count:
            return False
        self._seen = 0
        self._times -= 1
        return True


class Rules:
    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._drops: list[Drop] = []

    def add(self, rule: Rule) -> None:
        self._rules.append(rule)

    def add_drop(self, drop: Drop) -> None:
        self._drops.append(drop)

    def remove(self, target: Target) -> list[str]:
        """Those within the target, and what they were called."""
        gone = [rule for rule in self._rules if _is_within(rule.target, target)]
        drops = [drop for drop in self._drops if _is_within(drop.target, target)]
        self._rules = [rule for rule in self._rules if rule not in gone]
        self._drops = [drop for drop in self._drops if drop not in drops]
        return [rule.name for rule in gone] + ["drop after" for _ in drops]

    def in_force(self, target: Target) -> list[str]:
        """What still strikes the target, because it strikes others too."""
        return [
            f"{rule.name} {rule.target}"
            for rule in self._rules
            if rule.target.covers(target.broker, target.client_id)
        ]

    def conditions(self, broker: int | None, client_id: str | None) -> Conditions:
        changes: dict[str, Any] = {}
        for rule in self._rules:
            if rule.target.covers(broker, client_id):
                changes.update(rule.changes)
        return dataclasses.replace(Conditions(), **changes)

    def is_dropped(self, key: int, broker: int | None, client_id: str | None) -> bool:
        """Every rule counts the request, though it can be dropped only once."""
        struck = [drop.strikes(key, broker, client_id) for drop in self._drops]
        return any(struck)


def _is_within(inner: Target, outer: Target) -> bool:
    return (outer.broker is None or inner.broker == outer.broker) and (
        outer.client_id is None or inner.client_id == outer.client_id
    )
