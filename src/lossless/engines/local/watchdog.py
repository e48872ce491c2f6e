"""Ends a cluster with the program that it is a part of, even if the program is killed.

It waits in a process and a session of its own. The program holds the other end of its standard
input, and nobody else does: however the program ends, so does that. A program that has stopped its
cluster itself dismisses it first.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

_DISMISSED = b"."
_STDIN = 0


class Watchdog:
    def __init__(self, folder: Path) -> None:
        read_end, self._write_end = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(folder)],
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        except BaseException:
            os.close(self._write_end)
            raise
        finally:
            os.close(read_end)

    def dismiss(self) -> None:
        """Nothing is left to end."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._write_end, _DISMISSED)
        os.close(self._write_end)
        self._process.wait()


def main() -> None:
    folder = Path(sys.argv[1])
    if os.read(_STDIN, 1) == _DISMISSED:
        return
    from lossless.engines.local.cluster import LocalCluster  # most never need it
    from lossless.engines.local.state import read_state

    if read_state(folder) is not None:
        LocalCluster(folder).stop()


if __name__ == "__main__":
    main()
