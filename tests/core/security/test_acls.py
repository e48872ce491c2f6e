"""Who may do what: matching of access control entries, as Kafka's StandardAuthorizer has it."""

from __future__ import annotations

import pytest

from lossless.core.security.acls import (
    ANYBODY,
    Acl,
    AclFilter,
    Acls,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)

READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
ALICE, HOST = "User:alice", "10.0.0.1"


def entry(
    name: str = "orders",
    operation: Operation = READ,
    permission: Permission = ALLOW,
    *,
    pattern: PatternType = LITERAL,
    principal: str = ALICE,
    host: str = "*",
    kind: ResourceType = TOPIC,
) -> Acl:
    return Acl(Pattern(kind, name, pattern), principal, host, operation, permission)


def table(*entries: Acl) -> Acls:
    acls = Acls()
    for one in entries:
        acls = acls.with_entry(one)
    return acls


def allows(
    acls: Acls,
    operation: Operation = READ,
    name: str = "orders",
    principal: str = ALICE,
    host: str = HOST,
    kind: ResourceType = TOPIC,
) -> bool | None:
    return acls.allows(principal, host, operation, kind, name)


def test_what_nobody_mentions_is_neither_allowed_nor_denied() -> None:
    assert allows(Acls()) is None
    assert allows(table(entry("other"))) is None
    assert allows(table(entry(kind=GROUP))) is None


def test_who_is_mentioned_by_no_entry_of_a_resource_is_denied() -> None:
    assert allows(table(entry()), principal="User:bob") is False


def test_an_entry_allows_its_operation_alone() -> None:
    acls = table(entry(operation=READ))
    assert allows(acls, READ) is True
    assert allows(acls, WRITE) is False


def test_deny_counts_for_more_than_allow() -> None:
    acls = table(entry(), entry(permission=DENY))
    assert allows(acls) is False
    assert allows(table(entry(), entry("*", permission=DENY))) is False
    assert allows(table(entry(), entry("ord", permission=DENY, pattern=PREFIXED))) is False


@pytest.mark.parametrize("operation", [READ, WRITE, Operation.DELETE, Operation.ALTER])
def test_who_may_use_a_thing_may_describe_it(operation: Operation) -> None:
    assert allows(table(entry(operation=operation)), DESCRIBE) is True


@pytest.mark.parametrize("operation", [Operation.CREATE, Operation.ALTER_CONFIGS])
def test_other_operations_do_not_imply_describe(operation: Operation) -> None:
    assert allows(table(entry(operation=operation)), DESCRIBE) is False


def test_who_may_alter_settings_may_describe_them() -> None:
    acls = table(entry(operation=Operation.ALTER_CONFIGS))
    assert allows(acls, Operation.DESCRIBE_CONFIGS) is True


def test_who_may_not_read_may_still_describe() -> None:
    acls = table(entry(operation=DESCRIBE), entry(operation=READ, permission=DENY))
    assert allows(acls, DESCRIBE) is True


def test_all_operations_are_all() -> None:
    acls = table(entry(operation=Operation.ALL))
    assert all(allows(acls, one) for one in (READ, WRITE, DESCRIBE, Operation.ALTER_CONFIGS))
    denied = table(entry(operation=READ), entry(operation=Operation.ALL, permission=DENY))
    assert allows(denied, READ) is False


def test_a_prefix_is_for_names_that_begin_so() -> None:
    acls = table(entry("ord", pattern=PREFIXED))
    assert allows(acls, name="orders") is True
    assert allows(acls, name="ord") is True
    assert allows(acls, name="or") is None
    assert allows(acls, name="xord") is None


def test_a_star_is_for_all_names_and_a_prefixed_star_is_not() -> None:
    assert allows(table(entry("*")), name="anything") is True
    assert allows(table(entry("*", pattern=PREFIXED)), name="anything") is None
    assert allows(table(entry("*", pattern=PREFIXED)), name="*thing") is True


def test_a_literal_name_is_no_prefix() -> None:
    assert allows(table(entry("ord")), name="orders") is None


def test_hosts_and_anybody() -> None:
    acls = table(entry(principal=ANYBODY, host=HOST))
    assert allows(acls, principal="User:bob") is True
    assert allows(acls, principal="User:bob", host="10.0.0.2") is False


def test_without_an_entry_is_as_before_it() -> None:
    acls = table(entry(), entry(operation=WRITE))
    assert allows(acls.without_entry(entry(operation=WRITE)), WRITE) is False
    assert allows(table(entry()).without_entry(entry())) is None
    assert allows(acls, WRITE) is True, "the first one is as it was"


def test_some_topic_is_enough_unless_all_that_is_allowed_is_denied() -> None:
    def may_some(acls: Acls) -> bool:
        return acls.allows_some(ALICE, HOST, WRITE, TOPIC)

    allowed = entry(operation=WRITE)
    assert may_some(table(allowed))
    assert not may_some(table(entry(operation=READ)))
    assert not may_some(table(allowed, entry("*", WRITE, DENY)))
    assert not may_some(table(allowed, entry("ord", WRITE, DENY, pattern=PREFIXED)))
    assert may_some(table(entry("o", WRITE, pattern=PREFIXED), entry("ord", WRITE, DENY)))
    assert may_some(table(entry("*", WRITE), entry("ord", WRITE, DENY, pattern=PREFIXED)))


def matching(
    name: str | None, pattern: PatternType, *, operation: Operation = Operation.ANY
) -> AclFilter:
    return AclFilter(ResourceType.ANY, name, pattern, None, None, operation, Permission.ANY)


def test_a_filter_without_a_name_matches_every_name() -> None:
    assert matching(None, PatternType.ANY).matches(entry())
    assert matching(None, PREFIXED).matches(entry(pattern=PREFIXED))
    assert not matching(None, PREFIXED).matches(entry())


def test_a_filter_for_a_name_matches_that_name_alone() -> None:
    assert matching("orders", LITERAL).matches(entry())
    assert not matching("orders", LITERAL).matches(entry("*"))
    assert not matching("orders", PatternType.ANY).matches(entry("ord", pattern=PREFIXED))


def test_match_finds_every_entry_that_counts_for_a_name() -> None:
    asked = matching("orders", PatternType.MATCH)
    assert asked.matches(entry())
    assert asked.matches(entry("*"))
    assert asked.matches(entry("ord", pattern=PREFIXED))
    assert not asked.matches(entry("ord"))


def test_a_filter_looks_at_all_of_an_entry() -> None:
    assert not matching("orders", LITERAL, operation=WRITE).matches(entry())
    one = matching("orders", LITERAL)
    assert not one._replace(principal="User:bob").matches(entry())
    assert not one._replace(host="10.0.0.1").matches(entry())
    assert not one._replace(permission=DENY).matches(entry())
    assert not one._replace(type=GROUP).matches(entry())
