"""The careless variant: common but unsafe settings under the same two kills.

The demo makes the loss certain, not just probable. With acks=1 the leader acknowledges orders that
its followers, which are paused, cannot replicate. The leader is then killed, and a follower that is
still in the in-sync set becomes leader: a clean election that loses acknowledged orders. When the
old leader restarts, it truncates its log to match the new leader's.

Why the loss is certain:
- If a follower is paused during a fetch, the response waits in its socket until the follower
  resumes. The leader responds within replica.fetch.wait.max.ms even without data, and a paused
  follower sends no further fetch. Records acknowledged after that are on the leader alone.
- The brokers are also the controllers. While two of three are paused, there is no quorum to remove
  them from the in-sync set, and the pause is much shorter than a broker's session timeout.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path

from lossless.contract.faults import Fault, FaultKind
from lossless.demo.comparison import Comparison, compare, read_acknowledged, read_copies
from lossless.demo.environment import (
    CRASH_BATCH,
    CRASH_POINT,
    FIRST_SHARE,
    SECOND_SHARE,
    STRIKE_SHARE,
    Environment,
    Settings,
    demo_environment,
    evidence_of_death,
    since,
)
from lossless.demo.folder import TOPIC
from lossless.demo.producing import CARELESS
from lossless.demo.progress import Progress
from lossless.demo.result import DemoResult
from lossless.errors import Undecided

SETTINGS = Settings(producer=CARELESS, topic={}, session_timeout_ms=5_000, reports=False)
# Twice Kafka's default of replica.fetch.wait.max.ms.
FETCHES_ANSWERED_S = 1.0
# Orders sent during the pause. Two thirds of them wait for the paused brokers, so they must fit
# into the producers' buffers.
WAVE_MAX = 10_000


def run_careless(*, engine: str, orders: int, keep: Path | None, progress: Progress) -> DemoResult:
    """Runs the careless variant. Raises Undecided if no order was lost or none duplicated."""
    began = time.monotonic()
    with demo_environment(
        SETTINGS, engine=engine, orders=orders, keep=keep, progress=progress
    ) as demo:
        comparison = _deliver(demo)
        faults = tuple(demo.faults)
        if keep is not None:
            _write_judged(demo.folder.path / "judged.json", comparison)
    if not comparison.lost or not comparison.duplicated:
        raise Undecided(
            f"the faults took effect, but {len(comparison.lost)} orders were lost and "
            f"{len(comparison.duplicated)} duplicated; both should be above 0",
            hint="this should be impossible; please report it",
        )
    return DemoResult(
        variant="careless",
        orders=orders,
        acknowledged=comparison.acknowledged,
        stored=comparison.stored,
        lost=len(comparison.lost),
        duplicated=comparison.copies_too_many,
        balanced=False,
        faults=faults,
        seconds=since(began),
        comparison=comparison,
    )


def _deliver(demo: Environment) -> Comparison:
    job = (
        "lossless.demo.careless_job",
        str(demo.folder.path),
        demo.cluster.bootstrap_servers,
        str(demo.records_per_batch),
    )
    demo.progress.step(
        "producing orders (acks=1) and starting a plain foreachBatch append to Delta"
    )
    driver = demo.start_driver(job, crash_points=CRASH_POINT)
    demo.producers.allow_up_to(demo.share(FIRST_SHARE))
    demo.wait_for_acknowledged(demo.share(FIRST_SHARE))
    # Wait for all of them: the job must not be in the middle of a batch when the leader dies,
    # because it stops at the first failed read.
    demo.wait_for_stored(driver, demo.share(FIRST_SHARE))

    victim = _lose_orders(demo)
    if driver.exit_code is not None:
        raise Undecided(
            "the driver died before the leader was killed; the demo needs the opposite order"
        )

    demo.progress.step(f"waiting for the driver to die in batch {CRASH_BATCH}")
    demo.producers.allow_up_to(demo.share(SECOND_SHARE))
    demo.wait_for_death(driver)
    demo.report_fault(
        "kill -9 of the driver, Python and JVM, between its append and the checkpoint",
        evidence_of_death(driver, [demo.folder.checkpoint]),
    )

    demo.progress.step(f"restarting broker {victim} and producing the remaining orders")
    demo.producers.allow_up_to(demo.orders)
    demo.inject(Fault(kind=FaultKind.BROKER_RESTART, broker=victim), f"restart of broker {victim}")
    demo.wait_for(lambda: demo.producers.finished, "the producers to finish")

    demo.progress.step("restarting the job, which resumes from its checkpoint")
    demo.wait_for_end(demo.start_driver((*job, "--once")), "the remaining orders to be stored")
    demo.progress.step("comparing the acknowledged orders with the table")
    return compare(read_acknowledged(demo.folder.events()), read_copies(demo.folder.copies))


def _lose_orders(demo: Environment) -> int:
    """Kills the leader of partition 0 while it alone has acknowledged orders. Returns its id."""
    victim = demo.cluster.leader_of(TOPIC, 0)
    topic = demo.cluster.metadata().topics[TOPIC]
    led = {p.id for p in topic.partitions.values() if p.leader == victim}
    followers = sorted({b for p in topic.partitions.values() for b in p.replicas} - {victim})
    demo.progress.step(f"pausing the followers of {TOPIC}-0 while its leader keeps acknowledging")
    for follower in followers:
        demo.inject(
            Fault(kind=FaultKind.BROKER_PAUSE, broker=follower), f"SIGSTOP of broker {follower}"
        )
    answered_at = time.monotonic() + FETCHES_ANSWERED_S
    demo.wait_for(lambda: time.monotonic() >= answered_at, "responses to the followers' fetches")

    before = demo.producers.acknowledged_in(led)
    first = demo.share(FIRST_SHARE)
    wave = min(demo.share(STRIKE_SHARE) - first, WAVE_MAX)
    demo.producers.allow_up_to(first + wave)
    # A third of the wave goes to the leader's partitions; half of that is plenty.
    alone = max(1, wave // 6)
    demo.wait_for(
        lambda: demo.producers.acknowledged_in(led) - before >= alone,
        f"{alone} orders that only broker {victim} has",
    )
    doomed = demo.producers.acknowledged_in(led) - before
    demo.inject(
        Fault(kind=FaultKind.BROKER_CRASH, broker=victim),
        f"kill -9 of broker {victim}, leader of {TOPIC}-0, while at least {doomed} acknowledged "
        "orders exist nowhere else",
    )
    for follower in followers:
        demo.inject(
            Fault(kind=FaultKind.BROKER_RESUME, broker=follower), f"SIGCONT of broker {follower}"
        )
    leader = demo.wait_for_leader(other_than=victim)
    demo.report_fault(
        f"broker {leader} is the new leader of {TOPIC}-0",
        "elected from the in-sync replicas, without the orders that only the old leader had",
    )
    return victim


def _write_judged(file: Path, comparison: Comparison) -> None:
    judged = {
        "lost": [asdict(order) for order in comparison.lost],
        "duplicated": [asdict(order) for order in comparison.duplicated],
    }
    file.write_text(json.dumps(judged, indent=1) + "\n")
