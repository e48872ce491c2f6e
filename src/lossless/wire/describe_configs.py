"""DescribeConfigs (32): settings of topics, brokers and groups, by whoever is asked.

A node knows its own static settings only, so a broker is asked for itself. Loggers are Python's and
not described; client metrics are not collected, and have no settings.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lossless.core.admin_messages import (
    ALL_BROKERS,
    Resource,
    ResourceKind,
    broker_resource,
    topic_resource,
)
from lossless.core.dynamic_settings import properties_now
from lossless.core.messages import AdminAnswer, Error
from lossless.core.settings.describe import (
    Described,
    describe_broker,
    describe_cluster_defaults,
    describe_group,
    describe_topic,
)
from lossless.wire.codec import Fields
from lossless.wire.context import Call, Node
from lossless.wire.topic_names import problem

KEY = 32


async def serve(call: Call, node: Node) -> Fields:
    request = call.request
    with_synonyms = getattr(request, "include_synonyms", False)
    with_documentation = getattr(request, "include_documentation", False)
    results = []
    for said in request.resources:
        found = _describe(said.resource_type, said.resource_name, node)
        told: dict[str, Any] = {
            "resource_type": said.resource_type,
            "resource_name": said.resource_name,
            "error_code": Error.NONE,
            "configs": [],
        }
        if isinstance(found, AdminAnswer):
            told |= {"error_code": found.error, "error_message": found.what}
        else:
            asked = set(said.configuration_keys or ())
            told["configs"] = [
                _told(one, with_synonyms=with_synonyms, with_documentation=with_documentation)
                for one in found
                if not asked or one.name in asked
            ]
        results.append(told)
    return {"results": results}


def _describe(kind: int, name: str, node: Node) -> Iterable[Described] | AdminAnswer:
    match kind:
        case ResourceKind.TOPIC:
            return _describe_topic(name, node)
        case ResourceKind.BROKER:
            return _describe_broker(name, node)
        case ResourceKind.GROUP if not name:
            return AdminAnswer(Error.INVALID_REQUEST, "Group name must not be empty")
        case ResourceKind.GROUP:
            overrides = node.image.overrides(Resource(ResourceKind.GROUP, name))
            return describe_group(overrides, properties_now(node.settings, node.image, node.number))
        case ResourceKind.CLIENT_METRICS if not name:
            what = "Client metrics subscription name must not be empty"
            return AdminAnswer(Error.INVALID_REQUEST, what)
        case ResourceKind.CLIENT_METRICS:
            return ()
        case ResourceKind.BROKER_LOGGER:
            return AdminAnswer(Error.INVALID_REQUEST, "broker loggers are not described here")
        case _:
            return AdminAnswer(Error.INVALID_REQUEST, f"Unsupported resource type: {kind}")


def _describe_topic(topic: str, node: Node) -> Iterable[Described] | AdminAnswer:
    if wrong := problem(topic):
        return AdminAnswer(Error.INVALID_TOPIC_EXCEPTION, wrong)
    image = node.image
    if topic not in image.topics:
        return AdminAnswer(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
    return describe_topic(
        image.overrides(topic_resource(topic)),
        node.settings.properties,
        image.overrides(ALL_BROKERS),
        image.overrides(broker_resource(node.number)),
    )


def _describe_broker(name: str, node: Node) -> Iterable[Described] | AdminAnswer:
    cluster_defaults = node.image.overrides(ALL_BROKERS)
    if not name:
        return describe_cluster_defaults(cluster_defaults)
    if name != str(node.number):
        return AdminAnswer(
            Error.INVALID_REQUEST,
            f"Unexpected broker id, expected {node.number} or empty string, but received {name}",
        )
    own = node.image.overrides(broker_resource(node.number))
    return describe_broker(node.settings.properties, cluster_defaults, own)


def _told(one: Described, *, with_synonyms: bool, with_documentation: bool) -> Fields:
    return {
        "name": one.name,
        "value": one.value,
        "read_only": one.is_read_only,
        "config_source": one.source,
        "is_sensitive": one.is_sensitive,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": synonym.source}
            for synonym in (one.synonyms if with_synonyms else ())
        ],
        "config_type": one.kind,
        "documentation": one.documentation if with_documentation else None,
    }
