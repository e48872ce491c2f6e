"""The dead letter tables of pipelines, in which they store records that could not be decoded."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from lossless.contract.values import Contract, PipelineContract, PostgresSinkContract

_SUFFIX = "_dlt"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLetters:
    """The dead letter table of one pipeline."""

    pipeline: str
    table: str
    read_by: str  # an expression for Spark or psql

    def __str__(self) -> str:
        return (
            f"pipeline {self.pipeline} stores its dead letters in {self.table}; "
            f"read them with: {self.read_by}"
        )


def pipeline_letters(contract: Contract | None, topics: Collection[str]) -> list[PipelineLetters]:
    """Returns the existing tables of pipelines that read these topics, or of all pipelines."""
    return [] if contract is None else list(_tables_of(contract, topics))


def _tables_of(contract: Contract, topics: Collection[str]) -> Iterator[PipelineLetters]:
    for pipeline in contract.pipelines.values():
        if topics and not any(_reads(pipeline, topic) for topic in topics):
            continue
        sink = pipeline.sink
        if isinstance(sink, PostgresSinkContract):
            table = f"{sink.table.removesuffix(chr(34))}{_SUFFIX}"
            table += '"' if sink.table.endswith('"') else ""
            read_by = f"SELECT * FROM {table}"
        elif sink.type == "delta":
            table = f"{sink.path.rstrip('/')}{_SUFFIX}"
            read_by = f"spark.read.format('delta').load('{table}')"
        else:
            table = f"{sink.path.rstrip('/')}/_dead_letters"
            read_by = f"spark.read.parquet('{table}')"
        is_local = sink.type != "postgres" and "://" not in table
        if not is_local or Path(table).exists():
            yield PipelineLetters(pipeline=pipeline.name, table=table, read_by=read_by)


def _reads(pipeline: PipelineContract, topic: str) -> bool:
    if pipeline.topic_pattern is not None:
        return re.fullmatch(pipeline.topic_pattern, topic) is not None
    return topic in pipeline.topics
