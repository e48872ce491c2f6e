"""UnregisterBroker (64), served by the active controller: a broker that will not come back."""

from __future__ import annotations

from lossless.core.admin_messages import UnregisterBroker
from lossless.wire.codec import Fields
from lossless.wire.context import Call, Controller

KEY = 64


async def serve(call: Call, controller: Controller) -> Fields:
    answer = await controller.ask(UnregisterBroker(call.request.broker_id))
    return {"error_code": answer.error, "error_message": answer.what or None}
