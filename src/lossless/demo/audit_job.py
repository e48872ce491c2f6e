"""The audit in a process of its own, so that Spark can start while there is still work to do.

    python -m lossless.demo.audit_job REPORT      in the folder of the contract

It waits for the end of its standard input, audits, and leaves the report in the file REPORT.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from lossless.contract import load_contract
from lossless.demo.folder import PIPELINE
from lossless.pipeline.audit import audit
from lossless.pipeline.session import build_session
from lossless.pipeline.sinks import open_sink


def main(report_file: Path) -> None:
    contract = load_contract(None)
    pipeline = contract.pipelines[PIPELINE]
    spark = build_session("demo audit", settings=pipeline.spark)
    sys.stdin.read()
    report = audit(
        spark,
        pipeline=pipeline,
        sink=open_sink(spark, pipeline),
        client_settings=contract.cluster.client,
    )
    report_file.write_bytes(pickle.dumps(report))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
