"""What each listener demands of those who connect, and how nodes connect to each other.

Settings are Kafka's. One for a single listener, `listener.name.<name>.…`, goes before the general
one. Certificates and keys are PEM: Python cannot read Java's key stores.

The controllers' listener stays on this machine, and is for the cluster's own nodes: see nodes.py.
"""

from __future__ import annotations

import enum
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lossless.broker.security import tls
from lossless.broker.security.tokens import UserOf, user_of_token, user_of_unsecured
from lossless.core.security.scram import MECHANISMS as SCRAM
from lossless.core.settings.kinds import InvalidSetting

PLAIN = "PLAIN"
MECHANISMS = (PLAIN, *SCRAM)  # of users with passwords
OAUTHBEARER = "OAUTHBEARER"
PROTOCOL_MAP = "listener.security.protocol.map"
INTER_BROKER_NAME = "inter.broker.listener.name"
INTER_BROKER_PROTOCOL = "security.inter.broker.protocol"
ENABLED = "sasl.enabled.mechanisms"
USERS = "lossless.sasl.users"  # alice:secret,bob:other: known from the first start on
AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "StandardAuthorizer",
)
_RECEIVE_BYTES_MAX = 524288  # sasl.server.max.receive.size
_REFUSAL_DELAY_MS = 100  # connection.failed.authentication.delay.ms


class SecurityProtocol(enum.IntEnum):
    """With the protocol's numbers."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSecurity:
    name: str
    protocol: SecurityProtocol
    mechanisms: tuple[str, ...] = ()
    plain_users: Mapping[str, str] = field(repr=False)  # with their passwords
    user_of_token: UserOf = user_of_unsecured
    tls: ssl.SSLContext | None = None
    receive_bytes_max: int = _RECEIVE_BYTES_MAX  # before somebody has logged in
    refusal_delay_ms: int = _REFUSAL_DELAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class InterBroker:
    """How a broker reaches another."""

    tls: ssl.SSLContext | None = None
    mechanism: str | None = None
    user: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may do what, beyond what the cluster has agreed on."""

    super_users: frozenset[str]
    is_allowed_unmentioned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSecurity:
    listeners: Mapping[str, ListenerSecurity]
    inter_broker_listener: str
    inter_broker: InterBroker
    # Known before anybody can add any, with their passwords.
    first_users: Mapping[str, str] = field(repr=False)
    access: Access | None  # None: everybody may do everything


def node_security(properties: Mapping[str, str], listeners: Iterable[str]) -> NodeSecurity:
    """Of a broker that listens so. InvalidSetting if that cannot be."""
    protocols = _protocols(properties, listeners)
    users = _users(properties.get(USERS, ""))
    secured = {
        name: _listener(_Settings(properties, name), protocol, users)
        for name, protocol in protocols.items()
    }
    chosen = _inter_broker_listener(properties, protocols)
    if not secured:
        inter_broker = InterBroker()
    else:
        inter_broker = _inter_broker(_Settings(properties, chosen), secured[chosen])
    return NodeSecurity(
        listeners=secured,
        inter_broker_listener=chosen,
        inter_broker=inter_broker,
        first_users=users,
        access=_access(properties, inter_broker),
    )


class _Settings:
    """As one listener sees them."""

    def __init__(self, properties: Mapping[str, str], listener: str) -> None:
        self._properties = properties
        self.listener = listener

    def get(self, name: str, otherwise: str | None = None) -> str | None:
        of_listener = self._properties.get(f"listener.name.{self.listener.lower()}.{name}")
        return of_listener or self._properties.get(name) or otherwise

    def jaas(self, mechanism: str) -> dict[str, str]:
        # Here: the contract brings all its sections along, and a plain broker needs none of it.
        from lossless.contract.jaas import jaas_options

        name = f"listener.name.{self.listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
        return jaas_options(self._properties.get(name) or self.get("sasl.jaas.config") or "")


def _protocols(
    properties: Mapping[str, str], listeners: Iterable[str]
) -> dict[str, SecurityProtocol]:
    by_name = {one.name: one for one in SecurityProtocol}  # unless it is said, names say it
    said = dict(by_name)
    for part in filter(None, properties.get(PROTOCOL_MAP, "").split(",")):
        name, _, protocol = part.strip().partition(":")
        if protocol.upper() not in by_name:
            raise InvalidSetting(f"{PROTOCOL_MAP}: {protocol} is not one of {', '.join(by_name)}")
        said[name] = by_name[protocol.upper()]
    missing = [name for name in listeners if name not in said]
    if missing:
        raise InvalidSetting(f"{PROTOCOL_MAP} does not mention {', '.join(missing)}")
    return {name: said[name] for name in listeners}


