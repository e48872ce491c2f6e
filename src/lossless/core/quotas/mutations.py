"""The controller's part of client quotas: partitions that clients create and delete (KIP-599).

Requests of newer versions are refused once a client has used up its tokens, and it may try again
later; older ones, which do not have that error, are carried out and answered with a time to wait.
"""

from __future__ import annotations

from lossless.core.admin_messages import CreatePartitions
from lossless.core.decision import Decision
from lossless.core.error_codes import Error
from lossless.core.messages import AdminAnswer, CreateTopic, DeleteTopic
from lossless.core.metadata import Image
from lossless.core.quotas.limits import MUTATIONS, limit_of
from lossless.core.quotas.metering import Meters, Tokens


class Mutations:
    """Of one controller, while it is active."""

    def __init__(self) -> None:
        self._tokens = Meters(Tokens)

    def within_limits(
        self,
        image: Image,
        request: CreateTopic | CreatePartitions | DeleteTopic,
        decision: Decision,
        now_ms: int,
    ) -> Decision:
        """The decision, or its refusal. Only what would be carried out counts."""
        client, answer = request.client, decision.answer
        if client is None or not isinstance(answer, AdminAnswer) or answer.error is not Error.NONE:
            return decision
        limit = limit_of(image.quotas, MUTATIONS, client.user, client.client_id)
        if limit is None:
            return decision
        tokens = self._tokens.of(MUTATIONS, limit, now_ms)
        wait_ms = tokens.wait_ms(limit.value, now_ms)
        if wait_ms and client.is_strict:
            what = "The throttling quota has been exceeded."
            return Decision((), AdminAnswer(Error.THROTTLING_QUOTA_EXCEEDED, what, wait_ms))
        tokens.take(_partitions(image, request), limit.value, now_ms)
        if client.is_strict:
            return decision
        wait_ms = tokens.wait_ms(limit.value, now_ms)
        return decision._replace(answer=answer._replace(throttle_ms=wait_ms))


def _partitions(image: Image, request: CreateTopic | CreatePartitions | DeleteTopic) -> int:
    match request:
        case CreateTopic():
            return request.partitions
        case CreatePartitions():
            return request.partitions - image.partition_count(request.topic)
        case DeleteTopic():
            return image.partition_count(request.topic)
