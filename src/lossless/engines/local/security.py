"""How clients reach a cluster that was planned here: in the open, encrypted, or with a login.

`security.inter.broker.protocol` among the cluster's settings chooses the protocol of its one
listener, for clients and brokers alike. The rest is Kafka's own settings, and

    lossless.sasl.users=admin:secret,alice:other

for the embedded brokers: users that are known from the first start on, by every mechanism that is
enabled. The first of them is the brokers' own, and the one that Lossless connects as.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import ExitStack

from lossless.broker.security import tls
from lossless.broker.security.listeners import (
    ENABLED,
    INTER_BROKER_PROTOCOL,
    MECHANISMS,
    PLAIN,
    USERS,
    SecurityProtocol,
)
from lossless.broker.security.login import Login
from lossless.contract.jaas import jaas_options
from lossless.core.security.acls import ANONYMOUS
from lossless.core.settings.kinds import InvalidSetting
from lossless.errors import BadInput
from lossless.wire import frames

LOOPBACK = "127.0.0.1"
_INTER_BROKER_MECHANISM = "sasl.mechanism.inter.broker.protocol"
_AUTHORIZER = "authorizer.class.name"
_SUPER_USERS = "super.users"
_UNMENTIONED = "allow.everyone.if.no.acl.found"
_PREFERRED = "SCRAM-SHA-256"  # Lossless logs in with it, if it can choose
_MODULES = {PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule"}
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_TRUST = (
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.endpoint.identification.algorithm",
)
_KEY = (
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
)


def protocol_of(config: Mapping[str, str]) -> SecurityProtocol:
    said = config.get(INTER_BROKER_PROTOCOL, SecurityProtocol.PLAINTEXT.name)
    try:
        return SecurityProtocol[said.upper()]
    except KeyError:
        known = ", ".join(one.name for one in SecurityProtocol)
        raise BadInput(f"{INTER_BROKER_PROTOCOL} = {said} is not one of {known}") from None


def check_security(config: Mapping[str, str], engine: str) -> None:
    protocol = protocol_of(config)
    if USERS in config and engine != "embedded":
        raise BadInput(
            f"{USERS} is known to the engine embedded only",
            hint=f"give Apache Kafka listener.name.{protocol.name.lower()}.plain.sasl.jaas.config",
        )
    if protocol.has_sasl:
        _login(config)
    elif config.get(_AUTHORIZER) and not has_authentication(config):
        _check_anonymous(config)


def _check_anonymous(config: Mapping[str, str]) -> None:
    """Without a login brokers are anonymous to each other, and an authorizer denies what they need
    of each other unless they are super users."""
    supers = {one.strip() for one in config.get(_SUPER_USERS, "").split(";")}
    if ANONYMOUS in supers or config.get(_UNMENTIONED, "").lower() == "true":
        return
    raise BadInput(
        f"{_AUTHORIZER} without a login: brokers would be {ANONYMOUS} to each other, and denied "
        "what they need",
        hint=f"{INTER_BROKER_PROTOCOL} = SASL_PLAINTEXT gives brokers and clients a login; "
        f"{_SUPER_USERS} = {ANONYMOUS} allows everything to everybody",
    )


def super_users(config: Mapping[str, str], *nodes: str) -> dict[str, str]:
    """Those of the user, the brokers' own and `nodes`: an authorizer judges brokers, too."""
    if not config.get(_AUTHORIZER):
        return {}
    chosen = [one for one in config.get(_SUPER_USERS, "").split(";") if one.strip()]
    if protocol_of(config).has_sasl:
        nodes = (*nodes, _login(config)[1])
    return {_SUPER_USERS: ";".join([*chosen, *(f"User:{node}" for node in nodes)])}


def has_authentication(config: Mapping[str, str]) -> bool:
    protocol = protocol_of(config)
    return protocol.has_sasl or (
        protocol.has_tls and config.get("ssl.client.auth", "none").lower() == "required"
    )


