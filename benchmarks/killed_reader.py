"""Reads until it is killed: `python -m benchmarks.killed_reader SERVERS GROUP EVERY RECORDS FILE`.

Every record adds a byte to the file. After so many records it says how many it read a second.
"""

from __future__ import annotations

import os
import sys
import time

from lossless.client.consuming.consumer import Consumer


def main(bootstrap_servers: str, group: str, every: str, records: str, progress: str) -> None:
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": group}
    file = os.open(progress, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    with Consumer("counted", settings, commit_every_records=int(every)) as consumer:
        began_s = 0.0
        for number, _ in enumerate(consumer):
            began_s = began_s or time.perf_counter()
            os.write(file, b".")
            if number == int(records):
                print(number / (time.perf_counter() - began_s), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
