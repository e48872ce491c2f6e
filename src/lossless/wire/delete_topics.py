"""DeleteTopics (20), served by the active controller; from version 6 on also by id."""

from __future__ import annotations

import uuid
from collections import Counter

from lossless.core.messages import DeleteTopic, Error
from lossless.core.metadata import Image
from lossless.wire.codec import Fields
from lossless.wire.context import Call, Controller

KEY = 20
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
    return {
        "responses": [
            await _delete(*topic, times[_identified(*topic, controller.image)], controller)
            for topic in dict.fromkeys(asked)
        ]
    }


def _identified(name: str | None, topic_id: uuid.UUID, image: Image) -> str | uuid.UUID:
    """A name and the id that it has are one topic."""
    if name is None:
        name = image.topic_names.get(topic_id.int)
    return topic_id if name is None else name


async def _delete(
    name: str | None, topic_id: uuid.UUID, times: int, controller: Controller
) -> Fields:
    image = controller.image
    if name is None and topic_id == _NO_ID:
        return _told(None, _NO_ID, Error.INVALID_REQUEST, "neither a name nor an id")
    if name is not None and topic_id != _NO_ID:
        return _told(name, topic_id, Error.INVALID_REQUEST, "a name or an id, not both")
    if times > 1:
        return _told(name, topic_id, Error.INVALID_REQUEST, f"asked for {times} times")
    if name is None:
        name = image.topic_names.get(topic_id.int)
        if name is None:
            return _told(None, topic_id, Error.UNKNOWN_TOPIC_ID, "no topic has this id")
    known_id = uuid.UUID(int=image.topics.get(name, 0))
    answer = await controller.ask(DeleteTopic(name))
    return _told(name, known_id, answer.error, answer.what)


def _told(name: str | None, topic_id: uuid.UUID, error: Error, what: str) -> Fields:
    return {
        "name": name,
        "topic_id": topic_id,
        "error_code": error,
        "error_message": what or None,
    }
