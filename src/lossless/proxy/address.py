"""Where a broker, or the proxy in front of it, can be reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lossless.errors import BadInput


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def addresses_of(bootstrap: str | Sequence[str | tuple[str, int]]) -> tuple[Address, ...]:
    """`host:port,host:port` as clients write it, or each address for itself."""
    if isinstance(bootstrap, str):
        bootstrap = bootstrap.split(",")
    found = tuple(dict.fromkeys(map(_address_of, bootstrap)))
    if not found:
        raise BadInput("a proxy needs the address of at least one broker")
    return found


def _address_of(written: str | tuple[str, int]) -> Address:
    if not isinstance(written, str):
        return Address(*written)
    # A listener's name may stand before it, as in PLAINTEXT://host:port.
    host, colon, port = written.rpartition("://")[2].strip().rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise BadInput(f"{written!r} is no address of a broker", hint="Write it as host:port.")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))
