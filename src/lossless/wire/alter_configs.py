"""AlterConfigs (33): all settings of a resource at once; what is not named has its default again.

A broker looks first whether what is asked for one broker is asked of that one, as clients do; the
rest it hands on to the active controller, which decides.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from lossless.core.admin_messages import AlterConfigs, ConfigChange, Resource, ResourceKind
from lossless.core.messages import AdminAnswer, Error
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call, Controller

KEY = 33

_logger = logging.getLogger(__name__)

Understood = Callable[[Any, Resource, bool], AlterConfigs | AdminAnswer]


async def serve(call: Call, broker: Broker) -> Fields:
    return await hand_on(call, broker, KEY)


async def decide(call: Call, controller: Controller) -> Fields:
    return await decide_each(call, controller, _understood)


def _understood(said: Any, resource: Resource, validate_only: bool) -> AlterConfigs:
    changes = tuple(ConfigChange(config.name, config.value) for config in said.configs)
    return AlterConfigs(resource, changes, replaces_all=True, validate_only=validate_only)


# What the incremental API has in common with it


async def hand_on(call: Call, broker: Broker, key: int) -> Fields:
    """One answer for each resource, in their order: the broker's own, or the controller's."""
    counts = Counter((said.resource_type, said.resource_name) for said in call.request.resources)
    told: dict[tuple[int, str], Fields] = {}
    rest: list[Any] = []
    for said in call.request.resources:
        refusal = _refusal(said, counts[said.resource_type, said.resource_name], broker.number)
        if refusal is None:
            rest.append(said)
        else:
            told[said.resource_type, said.resource_name] = _told(said, refusal)
    if rest:
        answer = await broker.ask_controller(
            key,
            {
                "resources": [_as_asked(said) for said in rest],
                "validate_only": call.request.validate_only,
            },
        )
        for said in answer.responses:
            decided = AdminAnswer(Error(said.error_code.value), said.error_message or "")
            if decided.error is Error.NONE and decided.what:
                _logger.warning("settings of %s: %s", said.resource_name, decided.what)
            told[said.resource_type, said.resource_name] = _told(said, decided)
    return {
        "responses": [
            told[said.resource_type, said.resource_name] for said in call.request.resources
        ]
    }


def _refusal(said: Any, times: int, broker: int) -> AdminAnswer | None:
    if times > 1:
        return AdminAnswer(Error.INVALID_REQUEST, "Each resource must appear at most once.")
    is_of_one = said.resource_type == ResourceKind.BROKER and said.resource_name
    if is_of_one and said.resource_name != str(broker):
        return AdminAnswer(
            Error.INVALID_REQUEST,
            f"Unexpected broker id, expected {broker}, but received {said.resource_name}",
        )
    return None


def _as_asked(said: Any) -> Fields:
    return {
        "resource_type": said.resource_type,
        "resource_name": said.resource_name,
        "configs": [
            {field.name: getattr(config, field.name) for field in fields(config)}
            for config in said.configs
        ],
    }


async def decide_each(call: Call, controller: Controller, understood: Understood) -> Fields:
    return {
        "responses": [
            _told(said, await _decide(said, call.request.validate_only, controller, understood))
            for said in call.request.resources
        ]
    }


async def _decide(
    said: Any, validate_only: bool, controller: Controller, understood: Understood
) -> AdminAnswer:
    if said.resource_type not in set(ResourceKind):
        return AdminAnswer(Error.INVALID_REQUEST, f"Unknown resource type {said.resource_type}")
    resource = Resource(ResourceKind(said.resource_type), said.resource_name)
    request = understood(said, resource, validate_only)
    if isinstance(request, AdminAnswer):
        return request
    answer: AdminAnswer = await controller.ask(request)
    return answer


def _told(said: Any, answer: AdminAnswer) -> Fields:
    return {
        "error_code": answer.error,
        "error_message": answer.what or None,
        "resource_type": said.resource_type,
        "resource_name": said.resource_name,
    }
