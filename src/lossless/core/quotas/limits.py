"""Client quotas as the cluster has agreed on them: who may use how much (KIP-13, KIP-546).

An entity is a user, a client id, a user with a client id, or an IP address; `None` as a name stands
for all that have no limit of their own. Each entity has limits by key:

    producer_byte_rate, consumer_byte_rate   bytes a second, on each broker
    request_percentage                       the time of a broker that requests may take
    controller_mutation_rate                 partitions created or deleted a second
    connection_creation_rate                 connections a second, of an IP address

For every key the first entity in this order that has a limit counts, and no other: user with client
id, user with any client id, user, any user with client id, any user with any client id, any user,
client id, any client id.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from lossless.core.error_codes import Error

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCED, CONSUMED = "producer_byte_rate", "consumer_byte_rate"
REQUEST_TIME, MUTATIONS = "request_percentage", "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"

Entity = tuple[tuple[str, str | None], ...]  # types and names, by type
Limits = Mapping[Entity, Mapping[str, float]]

_KEYS_OF_CLIENTS: Mapping[str, int | None] = {  # the largest whole number; None: any number
    PRODUCED: (1 << 63) - 1,
    CONSUMED: (1 << 63) - 1,
    REQUEST_TIME: None,
    MUTATIONS: None,
}
_KEYS_OF_ADDRESSES: Mapping[str, int | None] = {CONNECTIONS: (1 << 31) - 1}
_FRACTION_MAX = 1e-6


class QuotaChange(NamedTuple):
    key: str
    value: float | None  # None: the limit is removed


class Refusal(NamedTuple):
    error: Error
    what: str


class Client(NamedTuple):
    """Who has sent a request that counts against a limit."""

    user: str
    client_id: str
    is_strict: bool  # a request beyond the limit can be refused: there is an error for it


class Limit(NamedTuple):
    """What a client may use, and the clients that use it together: "" for all names."""

    value: float
    user: str
    client_id: str


# Changing them


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    return tuple(sorted(dict(parts).items()))


def problem(entity: Entity, changes: Iterable[QuotaChange]) -> str | None:
    """Why limits of an entity cannot be changed so, in Kafka's words; None: they can."""
    if not entity:
        return "Invalid empty client quota entity"
    names = dict(entity)
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            return f"Unhandled client quota entity type: {kind}"
        if name == "":
            return f"Empty {kind} not supported"
    if IP in names:
        if len(names) > 1:
            return (
                "Invalid quota entity combination, IP entity should"
                "not be combined with User or ClientId"
            )
        address = names[IP]
        if address is not None and not _is_address(address):
            return f"{address} is not a valid IP or resolvable host."
    keys = _KEYS_OF_ADDRESSES if IP in names else _KEYS_OF_CLIENTS
    seen: set[str] = set()
    for change in changes:
        if change.key in seen:
            return f"Duplicate quota key {change.key}"
        seen.add(change.key)
        if change.value is not None and (wrong := _problem_with_value(keys, change)):
            return wrong
    return None


def _problem_with_value(keys: Mapping[str, int | None], change: QuotaChange) -> str | None:
    key, value = change.key, change.value
    if key not in keys:
        return f"Invalid configuration key {key}"
    if value is None or not value > 0:
        return f"Quota {key} must be greater than 0"
    largest = keys[key]
    if largest is None:
        return None
    if value > largest:
        kind = "an INT" if key == CONNECTIONS else "a LONG"
        return f"Proposed value for {key} is too large for {kind}."
    if math.fmod(value, 1.0) > _FRACTION_MAX:
        return f"{key} cannot be a fractional value."
    return None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def changed(
    limits: Limits, entity: Entity, key: str, value: float | None
) -> dict[Entity, Mapping[str, float]]:
    """All limits after one of them was set or removed."""
    own = {name: limit for name, limit in limits.get(entity, {}).items() if name != key}
    if value is not None:
        own[key] = value
    others = {other: of_it for other, of_it in limits.items() if other != entity}
    return {**others, entity: own} if own else others


# Describing them


class Component(NamedTuple):
    """Of a filter: entities that have this type, with this name, or (`is_any`) with any."""

    kind: str
    name: str | None = None  # None: the default's
    is_any: bool = False


def problem_with_filter(components: Iterable[Component]) -> Refusal | None:
    kinds: set[str] = set()
    for component in components:
        kind = component.kind
        if not kind:
            return Refusal(Error.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in kinds:
            what = f"Entity type {kind} cannot appear more than once in the filter."
            return Refusal(Error.INVALID_REQUEST, what)
        if kind not in (USER, CLIENT_ID, IP):
            return Refusal(Error.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        kinds.add(kind)
    if IP in kinds and len(kinds) > 1:
        what = (
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
        return Refusal(Error.INVALID_REQUEST, what)
    return None


def matching(limits: Limits, components: Iterable[Component], *, strict: bool) -> Limits:
    """Entities that match all components; `strict`: and that have no other types."""
    components = tuple(components)
    return {
        entity: own
        for entity, own in limits.items()
        if (not strict or len(entity) == len(components))
        and all(_matches(dict(entity), component) for component in components)
    }


def _matches(names: Mapping[str, str | None], component: Component) -> bool:
    if component.kind not in names:
        return False
    return component.is_any or names[component.kind] == component.name


# Applying them


def limit_of(limits: Limits, key: str, user: str, client_id: str) -> Limit | None:
    """The limit that counts for a client; None: it has none."""
    both, of_user, of_client = (user, client_id), (user, ""), ("", client_id)
    candidates: tuple[tuple[Entity, tuple[str, str]], ...] = (
        (((CLIENT_ID, client_id), (USER, user)), both),
        (((CLIENT_ID, None), (USER, user)), both),
        (((USER, user),), of_user),
        (((CLIENT_ID, client_id), (USER, None)), both),
        (((CLIENT_ID, None), (USER, None)), both),
        (((USER, None),), of_user),
        (((CLIENT_ID, client_id),), of_client),
        (((CLIENT_ID, None),), of_client),
    )
    for entity, (shared_user, shared_client_id) in candidates:
        if not client_id and (CLIENT_ID, None) in entity:
            continue  # a request without a client id is no client's
        value = limits.get(entity, {}).get(key)
        if value is not None:
            return Limit(value, shared_user, shared_client_id)
    return None


def limit_of_address(limits: Limits, address: str) -> float | None:
    """How many connections a second an IP address may open; None: any number."""
    for name in (address, None):
        value = limits.get(((IP, name),), {}).get(CONNECTIONS)
        if value is not None:
            return value
    return None
