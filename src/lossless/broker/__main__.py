"""A node in a process of its own: `python -m lossless.broker server.properties`.

It runs until SIGTERM or Ctrl-C, which stop it in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path

from lossless.broker import faults
from lossless.broker.loop import new_event_loop
from lossless.broker.node import Node, NodeConfig
from lossless.broker.server import raise_descriptor_limit
from lossless.core.quorum_messages import CorruptElection
from lossless.core.settings.kinds import InvalidSetting
from lossless.log.batch import CorruptBatch
from lossless.log.store import StoreFailed

SHUT_DOWN_S_MAX = 20.0
FAILED = 1  # as Kafka halts when its disk fails

_logger = logging.getLogger("lossless.broker")


def main() -> int:
    logging.basicConfig(
        level=logging.INFO, format="[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
    )
    try:
        config = NodeConfig.from_properties(_properties(Path(sys.argv[1])))
    except InvalidSetting as error:
        print(f"InvalidSetting: {error}", file=sys.stderr)
        return 2
    raise_descriptor_limit()
    _take_turns()
    try:
        _run(config)
    except (CorruptElection, CorruptBatch, StoreFailed) as error:
        _logger.critical("this node cannot start: %s", error)
        return FAILED
    return 0


def _take_turns() -> None:
    """Where brokers share few cores, one that is woken by a message waits until whoever runs has
    finished its turn (Linux). Otherwise they interrupt each other for every message, find their
    caches cold, and have a message at a time to deal with: a tenth more work for the same records.
    """
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _run(config: NodeConfig) -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(config))


async def _serve(config: NodeConfig) -> None:
    asked_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop.set)
    node = Node(config, _halt)
    faults.forget(config.folder)

    def suffer() -> None:
        asked = faults.read_asked(config.folder)
        node.suffer(asked)
        _logger.info("node %d suffers %s", config.number, asked)
        faults.note_applied(config.folder, asked)

    loop.add_signal_handler(signal.SIGUSR1, suffer)
    await node.start()
    _logger.info("node %d runs", config.number)
    await asked_to_stop.wait()
    is_in_order = await node.shut_down(timeout_s=SHUT_DOWN_S_MAX)
    _logger.info("node %d stopped%s", config.number, "" if is_in_order else ", not in order")


def _halt(error: BaseException) -> None:
    """Nothing that this process could still do would be right."""
    _logger.critical("this node cannot go on: %s", error)
    logging.shutdown()
    os._exit(FAILED)


def _properties(file: Path) -> dict[str, str]:
    found = {}
    for line in file.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found[name.strip()] = value.strip().replace("\\n", "\n").replace("\\\\", "\\")
    return found


if __name__ == "__main__":
    sys.exit(main())
