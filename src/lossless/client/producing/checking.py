"""What an application gives by mistake is refused before anything is sent, parked or waited for."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping

from lossless.client.errors import Refused, SerializationFailed
from lossless.client.metrics import ProducerMetrics
from lossless.client.record import HeadersGiven, Record
from lossless.contract.place import nearest
from lossless.errors import BadInput

BY_KEY = -1  # a partition, as librdkafka writes "none in particular"

_PARTITION_MAX = (1 << 31) - 1
_TIMESTAMP_MS_MAX = (1 << 63) - 1
_EVENT_TIME_MS_MIN = -(1 << 63)


def check_settings(settings: object) -> None:
    """Raises BadInput unless they are a mapping."""
    if isinstance(settings, Mapping):
        return
    given = settings if isinstance(settings, str) else "localhost:9092"
    raise BadInput(
        f"a producer takes its settings as a mapping, and was given {settings!r:.60}",
        hint=f'Producer({{"bootstrap.servers": "{given}"}})',
    )


def check_metrics(metrics: object) -> None:
    """Raises BadInput unless they are a producer's, or None."""
    if metrics is not None and not isinstance(metrics, ProducerMetrics):
        raise BadInput(
            f"metrics={metrics!r:.60} cannot be used as one",
            hint="leave it out: producer.metrics has the numbers",
        )


def check_known(given: Iterable[str], known: Collection[str], topic: object) -> None:
    """Raises Refused for the first option that `send` does not have."""
    for name in given:
        if name not in known:
            close = nearest(name, known)
            raise Refused(
                f"{topic}: send has no option {name!r:.60}",
                hint=f"there are {', '.join(sorted(known))}"
                if close is None
                else f"did you mean {close}?",
                record=Record(topic=str(topic)),
            )


def check_options(
    topic: object,
    partition: object,
    timestamp_ms: object,
    event_time_ms: object,
    operation_id: object,
    on_delivery: object,
) -> None:
    """Of one record. Raises Refused."""
    if not isinstance(topic, str) or not topic:
        raise Refused(
            f"{topic!r} is no name of a topic", hint="give the topic as text that is not empty"
        )
    if "\0" in topic:
        raise Refused(
            f"{topic!r} is no name of a topic: librdkafka would cut it off at the NUL",
            hint="correct the name",
        )
    wrong = None
    if partition is not None and not _is_whole(partition, BY_KEY, _PARTITION_MAX):
        wrong = (
            f"partition = {_shown(partition)}",
            "give a whole number from 0 on, or None: by the key",
        )
    elif timestamp_ms is not None and not _is_whole(timestamp_ms, 1, _TIMESTAMP_MS_MAX):
        wrong = (
            f"timestamp_ms = {_shown(timestamp_ms)}",
            "librdkafka stores the current time instead of 0: give 1, or leave it out"
            if timestamp_ms == 0
            else "give whole milliseconds since 1970: int(moment.timestamp() * 1000)",
        )
    elif event_time_ms is not None and not _is_whole(
        event_time_ms, _EVENT_TIME_MS_MIN, _TIMESTAMP_MS_MAX
    ):
        wrong = (
            f"event_time_ms = {_shown(event_time_ms)}",
            "give whole milliseconds since 1970: int(moment.timestamp() * 1000)",
        )
    elif operation_id is not None and not _is_text(operation_id):
        wrong = f"operation_id = {operation_id!r}", "give text, or leave it out"
    elif on_delivery is not None and not callable(on_delivery):
        wrong = f"on_delivery = {on_delivery!r}", "give a function of one argument: the delivery"
    if wrong is not None:
        what, hint = wrong
        raise Refused(f"{topic}: {what} is not possible", hint=hint, record=Record(topic=topic))


def checked_headers(given: HeadersGiven, topic: str) -> list[tuple[str, bytes | None]]:
    """As Kafka stores them: names as text, values as bytes. Raises SerializationFailed."""
    checked: list[tuple[str, bytes | None]] = []
    try:
        pairs = [*(given.items() if isinstance(given, Mapping) else given)]
        if any(isinstance(pair, str | bytes) for pair in pairs):
            raise TypeError  # text of two characters is no pair
        named = [(name, value) for name, value in pairs]
    except (TypeError, ValueError):
        raise SerializationFailed(
            f"{topic}: headers of type {type(given).__name__} are not pairs of a name and a value",
            hint='give a mapping, {"name": b"value"}, or a list of pairs, [("name", b"value")]',
            record=Record(topic=topic),
        ) from None
    for name, value in named:
        if not _is_text(name):
            raise SerializationFailed(
                f"{topic}: the header name {name!r} is no text that UTF-8 has",
                hint="give names of headers as text",
                record=Record(topic=topic),
            )
        if "\0" in name:
            raise SerializationFailed(
                f"{topic}: the header name {name!r} has a NUL, at which librdkafka would cut it "
                "off",
                hint="give names of headers without it",
                record=Record(topic=topic),
            )
        checked.append((name, _header_value(name, value, topic)))
    return checked


def check_time(where: str, name: str, seconds: object) -> None:
    """Raises BadInput unless it is a time to wait: None, or a number from zero on."""
    if seconds is None:
        return
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if is_number and 0 <= seconds <= threading.TIMEOUT_MAX:  # type: ignore[operator]
        return
    raise BadInput(
        f"{where}: {name} = {seconds!r} is no time to wait",
        hint="give a number of seconds, 0 or more; None waits for as long as it may take",
    )


def _header_value(name: str, value: object, topic: str) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str) and _is_text(value):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise SerializationFailed(
        f"{topic}: the value of the header {name!r} is {value!r:.40}, of type "
        f"{type(value).__name__}",
        hint="give text, bytes or None: str(…) or json.dumps(…) makes text of other things",
        record=Record(topic=topic),
    )


def _shown(number: object) -> str:
    """Python refuses to print integers of more than some thousands of digits."""
    if isinstance(number, int) and number.bit_length() > 1000:
        return f"an integer of {number.bit_length()} bits"
    return f"{number!r:.60}"


def _is_whole(number: object, least: int, most: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and least <= number <= most


def _is_text(text: object) -> bool:
    if not isinstance(text, str):
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
