"""`lossless audit`: topics against tables, by counts and hashes, down to the record."""

from lossless.pipeline.audit.auditor import Audited, AuditedPipeline, audit
from lossless.pipeline.audit.model import (
    AuditReport,
    Bucket,
    Finding,
    FindingKind,
    PartitionSummary,
    Reported,
    Verdict,
)
from lossless.pipeline.audit.plain_table import PlainTable

__all__ = [
    "AuditReport",
    "Audited",
    "AuditedPipeline",
    "Bucket",
    "Finding",
    "FindingKind",
    "PartitionSummary",
    "PlainTable",
    "Reported",
    "Verdict",
    "audit",
]
