"""Where embedded brokers answer differently from Apache Kafka on purpose: the whole list.

Everything else that tests/conformance asks is the same on both engines. Each line is asserted, on
both, by the test that it names; docs/unsupported.md shows them.
"""

from __future__ import annotations

from typing import NamedTuple

from lossless.core.error_codes import Error


class Difference(NamedTuple):
    behaviour: str
    embedded: Error
    apache: Error
    why: str
    test: str

    def expected(self, engine: str) -> Error:
        return self.embedded if engine == "embedded" else self.apache


CLASSIC_JOINS_CONSUMER = Difference(
    "a classic member joins a group of the new protocol that has members",
    Error.INCONSISTENT_GROUP_PROTOCOL,
    Error.MEMBER_ID_REQUIRED,  # the first half of joining
    "a group changes its protocol when it is empty, not while it has members (KIP-848's online "
    "migration)",
    "test_members_of_the_new_protocol_are_known_by_id_and_epoch",
)

UNKNOWN_OPERATION = Difference(
    "settings are altered by an operation that is none",
    Error.INVALID_REQUEST,
    Error.UNKNOWN_SERVER_ERROR,
    "Kafka stumbles over the number; the request is at fault",
    "test_an_operation_on_settings_that_is_none_is_refused",
)

FEATURES_FIXED = Difference(
    "a feature is to get another level that it supports",
    Error.FEATURE_UPDATE_FAILED,
    Error.NONE,
    "all nodes are of one release, and features have their highest levels",
    "test_levels_of_an_embedded_cluster_are_fixed",
)

DIFFERENCES = (CLASSIC_JOINS_CONSUMER, UNKNOWN_OPERATION, FEATURES_FIXED)
