"""Several pipelines in one `lossless run`: each is reported, even if another one fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from lossless.cli.run import _run_all
from lossless.errors import Unavailable
from lossless.pipeline.ledger import Ledger
from lossless.pipeline.pipeline import Pipeline


class FailingOrWaiting(Pipeline):
    """A pipeline that fails at once, or returns after the other one has failed."""

    def __init__(self, failed: threading.Event, *, fails: bool) -> None:
        self.failed, self.fails = failed, fails
        self.stopped = threading.Event()

    def stop(self) -> None:
        self.stopped.set()

    def work(self) -> Ledger:
        if self.fails:
            self.failed.set()
            raise Unavailable("the sink is down")
        assert self.failed.wait(30)
        return Ledger(sequence=7)


@pytest.fixture
def pipelines() -> list[Pipeline]:
    failed = threading.Event()
    return [FailingOrWaiting(failed, fails=True), FailingOrWaiting(failed, fails=False)]


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    import signal

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("stop_the_others", [False, True])
def test_results_of_other_pipelines_are_kept_when_one_fails(
    pipelines: list[Pipeline], stop_the_others: bool
) -> None:
    results, failures, interrupted = _run_all(
        pipelines,
        lambda p: p.work(),  # type: ignore[attr-defined]
        stop_the_others=stop_the_others,
    )
    assert results == {1: Ledger(sequence=7)}
    assert str(failures[0]) == "the sink is down"
    assert not interrupted
    assert pipelines[1].stopped.is_set() == stop_the_others  # type: ignore[attr-defined]
