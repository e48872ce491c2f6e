"""ListTransactions (66): the transactional ids that a broker coordinates. From version 1 on those
that have been going on for long can be asked for, from version 2 on names by a pattern."""

from __future__ import annotations

from lossless.core.transactions.messages import ListTransactions, ListTransactionsAnswer
from lossless.wire.codec import Fields
from lossless.wire.context import Broker, Call

KEY = 66
ANY_DURATION = -1


async def serve(call: Call, broker: Broker) -> Fields:
    answer: ListTransactionsAnswer = await broker.ask(understood(call))
    return {
        "error_code": answer.error,
        "unknown_state_filters": answer.unknown_state_filters,
        "transaction_states": [
            {
                "transactional_id": listed.transactional_id,
                "producer_id": listed.producer_id,
                "transaction_state": listed.transaction_state,
            }
            for listed in answer.transactions
        ],
    }


def understood(call: Call) -> ListTransactions:
    request = call.request
    return ListTransactions(
        tuple(request.state_filters),
        tuple(request.producer_id_filters),
        getattr(request, "duration_filter", ANY_DURATION),
        getattr(request, "transactional_id_pattern", None) or "",
    )
