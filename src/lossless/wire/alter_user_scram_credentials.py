"""AlterUserScramCredentials (51): gives users credentials and takes them away; served by the active
controller. What the client sends is not the password, but would do in its place: it is not kept."""

from __future__ import annotations

from collections import Counter
from typing import Any

from lossless.core.messages import AdminAnswer, Error
from lossless.core.security.messages import AlterScramCredential
from lossless.core.security.scram import ScramMechanism, credential
from lossless.wire.codec import Fields
from lossless.wire.context import Call, Controller

KEY = 51


async def serve(call: Call, controller: Controller) -> Fields:
    deletions, upsertions = call.request.deletions, call.request.upsertions
    counts = Counter(said.name for said in (*deletions, *upsertions))
    named = {said.name: said for said in (*deletions, *upsertions)}  # one answer for each user
    results = []
    for name, said in named.items():
        answer = await _alter(said, counts[name], controller)
        results.append(
            {"user": name, "error_code": answer.error, "error_message": answer.what or None}
        )
    return {"results": results}


async def _alter(said: Any, times: int, controller: Controller) -> AdminAnswer:
    if times > 1:
        return AdminAnswer(
            Error.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )
    if said.mechanism not in set(ScramMechanism):
        return AdminAnswer(Error.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    mechanism = ScramMechanism(said.mechanism)
    given = None
    if hasattr(said, "salted_password"):
        given = credential(mechanism, said.salted_password, said.salt, said.iterations)
    answer: AdminAnswer = await controller.ask(AlterScramCredential(said.name, mechanism, given))
    return answer
