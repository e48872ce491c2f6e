"""BrokerRegistration (62): a broker's process has begun, and can be reached here."""

from __future__ import annotations

import uuid
from typing import Any

from lossless.core.messages import (
    BrokerRegistration,
    BrokerRegistrationAnswer,
    Endpoint,
    Error,
)
from lossless.wire.codec import Fields

KEY, VERSION = 62, 4


def asked(request: BrokerRegistration, cluster_id: str) -> Fields:
    return {
        "broker_id": request.broker,
        "cluster_id": cluster_id,
        "incarnation_id": uuid.UUID(int=request.incarnation),
        "listeners": [
            {
                "name": endpoint.listener,
                "host": endpoint.host,
                "port": endpoint.port,
                "security_protocol": endpoint.protocol,
            }
            for endpoint in request.endpoints
        ],
        "rack": request.rack,
        "previous_broker_epoch": request.previous_broker_epoch,
    }


def answered(message: Any) -> BrokerRegistrationAnswer:
    return BrokerRegistrationAnswer(Error(message.error_code.value), message.broker_epoch)


def understood(message: Any) -> tuple[int, BrokerRegistration]:
    incarnation = message.incarnation_id
    request = BrokerRegistration(
        message.broker_id,
        0 if incarnation is None else incarnation.int,
        message.rack,
        getattr(message, "previous_broker_epoch", -1),
        tuple(
            Endpoint(said.name, said.host, said.port, said.security_protocol)
            for said in message.listeners
        ),
    )
    return message.broker_id, request


def told(answer: BrokerRegistrationAnswer) -> Fields:
    return {"error_code": answer.error, "broker_epoch": answer.broker_epoch}
