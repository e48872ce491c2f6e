"""BrokerHeartbeat (63): a broker lives, and has read the metadata up to here."""

from __future__ import annotations

from typing import Any

from lossless.core.messages import BrokerHeartbeat, BrokerHeartbeatAnswer, Error
from lossless.wire.codec import Fields

KEY, VERSION = 63, 1


def asked(request: BrokerHeartbeat) -> Fields:
    return {
        "broker_id": request.broker,
        "broker_epoch": request.broker_epoch,
        "current_metadata_offset": request.metadata_offset,
        "want_shut_down": request.want_shut_down,
    }


def answered(message: Any) -> BrokerHeartbeatAnswer:
    return BrokerHeartbeatAnswer(
        Error(message.error_code.value), message.is_fenced, message.should_shut_down
    )


def understood(message: Any) -> tuple[int, BrokerHeartbeat]:
    return message.broker_id, BrokerHeartbeat(
        message.broker_id,
        message.broker_epoch,
        message.current_metadata_offset,
        message.want_shut_down,
    )


def told(answer: BrokerHeartbeatAnswer) -> Fields:
    return {
        "error_code": answer.error,
        "is_caught_up": not answer.is_fenced,
        "is_fenced": answer.is_fenced,
        "should_shut_down": answer.should_shut_down,
    }
