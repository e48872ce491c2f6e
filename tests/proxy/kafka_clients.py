"""What the tests ask of clients."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.error import KafkaError

READ_S_MAX = 20.0


class Sending:
    """A producer, and what became of what it sent."""

    def __init__(self, bootstrap_servers: str, topic: str, **settings: Any) -> None:
        self._topic = topic
        self.delivered: list[str] = []
        self.errors: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "acks": "all",
                "linger.ms": 0,
                "log_level": 0,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )

    def send(self, value: str) -> None:
        self._producer.produce(self._topic, value, callback=self._on_delivery)
        self._producer.poll(0)

    def finish(self, timeout_s: float = 30.0) -> None:
        assert self._producer.flush(timeout_s) == 0

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.delivered.append(message.value().decode())
        else:
            self.errors.append(error)


def stored(bootstrap_servers: str, topic: str) -> list[str]:
    """Everything in the topic's one partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[str] = []
    try:
        while True:
            message = consumer.poll(READ_S_MAX)
            assert message is not None, f"no end of {topic} in {READ_S_MAX} s"
            if message.error() is None:
                values.append(message.value().decode())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return values
            else:
                raise AssertionError(message.error())
    finally:
        consumer.close()
