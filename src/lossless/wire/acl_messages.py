"""Access control entries and filters of them, as the three APIs about them have them."""

from __future__ import annotations

from typing import Any

from lossless.core.security.acls import (
    Acl,
    AclFilter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from lossless.wire.codec import Fields

AUTHORIZER = "authorizer.class.name"
NO_AUTHORIZER = "No Authorizer is configured on the broker"


def acl_of(said: Any) -> Acl:
    """ValueError if it uses a number that nobody knows."""
    pattern = Pattern(
        ResourceType(said.resource_type),
        said.resource_name,
        PatternType(said.resource_pattern_type),
    )
    operation, permission = Operation(said.operation), Permission(said.permission_type)
    return Acl(pattern, said.principal, said.host, operation, permission)


def filter_of(said: Any) -> AclFilter:
    """ValueError if it uses a number that nobody knows."""
    return AclFilter(
        ResourceType(said.resource_type_filter),
        said.resource_name_filter,
        PatternType(said.pattern_type_filter),
        said.principal_filter,
        said.host_filter,
        Operation(said.operation),
        Permission(said.permission_type),
    )


def pattern_told(pattern: Pattern) -> Fields:
    return {
        "resource_type": pattern.type,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern,
    }


def entry_told(acl: Acl) -> Fields:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }
