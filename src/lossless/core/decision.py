"""What comes out of a question to the controller: what to write down, and what to answer then."""

from __future__ import annotations

from typing import NamedTuple

from lossless.core.admin_messages import ListReassignmentsAnswer
from lossless.core.messages import (
    AdminAnswer,
    AllocateProducerIdsAnswer,
    AlterPartitionAnswer,
    BrokerHeartbeatAnswer,
    BrokerRegistrationAnswer,
    Error,
)
from lossless.core.metadata import MetadataRecord

Answer = (
    BrokerRegistrationAnswer
    | BrokerHeartbeatAnswer
    | AlterPartitionAnswer
    | AllocateProducerIdsAnswer
    | AdminAnswer
    | ListReassignmentsAnswer
)


class Decision(NamedTuple):
    records: tuple[MetadataRecord, ...]
    answer: Answer


def refused(error: Error, what: str) -> Decision:
    return Decision((), AdminAnswer(error, what))


def accepted(records: tuple[MetadataRecord, ...], *, validate_only: bool = False) -> Decision:
    return Decision(() if validate_only else records, AdminAnswer(Error.NONE))
