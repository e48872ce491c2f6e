"""DeleteTopics (20), served by the active controller; from version 6 on also by id."""

from __future__ import annotations

import uuid
from collections import Counter

from lossless.core.messages import DeleteTopic, Error
from lossless.core.metadata import Image
from lossless.core.quotas.limits import Client
from lossless.wire.codec import Fields
from lossless.wire.context import Call, Controller

KEY = 20
STRICT_FROM = 5  # from here on there is an error for clients that delete too much
WITH_REFUSAL = 3  # from here on there is an error for deletion that is turned off

_NO_ID = uuid.UUID(int=0)


async def serve(call: Call, controller: Controller) -> Fields:
    asked: list[tuple[str | None, uuid.UUID]]
    if call.version >= 6:
        asked = [(topic.name, topic.topic_id or _NO_ID) for topic in call.request.topics]
    else:
        asked = [(name, _NO_ID) for name in call.request.topic_names]
    if not controller.settings.topic_creation.delete_topic_enable:
        has_error = call.version >= WITH_REFUSAL
        error = Error.TOPIC_DELETION_DISABLED if has_error else Error.INVALID_REQUEST
        told = [_told(*topic, error, "Topic deletion is disabled.") for topic in asked]
        return {"responses": told}
    times = Counter(_identified(*topic, controller.image) for topic in asked)
    client = call.client(strict_from=STRICT_FROM)
    responses, throttle_ms = [], 0
    for topic in dict.fromkeys(asked):
        count = times[_identified(*topic, controller.image)]
        one, wait_ms = await _delete(*topic, count, client, controller)
        responses.append(one)
        throttle_ms = max(throttle_ms, wait_ms)
    return {"throttle_time": throttle_ms, "responses": responses}


def _identified(name: str | None, topic_id: uuid.UUID, image: Image) -> str | uuid.UUID:
    """A name and the id that it has are one topic."""
    if name is None:
        name = image.topic_names.get(topic_id.int)
    return topic_id if name is None else name


async def _delete(
    name: str | None, topic_id: uuid.UUID, times: int, client: Client, controller: Controller
) -> tuple[Fields, int]:
    """The answer, and how long the client should wait."""
    image = controller.image
    if name is None and topic_id == _NO_ID:
        return _told(None, _NO_ID, Error.INVALID_REQUEST, "neither a name nor an id"), 0
    if name is not None and topic_id != _NO_ID:
        return _told(name, topic_id, Error.INVALID_REQUEST, "a name or an id, not both"), 0
    if times > 1:
        return _told(name, topic_id, Error.INVALID_REQUEST, f"asked for {times} times"), 0
    if name is None:
        name = image.topic_names.get(topic_id.int)
        if name is None:
            return _told(None, topic_id, Error.UNKNOWN_TOPIC_ID, "no topic has this id"), 0
    known_id = uuid.UUID(int=image.topics.get(name, 0))
    answer = await controller.ask(DeleteTopic(name, client))
    return _told(name, known_id, answer.error, answer.what), answer.throttle_ms


def _told(name: str | None, topic_id: uuid.UUID, error: Error, what: str) -> Fields:
    return {
        "name": name,
        "topic_id": topic_id,
        "error_code": error,
        "error_message": what or None,
    }
