"""Every API has a rule, and every rule can tell its refusal in every version of the API."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

import pytest
from rights import NAME, errors_in, filled

from lossless.broker.security.api_rules import RULES
from lossless.broker.security.rules import Asking, Verdict, everybody
from lossless.core.messages import Error
from lossless.core.metadata import Image, TopicCreated
from lossless.core.security.acls import Operation, ResourceType
from lossless.core.settings.broker_settings import BrokerSettings
from lossless.wire.codec import make, read, request_class, response_class, write
from lossless.wire.versions import APIS, BROKER, Api

TOPIC_ID = uuid.UUID(int=7)
SPOKEN = [api for api in APIS.values() if BROKER & api.listeners]
SILENT = {(35, 1), (35, 2)}  # log folders: there is no place for an error
HIDDEN = {16, 66}  # what may not be seen is left out, and nothing is refused


class Allowing:
    def __init__(self, *, is_allowed: bool) -> None:
        self._is_allowed = is_allowed

    def may(self, _operation: Operation, _kind: ResourceType, _name: str) -> bool:
        return self._is_allowed

    def may_some(self, _operation: Operation, _kind: ResourceType) -> bool:
        return self._is_allowed


class FakeBroker:
    def __init__(self) -> None:
        self.settings, _ = BrokerSettings.from_properties({})
        self.image = Image()
        self.image.apply(TopicCreated(NAME, TOPIC_ID.int), 0)


def versions(apis: list[Api]) -> list[tuple[Api, int]]:
    return [(api, version) for api in apis for version in range(api.lowest, api.highest + 1)]


def judged(api: Api, version: int, *, is_allowed: bool) -> tuple[Any, Verdict | None]:
    entity = request_class(api.key, version)
    message = filled(entity, TOPIC_ID)
    if api.key == 20 and version >= 6:  # one name or one id, not both
        message = dataclasses.replace(message, topics=(dataclasses.replace(message.topics[0]),))
    message = read(entity, write(message), 0)  # and Kafka has such a message
    broker: Any = FakeBroker()
    asking = Asking(message, version, broker, Allowing(is_allowed=is_allowed))
    return message, RULES[api.key](asking)


def test_every_api_that_a_broker_speaks_has_a_rule() -> None:
    assert set(RULES) == {api.key for api in SPOKEN}


@pytest.mark.parametrize(
    ("api", "version"), versions(SPOKEN), ids=lambda one: getattr(one, "name", str(one))
)
def test_who_may_do_everything_is_served_as_asked(api: Api, version: int) -> None:
    message, verdict = judged(api, version, is_allowed=True)
    if verdict is not None:
        assert verdict.message == message
        assert not any(verdict.refused.values())


@pytest.mark.parametrize(
    ("api", "version"),
    versions([api for api in SPOKEN if RULES[api.key] is not everybody]),
    ids=lambda one: getattr(one, "name", str(one)),
)
def test_who_may_do_nothing_is_told_so(api: Api, version: int) -> None:
    _, verdict = judged(api, version, is_allowed=False)
    assert verdict is not None
    refused = make(response_class(api.key, version), verdict.refused)
    assert write(refused)
    if api.key in HIDDEN:
        assert verdict.edit is not None
    elif (api.key, version) not in SILENT:
        told = {Error(code).name for code in errors_in(refused)}
        assert told
        assert all("AUTHORIZATION_FAILED" in name for name in told)
