"""The audit for programs: JSON and Parquet.

JSON: {"verdict", "audits": [audit, …], "failures": [{"pipeline", "error"}, …]}, a failure being a
pipeline that could not be audited, and an audit

    pipeline, sink, audited_at_ms, sequence       what was audited, and at which commit
    verdict                                       "balanced" | "not balanced" | "cannot tell"
    conclusion                                    the last line of the terminal
    reported                                      "reported" | "partially reported" | "not reported"
    bucket_ms, buckets                            the width, and a line per bucket
    total                                         the same line for everything
    partitions                                    where each stands, with a line of its own
    findings                                      every record that is wrong
    notes, undecided                              sentences

A line: start_ms (null: not known), acknowledged (null: not reported), logged, stored, filtered,
dead, in_flight, explained, missing, lost_before_log, lost, duplicated, unexpected, altered,
balanced.
A finding: kind, topic, topic_id, partition, offset, last_offset, records, key (text, or 0x…),
timestamp_ms, bucket_ms, candidates (`records` of these offsets, when it cannot be told which),
detail.

Parquet: `buckets.parquet` and `findings.parquet` with the same columns and the pipeline's name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lossless.errors import BadInput
from lossless.pipeline.audit.model import AuditReport, Bucket, Finding, Verdict
from lossless.pipeline.audit.wording import conclusion, key_of


def to_json(reports: Sequence[AuditReport], failures: Mapping[str, Exception] | None = None) -> str:
    failures = failures or {}
    verdicts = [r.verdict for r in reports] + [Verdict.UNDECIDED] * len(failures)
    document = {
        "verdict": worst(verdicts),
        "audits": [_audit(report) for report in reports],
        "failures": [{"pipeline": name, "error": str(error)} for name, error in failures.items()],
    }
    return json.dumps(document, indent=2)


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    for verdict in (Verdict.NOT_BALANCED, Verdict.UNDECIDED):
        if verdict in verdicts:
            return verdict
    return Verdict.BALANCED


def _audit(report: AuditReport) -> dict[str, Any]:
    return {
        "pipeline": report.pipeline,
        "sink": report.sink,
        "audited_at_ms": report.audited_at_ms,
        "sequence": report.sequence,
        "verdict": report.verdict,
        "conclusion": conclusion(report),
        "reported": report.reported,
        "bucket_ms": report.bucket_ms,
        "buckets": [_bucket(bucket) for bucket in report.buckets],
        "total": _bucket(report.total),
        "partitions": [
            {
                "topic": p.source.topic,
                "topic_id": p.source.topic_id,
                "partition": p.source.partition,
                "start_offset": p.start_offset,
                "next_offset": p.next_offset,
                "log_start": p.log_start,
                "log_end": p.log_end,
                "balanced": p.balanced,
                "total": _bucket(p.total),
            }
            for p in report.partitions
        ],
        "findings": [_finding(finding) for finding in report.findings],
        "notes": list(report.notes),
        "undecided": list(report.undecided),
    }


def _bucket(bucket: Bucket) -> dict[str, Any]:
    return {**asdict(bucket), "lost": bucket.lost}


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        **asdict(finding),
        "key": key_of(finding) if finding.key is not None else None,
        "candidates": list(finding.candidates),
    }


def write_parquet(reports: Sequence[AuditReport], folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    count, text = pa.int64(), pa.string()
    buckets = pa.schema(
        {
            "pipeline": text,
            **{name: count for name in _bucket(reports[0].total) if name != "balanced"},
            "balanced": pa.bool_(),
        }.items()
    )
    findings = pa.schema(
        {
            **dict.fromkeys(("pipeline", "kind", "topic", "topic_id"), text),
            "partition": pa.int32(),
            **dict.fromkeys(("offset", "last_offset", "records"), count),
            "key": text,
            **dict.fromkeys(("timestamp_ms", "bucket_ms"), count),
            "candidates": pa.list_(count),
            "detail": text,
        }.items()
    )
    lines = [{"pipeline": r.pipeline, **_bucket(b)} for r in reports for b in r.buckets]
    found = [{"pipeline": r.pipeline, **_finding(f)} for r in reports for f in r.findings]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(lines, buckets), folder / "buckets.parquet")
        pq.write_table(pa.Table.from_pylist(found, findings), folder / "findings.parquet")
    except OSError as error:
        raise BadInput(
            f"{folder} cannot be written: {error.strerror or error}", hint="choose another folder"
        ) from error
