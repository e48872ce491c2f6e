"""EndTxn (26): a transaction is committed or aborted. From version 5 on every end raises the epoch,
and the answer says with which producer id and epoch the next transaction begins (KIP-890)."""

from __future__ import annotations

from lossless.core.transactions.messages import EndTxn
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call

KEY = 26


async def serve(call: Call, broker: Broker) -> Fields:
    answer = await broker.ask(understood(call))
    return {
        "error_code": answer.error,
        "producer_id": answer.producer_id,
        "producer_epoch": answer.producer_epoch,
    }


def understood(call: Call) -> EndTxn:
    request = call.request
    return EndTxn(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        call.version,
    )
