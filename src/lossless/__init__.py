"""Reliable data delivery for Kafka and Spark, proven rather than hoped for.

    lossless.cluster()    starts a Kafka cluster for the duration of a `with` block
    lossless.Producer     sends records and never loses one silently
    lossless.Consumer     reads records and commits offsets only after processing
    lossless.Pipeline     delivers records from topics to tables, exactly once

Each is imported on first use, so that `import lossless` does not wait for PySpark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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
        from lossless.extras import missing_extra

        absent = missing_extra(error)
        if absent is None:
            raise
        raise absent from error
    return getattr(module, name)
