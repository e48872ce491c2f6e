"""What the controller decides about users and access: records and an answer, nothing changed."""

from __future__ import annotations

from lossless.core.decision import Decision, accepted, refused
from lossless.core.messages import Error
from lossless.core.metadata import Image
from lossless.core.security.acls import (
    CLUSTER_NAME,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from lossless.core.security.messages import AlterScramCredential, CreateAcl, DeleteAcl
from lossless.core.security.records import AclCreated, AclRemoved, ScramCredentialChanged
from lossless.core.security.scram import ITERATIONS_MAX, ITERATIONS_MIN


def alter_scram_credential(image: Image, request: AlterScramCredential) -> Decision:
    if not request.user:
        return refused(Error.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    given = request.credential
    if given is None:
        if image.scram.get((request.user, request.mechanism)) is None:
            return refused(
                Error.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
    elif given.iterations < ITERATIONS_MIN:
        return refused(Error.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    elif given.iterations > ITERATIONS_MAX:
        return refused(Error.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return accepted((ScramCredentialChanged(*request),))


def create_acl(image: Image, request: CreateAcl) -> Decision:
    if wrong := _problem(request.acl):
        return refused(Error.INVALID_REQUEST, wrong)
    return accepted(() if request.acl in image.acls else (AclCreated(request.acl),))


def delete_acl(image: Image, request: DeleteAcl) -> Decision:
    return accepted((AclRemoved(request.acl),) if request.acl in image.acls else ())


def _problem(acl: Acl) -> str | None:
    kind, name, pattern = acl.pattern
    if kind is ResourceType.ANY:
        return "Invalid resourceType ANY"
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {pattern.name}"
    if acl.operation is Operation.ANY:
        return "Invalid operation ANY"
    if acl.permission is Permission.ANY:
        return "Invalid permissionType ANY"
    if not name:
        return "Resource name should not be empty"
    if ":" not in acl.principal:
        return f"{acl.principal!r} has no colon between the type and the name of a principal"
    if kind is ResourceType.CLUSTER and name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    return None
