"""Reliable data delivery for Kafka and Spark, proven rather than hoped for.

    lossless.cluster()    a Kafka cluster for as long as a `with` block runs
    lossless.Pipeline     topics to tables, exactly once

Both are imported when they are first used: `import lossless` must not wait for PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lossless.engines import cluster
    from lossless.pipeline.pipeline import Pipeline

__all__ = ["Pipeline", "cluster"]


def __getattr__(name: str) -> Any:
    if name == "cluster":
        from lossless.engines import cluster

        return cluster
    if name == "Pipeline":
        from lossless.pipeline.pipeline import Pipeline

        return Pipeline
    raise AttributeError(f"module 'lossless' has no attribute {name!r}")
