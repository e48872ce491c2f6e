"""What an application gives a consumer by mistake is refused at once, with its name."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

from lossless.client.metrics import ConsumerMetrics
from lossless.client.unknown_settings import check_names, check_text
from lossless.contract.rules import known
from lossless.errors import BadInput


def check_arguments(
    topics: object,
    settings: object,
    *,
    retry: object,
    store: object,
    producer: object,
    metrics: object,
) -> None:
    """Raises BadInput for what is not of the kind that a consumer takes."""
    _check_settings(settings)
    _check_topics(topics)
    _check_has("retry", retry, ("decide", "retry_topics"), "for instance retry=RetryTopics()")
    _check_has("store", store, ("claim", "begin"), "for instance store=SqliteStore(path)")
    _check_has("producer", producer, ("send",), "give a lossless.Producer, or leave it out")
    if metrics is not None and not isinstance(metrics, ConsumerMetrics):
        raise BadInput(
            f"metrics={metrics!r:.60} cannot be used as one",
            hint="leave it out: consumer.metrics has the numbers",
        )
    if getattr(producer, "parks", False):
        raise BadInput(
            "a producer that parks: a record that failed is finished when its copy is "
            "acknowledged, and a copy on disk is not, for as long as the brokers are "
            "unreachable",
            hint="leave `producer` out, or give one without Park: the record is tried again",
        )


def _check_settings(settings: object) -> None:
    """Raises BadInput unless they are a mapping that names a cluster."""
    if not isinstance(settings, Mapping):
        given = settings if isinstance(settings, str) and settings else "localhost:9092"
        raise BadInput(
            f"a consumer takes its settings as a mapping, and was given {settings!r:.60}",
            hint=f'Consumer("orders", {{"bootstrap.servers": "{given}"}}, group="billing")',
        )
    if not (settings.get("bootstrap.servers") or settings.get("metadata.broker.list")):
        check_names(settings, known.of_consumers("lossless"))  # perhaps a typing error in this one
        raise BadInput(
            "a consumer needs bootstrap.servers",
            hint='for instance {"bootstrap.servers": "localhost:9092"}',
        )


def _check_topics(topics: object) -> None:
    """Raises BadInput unless it is the name of a topic, or several."""
    if isinstance(topics, str):
        check_text("topics", topics)
        return
    if (
        not isinstance(topics, Collection)
        or isinstance(topics, bytes)
        or not all(isinstance(topic, str) for topic in topics)
    ):
        raise BadInput(
            f"{topics!r:.60}: not the name of a topic, or a list of names",
            hint='Consumer("orders", …) or Consumer(["orders", "returns"], …)',
        )
    for topic in topics:
        check_text("topics", topic)
    names = list(topics)
    if twice := [topic for topic in dict.fromkeys(names) if names.count(topic) > 1]:
        raise BadInput(f"topics: {twice[0]!r} is named twice", hint="name each topic once")


def check_numbers(**numbers: object) -> None:
    """Raises BadInput unless each is an integer."""
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int):
            raise BadInput(f"{name}={number!r:.60}: not an integer")


def check_times(**times: object) -> None:
    """Raises BadInput unless each is a number of seconds that a thread can wait."""
    for name, seconds in times.items():
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not 0 <= seconds <= threading.TIMEOUT_MAX:  # type: ignore[operator]
            raise BadInput(
                f"{name}={seconds!r:.60}: not a time to wait", hint="give seconds, 0 or more"
            )


def check_functions(**functions: object) -> None:
    """Raises BadInput unless each is None or can be called."""
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise BadInput(f"{name}={function!r:.60}: not a function")


def _check_has(name: str, given: object, methods: tuple[str, ...], hint: str) -> None:
    """Raises BadInput unless it is None or an object, not a class, with these methods."""
    if given is None:
        return
    if not isinstance(given, type) and all(
        callable(getattr(given, each, None)) for each in methods
    ):
        return
    raise BadInput(f"{name}={given!r:.60} cannot be used as one", hint=hint)
