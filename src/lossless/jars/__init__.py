"""The jars that Apache Kafka and Spark's connectors need: pinned, fetched once, checked.

A set is two files beside this one: `<set>.xml`, the coordinates for Apache Ivy, and `<set>.sha256`,
what the files must be (the format of sha256sum). The jars of a set are looked for in

    $LOSSLESS_JARS/<set>/                            if given: for sites without a network
    $XDG_CACHE_HOME/lossless/jars/<set>-<version>/   fetched the first time, offline afterwards

and every file is compared with its checksum whenever the set is asked for (50 ms): a jar that was
cut short, edited or swapped is never put on a class path.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from lossless.errors import Unavailable
from lossless.jars.checksums import expected, problems
from lossless.jars.fetch import fetch, ivy_file

# What one fetch downloads, in MB, for those who are about to wait and for the documentation.
MEGABYTES: Mapping[str, float] = {"kafka": 39.5, "spark": 19.5, "jdbc": 1.1}


def jars(name: str) -> list[Path]:
    """The jars of one set (`kafka`, `spark` or `jdbc`), fetched if they are not there yet."""
    place = folder(name)
    wrong = problems(name, place)
    if wrong and "LOSSLESS_JARS" in os.environ:
        raise Unavailable(
            f"the {name} jars in {place} cannot be used: {'; '.join(wrong[:3])}"
            + (f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""),
            hint="LOSSLESS_JARS names the folder that holds them; copy them from "
            f"{_cache(name)} of a machine that has them, or unset it to fetch them",
        )
    if wrong:
        fetch(name, place, megabytes=MEGABYTES[name])
    return [place / file for file in sorted(expected(name))]


def present(name: str) -> bool:
    """Whether every jar of the set is there, so that nothing would be fetched."""
    place = folder(name)
    return all((place / file).is_file() for file in expected(name))


def folder(name: str) -> Path:
    """Where the jars of the set are, or will be."""
    given = os.environ.get("LOSSLESS_JARS")
    return Path(given).absolute() / name if given else _cache(name)


def _cache(name: str) -> Path:
    version = hashlib.sha256(ivy_file(name).read_bytes()).hexdigest()[:12]
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root).absolute() / "lossless" / "jars" / f"{name}-{version}"
