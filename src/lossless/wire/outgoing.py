"""What one node asks another: a machine's request as one of Kafka's, and the answer back.

Every API that nodes use among themselves has both directions in its file: `asked` and `answered`
for who asks, `understood` and `told` for who is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from lossless.log.batch import Data
from lossless.wire.codec import Fields, make, read, request_class, response_class, write


class Outgoing(NamedTuple):
    key: int
    version: int
    is_flexible: bool
    message: bytes
    read: Callable[[Data, int], Any]  # a response's frame, and where its message begins


def outgoing(
    key: int, version: int, fields: Fields, answered: Callable[[Any], Any] = lambda answer: answer
) -> Outgoing:
    entity = request_class(key, version)
    expected = response_class(key, version)
    return Outgoing(
        key,
        version,
        entity.__flexible__,
        write(make(entity, fields)),
        lambda frame, at: answered(read(expected, bytes(frame), at)),
    )
