"""The jars of Apache Kafka and of Spark's connectors: pinned, fetched once, verified.

A set consists of two files in this folder: `<set>.xml`, the coordinates for Apache Ivy, and
`<set>.sha256`, the checksums in the format of sha256sum. The jars of a set are in

    $LOSSLESS_JARS/<set>/                            if the variable is set: for offline sites
    $XDG_CACHE_HOME/lossless/jars/<set>-<version>/   otherwise; fetched on first use

Every use of a set verifies all checksums (50 ms), so a truncated or modified jar never gets onto a
class path.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from lossless.errors import Unavailable
from lossless.jars.checksums import expected, problems
from lossless.jars.fetch import fetch, ivy_file

# Download sizes in MB, for messages and for the documentation.
MEGABYTES: Mapping[str, float] = {"kafka": 39.5, "spark": 19.5, "jdbc": 1.1}


def jars(name: str) -> list[Path]:
    """Returns the jars of a set (`kafka`, `spark` or `jdbc`), fetching them if they are missing.

    Raises Unavailable if they cannot be fetched or are invalid.
    """
    place = folder(name)
    wrong = problems(name, place)
    if wrong and "LOSSLESS_JARS" in os.environ:
        raise Unavailable(
            f"the {name} jars in {place} cannot be used: {'; '.join(wrong[:3])}"
            + (f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""),
            hint=f"LOSSLESS_JARS names their folder; copy the jars from {_cache(name)} of a "
            "machine that has them, or unset LOSSLESS_JARS to fetch them",
        )
    if wrong:
        fetch(name, place, megabytes=MEGABYTES[name])
    return [place / file for file in sorted(expected(name))]


def present(name: str) -> bool:
    """Whether every jar of the set exists, so that nothing would be fetched."""
    place = folder(name)
    return all((place / file).is_file() for file in expected(name))


def folder(name: str) -> Path:
    """Returns the folder of the set, whether or not the jars have been fetched."""
    given = os.environ.get("LOSSLESS_JARS")
    return Path(given).absolute() / name if given else _cache(name)


def _cache(name: str) -> Path:
    version = hashlib.sha256(ivy_file(name).read_bytes()).hexdigest()[:12]
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root).absolute() / "lossless" / "jars" / f"{name}-{version}"
