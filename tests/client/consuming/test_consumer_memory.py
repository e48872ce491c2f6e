"""What a consumer keeps in memory is bounded by bytes, however large records are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from consumed import Kafka

from topics import produce

RECORDS = 240
RECORD_BYTES = 900_000
PARTITIONS = 4
# Beside the records: librdkafka's buffers of fetches under way, and Python's own.
OVERHEAD_BYTES = 40_000_000


def grown_bytes(kafka: Kafka, options: dict[str, Any]) -> int:
    """How far memory grows while the first record is in hand; all records are read after that."""
    arguments = [
        kafka.servers,
        kafka.topic,
        kafka.group,
        *map(str, (PARTITIONS, RECORDS)),
        json.dumps(options),
    ]
    process = Path(__file__).with_name("memory_process.py")
    done = subprocess.run(
        [sys.executable, str(process), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.parametrize(
    "options",
    [{}, {"workers": 2, "order": "key"}],
    ids=["loop", "workers"],
)
def test_large_records_are_bounded_by_bytes(kafka: Kafka, options: dict[str, Any]) -> None:
    kafka.make_topic(partitions=PARTITIONS)
    value = os.urandom(RECORD_BYTES)
    produce(
        kafka.servers, kafka.topic, [(n % PARTITIONS, b"%d" % n, value) for n in range(RECORDS)]
    )
    grown = grown_bytes(kafka, options)
    assert grown < options.get("buffered_bytes_max", 64_000_000) + OVERHEAD_BYTES
