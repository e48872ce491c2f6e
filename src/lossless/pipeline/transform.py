"""The user's transform: found, checked for provenance, and asked which record it fails on.

A transform is a function DataFrame -> DataFrame over the decoded rows. It must carry the column
`_lossless` through, so that every row can say where it came from.
"""

from __future__ import annotations

import importlib
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from lossless.errors import BadInput, Unavailable
from lossless.pipeline.outcomes import DEAD_LETTER, IS_DEAD, PROVENANCE, PROVENANCE_TYPE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

Transform = Callable[["DataFrame"], "DataFrame"]

# More failing records than this in one batch are not bad records but a bad transform.
REJECTED_MAX = 100

TRANSIENT = re.compile(
    r"^Connect|Connection(Reset|Refused|Aborted)?Error|Connection\w*Exception|BrokenPipe|Socket"
    r"|Timeout|TimedOut|Unavailable|TooManyRequests|^gaierror$|^OperationalError$"
)
NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """A half-open range of one source partition: what a batch is cut into."""

    topic: str
    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def halves(self) -> tuple[OffsetRange, OffsetRange]:
        middle = (self.start + self.end) // 2
        return (
            OffsetRange(self.topic, self.partition, self.start, middle),
            OffsetRange(self.topic, self.partition, middle, self.end),
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a transform failed on a record, as the dead letter will say it."""

    exception: str
    message: str

    @property
    def is_transient(self) -> bool:
        """Whether such an exception usually tells of something that is unreachable for now."""
        return TRANSIENT.search(self.exception.rpartition(".")[2]) is not None

    def is_like(self, other: Failure) -> bool:
        """The same failure, whatever addresses and numbers the message names."""
        return self.exception == other.exception and (
            NUMBER.sub("", self.message) == NUMBER.sub("", other.message)
        )


def require_module(reference: str, folder: Path) -> None:
    """Refuses a transform whose module does not exist, without running it: that may need Spark."""
    _look_in(folder)
    try:
        found = find_spec(reference.partition(":")[0])
    except ModuleNotFoundError as error:  # a package above it
        raise _no_module(reference, str(error.name), folder) from error
    except Exception:
        return  # a package above it cannot be imported: `load_transform` says why
    if found is None:
        raise _no_module(reference, reference.partition(":")[0], folder)


def load_transform(reference: str, folder: Path) -> Transform:
    """`module:function`, importable from the contract's folder or from where Python looks."""
    module_name, _, function_name = reference.partition(":")
    if not module_name or not function_name:
        raise BadInput(f"transform = {reference!r}: expected module:function")
    _look_in(folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise _no_module(reference, str(error.name), folder) from error
    except Exception as error:
        raise BadInput(
            f"transform = {reference!r}: importing {module_name} failed: "
            f"{type(error).__name__}: {error}"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise BadInput(f"transform = {reference!r}: {module_name} has no function {function_name}")
    if Path(getattr(module, "__file__", None) or "/").is_relative_to(folder):
        # Workers cannot import from the contract's folder: its functions travel by value.
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(module)
    transform: Transform = function
    return transform


def _look_in(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _no_module(reference: str, module: str, folder: Path) -> BadInput:
    return BadInput(
        f"transform = {reference!r}: no module {module!r}",
        hint=f"looked in {folder} and on Python's path",
    )


def transformed_schema(transform: Transform, empty_rows: DataFrame, reference: str) -> StructType:
    """The schema that the transform gives, found on no rows at all; refuses lost provenance."""
    try:
        result = transform(empty_rows)
        schema = result.schema
    except Exception as error:
        raise BadInput(
            f"the transform {reference} fails before it sees a record: "
            f"{type(error).__name__}: {_first_line(error)}"
        ) from error
    field = next((f for f in schema.fields if f.name == PROVENANCE), None)
    if field is None:
        raise BadInput(
            f"the transform {reference} drops the column {PROVENANCE}, which says where each row "
            "came from",
            hint=f'keep it: .select("{PROVENANCE}", …); after an aggregation no row has one origin',
        )
    if field.dataType.simpleString() != PROVENANCE_TYPE.simpleString():
        raise BadInput(
            f"the transform {reference} changes the column {PROVENANCE}: it is now "
            f"{field.dataType.simpleString()}",
            hint=f"pass it through as it is: {PROVENANCE_TYPE.simpleString()}",
        )
    for ours in (DEAD_LETTER, IS_DEAD):
        if ours in schema.fieldNames():
            raise BadInput(f"the transform {reference} makes a column {ours}: that name is ours")
    return schema


def failing_records(
    transform: Transform,
    rows: DataFrame,
    topics: Mapping[str, str],
    ranges: Sequence[OffsetRange],
    *,
    give_up_at: float,
) -> dict[OffsetRange, Failure]:
    """The records on which the transform fails twice in the same way, as ranges of length one.

    A range that fails is cut in half until the record stands alone. Empty when nothing fails now:
    what failed before was not the transform's doing. `topics` gives the id of each topic. Raises
    Unavailable for a record on which the transform fails only sometimes, or not always in the same
    way, and when the search has not ended at `give_up_at`, a time of the monotonic clock.
    """
    found: dict[OffsetRange, Failure] = {}
    for part in _split(transform, rows, topics, [r for r in ranges if len(r) > 0], give_up_at):
        found[part[0]] = part[1]
        if len(found) > REJECTED_MAX:
            refusal = Unavailable if part[1].is_transient else BadInput
            raise refusal(
                f"the transform fails on more than {REJECTED_MAX} records of one batch; "
                f"first at {part[0].topic}-{part[0].partition}, offset {part[0].start}: "
                f"{part[1].exception}: {part[1].message}"
            )
    return found


def _split(
    transform: Transform,
    rows: DataFrame,
    topics: Mapping[str, str],
    ranges: Sequence[OffsetRange],
    give_up_at: float,
) -> Iterator[tuple[OffsetRange, Failure]]:
    pending = list(ranges)
    while pending:
        part = pending.pop(0)
        if time.monotonic() > give_up_at:
            raise Unavailable(
                "the transform fails, and the records it fails on were not found within "
                "retry_max_s; the batch was not committed"
            )
        failure = _try(transform, rows.where(_within(part, topics)))
        if failure is None:
            continue
        if len(part) == 1:
            again = _try(transform, rows.where(_within(part, topics)))
            if again is None or not again.is_like(failure):
                raise Unavailable(
                    f"the transform failed on {part.topic}-{part.partition}, offset {part.start}, "
                    f"and not in the same way when it was tried again: {failure.exception}: "
                    f"{failure.message}"
                )
            yield part, failure
        else:
            pending[:0] = part.halves()


def _within(part: OffsetRange, topics: Mapping[str, str]) -> Column:
    return (
        (F.col(f"{PROVENANCE}.topic_id") == topics[part.topic])
        & (F.col(f"{PROVENANCE}.partition") == part.partition)
        & (F.col(f"{PROVENANCE}.offset") >= part.start)
        & (F.col(f"{PROVENANCE}.offset") < part.end)
    )


def _try(transform: Transform, rows: DataFrame) -> Failure | None:
    try:
        transform(rows).write.format("noop").mode("overwrite").save()
    except (PySparkException, Py4JJavaError) as error:
        return describe_failure(error)
    return None


_QUERY_ENDED = re.compile(r"\[STREAM_FAILED\].*? terminated with exception: (.*)")


def describe_failure(error: BaseException) -> Failure:
    """The exception that the user's code raised, out of what Spark wrapped around it."""
    text, _, _ = str(error).partition("=== Streaming Query ===")  # then comes its state, no cause
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [
        line
        for line in lines
        if line.partition(":")[0].replace(".", "").isidentifier() and not line.startswith("at ")
    ]
    python = [line for line in raised if line.partition(":")[0].endswith(("Error", "Exception"))]
    chosen = (python or raised or lines or [type(error).__name__])[-1 if python else 0]
    if ended := _QUERY_ENDED.match(chosen):
        return Failure(type(error).__name__, ended[1][:500])
    exception, separator, message = chosen.partition(":")
    if not separator:
        return Failure(type(error).__name__, chosen[:500])
    return Failure(exception.strip(), message.strip()[:500])


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
