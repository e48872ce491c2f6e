"""What the APIs of the quorum have in common: one topic with one partition, the metadata log.

Who is asked names its epoch and the leader that it knows in every answer.
"""

from __future__ import annotations

import uuid
from typing import Any

from lossless.core.messages import NO_LEADER
from lossless.core.quorum import METADATA
from lossless.wire.bounds import BadMessage
from lossless.wire.codec import Fields

METADATA_ID = uuid.UUID(int=1)


def of_log(fields: Fields) -> list[Fields]:
    return [{"topic_name": METADATA, "partitions": [{"partition_index": 0, **fields}]}]


def only_partition(message: Any) -> Any:
    """BadMessage if the message is about anything else."""
    topics = message.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise BadMessage("not about the metadata log")
    return topics[0].partitions[0]


def leader_number(leader: int | None) -> int:
    return NO_LEADER if leader is None else leader


def leader_or_none(number: int) -> int | None:
    return None if number == NO_LEADER else number
