"""IncrementalAlterConfigs (44): single settings of a resource: set, delete, append to a list or
take away from it. Brokers and controllers share the work as for AlterConfigs."""

from __future__ import annotations

from typing import Any

from lossless.core.admin_messages import AlterConfigs, ConfigChange, ConfigOperation, Resource
from lossless.core.messages import AdminAnswer, Error
from lossless.wire.alter_configs import decide_each, hand_on
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call, Controller

KEY = 44


async def serve(call: Call, broker: Broker) -> Fields:
    return await hand_on(call, broker, KEY)


async def decide(call: Call, controller: Controller) -> Fields:
    return await decide_each(call, controller, _understood)


def _understood(said: Any, resource: Resource, validate_only: bool) -> AlterConfigs | AdminAnswer:
    known = set(ConfigOperation)
    unknown = [one.config_operation for one in said.configs if one.config_operation not in known]
    if unknown:
        return AdminAnswer(Error.INVALID_REQUEST, f"Unknown operations type {unknown[0]}")
    changes = tuple(
        ConfigChange(config.name, config.value, ConfigOperation(config.config_operation))
        for config in said.configs
    )
    return AlterConfigs(resource, changes, validate_only=validate_only)
