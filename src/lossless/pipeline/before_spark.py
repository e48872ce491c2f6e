"""What can be refused before a JVM is started: an absent master or sink, columns that do not fit.

A session takes seconds to start, and minutes on a busy machine. A look at an address or at a file
of the table's log takes milliseconds.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pyspark.sql import types as T

from lossless.contract import Contract, DeltaSinkContract, ParquetSinkContract, PipelineContract
from lossless.errors import BadInput, Unavailable
from lossless.pipeline.session import check_locale
from lossless.pipeline.sinks import delta_schema, parquet_log
from lossless.pipeline.sinks.folder import LocalFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_TIMEOUT_S = 5.0
STANDALONE = "spark://"
_MASTER = re.compile(
    r"local(\[(\*|\d+)(\s*,\s*\d+)?\])?|local-cluster\[[\d\s,]+\]|yarn|(spark|k8s)://.*"
)
COMMITS_READ_MAX = 1_000  # of a Delta log, newest first; an older schema is left to Spark


def check_folders(contract: Contract, pipelines: Iterable[PipelineContract]) -> None:
    """Raises BadInput for folders that a JVM cannot name in the locale of this process."""
    check_locale([str(contract.folder), *tables(pipelines)])


def tables(pipelines: Iterable[PipelineContract]) -> list[str]:
    """The paths of the tables that are files."""
    sinks = (pipeline.sink for pipeline in pipelines)
    return [s.path for s in sinks if isinstance(s, DeltaSinkContract | ParquetSinkContract)]


def check_master(master: str) -> None:
    """Raises BadInput for an address that Spark does not take, Unavailable when no master of a
    standalone cluster answers."""
    if not _MASTER.fullmatch(master):
        raise BadInput(
            f"--master {master} is not an address of a Spark master",
            hint="local, local[4], local[*], spark://HOST:7077, yarn or k8s://HOST:PORT",
        )
    if not master.startswith(STANDALONE):
        return
    refused = []
    for address in master.removeprefix(STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise BadInput(f"--master {master}: expected spark://HOST:PORT[,HOST:PORT…]")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
        except (OSError, OverflowError) as error:
            refused.append(f"{address}: {error}")
        else:
            return
    raise Unavailable(
        f"no Spark master answers at {master} ({'; '.join(refused)})",
        hint="is it running, and is this the address in its log (spark://HOST:7077)?",
    )


def check_sink(pipeline: PipelineContract, rows: T.StructType | None) -> None:
    """Refuses a sink that cannot be reached, or whose columns do not fit.

    `rows` is None when only a session can tell the columns: a transform makes them.
    """
    match pipeline.sink:
        case DeltaSinkContract(path=path):
            table = _delta_schema(Path(path)) if rows is not None and "://" not in path else None
            if table is not None and rows is not None:
                difference = delta_schema.difference(table, rows)
                delta_schema.refuse_unfit(
                    difference, pipeline.name, f"delta table {path}", pipeline.add_columns
                )
        case ParquetSinkContract(path=path):
            newest = None
            with suppress(OSError):  # a place that is no folder of ours to read: the sink will say
                log = parquet_log.CommitLog(LocalFolder(path, lock_name=""), pipeline.name)
                newest = log.newest()
            if newest is not None and rows is not None:
                difference = parquet_log.compare_schemas(newest.schema, rows)
                parquet_log.refuse_unfit(
                    difference, pipeline.name, f"parquet files {path}", pipeline.add_columns
                )
        case other:
            from lossless.pipeline.sinks.postgres import PostgresSink

            # What it asks the server needs no session.
            no_session = cast("SparkSession", None)
            sink = PostgresSink(no_session, pipeline.name, other.dsn, other.table)
            sink.require_fit(rows, add_columns=pipeline.add_columns)


def _delta_schema(table: Path) -> T.StructType | None:
    """The table's columns by the newest commit that set them; None where none is found."""
    commits = sorted((table / "_delta_log").glob("[0-9]*.json"), reverse=True)
    for commit in commits[:COMMITS_READ_MAX]:
        for action in _metadata_in(commit):
            return T.StructType.fromJson(json.loads(action))
    return None


def _metadata_in(commit: Path) -> Iterator[str]:
    try:
        text = commit.read_text(encoding="utf-8")
    except OSError:
        return  # cleaned up meanwhile, or not ours to read: Spark will say
    for line in text.splitlines():
        # Most lines are files with long statistics: not worth parsing.
        if line.startswith('{"metaData"'):
            yield json.loads(line)["metaData"]["schemaString"]
