"""DescribeUserScramCredentials (50): which users have credentials, and of which kinds. What the
credentials are is never told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from lossless.core.messages import Error
from lossless.core.metadata import Image
from lossless.wire.codec import Fields
from lossless.wire.context import Call, Node

KEY = 50


async def serve(call: Call, node: Node) -> Fields:
    known = _known(node.image)
    # No users, and an empty list of them, both stand for all.
    asked = Counter(user.name for user in call.request.users or ())
    return {"results": [_told(name, asked[name], known) for name in asked or sorted(known)]}


def _known(image: Image) -> dict[str, list[Fields]]:
    known: dict[str, list[Fields]] = {}
    for (user, mechanism), credential in sorted(image.scram.items()):
        if credential is not None:
            info = {"mechanism": mechanism, "iterations": credential.iterations}
            known.setdefault(user, []).append(info)
    return known


def _told(name: str, times: int, known: Mapping[str, list[Fields]]) -> Fields:
    if times > 1:
        what = f"Cannot describe SCRAM credentials for the same user twice: {name}"
        return {"user": name, "error_code": Error.DUPLICATE_RESOURCE, "error_message": what}
    if name not in known:
        what = f"{name} has no SCRAM credentials"
        return {"user": name, "error_code": Error.RESOURCE_NOT_FOUND, "error_message": what}
    return {"user": name, "error_code": Error.NONE, "credential_infos": known[name]}
