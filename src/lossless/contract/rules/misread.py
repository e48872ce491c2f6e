"""Values that no client can read, whatever stands beside them."""

from __future__ import annotations

import dataclasses

from lossless.contract.place import nearest
from lossless.contract.rules.rule import Contradiction
from lossless.contract.rules.settings import (
    ACKS,
    BOOLEANS,
    NUMBERS,
    VALUES,
    YES_OR_NO,
    Settings,
    number_of,
)


def misread(settings: Settings) -> list[Contradiction]:
    found = []
    for first, second in settings.twice:
        reason = f"{first} and {second} are two names of one setting, with different values"
        found.append(
            Contradiction(settings=(first, second), reason=reason, fix=f"leave {first} out")
        )
    for name, value in settings.given().items():
        expected = _expected(name, value)
        if expected is not None:
            called = settings.called(name)
            reason = f"{called} = {value} is not {expected}"
            fix = f"write {_suggestion(name, value)}"
            found.append(Contradiction(settings=(called,), reason=reason, fix=fix))
    return [dataclasses.replace(each, rule="misread") for each in found]


def _expected(name: str, value: str) -> str | None:
    """What it should have been, when it is not."""
    if name == "acks":
        return None if value.lower() in ACKS else "a number of acknowledgements that exists"
    if name in NUMBERS:
        return None if number_of(value) is not None else "a number"
    if name in YES_OR_NO:
        return None if value.lower() in BOOLEANS else "true or false"
    known = VALUES.get(name)
    if known is None or value.lower() in known or value.startswith("by_duration"):
        return None
    return "a value that it takes"


def _suggestion(name: str, value: str) -> str:
    if name == "acks":
        return "acks = all, 1 or 0"
    if name in NUMBERS:
        return f"{name} = 1000, in digits only"
    if name in YES_OR_NO:
        return f"{name} = true, or false"
    known = VALUES[name]
    close = nearest(value.lower(), known)
    return f"{name} = {close}" if close else f"one of {', '.join(known)}"
