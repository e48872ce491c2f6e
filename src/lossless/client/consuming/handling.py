"""A handler that returns work instead of doing it stops the consumer.

`lambda message: handle(message, database)` with `async def handle` only makes a coroutine, and a
function with `yield` only makes a generator. Nothing has run when such a call returns, so that the
record would be committed without being processed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message

from lossless.client.consuming.interfaces import offset_of, place_of, shown
from lossless.client.errors import HandlerFailed
from lossless.errors import BadInput


def check_handler(handler: object) -> None:
    """Raises BadInput unless it can be called."""
    if not callable(handler):
        raise BadInput(
            f"run({handler!r:.60}): a handler is a function of one message",
            hint="consumer.run(handler), without calling the handler",
        )


@dataclass(frozen=True, slots=True)
class Done:
    """A handler that has done its work when it returns. Can be pickled if the handler can."""

    handler: Callable[..., Any]

    def __call__(self, message: Message, *unit: Any) -> None:
        """Raises HandlerFailed if the result is a coroutine or a generator."""
        result = self.handler(message, *unit)
        if result is None:
            return
        if inspect.iscoroutine(result):
            result.close()
        elif not inspect.isgenerator(result) and not inspect.isasyncgen(result):
            return
        raise HandlerFailed(
            f"{shown([place_of(message)])}@{offset_of(message)}: the handler returned a "
            f"{type(result).__name__}, which nothing runs: the record was not processed",
            hint="give run() the `async def` function itself, or a function that does the work "
            "before it returns",
        )
