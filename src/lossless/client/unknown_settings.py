"""Settings that librdkafka would not take, or would take for something else than what was given.

Names that neither Kafka's clients nor librdkafka have are refused with the nearest one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from confluent_kafka import KafkaException

from lossless.contract.place import nearest
from lossless.contract.redaction import redact_text
from lossless.errors import BadInput

_NO_SUCH = re.compile(r'No such configuration property: "([^"]+)"')


def refused_settings(error: Exception, known: Collection[str]) -> BadInput:
    """What librdkafka said when it was given settings that it does not take.

    known: the names that were possible.
    """
    said = error.args[0].str() if isinstance(error, KafkaException) else str(error)
    unknown = _NO_SUCH.search(said)
    return BadInput(
        f"librdkafka takes no such settings: {redact_text(said).strip()}",
        hint=None if unknown is None else _suggestion(unknown[1], known),
    )


def check_names(names: Iterable[str], known: Collection[str]) -> None:
    """Raises BadInput for the first name that is not known."""
    for name in names:
        if name not in known:
            raise BadInput(
                f"{name} is not a setting of Kafka or librdkafka", hint=_suggestion(name, known)
            )


def check_values(settings: Mapping[str, object]) -> None:
    """Raises BadInput for what would be passed on as Python writes it, or be cut off.

    Values are not shown: they may be secrets.
    """
    for name, value in settings.items():
        if isinstance(value, bytes | bytearray | Iterable) and not isinstance(value, str):
            raise BadInput(
                f"{name} is given as a {type(value).__name__}",
                hint='give text, with commas between several: "a:9092,b:9092"',
            )
        check_text(name, value)


def check_text(name: str, value: object) -> None:
    """Raises BadInput for a NUL in either: C ends a text there."""
    if "\0" in str(name) or (isinstance(value, str) and "\0" in value):
        raise BadInput(
            f"{name!r} has a NUL in it, at which librdkafka would cut it off",
            hint="remove the character",
        )


def _suggestion(name: str, known: Collection[str]) -> str | None:
    close = nearest(name, known)
    return None if close is None else f"did you mean {close}?"
