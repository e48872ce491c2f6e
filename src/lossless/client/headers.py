"""Names of the headers that records carry.

Ours say where a record comes from (claims P6 and V7). Those of retries and dead letters are Spring
Kafka's names, which tools and people already read; the families that Kafka Connect, Kafka Streams
and share groups write are read as well (see `retrying/letters.py`).
"""

from __future__ import annotations

APPLICATION = "lossless-application"
HOST = "lossless-host"
OPERATION_ID = "lossless-operation-id"  # the same for every copy of one intended record
EVENT_TIME = "lossless-event-time"  # ms since the epoch, decimal: when it happened, not when sent

ORIGINAL_TOPIC = "kafka_dlt-original-topic"
ORIGINAL_PARTITION = "kafka_dlt-original-partition"
ORIGINAL_OFFSET = "kafka_dlt-original-offset"
ORIGINAL_TIMESTAMP = "kafka_dlt-original-timestamp"
ORIGINAL_CONSUMER_GROUP = "kafka_dlt-original-consumer-group"
EXCEPTION_FQCN = "kafka_dlt-exception-fqcn"
EXCEPTION_MESSAGE = "kafka_dlt-exception-message"
EXCEPTION_STACKTRACE = "kafka_dlt-exception-stacktrace"

RETRY_ATTEMPTS = "retry_topic-attempts"
RETRY_BACKOFF_TIMESTAMP = "retry_topic-backoff-timestamp"  # not to be tried before
RETRY_ORIGINAL_TIMESTAMP = "retry_topic-original-timestamp"
