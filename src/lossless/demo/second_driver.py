"""The driver that follows the killed one: stores the remaining orders, then audits them.

    python -m lossless.demo.second_driver REPORT      in the folder of the contract

It starts as soon as the first driver is dead, and waits for the end of its standard input before it
reads from Kafka. It does the work of `lossless run orders --once` and `lossless audit orders` in
one Spark session, which saves the start of a JVM, and writes the report into REPORT.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

from lossless.contract import load_contract
from lossless.demo.folder import PIPELINE
from lossless.pipeline.audit import audit
from lossless.pipeline.events import Event, as_json
from lossless.pipeline.pipeline import Pipeline
from lossless.pipeline.session import build_session
from lossless.pipeline.sinks import open_sink


def main(report_file: Path) -> None:
    contract = load_contract(None)
    pipeline = contract.pipelines[PIPELINE]
    spark = build_session("demo", settings=pipeline.spark)
    sys.stdin.read()
    Pipeline(PIPELINE, contract=contract, spark=spark).run(once=True, observe=_print_event)
    report = audit(
        spark,
        pipeline=pipeline,
        sink=open_sink(spark, pipeline),
        client_settings=contract.cluster.client,
    )
    report_file.write_bytes(pickle.dumps(report))
    spark.stop()


def _print_event(event: Event) -> None:
    print(json.dumps(as_json(event)), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
