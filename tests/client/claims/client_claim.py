"""What a test of the client states: which claims, under which fault, and the verdict of each case.

As tests/claims do for brokers: the test returns what its clients saw, and the verifier judges it
here, so that the table in docs/client-claims.md says what was judged and nothing else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from lossless.verifier.anomaly import Kind
from lossless.verifier.history import History
from lossless.verifier.verdict import judge, undecided

NOTHING: tuple[Kind, ...] = ()
ENGINES = ("embedded", "apache")

# Every claim that the client makes.
WANTED = (
    *(f"P{number}" for number in range(1, 8)),
    *(f"C{number}" for number in range(1, 11)),
    "C13",
)


class Fault(StrEnum):
    """What happens while the claim is to hold. Each is used by at least one test."""

    KILLED_BEFORE_COMMIT = "kill -9 between processing and commit"
    CHURN = "members joining and leaving every second"
    LEADER_KILL = "leader kill"
    CONTROLLER_KILL = "controller kill"
    ROLLING_RESTART = "all brokers restarted in turn"
    NO_BROKERS = "60 s without brokers"
    DATABASE_DOWN = "database down"
    STOPPED = "a stopped process (SIGSTOP) that wakes after its partitions moved"
    KILLED_WITH_SPOOL = "kill -9 of the producer with a full spool"


class ClientClaim(NamedTuple):
    ids: tuple[str, ...]
    test: str
    file: str
    fault: Fault
    provoked: str
    shows: Mapping[str, tuple[Kind, ...]]  # what is found in each case, and nothing but that
    may_show: Mapping[str, tuple[Kind, ...]]  # what chance decides
    often: tuple[str, ...]  # the engines of `make test`; the others are of `make test-all` only


CLIENT_CLAIMS: list[ClientClaim] = []


def client_claim(
    *ids: str,
    fault: Fault,
    provoked: str,
    shows: Mapping[str, tuple[Kind, ...]],
    may_show: Mapping[str, tuple[Kind, ...]] | None = None,
    often: tuple[str, ...] = ("embedded",),
) -> Callable[[Callable[..., Mapping[str, History]]], Callable[..., None]]:
    def decorate(test: Callable[..., Mapping[str, History]]) -> Callable[..., None]:
        file = test.__code__.co_filename.rsplit("/", 1)[-1]
        stated = ClientClaim(
            ids, test.__name__, file, fault, provoked, shows, may_show or {}, often
        )

        @functools.wraps(test)
        def judged(*arguments: object, **fixtures: object) -> None:
            _check(stated, test(*arguments, **fixtures))

        # The test's own signature has what it returns, which is not what the judged one does.
        judged.__annotations__ = {**judged.__annotations__, "return": None}
        judged.claim = stated  # type: ignore[attr-defined]
        CLIENT_CLAIMS.append(stated)
        return judged

    return decorate


def _check(stated: ClientClaim, seen: Mapping[str, History]) -> None:
    found = {}
    for case, history in seen.items():
        chance = tuple(map(str, stated.may_show.get(case, ())))
        found[case] = tuple(kind for kind in _found(history) if kind not in chance)
    assert found == {case: tuple(map(str, kinds)) for case, kinds in stated.shows.items()}, (
        "\n".join(
            f"{case}: {anomaly.what}"
            for case, history in seen.items()
            for anomaly in judge(history)[:50]
        )
    )


def _found(history: History) -> tuple[str, ...]:
    """The kinds of anomalies in their order. What could not be told is no verdict."""
    unknown = undecided(history)
    if unknown:
        return tuple(f"UNKNOWN: {kind}" for kind in unknown)
    return tuple(str(kind) for kind in dict.fromkeys(a.kind for a in judge(history)))
