"""Users and access in the cluster's metadata: decided, written, read, applied."""

from __future__ import annotations

import pytest
from instant_host import Host

from lossless.core.controller import Controller
from lossless.core.controller_node import ControllerConfig
from lossless.core.messages import Error
from lossless.core.metadata import Image, MetadataRecord, decode, encode
from lossless.core.security.acls import (
    Acl,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from lossless.core.security.messages import AlterScramCredential, CreateAcl, DeleteAcl
from lossless.core.security.records import AclCreated, AclRemoved, ScramCredentialChanged
from lossless.core.security.scram import ScramCredential, ScramMechanism

SHA_256 = ScramMechanism.SCRAM_SHA_256
CREDENTIAL = ScramCredential(b"salt\x00", b"stored\xff", b"server", 4096)
ACL = Acl(
    Pattern(ResourceType.TOPIC, "orders", PatternType.PREFIXED),
    "User:alice",
    "*",
    Operation.READ,
    Permission.ALLOW,
)


@pytest.mark.parametrize(
    "record",
    [
        ScramCredentialChanged("alice", SHA_256, CREDENTIAL),
        ScramCredentialChanged("alice", SHA_256, None),
        AclCreated(ACL),
        AclRemoved(ACL),
    ],
)
def test_a_record_is_read_as_it_was_written(record: MetadataRecord) -> None:
    assert decode(encode(record)) == record
    assert type(decode(encode(record))) is type(record)


def applied(*records: MetadataRecord) -> Image:
    image = Image()
    for offset, record in enumerate(records):
        image.apply(record, offset)
    return image


def test_a_user_that_was_taken_away_is_remembered_as_such() -> None:
    image = applied(
        ScramCredentialChanged("alice", SHA_256, CREDENTIAL),
        ScramCredentialChanged("alice", SHA_256, None),
    )
    assert image.scram == {("alice", SHA_256): None}


def test_a_copy_of_an_image_does_not_follow_the_other() -> None:
    image = applied(AclCreated(ACL))
    copied = image.copy()
    image.apply(AclRemoved(ACL), 1)
    image.apply(ScramCredentialChanged("alice", SHA_256, CREDENTIAL), 2)
    assert list(copied.acls) == [ACL]
    assert not copied.scram


@pytest.mark.parametrize(
    ("user", "iterations", "error"),
    [
        ("", 4096, Error.UNACCEPTABLE_CREDENTIAL),
        ("alice", 4095, Error.UNACCEPTABLE_CREDENTIAL),
        ("alice", 16385, Error.UNACCEPTABLE_CREDENTIAL),
        ("alice", 4096, Error.NONE),
    ],
)
def test_a_credential_must_be_worth_something(user: str, iterations: int, error: Error) -> None:
    given = CREDENTIAL._replace(iterations=iterations)
    request = AlterScramCredential(user, SHA_256, given)
    decision = Controller(Image()).on_alter_scram_credential(request)
    assert decision.answer.error is error
    assert bool(decision.records) is (error is Error.NONE)


def test_nobody_is_taken_away_who_is_not_there() -> None:
    request = AlterScramCredential("alice", SHA_256, None)
    refused = Controller(Image()).on_alter_scram_credential(request)
    assert (refused.records, refused.answer.error) == ((), Error.RESOURCE_NOT_FOUND)
    image = applied(ScramCredentialChanged("alice", SHA_256, CREDENTIAL))
    taken = Controller(image).on_alter_scram_credential(request)
    assert taken.records == (ScramCredentialChanged("alice", SHA_256, None),)


def test_the_same_entry_twice_is_written_once() -> None:
    assert Controller(Image()).on_create_acl(CreateAcl(ACL)).records == (AclCreated(ACL),)
    decision = Controller(applied(AclCreated(ACL))).on_create_acl(CreateAcl(ACL))
    assert (decision.records, decision.answer.error) == ((), Error.NONE)


def test_an_entry_that_is_not_there_is_removed_without_a_record() -> None:
    assert Controller(Image()).on_delete_acl(DeleteAcl(ACL)).records == ()
    image = applied(AclCreated(ACL))
    assert Controller(image).on_delete_acl(DeleteAcl(ACL)).records == (AclRemoved(ACL),)


@pytest.mark.parametrize(
    "wrong",
    [
        ACL._replace(pattern=ACL.pattern._replace(type=ResourceType.ANY)),
        ACL._replace(pattern=ACL.pattern._replace(pattern=PatternType.MATCH)),
        ACL._replace(pattern=ACL.pattern._replace(name="")),
        ACL._replace(pattern=ACL.pattern._replace(type=ResourceType.CLUSTER, name="mine")),
        ACL._replace(operation=Operation.ANY),
        ACL._replace(permission=Permission.ANY),
        ACL._replace(principal="alice"),
    ],
)
def test_an_entry_that_could_never_count_is_refused(wrong: Acl) -> None:
    decision = Controller(Image()).on_create_acl(CreateAcl(wrong))
    assert (decision.records, decision.answer.error) == ((), Error.INVALID_REQUEST)


# The first users


def test_first_users_are_agreed_on_and_do_not_come_back() -> None:
    """Whoever was taken away stays so, also under a controller that has them in its settings."""
    first = ScramCredentialChanged("admin", SHA_256, CREDENTIAL)
    host = Host(controller_config=ControllerConfig(first_users=(first,)))
    assert host.controller().image.scram == {("admin", SHA_256): CREDENTIAL}
    assert host.ask(100, AlterScramCredential("admin", SHA_256, None)).error is Error.NONE
    host.kill(100)
    host.start(100)
    host.wait(5_000)  # until it has elected itself
    assert host.controller().active is not None
    assert host.controller().image.scram == {("admin", SHA_256): None}


def test_a_password_that_was_changed_stays_changed() -> None:
    first = ScramCredentialChanged("admin", SHA_256, CREDENTIAL)
    host = Host(controller_config=ControllerConfig(first_users=(first,)))
    changed = CREDENTIAL._replace(salt=b"other")
    assert host.ask(100, AlterScramCredential("admin", SHA_256, changed)).error is Error.NONE
    host.kill(100)
    host.start(100)
    host.wait(5_000)  # until it has elected itself
    assert host.controller().image.scram == {("admin", SHA_256): changed}


@pytest.mark.parametrize(
    "request_",
    [AlterScramCredential("alice", SHA_256, CREDENTIAL), CreateAcl(ACL), DeleteAcl(ACL)],
    ids=lambda one: type(one).__name__,
)
def test_a_standby_refuses_to_decide(request_: object) -> None:
    host = Host(controllers=(100, 101, 102))
    host.wait(2_000)
    assert host.ask(101, request_).error is Error.NOT_CONTROLLER
