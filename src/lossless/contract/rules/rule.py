"""A contradiction, and the rule that finds it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    settings: tuple[str, ...]  # by the names they were given, or go by
    reason: str
    fix: str
    rule: str = ""
    claims: tuple[str, ...] = ()  # of what the product promises, or an issue of Kafka's


Asked = TypeVar("Asked")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Generic[Asked]):
    name: str
    claims: tuple[str, ...]
    says: str
    broken: Callable[[Asked], Contradiction | None]


def broken(rules: Iterable[Rule[Asked]], asked: Asked) -> list[Contradiction]:
    found = []
    for rule in rules:
        contradiction = rule.broken(asked)
        if contradiction is not None:
            found.append(dataclasses.replace(contradiction, rule=rule.name, claims=rule.claims))
    return found


def rule_of(
    function: Callable[[Asked], Contradiction | None], claims: tuple[str, ...]
) -> Rule[Asked]:
    name = function.__name__.strip("_").replace("_", "-")
    return Rule(name=name, claims=claims, says=function.__doc__ or "", broken=function)
