"""UpdateFeatures: what is asked of levels that a cluster has, and of those that it cannot have."""

from __future__ import annotations

from typing import Any

import pytest
from subject import Subject

from lossless.core.error_codes import Error
from lossless.wire.api_versions import FINALIZED
from lossless.wire.differences import FEATURES_FIXED
from one_request import ask, error_of

UPDATE_FEATURES = 57
UPGRADE, SAFE_DOWNGRADE = 1, 2


def update(
    kafka: Subject, feature: str, level: int, kind: int = UPGRADE, version: int = 1
) -> tuple[Error, Error | None]:
    """The answer's error, and that of the feature where the version has one."""
    asked: dict[str, Any] = {"feature": feature, "max_version_level": level}
    asked |= {"upgrade_type": kind} if version else {"allow_downgrade": kind != UPGRADE}
    more = {"validate_only": True} if version else {}
    updates = {"feature_updates": [asked], "timeout": 10_000}
    answer = ask(kafka.addresses()[0], UPDATE_FEATURES, version, **updates, **more)
    results = getattr(answer, "results", ())
    return error_of(answer), error_of(results[0]) if results else None


@pytest.mark.parametrize("feature", sorted(FINALIZED))
def test_the_levels_that_there_are_can_be_asked_for(kafka: Subject, feature: str) -> None:
    error, _ = update(kafka, feature, FINALIZED[feature], version=2)
    assert error is Error.NONE


WRONG = {
    "a feature that nobody knows": ("nobody.knows", 1, UPGRADE),
    "a level that is too high": ("group.version", 9, UPGRADE),
    "a level below none": ("group.version", -1, SAFE_DOWNGRADE),
    "an upgrade to a lower level": ("group.version", 0, UPGRADE),
    "an upgrade type that there is not": ("group.version", 1, 7),
}


@pytest.mark.parametrize(("feature", "level", "kind"), WRONG.values(), ids=WRONG)
def test_a_level_that_cannot_be_is_refused(
    kafka: Subject, feature: str, level: int, kind: int
) -> None:
    error, _ = update(kafka, feature, level, kind, version=2)
    assert error is Error.INVALID_UPDATE_VERSION


def test_older_versions_are_answered_too(kafka: Subject) -> None:
    for version in (0, 1):
        error, _ = update(kafka, "group.version", FINALIZED["group.version"], version=version)
        assert error is Error.NONE


def test_levels_of_an_embedded_cluster_are_fixed(kafka: Subject) -> None:
    """Without doing it (validate_only)."""
    error, _ = update(kafka, "group.version", 0, SAFE_DOWNGRADE, version=2)
    assert error is FEATURES_FIXED.expected(kafka.engine)
