"""How nodes log in with controllers: with a secret that only the cluster's own nodes have.

A controller decides everything, and asks for no rights. Its listener therefore serves nothing but
logins to a connection until it has shown the cluster's secret, whatever the cluster demands of its
clients. SCRAM does not send the secret: somebody who listens, or who has taken the port of a
controller that is down, learns nothing to log in with, and a recorded login is of no use, because
each has a nonce of the controller.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from lossless.broker.security.gate import Gate
from lossless.broker.security.listeners import (
    PROTOCOL_MAP,
    InterBroker,
    ListenerSecurity,
    SecurityProtocol,
)
from lossless.core.security.scram import (
    MECHANISMS,
    ScramCredential,
    ScramMechanism,
    credential,
    salted_password,
)
from lossless.core.settings.kinds import InvalidSetting

CONTROLLER_LISTENER = "CONTROLLER"
NODE_USER = "lossless-node"
NODE_MECHANISM = "SCRAM-SHA-256"
_JAAS = f"listener.name.{CONTROLLER_LISTENER.lower()}.{NODE_MECHANISM.lower()}.sasl.jaas.config"
_PROTOCOL = SecurityProtocol.SASL_PLAINTEXT
_SALT_BYTES = 16
# Iterations slow down guessing. A secret of 256 random bits cannot be guessed anyway, and nodes
# that log in with each other after a crash should not have to wait.
_ITERATIONS = 1


def node_settings(secret: str) -> dict[str, str]:
    """A node's settings about the controllers' listener, in a cluster with this secret."""
    return {
        _JAAS: "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{NODE_USER}" password="{secret}";'
    }


def node_login(properties: Mapping[str, str]) -> InterBroker:
    """The login that `node_settings` describes. InvalidSetting if there is none."""
    from lossless.contract.jaas import jaas_options  # here: see listeners.py

    for part in properties.get(PROTOCOL_MAP, "").split(","):
        name, _, protocol = part.strip().partition(":")
        if name == CONTROLLER_LISTENER and protocol.upper() != _PROTOCOL.name:
            raise InvalidSetting(
                f"{PROTOCOL_MAP}: controllers of the embedded cluster use {_PROTOCOL.name}"
            )
    login = jaas_options(properties.get(_JAAS, ""))
    if not login.get("username") or not login.get("password"):
        raise InvalidSetting(f"{_JAAS} has no username and password for nodes to log in with")
    return InterBroker(mechanism=NODE_MECHANISM, user=login["username"], password=login["password"])


def node_gate(login: InterBroker, *, frame_bytes_max: int) -> Gate:
    """Lets nodes with the cluster's secret in, to everything, and nobody else to anything."""
    mechanism = MECHANISMS[NODE_MECHANISM]
    salt = secrets.token_bytes(_SALT_BYTES)
    salted = salted_password(mechanism, login.password, salt, _ITERATIONS)
    known = credential(mechanism, salted, salt, _ITERATIONS)

    def credential_of(user: str, _mechanism: ScramMechanism) -> ScramCredential | None:
        return known if user == login.user else None

    listener = ListenerSecurity(
        name=CONTROLLER_LISTENER,
        protocol=_PROTOCOL,
        mechanisms=(NODE_MECHANISM,),
        plain_users={},
    )
    return Gate(listener, credential_of, None, frame_bytes_max)
