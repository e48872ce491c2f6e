"""The careful variant: idempotent producers, a Lossless pipeline, two kills, and the audit.

Start brokers → produce → start the driver → kill the leader of shop.orders-0 with orders in flight
→ kill the driver between the sink's commit and its checkpoint → restart both → audit
"""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lossless.contract.faults import Fault, FaultKind
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
from lossless.demo.folder import PIPELINE, TOPIC
from lossless.demo.producing import CAREFUL
from lossless.demo.progress import Progress
from lossless.demo.result import DemoResult
from lossless.errors import Undecided

if TYPE_CHECKING:
    from lossless.pipeline.audit import AuditReport

SETTINGS = Settings(
    producer=CAREFUL,
    topic={"min.insync.replicas": "2"},
    session_timeout_ms=2_000,
    reports=True,
)
RUN = ("lossless", "run", PIPELINE, "--log-format", "json")


def run_careful(*, engine: str, orders: int, keep: Path | None, progress: Progress) -> DemoResult:
    """Runs the careful variant. Raises Undecided if a fault did not happen as planned."""
    began = time.monotonic()
    with demo_environment(
        SETTINGS, engine=engine, orders=orders, keep=keep, progress=progress
    ) as demo:
        report = _deliver(demo)
        faults = tuple(demo.faults)
    total = report.total
    return DemoResult(
        variant="careful",
        orders=orders,
        acknowledged=total.acknowledged or 0,
        stored=total.stored,
        lost=total.lost,
        duplicated=total.duplicated,
        balanced=report.verdict.value == "balanced",
        faults=faults,
        seconds=since(began),
        audit=report,
    )


def _deliver(demo: Environment) -> AuditReport:
    demo.folder.write_contract(
        client=demo.cluster.client_settings, records_per_batch=demo.records_per_batch
    )
    demo.progress.step("producing orders (acks=all, idempotent) and starting `lossless run orders`")
    driver = demo.start_driver(RUN, crash_points=CRASH_POINT)
    demo.producers.allow_up_to(demo.share(FIRST_SHARE))
    demo.wait_for_acknowledged(demo.share(FIRST_SHARE))
    demo.wait_for_stored(driver, 1)

    demo.progress.step(f"killing the leader of {TOPIC}-0 while orders are in flight")
    demo.producers.allow_up_to(demo.share(SECOND_SHARE))
    demo.wait_for_acknowledged(demo.share(STRIKE_SHARE))
    victim = demo.cluster.leader_of(TOPIC, 0)
    demo.inject(
        Fault(kind=FaultKind.LEADER_CRASH, topic=TOPIC, partition=0),
        f"kill -9 of broker {victim}, leader of {TOPIC}-0",
    )
    if driver.exit_code is not None:
        raise Undecided(
            "the driver died before the leader was killed; the demo needs the opposite order"
        )
    demo.wait_for_leader(other_than=victim)

    demo.progress.step(f"waiting for the driver to die in batch {CRASH_BATCH}")
    demo.wait_for_death(driver)
    demo.report_fault(
        "kill -9 of the driver, Python and JVM, between the sink's commit and the checkpoint",
        evidence_of_death(driver, demo.folder.scratch.glob(f"lossless-{PIPELINE}-*")),
    )

    demo.progress.step(f"restarting broker {victim} and producing the remaining orders")
    second = demo.start_driver(("lossless.demo.second_driver", str(demo.folder.report)))
    demo.producers.allow_up_to(demo.orders)
    demo.inject(Fault(kind=FaultKind.BROKER_RESTART, broker=victim), f"restart of broker {victim}")
    demo.wait_for(lambda: demo.producers.finished, "the producers to finish")

    demo.progress.step("a second driver resumes from the offsets in the table")
    second.begin()
    demo.wait_for_stored(second, demo.orders)

    demo.progress.step("auditing: comparing acknowledgements, log and table")
    demo.wait_for_end(second, "the audit")
    report: AuditReport = pickle.loads(demo.folder.report.read_bytes())
    return report
