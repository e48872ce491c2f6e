"""The one shape of a machine: an event and the time go in, effects come out.

What reaches a machine
    on_start       the process has begun
    on_request     somebody asks; the token names the question until it is answered
    on_answer      what this node asked somebody is answered; None: the connection is gone, and
                   nobody knows whether the request arrived
    on_timer       the time that was asked for has come
    on_flushed     what was written to a log up to an offset is on disk

A machine writes to its log itself, through the store that it was given, because the log gives
offsets. What only the host can know, that bytes have reached the disk, it asks for.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

Token = Any


class Send(NamedTuple):
    to: int
    request: Any


class Reply(NamedTuple):
    token: Token
    answer: Any


class Effects(NamedTuple):
    """What a host has to do after an event, in any order: what must not be sent before it is on
    disk is not sent before `on_flushed`."""

    send: tuple[Send, ...] = ()
    reply: tuple[Reply, ...] = ()
    flush: tuple[str, ...] = ()  # names of logs; each is answered by on_flushed
    wake_ms: int | None = None  # call on_timer then; what was asked for earlier does not count


NOTHING = Effects()


def merged(*effects: Effects) -> Effects:
    """Of several parts of one node. It wakes when the first of them wants to."""
    return Effects(
        tuple(send for one in effects for send in one.send),
        tuple(reply for one in effects for reply in one.reply),
        tuple(log for one in effects for log in one.flush),
        min((one.wake_ms for one in effects if one.wake_ms is not None), default=None),
    )


class Machine(Protocol):
    def on_start(self, now_ms: int) -> Effects: ...

    def on_request(self, source: int, token: Token, request: Any, now_ms: int) -> Effects: ...

    def on_answer(self, source: int, request: Any, answer: Any, now_ms: int) -> Effects: ...

    def on_timer(self, now_ms: int) -> Effects: ...

    def on_flushed(self, log: str, offset: int, now_ms: int) -> Effects: ...
