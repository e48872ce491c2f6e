"""What administrators ask of the controller about users and access. Each has its own answer."""

from __future__ import annotations

from typing import NamedTuple

from lossless.core.security.acls import Acl
from lossless.core.security.scram import ScramCredential, ScramMechanism


class AlterScramCredential(NamedTuple):
    user: str
    mechanism: ScramMechanism
    credential: ScramCredential | None  # None: it is taken away


class CreateAcl(NamedTuple):
    acl: Acl


class DeleteAcl(NamedTuple):
    acl: Acl
