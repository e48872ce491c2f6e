"""Runs the command `lossless` in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LOSSLESS = [sys.executable, "-c", "from lossless.cli.main import main; main()"]


def lossless(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LOSSLESS, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
