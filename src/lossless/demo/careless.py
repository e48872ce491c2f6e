"""The careless variant: what people usually have, the same two kills, and what they cost.

Loss is made certain, not probable. With acks=1 the leader acknowledges alone; its followers, which
are paused, cannot copy what it has. It is killed before anybody notices, and one of the followers,
in sync by the book, becomes leader: an orderly election that forgets acknowledged orders. When the
old leader returns it cuts its log to the new one's.

Why it cannot fail to happen:
- A follower's fetch that was under way when it was paused is answered into its socket, and read
  when it goes on. The leader answers within replica.fetch.wait.max.ms, data or no data, and a
  paused follower asks no second time: what is acknowledged after that is on the leader alone.
- The brokers are their own controllers. While two of three are paused there is no quorum that
  could take them out of the in-sync set, and the pause is far shorter than a broker's session.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path

from lossless.contract.faults import Fault, FaultKind
from lossless.demo.comparison import Comparison, compare, read_acknowledged, read_copies
from lossless.demo.folder import TOPIC
from lossless.demo.producing import CARELESS
from lossless.demo.result import DemoResult
from lossless.demo.stage import (
    CRASH_POINT,
    DEADLY_BATCH,
    FIRST_SHARE,
    SECOND_SHARE,
    STRIKE_SHARE,
    Settings,
    Stage,
    evidence_of_death,
    set_stage,
    since,
)
from lossless.demo.telling import Teller
from lossless.errors import Undecided

SETTINGS = Settings(producer=CARELESS, topic={}, session_timeout_ms=5_000, reports=False)
# Twice Kafka's default of replica.fetch.wait.max.ms.
FETCHES_ANSWERED_S = 1.0
# What the producers send meanwhile: two thirds of it wait for the paused brokers, and must fit into
# the producers' buffers.
WAVE_MAX = 10_000


def run_careless(*, engine: str, orders: int, keep: Path | None, teller: Teller) -> DemoResult:
    began = time.monotonic()
    with set_stage(SETTINGS, engine=engine, orders=orders, keep=keep, teller=teller) as stage:
        comparison = _deliver(stage)
        faults = tuple(stage.faults)
        if keep is not None:
            _write_judged(stage.folder.path / "judged.json", comparison)
    if not comparison.lost or not comparison.duplicated:
        raise Undecided(
            f"the faults took effect, but {len(comparison.lost)} orders were lost and "
            f"{len(comparison.duplicated)} duplicated: this demo promises both",
            hint="that should not be possible; please report it",
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


def _deliver(stage: Stage) -> Comparison:
    job = (
        "lossless.demo.careless_job",
        str(stage.folder.path),
        stage.cluster.bootstrap_servers,
        str(stage.records_per_batch),
    )
    stage.teller.step("producing orders (acks=1) and starting a plain foreachBatch append to Delta")
    driver = stage.start_driver(job, crash_points=CRASH_POINT)
    stage.producers.open_to(stage.share(FIRST_SHARE))
    stage.wait_for_acknowledged(stage.share(FIRST_SHARE))
    # All of them: the job must not be in the middle of a batch when the leader dies, since it ends
    # with the first read that fails.
    stage.wait_for_stored(driver, stage.share(FIRST_SHARE))

    victim = _lose(stage)
    if driver.exit_code is not None:
        raise Undecided("the driver died before the leader did: the demo wants it the other way")

    stage.teller.step(f"waiting for the driver to die in batch {DEADLY_BATCH}")
    stage.producers.open_to(stage.share(SECOND_SHARE))
    stage.wait_for_death(driver)
    stage.tell_fault(
        "kill -9 of the driver, Python and JVM, between its append and the checkpoint",
        evidence_of_death(driver, [stage.folder.checkpoint]),
    )

    stage.teller.step(f"bringing broker {victim} back and producing the rest")
    stage.producers.open_to(stage.orders)
    stage.inject(Fault(kind=FaultKind.BROKER_RESTART, broker=victim), f"broker {victim} comes back")
    stage.wait_for(lambda: stage.producers.finished, "the producers to finish")

    stage.teller.step("starting the job again: it goes on where its checkpoint says")
    stage.wait_for_end(stage.start_driver((*job, "--once")), "the rest to be stored")
    stage.teller.step("comparing what was acknowledged with what is in the table")
    return compare(read_acknowledged(stage.folder.events()), read_copies(stage.folder.copies))


def _lose(stage: Stage) -> int:
    """Kills the leader of partition 0 with acknowledged orders that nobody else has."""
    victim = stage.cluster.leader_of(TOPIC, 0)
    topic = stage.cluster.metadata().topics[TOPIC]
    led = {p.id for p in topic.partitions.values() if p.leader == victim}
    followers = sorted({b for p in topic.partitions.values() for b in p.replicas} - {victim})
    stage.teller.step(f"pausing the followers of {TOPIC}-0: its leader goes on acknowledging")
    for follower in followers:
        stage.inject(
            Fault(kind=FaultKind.BROKER_PAUSE, broker=follower), f"SIGSTOP of broker {follower}"
        )
    answered_at = time.monotonic() + FETCHES_ANSWERED_S
    stage.wait_for(lambda: time.monotonic() >= answered_at, "the followers' fetches to be answered")

    before = stage.producers.acknowledged_in(led)
    first = stage.share(FIRST_SHARE)
    wave = min(stage.share(STRIKE_SHARE) - first, WAVE_MAX)
    stage.producers.open_to(first + wave)
    # A third of the wave goes to the leader's partitions; half of that is plenty.
    alone = max(1, wave // 6)
    stage.wait_for(
        lambda: stage.producers.acknowledged_in(led) - before >= alone,
        f"{alone} orders that broker {victim} alone acknowledges",
    )
    doomed = stage.producers.acknowledged_in(led) - before
    stage.inject(
        Fault(kind=FaultKind.BROKER_CRASH, broker=victim),
        f"kill -9 of broker {victim}, leader of {TOPIC}-0, which alone has at least {doomed} of "
        "the orders it acknowledged",
    )
    for follower in followers:
        stage.inject(
            Fault(kind=FaultKind.BROKER_RESUME, broker=follower), f"SIGCONT of broker {follower}"
        )
    leader = stage.wait_for_leader(other_than=victim)
    stage.tell_fault(
        f"broker {leader} leads {TOPIC}-0 now",
        "elected from the in-sync replicas, without the orders that only the dead leader had",
    )
    return victim


def _write_judged(file: Path, comparison: Comparison) -> None:
    judged = {
        "lost": [asdict(order) for order in comparison.lost],
        "duplicated": [asdict(order) for order in comparison.duplicated],
    }
    file.write_text(json.dumps(judged, indent=1) + "\n")
