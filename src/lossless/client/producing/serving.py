"""The one thread that serves a producer: librdkafka's answers, then whatever else is due.

librdkafka's answers are also heard by threads that send, every now and then: two threads that take
turns at the interpreter would lose more time than both need. What they hear is only written down
and counted there; failures are dealt with here, and the application's callbacks run here. This
thread also keeps time (how long a record has waited, when to report), and it alone touches the
spool. Whoever waits for records to settle is woken here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from lossless.client.producing.standing import LAST_WORDS_S

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka import Producer as Client

logger = logging.getLogger("lossless.client.producer")

POLL_S = 0.1
POLL_WHEN_BUSY_S = 0.01
STAND_BACK_S = 0.02  # while threads that send hear the answers


class Serving(threading.Thread):
    def __init__(
        self,
        client: Client,
        *,
        name: str,
        tend: Callable[[float], bool],
        on_fatal: Callable[[KafkaError], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`tend` does what is due and says whether more is soon."""
        super().__init__(name=name, daemon=True)
        self._client: Client | None = client
        self._tend = tend
        self._on_fatal = on_fatal
        self._on_failure = on_failure
        self._waiting: list[tuple[Callable[[], bool], threading.Event]] = []
        self._flushing = 0
        self._ending = False
        self.heard_elsewhere = False  # written by threads that send
        self._pace = threading.Event()  # never set: a sleep that ends when we say so
        self._room = threading.Event()

    def run(self) -> None:
        try:
            self._serve()
        except BaseException as failure:
            logger.exception("the thread that serves the producer has failed")
            self._on_failure(failure)
        finally:
            self._client = None
            self._ending = True
            for _, woken in list(self._waiting):
                woken.set()

    def _serve(self) -> None:
        client = self._client
        if client is None:
            raise AssertionError("a producer is served by one thread, once")
        wait_s = POLL_WHEN_BUSY_S
        while not self._ending:
            served = 0
            try:
                if self._flushing and len(client):  # batches leave without waiting for more
                    client.flush(wait_s)  # returns at once if there is nothing to send
                elif self.heard_elsewhere:
                    self.heard_elsewhere = False
                    self._pace.wait(STAND_BACK_S)
                else:
                    served = client.poll(wait_s)
            except KafkaException as raised:  # which is how confluent-kafka tells of fatal errors
                self._on_fatal(raised.args[0])
            busy = self._tend(time.monotonic())
            if served or self._flushing or self.heard_elsewhere:
                self._room.set()
            for is_true, woken in list(self._waiting):
                if is_true():
                    woken.set()
            wait_s = POLL_WHEN_BUSY_S if busy or self._waiting else POLL_S

    @property
    def is_over(self) -> bool:
        return self._client is None

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread: a callback does."""
        return threading.get_ident() == self.ident

    def wait_until(
        self, is_true: Callable[[], bool], deadline: float | None, *, flushing: bool = True
    ) -> bool:
        """Whether it became true in time; it is asked in the serving thread."""
        woken = threading.Event()
        entry = (is_true, woken)
        self._waiting.append(entry)
        self._flushing += flushing
        try:
            if self.is_over:
                return is_true()
            woken.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
            return is_true() if self.is_over else woken.is_set()
        finally:
            self._flushing -= flushing
            self._waiting.remove(entry)

    def wait_for_room(self, timeout_s: float) -> None:
        """Until librdkafka has answered something, which leaves room for something else."""
        self._room.clear()
        self._room.wait(timeout_s)

    def end(self) -> None:
        self._ending = True
        self._pace.set()
        self.join(LAST_WORDS_S)
        if self.is_alive():
            logger.error("a callback of the application has not returned, and is left behind")
