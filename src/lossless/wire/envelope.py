"""Envelope (58): an administrator's request that a broker forwards to the active controller.

The request says for whom it is forwarded, as Kafka's principals are serialized.
The response has one field more than Kafka's: the end of the metadata that the controller's answer
rests on. A broker hands the answer to its client once it has applied that much, so that the next
request to the same broker sees the change. The field is tagged: a reader without it skips it.
"""

from dataclasses import dataclass, field

from kio.schema.envelope.v0.response import EnvelopeResponse
from kio.static.primitive import i64

from lossless.core.encoding import Malformed, Reader, Writer

KEY = 58
_PRINCIPAL_VERSION = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardedResponse(EnvelopeResponse):
    metadata_end_offset: i64 = field(metadata={"kafka_type": "int64", "tag": 0}, default=i64(0))


def encode_principal(kind: str, name: str) -> bytes:
    writer = Writer(flexible=True)
    writer.int16(_PRINCIPAL_VERSION)
    writer.string(kind)
    writer.string(name)
    writer.int8(0)  # not by a delegation token
    writer.tagged()
    return bytes(writer.data)


def decode_principal(data: bytes | None) -> str:
    """The name; an unnamed principal is anonymous."""
    try:
        reader = Reader(data or b"", flexible=True)
        reader.int16()
        reader.string()
        return reader.string()
    except Malformed:
        return "ANONYMOUS"
