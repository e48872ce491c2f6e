"""Envelope (58): an administrator's request that a broker forwards to the active controller.

The response has one field more than Kafka's: the end of the metadata that the controller's answer
rests on. A broker hands the answer to its client once it has applied that much, so that the next
request to the same broker sees the change. The field is tagged: a reader without it skips it.
"""

from dataclasses import dataclass, field

from kio.schema.envelope.v0.response import EnvelopeResponse
from kio.static.primitive import i64

KEY = 58


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardedResponse(EnvelopeResponse):
    metadata_end_offset: i64 = field(metadata={"kafka_type": "int64", "tag": 0}, default=i64(0))
