"""docs/client-claims.md, from what the tests of this folder state. `scripts/document-client-claims`
writes it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

from client.claims.client_claim import CLIENT_CLAIMS, NOTHING, WANTED, ClientClaim

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parents[2] / "docs" / "client-claims.md"

_INTRODUCTION = """\
# What the client promises, shown on live clusters

Each row is a test of `lossless.Producer`, `lossless.Consumer` and their stores that runs on the
embedded engine and on Apache Kafka, and must come to the same verdict: three brokers in processes,
a controller of its own, sessions of a second. Clients send numbered values and write down what they
are told, in journals that a kill -9 does not take away; the verifier judges them together with the
logs, the offsets and the databases at the end, and `UNKNOWN` does not count. A fault is seen to
take effect before anything is concluded from it. `scripts/document-client-claims` writes this
table.

Verdicts are kinds of anomalies, as `lossless prove` names them; *none* is none of any kind, and
*repeated*, a record processed twice, is what delivery at least once costs. What only chance decides
is named as such.

All of them run in `make test-all`; the last column has the engines that run in `make test` too.
Beside them a soak by seed (tests/client/soak) makes faults at random: to consumers with a store,
transactions, two groups that share retry topics, handlers in processes, and producers that fork
children.
"""


def stated() -> list[ClientClaim]:
    """In the order of the claims; a test of several stands at the first of them."""
    for file in sorted(HERE.glob("test_client_*_claims.py")):
        importlib.import_module(file.stem)
    return sorted(CLIENT_CLAIMS, key=lambda claim: WANTED.index(claim.ids[0]))


def render() -> str:
    return "\n".join([_INTRODUCTION, *_rows(), ""])


def _rows() -> Iterator[str]:
    titles = ("claim", "what is shown", "fault", "how it is provoked", "verdict on both")
    yield f"| {' | '.join(titles)} | in `make test` |"
    yield "|---|---|---|---|---|---|"
    for claim in stated():
        shown = claim.test.removeprefix("test_").replace("_", " ")
        link = f"[{shown}](../tests/client/claims/{claim.file})"
        verdicts = "<br>".join(_verdict(claim, case) for case in claim.shows)
        cells = (
            ", ".join(claim.ids),
            link,
            claim.fault,
            claim.provoked,
            verdicts,
            ", ".join(claim.often) or "neither",
        )
        yield f"| {' | '.join(cells)} |"


def _verdict(claim: ClientClaim, case: str) -> str:
    found = ", ".join(f"**{kind}**" for kind in claim.shows[case]) or "none"
    chance = claim.may_show.get(case, NOTHING)
    by_chance = f" (by chance: {', '.join(chance)})" if chance else ""
    return f"{case}: {found}{by_chance}"


if __name__ == "__main__":
    print(render(), end="")
