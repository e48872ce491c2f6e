"""What the proxy asks a broker itself, before any client does: whether it can be read, and who else
is there.

ApiVersions is answered by every broker, before anyone has authenticated. Metadata is not: a broker
that wants SASL first closes the connection, and then the brokers become known by what clients ask.
"""

from __future__ import annotations

import asyncio
from typing import Any

from lossless.errors import BadInput
from lossless.proxy.address import Address
from lossless.proxy.apis import API_VERSIONS, METADATA
from lossless.proxy.streams import FRAME_BYTES_MAX
from lossless.wire.codec import make, request_class, write
from lossless.wire.frames import LENGTH, request

PROBE_S_MAX = 10.0

_CLIENT_ID = "lossless-proxy"
_METADATA_VERSION = 1  # the first in which an empty list asks for no topics
_TLS_RECORD = (b"\x15\x03", b"\x16\x03")


class Silent(OSError):
    """The other side has closed the connection instead of answering."""


async def brokers_at(address: Address) -> bytes | None:
    """Its answer to Metadata; None if it wants to know first who asks.

    Raises OSError if nobody is there, and BadInput if whoever is there cannot be read.
    """
    async with asyncio.timeout(PROBE_S_MAX):
        reader, writer = await asyncio.open_connection(*address)
        try:
            await _ask_versions(reader, writer, address)
            try:
                return await _ask(reader, writer, METADATA, _METADATA_VERSION, {"topics": []})
            except Silent:
                return None
        finally:
            writer.close()


async def _ask_versions(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: Address
) -> None:
    hint = (
        "The proxy has to read what passes, so it does not do TLS: point it at a plain listener "
        "(PLAINTEXT or SASL_PLAINTEXT)."
    )
    try:
        await _ask(reader, writer, API_VERSIONS, 0, {})
    except _NotKafka as error:
        raise BadInput(f"the listener at {address} answers with {error}", hint=hint) from None
    except Silent:
        what = f"the listener at {address} closed the connection instead of answering"
        raise BadInput(what, hint=f"Perhaps it expects TLS. {hint}") from None


class _NotKafka(ValueError):
    pass


async def _ask(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    key: int,
    version: int,
    fields: dict[str, Any],
) -> bytes:
    message = write(make(request_class(key, version), fields))
    writer.write(request(key, version, key, _CLIENT_ID, message, tagged=False))
    try:
        head = await reader.readexactly(LENGTH.size)
        if head.startswith(_TLS_RECORD):
            raise _NotKafka("a TLS alert")
        (length,) = LENGTH.unpack(head)
        if not 0 < length <= FRAME_BYTES_MAX:
            raise _NotKafka(f"{head!r}, which is not Kafka's protocol")
        return head + await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise Silent(str(error)) from None
