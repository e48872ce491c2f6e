"""What is refused before any machine is asked."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from lossless.core.messages import Error
from lossless.wire import api_versions, init_producer_id, sync_group
from lossless.wire.codec import make, request_class
from lossless.wire.context import Broker, Call
from lossless.wire.versions import API_VERSIONS, BOTH, BROKER, CONTROLLER, Listener

NOBODY = cast(Broker, None)  # who would ask it fails


def a_call(key: int, version: int, **fields: Any) -> Call:
    return Call(make(request_class(key, version), fields), version, "client", "here", "PLAINTEXT")


@pytest.mark.parametrize("listener", [BROKER, CONTROLLER, BOTH])
def test_a_version_that_is_too_new_is_told_the_range_of_its_own_request(listener: Listener) -> None:
    said = api_versions.unsupported(listener)
    assert said["error_code"] is Error.UNSUPPORTED_VERSION
    assert [api["api_key"] for api in said["api_keys"]] == [API_VERSIONS]


def test_an_empty_transactional_id_is_no_id() -> None:
    call = a_call(init_producer_id.KEY, 4, transactional_id="", producer_id=-1, producer_epoch=-1)
    assert init_producer_id.understood(call) is Error.INVALID_REQUEST


@pytest.mark.parametrize("named", [{}, {"protocol_type": "consumer"}, {"protocol_name": "range"}])
def test_members_say_how_they_share_since_they_can(named: dict[str, str]) -> None:
    call = a_call(sync_group.KEY, sync_group.NAMED, group_id="group", member_id="member", **named)
    said = asyncio.run(sync_group.serve(call, NOBODY))
    assert said == {"error_code": Error.INCONSISTENT_GROUP_PROTOCOL}
