"""What the quorum's log says about users and access; `metadata.py` has the other records."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

from lossless.core.security.acls import (
    Acl,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from lossless.core.security.scram import ScramCredential, ScramMechanism


class ScramCredentialChanged(NamedTuple):
    """Without a credential it was taken away, and no setting brings it back."""

    user: str
    mechanism: ScramMechanism
    credential: ScramCredential | None


class AclCreated(NamedTuple):
    acl: Acl


class AclRemoved(NamedTuple):
    acl: Acl


def fields_of(record: ScramCredentialChanged) -> list[Any]:
    """As JSON has them, which has no bytes."""
    kept = record.credential
    if kept is None:
        return [record.user, record.mechanism, None]
    *keys, iterations = kept
    texts = [base64.b64encode(key).decode() for key in keys]
    return [record.user, record.mechanism, [*texts, iterations]]


def credential_changed(
    user: str, mechanism: int, said: Sequence[Any] | None
) -> ScramCredentialChanged:
    kept = None
    if said is not None:
        *texts, iterations = said
        salt, stored_key, server_key = map(base64.b64decode, texts)
        kept = ScramCredential(salt, stored_key, server_key, iterations)
    return ScramCredentialChanged(user, ScramMechanism(mechanism), kept)


def acl_of(said: Sequence[Any]) -> Acl:
    (kind, name, pattern), principal, host, operation, permission = said
    return Acl(
        Pattern(ResourceType(kind), name, PatternType(pattern)),
        principal,
        host,
        Operation(operation),
        Permission(permission),
    )
