"""Users that are there before anybody could add any: those of the settings, as records for the
cluster's metadata. Each has a salt by chance, so two controllers make two records of one user; the
one that is agreed on first counts."""

from __future__ import annotations

import secrets

from lossless.broker.security.listeners import NodeSecurity
from lossless.core.security.records import ScramCredentialChanged
from lossless.core.security.scram import (
    ITERATIONS_MIN,
    ScramMechanism,
    credential,
    salted_password,
)

SALT_BYTES = 16


def first_users(security: NodeSecurity) -> tuple[ScramCredentialChanged, ...]:
    return tuple(
        _record(user, password, mechanism)
        for user, password in security.first_users.items()
        for mechanism in ScramMechanism
    )


def _record(user: str, password: str, mechanism: ScramMechanism) -> ScramCredentialChanged:
    salt = secrets.token_bytes(SALT_BYTES)
    salted = salted_password(mechanism, password, salt, ITERATIONS_MIN)
    return ScramCredentialChanged(
        user, mechanism, credential(mechanism, salted, salt, ITERATIONS_MIN)
    )
