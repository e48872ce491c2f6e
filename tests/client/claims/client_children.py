"""Children that a sender forks: each sends a record with a producer of its own, and ends."""

from __future__ import annotations

import os
import traceback
import warnings
from typing import Any

from client.claims.client_journal import Journal, now_ms
from lossless.engines.waiting import wait_until
from lossless.verifier.history import Acknowledged, Failed, Sent


class Children:
    """`producer`: the parent's, which must refuse to send in a child."""

    def __init__(self, producer: Any, journal: Journal, what: dict[str, Any]) -> None:
        self._producer = producer
        self._journal = journal
        self._what = what
        self._running: set[int] = set()

    def fork(self, number: int) -> None:
        self.reap()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
            child = os.fork()
        if child:
            self._running.add(child)
            return
        try:
            self._send(number)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def reap(self) -> bool:
        """Whether none is running any more."""
        for child in list(self._running):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                self._running.discard(child)
                if status:
                    self._journal.say("child failed", os.waitstatus_to_exitcode(status))
        return not self._running

    def wait(self, timeout_s: float) -> None:
        assert wait_until(self.reap, timeout_s=timeout_s), f"children hang: {self._running}"

    def _send(self, number: int) -> None:
        """In the child."""
        from lossless.client.errors import ClientError, ClientFailed
        from lossless.client.producing.producer import Producer

        journal = Journal(self._journal.path)  # a lock of the other one may be held
        what = self._what
        try:
            self._producer.send(what["topic"], "never sent")
        except ClientFailed:
            pass
        else:
            raise AssertionError("the producer of the parent sends in the child")
        name, value = f"{what['name']}-child", f"{what['name']}-child-{number}"
        partition = number % what["partitions"]
        at = f"{what['topic']}-{partition}"
        journal.note(Sent(now_ms(), name, at, value))
        try:
            with Producer(what["settings"], audit=False) as producer:
                sent = producer.send(what["topic"], value, partition=partition, operation_id=value)
                offset = sent.result().offset
        except ClientError as error:
            journal.note(Failed(now_ms(), name, at, value, error.what, certain=False))
        else:
            journal.note(Acknowledged(now_ms(), name, at, value, offset))
