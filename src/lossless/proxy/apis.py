"""APIs by name: `find_coordinator` as kio has it, or `FindCoordinator` as Kafka writes it."""

from __future__ import annotations

from kio.schema.index import api_key_map, schema_name_map

from lossless.errors import BadInput

PRODUCE, FETCH, METADATA, FIND_COORDINATOR = 0, 1, 3, 10
SASL_HANDSHAKE, API_VERSIONS = 17, 18
DESCRIBE_QUORUM, DESCRIBE_CLUSTER, SHARE_FETCH, SHARE_ACKNOWLEDGE = 55, 60, 78, 79

_KEYS = {name.replace("_", ""): key for key, name in api_key_map.items()}


def api_name(key: int) -> str:
    return api_key_map.get(key, f"api_{key}")


def api_key(name: str) -> int:
    key = _KEYS.get(name.replace("_", "").lower())
    if key is None:
        raise BadInput(
            f"Kafka has no API {name!r}", hint="Write it as Produce or find_coordinator."
        )
    return key


def version_max(key: int) -> int:
    """The newest version that can be read and written here."""
    return max(schema_name_map[api_key_map[key]])


def version_min(key: int) -> int:
    return min(schema_name_map[api_key_map[key]])


def is_known(key: int, version: int) -> bool:
    return key in api_key_map and version in schema_name_map[api_key_map[key]]
