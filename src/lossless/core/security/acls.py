"""Who may do what: access control entries, and what they amount to.

An entry allows or denies one operation on resources of a kind: on the one with a name, on all whose
names begin so, or on all (`*`). Whoever is denied by one entry is not helped by another that
allows. What nobody mentions is denied, unless the broker is told otherwise.

Rules learnt
- To be allowed to read, write, delete or alter is to be allowed to describe. It does not hold for
  what is denied: who may not read may still describe.
- `*` means all names only in an entry for a name: one for a prefix `*` is for names that begin with
  a star.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

WILDCARD = "*"
ANYBODY = "User:*"
ANONYMOUS = "User:ANONYMOUS"
CLUSTER_NAME = "kafka-cluster"


class ResourceType(enum.IntEnum):
    """What is protected, with the protocol's numbers."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(enum.IntEnum):
    ANY = 1
    MATCH = 2  # in filters: every entry that would count for a name
    LITERAL = 3
    PREFIXED = 4


class Operation(enum.IntEnum):
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(enum.IntEnum):
    ANY = 1
    DENY = 2
    ALLOW = 3


# What an entry that allows one thing allows besides.
_IMPLIED_BY: Mapping[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
_NOTHING: frozenset[Operation] = frozenset()


class Pattern(NamedTuple):
    type: ResourceType
    name: str
    pattern: PatternType  # LITERAL or PREFIXED


class Acl(NamedTuple):
    """One entry. It has no name of its own: the same one twice is one."""

    pattern: Pattern
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def concerns(self, principal: str, host: str, operation: Operation) -> bool:
        return (
            self.principal in (principal, ANYBODY)
            and self.host in (host, WILDCARD)
            and self._is_about(operation)
        )

    def _is_about(self, operation: Operation) -> bool:
        if self.operation in (operation, Operation.ALL):
            return True
        implied = _IMPLIED_BY.get(operation, _NOTHING)
        return self.permission is Permission.ALLOW and self.operation in implied


class AclFilter(NamedTuple):
    """Which entries are meant. What is None, or ANY, may be anything."""

    type: ResourceType
    name: str | None
    pattern: PatternType
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def matches(self, acl: Acl) -> bool:
        return (
            self._matches(acl.pattern)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches(self, pattern: Pattern) -> bool:
        if self.type not in (ResourceType.ANY, pattern.type):
            return False
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, pattern.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern is not PatternType.MATCH:
            return self.name == pattern.name
        if pattern.pattern is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)


class Acls:
    """All entries. Never changed: with and without an entry they are others, so whoever has asked
    them may remember the answers."""

    __slots__ = ("_by_pattern", "_decided", "_prefix_sizes")

    def __init__(self, by_pattern: Mapping[Pattern, frozenset[Acl]] | None = None) -> None:
        self._by_pattern = by_pattern or {}
        self._prefix_sizes = {
            (pattern.type, len(pattern.name))
            for pattern in self._by_pattern
            if pattern.pattern is PatternType.PREFIXED
        }
        self._decided: dict[tuple[str, str, Operation, ResourceType, str], bool | None] = {}

    def __iter__(self) -> Iterator[Acl]:
        for entries in self._by_pattern.values():
            yield from sorted(entries)

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._by_pattern.get(acl.pattern, ())

    def with_entry(self, acl: Acl) -> Acls:
        entries = self._by_pattern.get(acl.pattern, frozenset()) | {acl}
        return Acls({**self._by_pattern, acl.pattern: entries})

    def without_entry(self, acl: Acl) -> Acls:
        changed = dict(self._by_pattern)
        entries = changed.pop(acl.pattern, frozenset()) - {acl}
        if entries:
            changed[acl.pattern] = entries
        return Acls(changed)

    def allows(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool | None:
        """None if no entry mentions the resource at all."""
        key = (principal, host, operation, kind, name)
        if key not in self._decided:
            if len(self._decided) >= _DECIDED_MAX:
                self._decided.clear()
            self._decided[key] = self._decide(*key)
        return self._decided[key]

    def _decide(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool | None:
        mentioned = list(self._mentioning(kind, name))
        if not mentioned:
            return None
        said = {acl.permission for acl in mentioned if acl.concerns(principal, host, operation)}
        return Permission.ALLOW in said and Permission.DENY not in said

    def _mentioning(self, kind: ResourceType, name: str) -> Iterator[Acl]:
        patterns = [Pattern(kind, name, PatternType.LITERAL)]
        if name != WILDCARD:
            patterns.append(Pattern(kind, WILDCARD, PatternType.LITERAL))
        patterns += [
            Pattern(kind, name[:size], PatternType.PREFIXED)
            for type_, size in self._prefix_sizes
            if type_ is kind and size <= len(name)
        ]
        for pattern in patterns:
            yield from self._by_pattern.get(pattern, ())

    def allows_some(
        self, principal: str, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """Whether there is any resource of this kind that it is allowed on: some entry allows, and
        none denies all that it does."""
        denied = [
            acl.pattern
            for acl in self._of(kind, Permission.DENY)
            if acl.concerns(principal, host, operation)
        ]
        return any(
            acl.concerns(principal, host, operation)
            and not any(_covers(pattern, acl.pattern) for pattern in denied)
            for acl in self._of(kind, Permission.ALLOW)
        )

    def _of(self, kind: ResourceType, permission: Permission) -> Iterable[Acl]:
        return (acl for acl in self if acl.pattern.type is kind and acl.permission is permission)


_DECIDED_MAX = 10_000


def _covers(wider: Pattern, narrower: Pattern) -> bool:
    """Whether every name of one pattern is a name of the other."""
    if wider.pattern is PatternType.PREFIXED:
        is_all = narrower.pattern is PatternType.LITERAL and narrower.name == WILDCARD
        return not is_all and narrower.name.startswith(wider.name)
    return wider.name == WILDCARD or wider == narrower
