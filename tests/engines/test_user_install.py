"""Brokers find the package where the command that starts them has found it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import lossless

PROGRAM = """
import subprocess, sys
from lossless.engines.local.embedded import command
sys.exit(subprocess.run([*command(), "nowhere.properties"]).returncode)
"""


def test_brokers_start_from_a_user_install(tmp_path: Path) -> None:
    """As after `pip install --user`: the package is in the user's site, and nowhere else."""
    interpreter = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    site = tmp_path / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    site.mkdir(parents=True)
    source = Path(lossless.__file__).parents[1]
    (site / "installed.pth").write_text(f"{source}\n{sysconfig.get_path('purelib')}\n")
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [interpreter, "-c", PROGRAM],
        env={**environment, "PYTHONUSERBASE": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named" not in ran.stderr
    assert "'nowhere.properties'" in ran.stderr
