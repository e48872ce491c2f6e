"""DescribeCluster (60): the brokers, for administrators; version 2 also those that are fenced."""

from __future__ import annotations

from lossless.core.messages import Error
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call

KEY = 60
BROKERS, CONTROLLERS = 1, 2  # kinds of endpoints


async def serve(call: Call, broker: Broker) -> Fields:
    wanted = getattr(call.request, "endpoint_type", BROKERS)
    if wanted == CONTROLLERS:
        return {"error_code": Error.MISMATCHED_ENDPOINT_TYPE}
    if wanted != BROKERS:
        return {"error_code": Error.UNSUPPORTED_ENDPOINT_TYPE}
    endpoints = broker.endpoints(call.listener)
    known = broker.image.brokers
    brokers = [
        {
            "broker_id": number,
            "host": endpoint.host,
            "port": endpoint.port,
            "rack": known[number].rack,
            "is_fenced": False,
        }
        for number, endpoint in sorted(endpoints.items())
    ]
    if getattr(call.request, "include_fenced_brokers", False):
        brokers += [
            {
                "broker_id": number,
                "host": endpoint.host,
                "port": endpoint.port,
                "rack": broker_known.rack,
                "is_fenced": True,
            }
            for number, broker_known in sorted(known.items())
            if number not in endpoints
            for endpoint in broker_known.endpoints
            if endpoint.listener == call.listener
        ]
    return {
        "endpoint_type": BROKERS,
        "cluster_id": broker.cluster_id,
        "controller_id": broker.number
        if broker.number in endpoints
        else min(endpoints, default=-1),
        "brokers": brokers,
    }
