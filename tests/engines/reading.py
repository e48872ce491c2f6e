"""Reading back what a topic holds."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition


def read_all(bootstrap_servers: str, topic: str, *, partitions: int) -> list[bytes]:
    """Every value up to the ends as they are now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reading",
            "enable.auto.commit": "false",
            "log_level": "0",
        }
    )
    try:
        parts = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
        missing = sum(consumer.get_watermark_offsets(part, timeout=30)[1] for part in parts)
        consumer.assign(parts)
        values: list[bytes] = []
        while len(values) < missing:
            messages = consumer.consume(missing - len(values), timeout=30)
            assert messages, f"{len(values)} of {missing} after 30 s without one more"
            for message in messages:
                assert message.error() is None, message.error()
                values.append(message.value() or b"")
        return values
    finally:
        consumer.close()
