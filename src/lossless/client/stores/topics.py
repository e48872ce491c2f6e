"""What a cluster says of topics, asked by an admin client of its own.

confluent-kafka 2.16 aborts the process when a consumer's `list_topics` is called inside one of its
callbacks and another callback follows, so that a consumer must not be asked there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, TopicDescription

logger = logging.getLogger(__name__)

ASK_TIMEOUT_S = 5.0
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # sixteen zero bytes: the broker is older than topic ids


class Topics:
    """Asks the cluster about topics. `settings` are librdkafka's.

    Its methods raise KafkaException if the cluster does not answer.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = {"logger": logger, **settings}

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of topics that have one. A topic that is created again gets another one."""
        described = self._described(topics)
        found = {topic: _printed(each.topic_id) for topic, each in described.items()}
        return {topic: topic_id for topic, topic_id in found.items() if topic_id != _NO_ID}

    def partitions(self, topic: str) -> list[int]:
        """The numbers of the partitions of a topic."""
        return sorted(each.id for each in self._described([topic])[topic].partitions)

    def _described(self, topics: Iterable[str]) -> dict[str, TopicDescription]:
        wanted = TopicCollection(sorted(set(topics)))
        admin = AdminClient(self._settings)
        described = admin.describe_topics(wanted, request_timeout=ASK_TIMEOUT_S)
        return {topic: answer.result() for topic, answer in described.items()}


def _printed(topic_id: object) -> str:
    """As Kafka's own tools print it: librdkafka uses the other base64 alphabet."""
    return str(topic_id).replace("+", "-").replace("/", "_")
