"""AddOffsetsToTxn (25): the offsets of a group become part of a transaction."""

from __future__ import annotations

from lossless.core.transactions.messages import AddOffsetsToTxn
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call

KEY = 25


async def serve(call: Call, broker: Broker) -> Fields:
    answer = await broker.ask(understood(call))
    return {"error_code": answer.error}


def understood(call: Call) -> AddOffsetsToTxn:
    request = call.request
    return AddOffsetsToTxn(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.group_id,
        call.version,
    )
