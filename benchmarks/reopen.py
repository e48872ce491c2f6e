"""How long a log takes to open after kill -9, and what reading it back costs.

A process of its own writes through `Log`, as a broker does, and is killed while it writes. What it
left is opened in this process, from a cold start of everything but the system's page cache.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import Result, console
from lossless.log.batch import Record, build
from lossless.log.files import FileStore
from lossless.log.log import Log, LogConfig

BATCH_RECORDS = 16  # of 1 kB, as a producer sends them that waits a little
FETCH_BYTES = 1 << 20
OPEN_S_MAX = 5.0  # the bar: for ten gigabytes
READS = 200
GB = 1_000_000_000

_DONE = "written"


def write(folder: Path, partitions: int, size: int, segment_bytes: int) -> None:
    """For ever: whoever started this kills it once everything has its size."""
    logs = [
        Log(FileStore(folder / str(number)), LogConfig(segment_bytes=segment_bytes))
        for number in range(partitions)
    ]
    records = [Record(n, 0, None, b"%06d" % n + os.urandom(994)) for n in range(BATCH_RECORDS)]
    batch = build(records, producer_id=1, producer_epoch=0, base_sequence=0)
    while True:
        for log in logs:
            log.append_decided(batch, leader_epoch=0)
        if logs[-1].size >= size and not (folder / _DONE).exists():
            (folder / _DONE).touch()


@contextmanager
def _killed(partitions: int, size: int, segment_bytes: int) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="lossless-reopen-"))
    arguments = [str(folder), str(partitions), str(size), str(segment_bytes)]
    writer = subprocess.Popen([sys.executable, "-m", "benchmarks.reopen", *arguments])
    try:
        while not (folder / _DONE).exists():
            if writer.poll() is not None:
                raise RuntimeError("the writer ended before it was killed")
            time.sleep(0.1)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        yield folder
    finally:
        writer.kill()
        writer.wait()
        shutil.rmtree(folder)


def reopening(gigabytes: int) -> list[Result]:
    results = []
    for name, partitions, segment_bytes in (
        ("10 partitions", 10, 1 << 30),
        ("one partition, segments of 64 MiB", 1, 64 << 20),
    ):
        with _killed(partitions, gigabytes * GB // partitions, segment_bytes) as folder:
            stores = [FileStore(folder / str(number)) for number in range(partitions)]
            began = time.perf_counter()
            logs = [Log(store, LogConfig(segment_bytes=segment_bytes)) for store in stores]
            took = time.perf_counter() - began
            console.print(f"  {gigabytes} GB in {name}: open after {took:.2f} s")
            results.append(
                Result(
                    name=f"{gigabytes} GB in {name}, opened after kill -9",
                    value=round(took, 2),
                    unit="s",
                    bar=OPEN_S_MAX,
                    holds=took <= OPEN_S_MAX,
                )
            )
            if partitions == 1:
                results.append(_checked_read(logs[0]))
            for store in stores:
                store.close()
    return results


def _checked_read(log: Log) -> Result:
    """A fetch of 1 MiB from a closed segment, its checksums compared, against one without that."""
    closed, active = log.segment_base_offsets[0], log.segment_base_offsets[-1]
    checked = _read_us(log, closed)
    unchecked = _read_us(log, active)
    return Result(
        name="1 MiB read from a closed segment, checked",
        value=round(checked, 1),
        unit="µs",
        against="from the active segment, not checked",
        against_value=round(unchecked, 1),
        ratio=round(unchecked / checked, 3),
    )


def _read_us(log: Log, offset: int) -> float:
    end = log.log_end_offset
    times = []
    for _ in range(READS):
        began = time.perf_counter()
        log.read(offset, end_offset=end, bytes_max=FETCH_BYTES)
        times.append(time.perf_counter() - began)
    return sorted(times)[READS // 2] * 1e6


if __name__ == "__main__":
    write(Path(sys.argv[1]), *map(int, sys.argv[2:]))
