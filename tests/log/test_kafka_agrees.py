"""Apache Kafka as the oracle: its tools read what we write, and we read what its broker wrote."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from confluent_kafka import Producer
from logs import SMALL, batch, fill

from lossless.contract import TopicContract
from lossless.engines.interface import ClusterSpec
from lossless.engines.local.start import start_cluster
from lossless.engines.metadata import create_topics
from lossless.jars import jars
from lossless.jars.java import java
from lossless.log.batch import Marker, MarkerKind, Record, build
from lossless.log.compression import Compression
from lossless.log.files import FileStore
from lossless.log.log import Log, LogConfig

DUMPED = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}


def dumped(files: list[Path]) -> str:
    """What kafka-dump-log.sh says, complaints included."""
    command = [str(java()), "-cp", ":".join(map(str, jars("kafka")))]
    command += ["kafka.tools.DumpLogSegments", "--deep-iteration", "--print-data-log"]
    command += ["--files", ",".join(map(str, files))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_kafkas_tool_reads_our_segments_and_finds_nothing_wrong(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "log")
    log = Log(store, SMALL)
    for number in range(6):
        log.append(
            batch(
                b"sent %d" % number,
                timestamp_ms=number * 7 % 5,
                producer_id=1,
                epoch=0,
                sequence=number,
                transactional=True,
            ),
            leader_epoch=number // 2,
            now_ms=number,
        )
        fill(log, 2, leader_epoch=number // 2, timestamp_ms=number)
    for kind in Compression:
        records = [Record(n, 0, None, b"%s " % kind.name.encode() * 9000) for n in range(2)]
        log.append(build(records, compression=kind), leader_epoch=2, now_ms=9)
    log.append_marker(
        Marker(MarkerKind.ABORT, 3), producer_id=1, producer_epoch=0, leader_epoch=2, now_ms=9
    )
    log.close()
    store.close()
    files = sorted(file for file in (tmp_path / "log").iterdir() if file.suffix in DUMPED)
    assert {file.suffix for file in files} == DUMPED
    said = dumped(files)
    for complaint in ("corrupt", "mismatch", "Non-consecutive", "isvalid: false", "Exception"):
        assert complaint not in said, said
    assert said.count("baseOffset: ") == len(list(log.batches()))
    assert "payload: sent 5" in said
    assert "endTxnMarker: ABORT coordinatorEpoch: 3" in said
    assert "producerId: 1 firstOffset: 0 lastOffset: 28 lastStableOffset: 29" in said
    for kind in Compression:
        assert said.count(f"payload: {kind.name} {kind.name} ") == 2
    assert "producerId: 1 producerEpoch: 0 " in said


def test_we_open_what_kafkas_broker_left(tmp_path: Path) -> None:
    cluster = start_cluster(
        ClusterSpec(brokers=1), tmp_path / "kafka", engine="apache", temporary=False
    )
    try:
        topic = TopicContract(
            name="orders",
            partitions=1,
            replication_factor=1,
            config={"segment.bytes": str(1 << 20), "index.interval.bytes": "1000"},
        )
        create_topics(cluster.client_settings, [topic], replication_factor_max=1)
        settings = {**cluster.client_settings, "transactional.id": "shop", "linger.ms": "0"}
        for kind in Compression:
            bare = Producer(
                {**cluster.client_settings, "compression.type": kind.name.lower(), "linger.ms": 500}
            )
            for number in range(50):
                bare.produce("orders", b"%s %d" % (kind.name.encode(), number) + b"." * 900)
            assert bare.flush(15) == 0
        producer = Producer({**settings, "log_level": "0"})
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            for part in range(50):
                producer.produce("orders", b"%d-%d" % (number, part) + bytes(6000), str(part))
            producer.flush()  # or it would abort what it never sent
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    finally:
        cluster.stop()
    [folder] = (tmp_path / "kafka").rglob("orders-0")
    copied = tmp_path / "copied"
    shutil.copytree(folder, copied)
    store = FileStore(copied)
    log = Log(store, LogConfig())
    data = [one for one in log.batches() if not one.is_control]
    sent = [(record.value or b"").rstrip(b"\0.") for one in data for record in one.records()]
    plain = [b"%s %d" % (kind.name.encode(), n) for kind in Compression for n in range(50)]
    assert sent == plain + [b"%d-%d" % (number, part) for number in range(4) for part in range(50)]
    assert {one.compression for one in data} == set(Compression)
    assert len(log.segment_base_offsets) > 1
    assert log.log_end_offset == 454  # 450 records and 4 markers
    assert log.last_stable_offset(454) == 454
    aborted = log.aborted_between(0, 454)
    assert [(one.first_offset, one.last_offset) for one in aborted] == [(301, 351), (403, 453)]
    assert len(log.producers) == 1
    assert log.latest_epoch == 0
    store.close()
