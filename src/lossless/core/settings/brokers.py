"""Settings of brokers, and which value of one counts.

A broker has static properties. A cluster has defaults for its brokers, and values for single ones,
both of which can change while brokers run and go before what is static. Where one thing has several
names, as log.retention.ms and log.retention.hours, the first name that is set counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lossless.core.settings.broker_tables import (
    groups,
    logs,
    network,
    nodes,
    remote,
    replication,
    security,
    transactions,
)
from lossless.core.settings.kinds import Kind, Setting
from lossless.core.settings.table import read_table

_TABLES = (nodes, logs, replication, network, groups, transactions, remote, security)

BROKERS: Mapping[str, Setting] = {
    name: setting for part in _TABLES for name, setting in read_table(part.TABLE).items()
}

# Those of Kafka's authorizer, which a class reads and Kafka does not know, and one of ours.
BESIDES_KAFKA: Mapping[str, Setting] = read_table(
    """\
allow.everyone.if.no.acl.found: boolean = false (honoured)
    Whether everybody may use what no entry of the access list mentions.
lossless.sasl.users: password (honoured)
    Users that are known from the first start on, as name:password,name:password.
super.users: string (honoured)
    Who may do everything, as User:name;User:name.
"""
)

# One thing by several names, the one that counts first.
_FAMILIES = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_FAMILY_OF = {name: family for family in _FAMILIES for name in family} | {
    # The second is the first one's default, and yet has a meaning of its own.
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
}

_LISTENER = re.compile(r"listener\.name\.[^.]*\.(.*)")
# Of these a listener has one for each of its mechanisms: listener.name.x.plain.sasl.jaas.config
_BY_MECHANISM = (
    "sasl.login.callback.handler.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
    "sasl.login.class",
    "sasl.jaas.config",
)


def synonyms_of(name: str) -> tuple[str, ...]:
    """The names under which a value is looked for, in the order in which they count."""
    of_listener = _LISTENER.fullmatch(name)
    if of_listener is None:
        return _FAMILY_OF.get(name, (name,))
    base = of_listener[1]
    return name, next((one for one in _BY_MECHANISM if base.endswith(one)), base)


def setting_for(name: str) -> Setting | None:
    """Also of a setting for one listener: listener.name.internal.ssl.key.password"""
    return next((BROKERS[one] for one in (name, *synonyms_of(name)) if one in BROKERS), None)


def kind_of(name: str) -> Kind:
    setting = setting_for(name)
    return Kind.UNKNOWN if setting is None else setting.kind


def effective(
    static: Mapping[str, str],
    cluster_defaults: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """What a broker goes by. A later value takes the place of an earlier one under any name."""
    merged = dict(static)
    if "node.id" in merged:
        merged.setdefault("broker.id", merged["node.id"])
    elif "broker.id" in merged:
        merged["node.id"] = merged["broker.id"]
    for layer in (cluster_defaults or {}, overrides or {}):
        for name, text in layer.items():
            for other in _FAMILY_OF.get(name, ()):
                merged.pop(other, None)
            merged[name] = text
    return merged
