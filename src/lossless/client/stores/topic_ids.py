"""The ids of topics: a topic that was deleted and created again has another one."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

logger = logging.getLogger(__name__)

ASK_TIMEOUT_S = 5.0
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # sixteen zero bytes: the broker is older than topic ids


class TopicIds:
    """Asks the cluster for the ids of topics. `settings` are librdkafka's."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = {"logger": logger, **settings}

    def of(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of topics that have one. Raises KafkaException if the cluster does not answer."""
        wanted = sorted(set(topics))
        admin = AdminClient(self._settings)
        described = admin.describe_topics(TopicCollection(wanted), request_timeout=ASK_TIMEOUT_S)
        found = {topic: _printed(answer.result().topic_id) for topic, answer in described.items()}
        return {topic: topic_id for topic, topic_id in found.items() if topic_id != _NO_ID}


def _printed(topic_id: object) -> str:
    """As Kafka's own tools print it: librdkafka uses the other base64 alphabet."""
    return str(topic_id).replace("+", "-").replace("/", "_")
