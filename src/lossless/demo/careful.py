"""The careful variant: idempotent producers, a Lossless pipeline, two kills, and the audit.

brokers up → first orders → driver reads → leader of shop.orders-0 killed, orders in flight
→ driver killed between the sink's commit and its checkpoint → both come back → audit
"""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lossless.contract.faults import Fault, FaultKind
from lossless.demo.folder import PIPELINE, TOPIC
from lossless.demo.producing import CAREFUL
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

if TYPE_CHECKING:
    from lossless.pipeline.audit import AuditReport

SETTINGS = Settings(
    producer=CAREFUL,
    topic={"min.insync.replicas": "2"},
    session_timeout_ms=2_000,
    reports=True,
)
RUN = ("lossless", "run", PIPELINE, "--log-format", "json")


def run_careful(*, engine: str, orders: int, keep: Path | None, teller: Teller) -> DemoResult:
    began = time.monotonic()
    with set_stage(SETTINGS, engine=engine, orders=orders, keep=keep, teller=teller) as stage:
        report = _deliver(stage)
        faults = tuple(stage.faults)
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


def _deliver(stage: Stage) -> AuditReport:
    stage.folder.write_contract(
        client=stage.cluster.client_settings, records_per_batch=stage.records_per_batch
    )
    stage.teller.step("producing orders (acks=all, idempotent) and starting `lossless run orders`")
    driver = stage.start_driver(RUN, crash_points=CRASH_POINT)
    stage.producers.open_to(stage.share(FIRST_SHARE))
    stage.wait_for_acknowledged(stage.share(FIRST_SHARE))
    stage.wait_for_stored(driver, 1)

    stage.teller.step(f"killing the leader of {TOPIC}-0 while orders are in flight")
    stage.producers.open_to(stage.share(SECOND_SHARE))
    stage.wait_for_acknowledged(stage.share(STRIKE_SHARE))
    victim = stage.cluster.leader_of(TOPIC, 0)
    stage.inject(
        Fault(kind=FaultKind.LEADER_CRASH, topic=TOPIC, partition=0),
        f"kill -9 of broker {victim}, leader of {TOPIC}-0",
    )
    if driver.exit_code is not None:
        raise Undecided("the driver died before the leader did: the demo wants it the other way")
    stage.wait_for_leader(other_than=victim)

    stage.teller.step(f"waiting for the driver to die in batch {DEADLY_BATCH}")
    stage.wait_for_death(driver)
    stage.tell_fault(
        "kill -9 of the driver, Python and JVM, between the sink's commit and the checkpoint",
        evidence_of_death(driver, stage.folder.scratch.glob(f"lossless-{PIPELINE}-*")),
    )

    stage.teller.step(f"bringing broker {victim} back and producing the rest")
    second = stage.start_driver(("lossless.demo.second_driver", str(stage.folder.report)))
    stage.producers.open_to(stage.orders)
    stage.inject(Fault(kind=FaultKind.BROKER_RESTART, broker=victim), f"broker {victim} comes back")
    stage.wait_for(lambda: stage.producers.finished, "the producers to finish")

    stage.teller.step("a second driver goes on where the table says")
    second.go()
    stage.wait_for_stored(second, stage.orders)

    stage.teller.step("auditing: acknowledged against the log, the log against the table")
    stage.wait_for_end(second, "the audit")
    report: AuditReport = pickle.loads(stage.folder.report.read_bytes())
    return report
