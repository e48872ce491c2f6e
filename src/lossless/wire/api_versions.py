"""ApiVersions (18): what is spoken here. The first thing that every client asks."""

from __future__ import annotations

import re

from lossless.core.messages import Error
from lossless.wire.codec import Fields
from lossless.wire.context import Call, Node
from lossless.wire.versions import API_VERSIONS, APIS, Listener

KEY = API_VERSIONS

# As of Apache Kafka 4.1: what a cluster may do, and what this one does.
SUPPORTED = {
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    "metadata.version": (7, 27),
    "transaction.version": (0, 2),
}
FINALIZED = {
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "metadata.version": 27,
    "transaction.version": 2,
}
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def spoken(listener: Listener) -> list[Fields]:
    return [
        {"api_key": api.key, "min_version": api.advertised_from, "max_version": api.highest}
        for api in APIS.values()
        if api.listeners & listener
    ]


def unsupported(listener: Listener) -> Fields:
    """To a version that is too new, in version 0: which ones are spoken of this very request, so
    that the client asks again (KIP-511)."""
    own = [api for api in spoken(listener) if api["api_key"] == KEY]
    return {"error_code": Error.UNSUPPORTED_VERSION, "api_keys": own}


async def serve(call: Call, node: Node) -> Fields:
    if call.version >= 3:
        names = (call.request.client_software_name, call.request.client_software_version)
        if not all(map(_SOFTWARE.fullmatch, names)):
            return {"error_code": Error.INVALID_REQUEST}
    return {
        "api_keys": spoken(node.kind),
        "supported_features": [
            # Older clients take a lowest version of 0 for a mistake (KIP-1022).
            {
                "name": name,
                "min_version": lowest if call.version >= 4 else max(1, lowest),
                "max_version": highest,
            }
            for name, (lowest, highest) in SUPPORTED.items()
        ],
        "finalized_features_epoch": max(0, node.image.end_offset - 1),
        "finalized_features": [
            {"name": name, "min_version_level": level, "max_version_level": level}
            for name, level in FINALIZED.items()
        ],
    }
