"""What breaks the promise in a pipeline. Its ledger keeps the rest, whatever is set."""

from __future__ import annotations

from collections.abc import Callable

from lossless.contract.faults import FaultKind
from lossless.contract.rules.rule import Contradiction, Rule, rule_of
from lossless.contract.rules.settings import number_of
from lossless.contract.values import PipelineContract

PIPELINE_RULES: list[Rule[PipelineContract]] = []

_TASK_FAILURES = "spark.task.maxFailures"


def _pipeline(*claims: str) -> Callable[[Callable[[PipelineContract], Contradiction | None]], None]:
    def register(function: Callable[[PipelineContract], Contradiction | None]) -> None:
        PIPELINE_RULES.append(rule_of(function, claims))

    return register


@_pipeline("C14")
def _aborted_stored(asked: PipelineContract) -> Contradiction | None:
    """Records of an aborted transaction are sent again, and then stored twice."""
    promised = asked.guarantee
    if asked.isolation == "read_committed" or not promised.may_not_duplicate:
        return None
    what = "exactly-once" if promised.delivery == "exactly-once" else "duplicates_max = 0"
    return Contradiction(
        settings=("isolation",),
        reason=f'isolation = "read_uncommitted" with {what} promised: records of aborted '
        "transactions are stored, and again when they are sent anew",
        fix='leave isolation out; or promise delivery = "at-least-once" for this pipeline',
    )


@_pipeline()
def _outage_outlasts_retries(asked: PipelineContract) -> Contradiction | None:
    """A sink that is away for the promised pause must not end the pipeline."""
    promised = asked.guarantee
    if not promised.survived(FaultKind.SINK_OUTAGE) or asked.retry_max_s > promised.pause_max_s:
        return None
    return Contradiction(
        settings=("retry_max_s",),
        reason=f"retry_max_s = {asked.retry_max_s:g} with sink-outage survived and pause_max_s = "
        f"{promised.pause_max_s:g}: the pipeline ends before the sink is back",
        fix=f"set retry_max_s above {promised.pause_max_s:g}",
    )


@_pipeline()
def _executor_lost_once(asked: PipelineContract) -> Contradiction | None:
    """A task whose executor died has to be tried again."""
    failures = number_of(asked.spark.get(_TASK_FAILURES))
    if not asked.guarantee.survived(FaultKind.EXECUTOR_CRASH) or failures is None or failures > 1:
        return None
    return Contradiction(
        settings=(_TASK_FAILURES,),
        reason=f"{_TASK_FAILURES} = {failures:g} with executor-crash survived: a task is not tried "
        "again when its executor dies",
        fix=f"leave {_TASK_FAILURES} out",
    )
