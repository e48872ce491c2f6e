"""AllocateProducerIds (67): a broker needs ids to give to producers."""

from __future__ import annotations

from typing import Any

from lossless.core.messages import AllocateProducerIds, AllocateProducerIdsAnswer, Error
from lossless.wire.codec import Fields

KEY, VERSION = 67, 0


def asked(request: AllocateProducerIds) -> Fields:
    return {"broker_id": request.broker, "broker_epoch": request.broker_epoch}


def answered(message: Any) -> AllocateProducerIdsAnswer:
    error = Error(message.error_code.value)
    return AllocateProducerIdsAnswer(error, message.producer_id_start, message.producer_id_len)


def understood(message: Any) -> tuple[int, AllocateProducerIds]:
    return message.broker_id, AllocateProducerIds(message.broker_id, message.broker_epoch)


def told(answer: AllocateProducerIdsAnswer) -> Fields:
    return {
        "error_code": answer.error,
        "producer_id_start": answer.first,
        "producer_id_len": answer.size,
    }
