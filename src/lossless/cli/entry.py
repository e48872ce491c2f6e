"""The entry point of `lossless`: from the first import on, Ctrl-C ends it with one message."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line and exits with its exit code."""
    try:
        from lossless.cli.main import main as run
    except KeyboardInterrupt:
        from lossless.errors import EXIT_INTERRUPTED

        print("error: interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    run()
