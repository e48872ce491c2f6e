"""Handlers that other processes can import."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

from confluent_kafka import Message
from confluent_kafka.serialization import SerializationContext


class Noting:
    """Writes down where each record was handled."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, message: Message) -> None:
        value, key, headers = message.value(), message.key(), message.headers()
        assert value is not None
        assert headers == [("n", value)]
        assert message.timestamp()[1] > 0
        shown = (key or b"").decode()
        with Path(self.folder, value.decode()).open("a") as file:
            file.write(f"{os.getpid()} {message.topic()} {message.partition()} {shown}\n")


class Dying(Noting):
    """Kills its own process at one record, every time, when others are being handled beside it."""

    def __call__(self, message: Message) -> None:
        if message.value() == b"7":
            os.kill(os.getpid(), signal.SIGKILL)
        super().__call__(message)


class DyingOnce(Noting):
    """Kills its own process at one record, the first time."""

    def __call__(self, message: Message) -> None:
        died = Path(self.folder, "died")
        if message.value() == b"7" and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        super().__call__(message)


def amount_of(data: bytes | None, _context: SerializationContext) -> int:
    amount: int = json.loads(data or b"")["amount"]
    return amount


class Amounts:
    """Writes a file for each amount, which the deserialiser has made."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, message: Message) -> None:
        amount = message.value()
        assert isinstance(amount, int)
        Path(self.folder, str(amount)).touch()


class HasTwoArguments(Exception):
    """It pickles, and does not unpickle."""

    def __init__(self, left: int, right: int) -> None:
        super().__init__(f"{left} and {right} differ")


class HoldsALock(Exception):
    """It does not pickle."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class RaisingWhatIsNotPickled(Noting):
    def __call__(self, message: Message) -> None:
        super().__call__(message)
        if message.value() == b"3":
            raise HasTwoArguments(3, 4)
        if message.value() == b"7":
            raise HoldsALock("it is held")
