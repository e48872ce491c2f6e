"""A controller and clients that create and delete more partitions than they may."""

from __future__ import annotations

import pytest
from instant_host import Host

from lossless.core.admin_messages import AlterQuotas, CreatePartitions
from lossless.core.messages import AdminAnswer, CreateTopic, DeleteTopic, Error
from lossless.core.quotas.limits import MUTATIONS, Client, QuotaChange

CLIENT = Client("alice", "shop", is_strict=True)
ENTITY = (("user", "alice"),)


@pytest.fixture
def host() -> Host:
    """Alice may change one partition a second; eleven at once."""
    host = Host(brokers=(1,))
    host.wait(500)
    limit = AlterQuotas(ENTITY, (QuotaChange(MUTATIONS, 1.0),))
    assert host.ask(100, limit) == AdminAnswer(Error.NONE)
    return host


def create(host: Host, topic: str, partitions: int, client: Client | None = CLIENT) -> AdminAnswer:
    answer = host.ask(100, CreateTopic(topic, partitions, 1, client=client))
    assert isinstance(answer, AdminAnswer)
    return answer


def test_a_client_is_refused_once_it_has_used_its_tokens_up_and_until_they_are_back(
    host: Host,
) -> None:
    assert create(host, "first", 12) == AdminAnswer(Error.NONE)
    refused = create(host, "second", 1)
    assert (refused.error, refused.throttle_ms) == (Error.THROTTLING_QUOTA_EXCEEDED, 1_000)
    assert "second" not in host.controller().image.topics
    host.wait(1_000)
    assert create(host, "second", 1).error is Error.NONE


@pytest.mark.parametrize(
    "request_of_more",
    [CreatePartitions("first", 20, client=CLIENT), DeleteTopic("first", CLIENT)],
    ids=lambda one: type(one).__name__,
)
def test_partitions_that_are_added_and_deleted_count_too(
    host: Host, request_of_more: CreatePartitions | DeleteTopic
) -> None:
    create(host, "first", 8)
    assert host.ask(100, request_of_more).error is Error.NONE
    assert create(host, "second", 1).error is Error.THROTTLING_QUOTA_EXCEEDED


def test_what_is_refused_anyway_does_not_count(host: Host) -> None:
    create(host, "first", 10)
    for _ in range(3):
        assert create(host, "first", 10).error is Error.TOPIC_ALREADY_EXISTS
    assert create(host, "second", 1).error is Error.NONE


def test_a_client_that_cannot_be_refused_is_told_to_wait(host: Host) -> None:
    lenient = CLIENT._replace(is_strict=False)
    assert create(host, "first", 12, lenient) == AdminAnswer(Error.NONE, throttle_ms=1_000)
    assert create(host, "second", 2, lenient) == AdminAnswer(Error.NONE, throttle_ms=3_000)


def test_others_are_not_concerned(host: Host) -> None:
    create(host, "first", 12)
    assert create(host, "second", 1, CLIENT._replace(user="bob")).error is Error.NONE
    assert create(host, "third", 1, None).error is Error.NONE
    removed = AlterQuotas(ENTITY, (QuotaChange(MUTATIONS, None),))
    assert host.ask(100, removed).error is Error.NONE
    assert create(host, "fourth", 1).error is Error.NONE
