"""The average of the last three prices, in step with the offset through kill -9.

    python examples/moving_average.py                    on a cluster of its own
    python examples/moving_average.py localhost:9092     on yours; state goes to prices.db

What was read before is needed for the next average. State that is written beside the offset, before
it or after it, is wrong after a crash between the two. Here both are one transaction: the first
member kills itself in the middle, and the next goes on as if nothing had happened.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import lossless
from lossless.client.stores import SqliteStore

PRICES = [10, 20, 30, 40, 50, 60, 70, 80]


def consume(servers: str, folder: Path, die_at: int | None) -> None:
    store = SqliteStore(folder / "prices.db")

    def handle(message, unit):
        last = unit.state(message).setdefault("last three", [])
        last.append(int(message.value()))
        del last[:-3]  # changes in place are stored too
        print(f"price {last[-1]}, average {sum(last) / len(last):g}", flush=True)
        if last[-1] == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if last[-1] == PRICES[-1]:
            consumer.stop()

    # Known by its name, the next one takes the place of the dead at once. Units of two records, so
    # that some are stored when it dies and some are not.
    settings = {"bootstrap.servers": servers, "group.instance.id": "averages-1"}
    with (
        store,
        lossless.Consumer(
            "prices", settings, group="averages", store=store, commit_every_records=2
        ) as consumer,
    ):
        consumer.run(handle)


def main(servers: str, folder: Path) -> None:
    with lossless.Producer({"bootstrap.servers": servers}) as producer:
        for price in PRICES:
            producer.send("prices", str(price).encode(), key=b"LOSS")
    subprocess.run([sys.executable, __file__, servers, str(folder), "50"], check=False)
    print("killed; the next one goes on from what was stored")
    consume(servers, folder, die_at=None)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        consume(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
    elif len(sys.argv) > 1:
        main(sys.argv[1], Path())
    else:
        with lossless.cluster() as kafka, tempfile.TemporaryDirectory() as folder:
            main(kafka.bootstrap_servers, Path(folder))
