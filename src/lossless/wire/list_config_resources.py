"""ListConfigResources (74): what has settings. Version 0 asks for client metrics only, of which
there are none."""

from __future__ import annotations

from collections.abc import Iterable

from lossless.core.admin_messages import ResourceKind
from lossless.core.messages import Error
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call

KEY = 74


async def serve(call: Call, broker: Broker) -> Fields:
    if call.version == 0:
        return {"config_resources": []}
    asked = set(call.request.resource_types) or set(ResourceKind)
    if not asked <= set(ResourceKind):
        return {"error_code": Error.UNSUPPORTED_VERSION, "config_resources": []}
    return {
        "config_resources": [
            {"resource_name": name, "resource_type": kind}
            for kind in sorted(asked)
            for name in _names(ResourceKind(kind), call.listener, broker)
        ]
    }


def _names(kind: ResourceKind, listener: str, broker: Broker) -> Iterable[str]:
    match kind:
        case ResourceKind.TOPIC:
            return sorted(broker.image.topics)
        case ResourceKind.BROKER | ResourceKind.BROKER_LOGGER:
            return map(str, sorted(broker.endpoints(listener)))
        case ResourceKind.GROUP:
            return sorted(
                resource.name
                for resource in broker.image.configs
                if resource.kind is ResourceKind.GROUP
            )
        case ResourceKind.CLIENT_METRICS:
            return ()
