"""DescribeLogDirs (35): how large a broker's logs are, and how much room is left on their disk."""

from __future__ import annotations

import shutil
from pathlib import Path

from lossless.core.messages import Error, TopicPartition
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call

KEY = 35


async def serve(call: Call, broker: Broker) -> Fields:
    folder = Path(broker.settings.properties["log.dirs"]).absolute()
    try:
        disk = shutil.disk_usage(folder)
    except OSError:
        return {"results": [{"error_code": Error.KAFKA_STORAGE_ERROR, "log_dir": str(folder)}]}
    topics: dict[str, list[Fields]] = {}
    for partition in _asked(call, broker):
        replica = broker.replicas[partition]
        topics.setdefault(partition.topic, []).append(
            {
                "partition_index": partition.partition,
                "partition_size": replica.log.size,
                "offset_lag": max(0, replica.high_watermark - replica.log.log_end_offset),
                "is_future_key": False,
            }
        )
    told = {
        "log_dir": str(folder),
        "topics": [{"name": name, "partitions": logs} for name, logs in topics.items()],
        "total_bytes": disk.total,
        "usable_bytes": disk.free,
    }
    return {"results": [told]}


def _asked(call: Call, broker: Broker) -> list[TopicPartition]:
    """Those that this broker has, of those that are asked for."""
    if call.request.topics is None:
        return sorted(broker.replicas)
    asked = {
        TopicPartition(topic.topic, number)
        for topic in call.request.topics
        for number in topic.partitions
    }
    return sorted(asked & broker.replicas.keys())
