"""`python -m benchmarks.mutation_search SECONDS`: looks for a fault in the package that it imports.

Schedules of sound settings, round by round some of each kind of settings, for SECONDS of CPU at
most. The first finding is printed as "settings|seed|what was found"; otherwise nothing is.
mutations.py runs this with a copy of the package in which a fault is planted.
"""

from __future__ import annotations

import gc
import itertools
import sys
import time
from dataclasses import replace
from typing import NamedTuple

from lossless.simulator.options import changed, pairs_of
from lossless.simulator.run import Run, ScheduleFailed
from lossless.simulator.settings import ProducerSettings, Settings

_EVERY_FAULT = (
    "faults=broker-crash=9,leader-crash=9,controller-crash=9,broker-pause=9,broker-stop=9,"
    "rolling-restart=9,power-loss=9,power-loss-everywhere=9,network-partition=9,disk-full=9,"
    "disk-failure=9,client-disconnect=9,producer-crash=9,consumer-crash=9,late-messages"
)
_FENCING = ("ProducerFenced", "CoordinatorFenced")


class Search(NamedTuple):
    name: str
    changes: str  # of the simulator's own defaults
    looked_for: tuple[str, ...] = ()  # these alone; none: whatever can be found
    interval_ms: int = ProducerSettings().interval_ms
    schedules: float = 1  # in each round


SEARCHES = (
    Search("replication", f"controllers=3 flush-before-ack=true {_EVERY_FAULT}"),
    Search(
        "replication, records close together",
        f"controllers=3 fetch-bytes=200 flush-before-ack=true {_EVERY_FAULT}",
        interval_ms=20,
    ),
    # Two replicas, so that every fault strikes one that counts.
    Search(
        "power",
        "brokers=2 rf=2 min-isr=2 consumers=1 faults-max=6 "
        "faults=power-loss,broker-pause=2,network-partition=2,broker-stop=2,late-messages",
    ),
    Search(
        "controllers",
        "controllers=3 producers=1 consumers=1 flush-before-ack=true faults-max=6 "
        "faults=power-loss-everywhere,controller-crash=2,broker-crash,late-messages",
    ),
    Search(
        "one controller",
        "producers=1 consumers=0 flush-before-ack=true faults-max=6 "
        "faults=power-loss-everywhere,broker-crash,late-messages",
        schedules=2,
    ),
    Search(
        "groups",
        "groups=2 partitions=2 consumers=3 compaction=true segment-bytes=300 "
        "faults=broker-crash,broker-pause,consumer-crash,broker-stop,late-messages",
    ),
    Search(
        "transactions",
        "transactions=true isolation=read_committed partitions=2 groups=1 compaction=true "
        "segment-bytes=300 faults=broker-crash,broker-pause,network-partition,producer-crash,"
        "consumer-crash,late-messages",
    ),
    Search(
        "short transactions",
        "transactions=true isolation=read_committed partitions=2 producers=4 records=6 "
        "consumers=1 chaos-ms=600 faults=broker-crash,broker-pause,late-messages",
    ),
    # Markers of a coordinator that died are late for the last transaction of a producer.
    Search(
        "short transactions, coordinators fail",
        "transactions=true partitions=4 consumers=0 producers=4 records=4 chaos-ms=600 "
        "faults-max=3 faults=broker-crash,late-messages",
    ),
    # Brokers that are apart for a moment, and keep what they lead: markers get lost.
    Search(
        "transactions, brokers apart",
        "transactions=true partitions=2 consumers=0 producers=4 records=4 lag-ms=10000 "
        "chaos-ms=600 faults-max=6 faults=network-partition=3",
        schedules=0.5,
    ),
    Search(
        "copies",
        "transactions=true isolation=read_committed groups=1 transform=true commit=transaction "
        "producers=1 records=4 unit=1 chaos-ms=600 "
        "faults=broker-crash,broker-pause,consumer-crash,network-partition,late-messages",
        schedules=0.5,
    ),
    # What protects here is the log alone. Transactions may hang then, which is not looked for.
    Search(
        "transactions, not verified",
        "transactions=true transaction-version=1 verification=false partitions=2 consumers=0 "
        "faults=broker-crash,broker-pause,producer-crash,late-messages",
        _FENCING,
    ),
)


def settings_of(search: Search) -> Settings:
    settings = changed(Settings(), pairs_of(search.changes, search.name), search.name)
    return replace(settings, producer=replace(settings.producer, interval_ms=search.interval_ms))


def found(search: Search, settings: Settings, seed: int) -> tuple[str, ...]:
    """What a schedule shows. An error counts: no host would survive it."""
    try:
        kinds = Run(settings, seed).run().kinds
    except ScheduleFailed as failed:
        return (type(failed.__cause__).__name__,)
    return tuple(kind for kind in kinds if not search.looked_for or kind in search.looked_for)


def main() -> None:
    seconds = float(sys.argv[1])
    began = time.process_time()
    searches = [(search, settings_of(search)) for search in SEARCHES]
    gc.disable()
    for number in itertools.count(1):
        for search, settings in searches:
            first, end = (1 + int(each * search.schedules) for each in (number - 1, number))
            for seed in range(first, end):
                kinds = found(search, settings, seed)
                took = time.process_time() - began
                if kinds:
                    print(search.name, seed, ", ".join(kinds), sep="|")
                if kinds or took > seconds:
                    return
        if number % 20 == 0:
            gc.collect()


if __name__ == "__main__":
    main()
