"""Large messages are read and written in a thread beside the event loop.

A message of 20,000 elements takes up to 0.1 s to read, and as long to write. The interpreter
changes threads every few milliseconds, so that others are served meanwhile. One thread does this
for all nodes of a process: more would only take more of the interpreter's time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lossless.wire.codec import Fields, make, read, response_class, write
from lossless.wire.frames import Header, has_tagged_answer, response

LARGE_BYTES = 8 * 1024  # of a request. Of a small message, the way to a thread takes longer.

_worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="messages")


def encoded(header: Header, fields: Fields) -> bytes:
    """A response's frame."""
    key, version = header.key, header.version
    message = write(make(response_class(key, version), fields))
    tagged = has_tagged_answer(key, version)
    return response(header.correlation_id, message, tagged=tagged)


async def read_beside(entity: Any, frame: bytes, position: int) -> Any:
    return await beside(len(frame), read, entity, frame, position)


async def encoded_beside(header: Header, fields: Fields, request_bytes: int) -> bytes:
    """The response to a request of so many bytes: one to a large request may be large, too."""
    return bytes(await beside(request_bytes, encoded, header, fields))


async def beside(size: int, work: Callable[..., Any], *arguments: Any) -> Any:
    """Work on a message of so many bytes, or on the response to it."""
    if size <= LARGE_BYTES:
        return work(*arguments)
    return await asyncio.get_running_loop().run_in_executor(_worker, work, *arguments)
