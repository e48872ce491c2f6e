"""Reliable data delivery for Kafka and Spark, proven rather than hoped for.

    lossless.cluster()    a Kafka cluster for as long as a `with` block runs
    lossless.Producer     sends, and never loses silently
    lossless.Consumer     reads, and commits only what is done
    lossless.Pipeline     topics to tables, exactly once

Each is imported when it is first used: `import lossless` must not wait for PySpark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lossless.extras import missing_extra

if TYPE_CHECKING:
    from lossless.client.consuming.consumer import Consumer
    from lossless.client.producing.producer import Producer
    from lossless.engines import cluster
    from lossless.pipeline.pipeline import Pipeline

__all__ = ["Consumer", "Pipeline", "Producer", "cluster"]

_FOUND_IN = {
    "Consumer": "lossless.client.consuming.consumer",
    "Pipeline": "lossless.pipeline.pipeline",
    "Producer": "lossless.client.producing.producer",
    "cluster": "lossless.engines",
}


def __getattr__(name: str) -> Any:
    if name not in _FOUND_IN:
        raise AttributeError(f"module 'lossless' has no attribute {name!r}")
    try:
        module = importlib.import_module(_FOUND_IN[name])
    except ModuleNotFoundError as error:
        absent = missing_extra(error)
        if absent is None:
            raise
        raise absent from error
    return getattr(module, name)
