"""The jars that Apache Kafka and Spark's connectors need, pinned, fetched once, checked."""

from __future__ import annotations

import os
from pathlib import Path

from lossless.errors import Unavailable


def jars(name: str) -> list[Path]:
    """The jars of one set (`spark` or `kafka`)."""
    folder = os.environ.get("LOSSLESS_JARS")
    found = sorted((Path(folder) / name).glob("*.jar")) if folder else []
    if not found:
        raise Unavailable(f"the {name} jars are not there")
    return found
