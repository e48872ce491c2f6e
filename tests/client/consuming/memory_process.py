"""A consumer in a process of its own that finishes no record until every partition is paused.

python memory_process.py SERVERS TOPIC GROUP PARTITIONS RECORDS OPTIONS

Prints the bytes by which the peak of its memory grew until then.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from confluent_kafka import Message

from lossless.client.consuming import Consumer
from lossless.engines.waiting import wait_until

PATIENCE_S = 60.0


def peak_bytes() -> int:
    """Not ru_maxrss, which includes the peak of the process that started this one."""
    status = Path("/proc/self/status").read_text()
    (line,) = (each for each in status.splitlines() if each.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def main() -> None:
    servers, topic, group, partitions, records, options = sys.argv[1:]
    before = peak_bytes()
    full = threading.Event()
    consumer = Consumer(topic, {"bootstrap.servers": servers}, group=group, **json.loads(options))
    metrics = consumer.metrics

    def handler(_message: Message) -> None:
        full.wait()

    with consumer:
        handling = threading.Thread(target=consumer.run, args=(handler,))
        handling.start()
        wait_until(
            lambda: metrics.paused == int(partitions) or metrics.received == int(records),
            timeout_s=PATIENCE_S,
        )
        sys.stdout.write(f"{peak_bytes() - before}\n")
        full.set()
        wait_until(lambda: metrics.received == int(records), timeout_s=PATIENCE_S)
        consumer.stop()
        handling.join()


if __name__ == "__main__":
    main()
