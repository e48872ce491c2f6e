"""Names of settings that neither Kafka's clients nor librdkafka have: refused with the nearest."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

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


def _suggestion(name: str, known: Collection[str]) -> str | None:
    close = nearest(name, known)
    return None if close is None else f"did you mean {close}?"
