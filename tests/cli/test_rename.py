"""`lossless rename`, on a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

CONTRACT = """
[pipelines.new]
topics = ["orders"]
format = "raw"
[pipelines.new.sink]
type = "parquet"
path = "table"
"""


def test_a_rename_shows_what_it_is_doing(tmp_path: Path) -> None:
    (tmp_path / "lossless.toml").write_text(CONTRACT)
    terminal, inside = pty.openpty()
    command = [sys.executable, "-m", "lossless", "rename", "old", "new"]
    environment = {**os.environ, "COLUMNS": "400", "TERM": "xterm"}
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=inside, stdout=inside, stdin=inside, env=environment
    ) as renaming:
        os.close(inside)
        shown = b""
        try:
            while chunk := os.read(terminal, 65536):
                shown += chunk
        except OSError:
            pass  # the command has closed its end
    os.close(terminal)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode(errors="replace"))
    assert "moving the ledger of old in the parquet files" in text
    assert "no ledger" in text
    assert renaming.returncode == 2
