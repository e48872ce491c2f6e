"""UpdateFeatures (57), served by the active controller.

The nodes of an embedded cluster are of one release, and each feature has the highest level. A
request for the levels that there are succeeds; requests that Kafka refuses are refused as by Kafka;
a change that Kafka could make fails.
"""

from __future__ import annotations

import enum

from lossless.core.messages import Error
from lossless.wire.api_versions import FINALIZED, SUPPORTED
from lossless.wire.codec import Fields
from lossless.wire.context import Call, Controller

KEY = 57


class _Kind(enum.IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


async def serve(call: Call, _controller: Controller) -> Fields:
    results = []
    for asked in call.request.feature_updates:
        kind = getattr(asked, "upgrade_type", None)
        if kind is None:
            kind = _Kind.SAFE_DOWNGRADE if asked.allow_downgrade else _Kind.UPGRADE
        error, message = _refusal(asked.feature, asked.max_version_level, kind)
        results.append({"feature": asked.feature, "error_code": error, "error_message": message})
    if call.version < 2:
        return {"results": results}
    for result in results:
        if result["error_code"] is not Error.NONE:
            message = (
                "The update failed for all features since the following feature had an error: "
                f"{result['error_message']}"
            )
            return {"error_code": result["error_code"], "error_message": message}
    return {}


def _refusal(feature: str, level: int, kind: int) -> tuple[Error, str | None]:
    lowest, highest = SUPPORTED.get(feature, (1, 0))
    current = FINALIZED.get(feature, 0)
    invalid = f"Invalid update version {level} for feature {feature}. "
    if not lowest <= level <= highest:
        what = f"supports versions {lowest}-{highest}" if highest else "does not support it"
        return Error.INVALID_UPDATE_VERSION, f"{invalid}The controller {what}."
    if kind not in set(_Kind):
        return Error.INVALID_UPDATE_VERSION, f"{invalid}There is no upgrade type {kind}."
    if level == current:
        return Error.NONE, None
    if (level > current) is not (kind == _Kind.UPGRADE):
        what = "upgrade" if level > current else "downgrade"
        return Error.INVALID_UPDATE_VERSION, f"{invalid}The upgrade type does not say {what}."
    return Error.FEATURE_UPDATE_FAILED, (
        f"The nodes of an embedded cluster are of one release: {feature} has level {current}."
    )