def broker_settings(config: Mapping[str, str]) -> dict[str, str]:
    """What brokers need besides, so that one of the users can be theirs."""
    if not protocol_of(config).has_sasl:
        return {}
    mechanism, user, password = _login(config)
    settings = {ENABLED: ",".join(_enabled(config)), _INTER_BROKER_MECHANISM: mechanism}
    name = _jaas_name(config, mechanism)
    if name not in config:
        settings[name] = _jaas(mechanism, user, password)
    return settings


def client_settings(config: Mapping[str, str]) -> dict[str, str]:
    """By the Java client's names, for whoever the brokers themselves are."""
    protocol = protocol_of(config)
    if protocol is SecurityProtocol.PLAINTEXT:
        return {}
    settings = {"security.protocol": protocol.name}
    if protocol.has_sasl:
        mechanism, user, password = _login(config)
        settings |= {
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": _jaas(mechanism, user, password),
        }
    if protocol.has_tls:
        shows_key = config.get("ssl.client.auth", "none").lower() == "required"
        names = (*_TRUST, *_KEY) if shows_key else _TRUST
        settings |= {name: config[name] for name in names if name in config}
    return settings


def connected(
    config: Mapping[str, str], host: str, port: int, timeout_s: float, held: ExitStack
) -> socket.socket:
    """As a client, by a socket that waits. OSError if nobody is there, or nobody lets us in."""
    connection = socket.create_connection((host, port), timeout=timeout_s)
    held.enter_context(connection)
    protocol = protocol_of(config)
    if protocol.has_tls:
        try:
            context = tls.client_context(config.get)
        except InvalidSetting as error:
            raise BadInput(str(error)) from error
        connection = context.wrap_socket(connection, server_hostname=host)
        held.enter_context(connection)
    if protocol.has_sasl:
        _log_in(connection, *_login(config))
    return connection


def connected_as_node(
    login: tuple[str, str, str], port: int, timeout_s: float, held: ExitStack
) -> socket.socket:
    """To a controller, as the cluster's nodes are."""
    connection = socket.create_connection((LOOPBACK, port), timeout=timeout_s)
    held.enter_context(connection)
    _log_in(connection, *login)
    return connection


def _log_in(connection: socket.socket, mechanism: str, user: str, password: str) -> None:
    login = Login(mechanism, user, password, "lossless")
    frame: bytes | None = login.first()
    while frame is not None:
        connection.sendall(frame)
        frame = login.answer(receive_frame(connection))


def receive_frame(connection: socket.socket) -> bytes:
    (size,) = frames.LENGTH.unpack(_receive(connection, frames.LENGTH.size))
    return _receive(connection, size)


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionError("closed before the answer was complete")
        received += chunk
    return received


# Logins


def _enabled(config: Mapping[str, str]) -> list[str]:
    said = config.get(ENABLED)
    if said is None:
        return list(MECHANISMS) if USERS in config else []
    return [one.strip() for one in said.split(",") if one.strip()]


def _login(config: Mapping[str, str]) -> tuple[str, str, str]:
    """Mechanism, user and password of the brokers themselves."""
    enabled = _enabled(config)
    mechanism = config.get(_INTER_BROKER_MECHANISM)
    if mechanism is None:
        mechanism = _PREFERRED if _PREFERRED in enabled else next(iter(enabled), PLAIN)
    given = jaas_options(config.get(_jaas_name(config, mechanism), ""))
    if "username" in given and "password" in given:
        return mechanism, given["username"], given["password"]
    first = config.get(USERS, "").split(",")[0].strip()
    user, _, password = first.partition(":")
    if not (user and password):
        raise BadInput(
            f"{INTER_BROKER_PROTOCOL} = {protocol_of(config).name} needs a user for the brokers",
            hint=f'for example {USERS} = "admin:secret,alice:other"',
        )
    return mechanism, user, password


def _jaas_name(config: Mapping[str, str], mechanism: str) -> str:
    listener = protocol_of(config).name.lower()
    return f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"


def _jaas(mechanism: str, user: str, password: str) -> str:
    module = _MODULES.get(mechanism, _SCRAM_MODULE)
    return f'{module} required username="{_quoted(user)}" password="{_quoted(password)}";'


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
