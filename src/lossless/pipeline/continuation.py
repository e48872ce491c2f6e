"""What a table without a ledger of ours already holds: rows that a first run would store again.

A ledger can be lost, a pipeline renamed, a table copied without its ledger. The pipeline then looks
new, begins where the contract says, and doubles every row without a word. So before a first run the
rows that are there must be explained by the ledgers of other pipelines with other topics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lossless.errors import BadInput
from lossless.pipeline.ledger import Ledger, SourcePartition
from lossless.pipeline.outcomes import PROVENANCE
from lossless.pipeline.sinks.interface import Sink

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRows:
    """The rows of one source partition in a table."""

    topic_id: str
    partition: int
    count: int
    first_offset: int
    last_offset: int


def refuse_doubling(
    pipeline: str, sink: Sink, row_schema: StructType, sources: Iterable[SourcePartition]
) -> None:
    """Raises BadInput when a pipeline without a ledger would store rows that are there already."""
    wanted = {source.topic_id: source.topic for source in sources}
    ledgers = sink.other_ledgers()
    same_topics = _reading(wanted, ledgers)
    explained = {topic_id for ledger in ledgers.values() for topic_id in _topic_ids(ledger)}
    doubled = [
        found
        for found in _rows_in(sink, row_schema)
        if found.topic_id in wanted or found.topic_id not in explained
    ]
    if not doubled and not same_topics:
        return
    raise BadInput(
        f"the pipeline {pipeline} has no ledger in the {sink.describe()}, "
        + _described(doubled, {name: ledgers[name] for name in same_topics}, wanted),
        hint="to continue from that ledger: "
        + ", or ".join(f"lossless rename {name} {pipeline}" for name in same_topics)
        + "; otherwise give this pipeline a table of its own"
        if same_topics
        else "was the ledger lost, or the table copied without it? bring the ledger back from a "
        "backup, or give this pipeline an empty table",
    )


def refuse_other_name(
    pipeline: str, where: str, ledgers: Mapping[str, Ledger], sources: Iterable[SourcePartition]
) -> None:
    """Raises BadInput when the topics of a pipeline without a ledger went there under another name.

    `ledgers` are those of the other pipelines.
    """
    wanted = {source.topic_id: source.topic for source in sources}
    if same_topics := _reading(wanted, ledgers):
        raise BadInput(
            f"the pipeline {pipeline} has no ledger in the {where}; "
            + "; ".join(_others({name: ledgers[name] for name in same_topics})),
            hint="if the pipeline was renamed: "
            + ", or ".join(f"lossless rename {name} {pipeline}" for name in same_topics),
        )


def _reading(topic_ids: Collection[str], ledgers: Mapping[str, Ledger]) -> list[str]:
    """The pipelines that have read one of these topics."""
    return [name for name, ledger in ledgers.items() if _topic_ids(ledger) & set(topic_ids)]


def _others(same_topics: Mapping[str, Ledger]) -> list[str]:
    return [
        f"the pipeline {name} reads the same topics into it (its ledger is at commit "
        f"{ledger.sequence})"
        for name, ledger in same_topics.items()
    ]


def _rows_in(sink: Sink, row_schema: StructType) -> list[FoundRows]:
    """The table's rows by source; none where it has no column for where a row came from."""
    difference = sink.schema_difference(row_schema)
    if not difference.exists or any(one.startswith(PROVENANCE) for one in difference.added):
        return []
    topic_id, partition, offset = (
        F.col(f"{PROVENANCE}.{part}") for part in ("topic_id", "partition", "offset")
    )
    counted = (
        sink.rows()
        .where(topic_id.isNotNull())
        .groupBy(topic_id.alias("topic_id"), partition.alias("partition"))
        .agg(F.count(F.lit(1)).alias("rows"), F.min(offset), F.max(offset))
        .orderBy("topic_id", "partition")
    )
    return [
        FoundRows(topic_id=at, partition=number, count=rows, first_offset=low, last_offset=high)
        for at, number, rows, low, high in counted.collect()
    ]


def _topic_ids(ledger: Ledger) -> set[str]:
    return {source.topic_id for source in ledger.positions}


def _described(
    doubled: list[FoundRows], same_topics: Mapping[str, Ledger], topics: Mapping[str, str]
) -> str:
    total = sum(found.count for found in doubled)
    parts = [f"and the table already holds {total:,} {'row' if total == 1 else 'rows'}"]
    if doubled:
        places = [
            f"{topics.get(f.topic_id, f'topic id {f.topic_id}')}-{f.partition} "
            f"offsets {f.first_offset} to {f.last_offset}"
            for f in doubled
        ]
        more = f" and {len(places) - 3} more partitions" if len(places) > 3 else ""
        parts[0] += f" with provenance of ours ({', '.join(places[:3])}{more})"
    if same_topics:
        parts += _others(same_topics)
    else:
        parts.append("no ledger there says which pipeline wrote them")
    return "; ".join(parts)
