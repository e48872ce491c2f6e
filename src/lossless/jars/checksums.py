"""What the jars of a set must be, and whether the files in a folder are that."""

from __future__ import annotations

import hashlib
from pathlib import Path


def expected(name: str) -> dict[str, str]:
    """The files of a set with their SHA-256."""
    lines = (Path(__file__).parent / f"{name}.sha256").read_text().splitlines()
    return {file: digest for digest, file in (line.split() for line in lines)}


def problems(name: str, place: Path) -> list[str]:
    """What is wrong with the files of the set in a folder; nothing, when they can be used.

    Files that are not of the set are none of our business.
    """
    found = []
    for file, digest in expected(name).items():
        try:
            with (place / file).open("rb") as content:
                actual = hashlib.file_digest(content, "sha256").hexdigest()
        except FileNotFoundError:
            found.append(f"{file} is not there")
        except OSError as error:
            found.append(f"{file} cannot be read ({error.strerror})")
        else:
            if actual != digest:
                found.append(
                    f"{file} is not the file it should be (SHA-256 {actual[:12]}…, "
                    f"expected {digest[:12]}…)"
                )
    return found
