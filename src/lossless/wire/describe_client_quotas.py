"""DescribeClientQuotas (48): the limits of clients that a filter selects."""

from __future__ import annotations

import enum
from typing import Any

from lossless.core.messages import Error
from lossless.core.quotas.limits import Component, Refusal, matching, problem_with_filter
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call

KEY = 48


class Match(enum.IntEnum):
    EXACT = 0
    DEFAULT = 1
    ANY = 2


async def serve(call: Call, broker: Broker) -> Fields:
    components: list[Component] = []
    for said in call.request.components:
        component = _component(said)
        refusal = component if isinstance(component, Refusal) else None
        if isinstance(component, Component):
            components.append(component)
            refusal = problem_with_filter(components)
        if refusal is not None:
            return {
                "error_code": refusal.error,
                "error_message": refusal.what,
                "entries": None,
            }
    found = matching(broker.image.quotas, components, strict=call.request.strict)
    return {
        "entries": [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                "values": [{"key": key, "value": value} for key, value in own.items()],
            }
            for entity, own in found.items()
        ]
    }


def _component(said: Any) -> Component | Refusal:
    match said.match_type:
        case Match.EXACT if said.match is None:
            what = "Request specified MATCH_TYPE_EXACT, but set match string to null."
        case Match.EXACT:
            return Component(said.entity_type, said.match)
        case Match.DEFAULT | Match.ANY as kind if said.match is not None:
            name = "DEFAULT" if kind == Match.DEFAULT else "SPECIFIED"
            what = f"Request specified MATCH_TYPE_{name}, but also specified a match string."
        case Match.DEFAULT | Match.ANY as kind:
            return Component(said.entity_type, is_any=kind == Match.ANY)
        case _:
            what = f"Unknown match type {said.match_type}"
    return Refusal(Error.INVALID_REQUEST, what)
