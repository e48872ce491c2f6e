"""Finds Java through JAVA_HOME, then PATH, as PySpark does."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from lossless.errors import Unavailable

VERSION_MIN = 17

_HINT = (
    f"install Java {VERSION_MIN} or newer (Debian and Ubuntu: apt-get install "
    f"openjdk-{VERSION_MIN}-jre-headless; macOS: brew install openjdk@{VERSION_MIN}) "
    "or set JAVA_HOME"
)


def java() -> Path:
    """Returns the `java` command. Raises Unavailable if it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    if home:
        command, origin = Path(home) / "bin" / "java", f"JAVA_HOME={home}"
        if not os.access(command, os.X_OK):
            raise Unavailable(f"{origin} contains no Java", hint=_HINT)
    else:
        found = shutil.which("java")
        if found is None:
            raise Unavailable("Java is not installed: no `java` on PATH, no JAVA_HOME", hint=_HINT)
        command, origin = Path(found), f"{found} on PATH"
    version = java_version(command)
    if version is None:
        raise Unavailable(f"`java -version` failed for {origin}", hint=_HINT)
    if version < VERSION_MIN:
        raise Unavailable(f"Java {version} ({origin}) is too old", hint=_HINT)
    return command


@functools.cache
def java_version(command: Path) -> int | None:
    """Returns the feature release (8, 17, 21 …), or None if the command fails."""
    try:
        answer = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    # Java 8 reports itself as 1.8.
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else None