def _inter_broker_listener(
    properties: Mapping[str, str], protocols: Mapping[str, SecurityProtocol]
) -> str:
    name, protocol = properties.get(INTER_BROKER_NAME), properties.get(INTER_BROKER_PROTOCOL)
    if name and protocol:
        raise InvalidSetting(f"only one of {INTER_BROKER_NAME} and {INTER_BROKER_PROTOCOL}")
    if name is None:
        name = next(
            (
                one
                for one, spoken in protocols.items()
                if spoken.name == (protocol or SecurityProtocol.PLAINTEXT.name)
            ),
            protocol or SecurityProtocol.PLAINTEXT.name,
        )
    if protocols and name not in protocols:
        raise InvalidSetting(f"brokers are to talk by {name}, which is none of the listeners")
    return name


def _listener(
    settings: _Settings, protocol: SecurityProtocol, users: Mapping[str, str]
) -> ListenerSecurity:
    mechanisms: tuple[str, ...] = ()
    plain_users: dict[str, str] = {}
    if protocol.has_sasl:
        said = settings.get(ENABLED, "GSSAPI") or ""
        mechanisms = tuple(one.strip() for one in said.split(",") if one.strip())
        unknown = [one for one in mechanisms if one not in (*MECHANISMS, OAUTHBEARER)]
        if unknown or not mechanisms:
            raise InvalidSetting(
                f"sasl.enabled.mechanisms: {', '.join(unknown) or 'none'} on the listener "
                f"{settings.listener}; the embedded broker has "
                f"{', '.join((*MECHANISMS, OAUTHBEARER))}"
            )
        if PLAIN in mechanisms:
            prefix = "user_"
            plain_users = dict(users) | {
                name.removeprefix(prefix): password
                for name, password in settings.jaas(PLAIN).items()
                if name.startswith(prefix)
            }
    receive = settings.get("sasl.server.max.receive.size", str(_RECEIVE_BYTES_MAX))
    delay = settings.get("connection.failed.authentication.delay.ms", str(_REFUSAL_DELAY_MS))
    return ListenerSecurity(
        name=settings.listener,
        protocol=protocol,
        mechanisms=mechanisms,
        plain_users=plain_users,
        user_of_token=(
            user_of_token(settings.get) if OAUTHBEARER in mechanisms else user_of_unsecured
        ),
        tls=tls.server_context(settings.get) if protocol.has_tls else None,
        receive_bytes_max=int(receive or _RECEIVE_BYTES_MAX),
        refusal_delay_ms=int(delay or _REFUSAL_DELAY_MS),
    )


def _inter_broker(settings: _Settings, listener: ListenerSecurity) -> InterBroker:
    context = tls.client_context(settings.get) if listener.protocol.has_tls else None
    if not listener.protocol.has_sasl:
        return InterBroker(tls=context)
    name = "sasl.mechanism.inter.broker.protocol"
    mechanism = settings.get(name, "GSSAPI")
    if mechanism not in listener.mechanisms:
        raise InvalidSetting(f"{name}: {mechanism} is not enabled on {settings.listener}")
    login = settings.jaas(mechanism)
    if "username" not in login or "password" not in login:
        raise InvalidSetting(
            f"listener.name.{settings.listener.lower()}.{mechanism.lower()}.sasl.jaas.config has "
            "no username and password for brokers to log in with"
        )
    return InterBroker(
        tls=context, mechanism=mechanism, user=login["username"], password=login["password"]
    )


def _users(text: str) -> dict[str, str]:
    users = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, password = part.partition(":")
        if not (name and colon and password):
            raise InvalidSetting(f"{USERS} is written as name:password,name:password")
        users[name] = password
    return users


def _access(properties: Mapping[str, str], inter_broker: InterBroker) -> Access | None:
    chosen = properties.get("authorizer.class.name")
    if not chosen:
        return None
    if chosen not in AUTHORIZERS:
        raise InvalidSetting(
            f"authorizer.class.name: {chosen} is no class that the embedded broker knows; "
            f"{AUTHORIZERS[0]} is"
        )
    super_users = {
        one.strip() for one in properties.get("super.users", "").split(";") if one.strip()
    }
    if inter_broker.mechanism is not None:
        super_users.add(f"User:{inter_broker.user}")
    unmentioned = properties.get("allow.everyone.if.no.acl.found", "false")
    return Access(
        super_users=frozenset(super_users),
        is_allowed_unmentioned=unmentioned.strip().lower() == "true",
    )
