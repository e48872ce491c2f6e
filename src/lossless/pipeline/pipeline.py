"""`lossless.Pipeline`: a pipeline of a contract, put together and run.

From a notebook, a spark-submit script or any platform that gives you a session:

    import lossless
    lossless.Pipeline("orders", spark=spark).run(once=True)

Without `spark` a session with the pinned jars is started and stopped again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import types as T

from lossless.contract import Contract, PipelineContract, load_contract, redacted
from lossless.contract.rules.judging import enforce
from lossless.engines.choose import connect
from lossless.errors import BadInput
from lossless.pipeline.authorization import require_read
from lossless.pipeline.batch import Batcher
from lossless.pipeline.before_spark import check_folders, check_master, check_sink
from lossless.pipeline.contents import with_hash_column
from lossless.pipeline.decode import Decoder, decoder
from lossless.pipeline.decode.patterns import check_patterns
from lossless.pipeline.events import Observer, unobserved
from lossless.pipeline.ledger import Ledger, SourcePartition
from lossless.pipeline.outcomes import PROVENANCE, PROVENANCE_TYPE
from lossless.pipeline.runner import Runner
from lossless.pipeline.session import build_session, check_session, check_settings
from lossless.pipeline.sinks import open_sink
from lossless.pipeline.sinks.interface import SchemaDifference
from lossless.pipeline.source import SourceLog
from lossless.pipeline.transform import load_transform, require_module, transformed_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What a run would do, found out without writing anything."""

    pipeline: str
    sink: str
    client_settings: Mapping[str, str]  # redacted
    ledger: Ledger
    offsets: Mapping[SourcePartition, int]
    latest: Mapping[SourcePartition, int]
    row_schema: T.StructType  # with the columns that are added to every row
    schema_difference: SchemaDifference


class Pipeline:
    """One pipeline of a contract. `run` may be called again after it returned."""

    def __init__(
        self,
        name: str,
        *,
        contract: Contract | Path | str | None = None,
        spark: SparkSession | None = None,
        kafka: str | None = None,
        master: str = "local[*]",
    ) -> None:
        if not isinstance(contract, Contract):
            contract = load_contract(Path(contract) if contract is not None else None)
        if spark is not None:
            check_session(spark)
        self._contract = contract
        self._pipeline = find_pipeline(contract, name)
        enforce(contract, pipelines=[name])
        self._given_spark = spark
        self._kafka = kafka
        self._master = master
        self._runner: Runner | None = None
        self._stop_asked = False

    def run(
        self, *, once: bool = False, accept_loss: bool = False, observe: Observer = unobserved
    ) -> Ledger:
        """Runs until `stop`, or with `once` until all that is there now is stored.

        Returns the ledger as the run left it. Raises Interrupted if the run was stopped before it
        had read its ledger.
        """
        try:
            with self._opened(observe) as runner:
                # In this order, and the other way round in `stop`: none of them misses the other.
                self._runner = runner
                if self._stop_asked:
                    runner.stop()
                return runner.run(once=once, accept_loss=accept_loss)
        finally:
            self._runner, self._stop_asked = None, False

    def stop(self) -> None:
        """Asks the run in another thread to finish its batch and return.

        If nothing runs, the next run is stopped: its thread may not have come to it yet. A stop
        counts for one run.
        """
        self._stop_asked = True
        runner = self._runner
        if runner is not None:
            runner.stop()

    def dry_run(self, *, accept_loss: bool = False) -> DryRun:
        with self._opened(unobserved) as runner:
            ledger, going_on = runner.plan(accept_loss=accept_loss)
            log = runner.source.ranges(list(going_on.offsets))
            return DryRun(
                pipeline=self._pipeline.name,
                sink=runner.sink.describe(),
                client_settings=redacted({**runner.client_settings, **self._pipeline.config}),
                ledger=ledger,
                offsets=going_on.offsets,
                latest={source: held.latest for source, held in log.items()},
                row_schema=with_hash_column(runner.row_schema),
                schema_difference=runner.sink.schema_difference(runner.row_schema),
            )

    @contextmanager
    def _opened(self, observe: Observer) -> Iterator[Runner]:
        """Everything that can be wrong without Spark is found before Spark is started."""
        pipeline = self._pipeline
        decode = check_pipeline(pipeline, self._contract.folder)
        if self._given_spark is None:
            check_master(self._master)
            check_folders(self._contract, [pipeline])
        check_sink(pipeline, decoded_rows(decode) if pipeline.transform is None else None)
        client_settings = connect(self._kafka, self._contract).client_settings
        source = SourceLog({**client_settings, **pipeline.config})
        topics = source.topics(pipeline.topics, pipeline.topic_pattern)
        require_read({**client_settings, **pipeline.config}, topics)
        spark = self._given_spark or build_session(
            pipeline.name,
            master=self._master,
            settings=pipeline.spark,
            log=spark_log(self._contract),
        )
        try:
            check_settings(spark)
            if pipeline.topic_pattern is not None:
                check_patterns(spark, [("topic_pattern", pipeline.topic_pattern)])
            row_schema = decoded_rows(decode)
            transform = None
            if pipeline.transform is not None:
                # Only now: a module with a UDF in it can be imported only where Spark runs.
                transform = load_transform(pipeline.transform, self._contract.folder)
                row_schema = transformed_schema(
                    transform, spark.createDataFrame([], row_schema), pipeline.transform
                )
            sink = open_sink(spark, pipeline)
            yield Runner(
                spark=spark,
                pipeline=pipeline,
                client_settings=client_settings,
                source=source,
                sink=sink,
                batcher=Batcher(
                    decoder=decode,
                    transform=transform,
                    sink=sink,
                    group=pipeline.group,
                    retry_max_s=pipeline.retry_max_s,
                ),
                row_schema=row_schema,
                observe=observe,
            )
        finally:
            if self._given_spark is None:
                spark.stop()


def check_pipeline(pipeline: PipelineContract, folder: Path) -> Decoder:
    """Compiles the schema and looks for the transform: what needs neither Spark nor Kafka."""
    decode = decoder(pipeline.format, pipeline.schema, group=pipeline.group)
    if pipeline.transform is not None:
        require_module(pipeline.transform, folder)
    return decode


def decoded_rows(decode: Decoder) -> T.StructType:
    """The rows as the decoder makes them, before any transform."""
    return T.StructType([*decode.schema.fields, T.StructField(PROVENANCE, PROVENANCE_TYPE)])


def spark_log(contract: Contract) -> Path:
    """Where the JVM of a session of ours writes its log."""
    return contract.folder / ".lossless" / "spark.log"


def find_pipeline(contract: Contract, name: str) -> PipelineContract:
    if name not in contract.pipelines:
        known = ", ".join(contract.pipelines) or "(none)"
        raise BadInput(f"{contract.path}: no pipeline {name!r}", hint=f"pipelines there: {known}")
    return contract.pipelines[name]
