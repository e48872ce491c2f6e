"""What the tests ask of clients."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer
from confluent_kafka.error import KafkaError

from topics import read_all


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
    return [(each.value() or b"").decode() for each in read_all(bootstrap_servers, topic)]
