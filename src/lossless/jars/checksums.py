"""The checksums of each set of jars, and their verification."""

from __future__ import annotations

import hashlib
from pathlib import Path


def expected(name: str) -> dict[str, str]:
    """Returns the SHA-256 of each file of a set, by file name."""
    lines = (Path(__file__).parent / f"{name}.sha256").read_text().splitlines()
    return {file: digest for digest, file in (line.split() for line in lines)}


def problems(name: str, place: Path) -> list[str]:
    """Returns the problems with the set's files in a folder; an empty list if they are valid.

    Ignores files that do not belong to the set.
    """
    found = []
    for file, digest in expected(name).items():
        try:
            with (place / file).open("rb") as content:
                actual = hashlib.file_digest(content, "sha256").hexdigest()
        except FileNotFoundError:
            found.append(f"{file} is missing")
        except OSError as error:
            found.append(f"{file} cannot be read ({error.strerror})")
        else:
            if actual != digest:
                found.append(
                    f"{file} has the wrong checksum (SHA-256 {actual[:12]}…, "
                    f"expected {digest[:12]}…)"
                )
    return found
