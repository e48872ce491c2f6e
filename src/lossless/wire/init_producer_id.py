"""InitProducerId (22): an id for a producer, so that what it sends twice is stored once.

Who names a transactional id is asked for by its coordinator: whatever had that name before is
fenced, and what it left open is aborted. From version 3 on, who has an id already may say so, and
goes on as itself with the next epoch (KIP-360).
"""

from __future__ import annotations

import datetime

from lossless.core import messages
from lossless.core.messages import Error, InitProducerIdAnswer
from lossless.core.transactions.messages import InitProducerId
from lossless.log.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call

KEY = 22
_MS = datetime.timedelta(milliseconds=1)


async def serve(call: Call, broker: Broker) -> Fields:
    request = understood(call)
    if isinstance(request, Error):
        answer = InitProducerIdAnswer(request)
    else:
        answer = await broker.ask(request)
    return {
        "error_code": answer.error,
        "producer_id": answer.producer_id,
        "producer_epoch": answer.producer_epoch,
    }


def understood(call: Call) -> InitProducerId | messages.InitProducerId | Error:
    producer_id = getattr(call.request, "producer_id", NO_PRODUCER_ID)
    epoch = getattr(call.request, "producer_epoch", NO_PRODUCER_EPOCH)
    if (producer_id == NO_PRODUCER_ID) is not (epoch == NO_PRODUCER_EPOCH):
        return Error.INVALID_REQUEST
    if call.request.transactional_id is None:
        return messages.InitProducerId()
    if not call.request.transactional_id:
        return Error.INVALID_REQUEST
    return InitProducerId(
        call.request.transactional_id,
        call.request.transaction_timeout // _MS,
        producer_id,
        epoch,
        call.version,
    )
