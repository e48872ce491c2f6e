"""What a test of a claim states: which claim, how it is provoked, and the verdict of each case.

The test returns what its clients saw, a history for each case; the verifier judges it here. So the
table in docs/claims.md says what was judged, and nothing else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

from lossless.verifier.anomaly import Kind
from lossless.verifier.history import History
from lossless.verifier.verdict import judge, undecided

NOTHING: tuple[Kind, ...] = ()
ENGINES = ("embedded", "apache")


class Claim(NamedTuple):
    ids: tuple[str, ...]
    test: str
    file: str
    provoked: str
    shows: Mapping[str, tuple[Kind, ...]]  # what is found in each case, and nothing but that
    often: tuple[str, ...]  # the engines of `make test`; the others are of `make test-all` only


CLAIMS: list[Claim] = []


def claim(
    *ids: str,
    provoked: str,
    shows: Mapping[str, tuple[Kind, ...]],
    often: tuple[str, ...] = ("embedded",),
) -> Callable[[Callable[..., Mapping[str, History]]], Callable[..., None]]:
    def decorate(test: Callable[..., Mapping[str, History]]) -> Callable[..., None]:
        @functools.wraps(test)
        def judged(*arguments: object, **fixtures: object) -> None:
            seen = test(*arguments, **fixtures)
            assert {case: _found(history) for case, history in seen.items()} == {
                case: tuple(map(str, kinds)) for case, kinds in shows.items()
            }, "\n".join(
                f"{case}: {anomaly.what}"
                for case, history in seen.items()
                for anomaly in judge(history)
            )

        # The test's own signature has what it returns, which is not what the judged one does.
        judged.__annotations__ = {**judged.__annotations__, "return": None}
        file = test.__code__.co_filename.rsplit("/", 1)[-1]
        stated = Claim(ids, test.__name__, file, provoked, shows, often)
        judged.claim = stated  # type: ignore[attr-defined]
        CLAIMS.append(stated)
        return judged

    return decorate


def _found(history: History) -> tuple[str, ...]:
    """The kinds of anomalies in their order. What could not be told is no verdict."""
    unknown = undecided(history)
    if unknown:
        return tuple(f"UNKNOWN: {kind}" for kind in unknown)
    return tuple(str(kind) for kind in dict.fromkeys(a.kind for a in judge(history)))
