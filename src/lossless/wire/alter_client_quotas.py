"""AlterClientQuotas (49): sets and removes limits of clients; served by the active controller."""

from __future__ import annotations

from collections import Counter
from typing import Any

from lossless.core.admin_messages import AlterQuotas
from lossless.core.messages import AdminAnswer, Error
from lossless.core.quotas.limits import QuotaChange, entity_of
from lossless.wire.codec import Fields
from lossless.wire.context import Call, Controller

KEY = 49


async def serve(call: Call, controller: Controller) -> Fields:
    asked = {_entity(said): said for said in call.request.entries}  # one answer for each entity
    counts = Counter(map(_entity, call.request.entries))
    told = []
    for entity, said in asked.items():
        if counts[entity] > 1:
            answer = AdminAnswer(Error.INVALID_REQUEST, f"Ignoring duplicate entity {entity}")
        else:
            changes = tuple(QuotaChange(op.key, None if op.remove else op.value) for op in said.ops)
            request = AlterQuotas(entity, changes, call.request.validate_only)
            answer = await controller.ask(request)
        told.append(
            {
                "entity": entity_told(said),
                "error_code": answer.error,
                "error_message": answer.what or None,
            }
        )
    return {"entries": told}


def _entity(said: Any) -> Any:
    return entity_of((part.entity_type, part.entity_name) for part in said.entity)


def entity_told(said: Any) -> list[Fields]:
    return [
        {"entity_type": part.entity_type, "entity_name": part.entity_name} for part in said.entity
    ]
