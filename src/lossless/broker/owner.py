"""A node that is a part of a program, and is not to survive it.

The program holds the other end of the node's standard input, and nobody else does: however the
program ends, so does that. A node has to be told, because many programs have a pipe there.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

OWNED = "LOSSLESS_NODE_ENDS_WITH_STDIN"  # in the environment
STDIN = 0

_logger = logging.getLogger(__name__)


def stop_with_owner(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    if OWNED not in os.environ:
        return

    def read() -> None:
        if not os.read(STDIN, 1024):
            loop.remove_reader(STDIN)
            _logger.info("whoever started this node is gone")
            stop()

    loop.add_reader(STDIN, read)
