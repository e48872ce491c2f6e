"""What a scenario expects, in quantities of its claim: `expect` lines, checked against a run.

    expect wait < 50 ms                the longest wait of a producer for an acknowledgement
    expect wait of p1-3 >= 100 ms      … for that of one record
    expect refused NOT_ENOUGH_REPLICAS a client got this error and tried again
    expect in-sync 1,2                 the leader's in-sync set was this at some time
    expect broker 3 leaves 2 times     … the in-sync set; also `joins`
    expect read p1-0 before 1200 ms    some consumer read it, by the clock of the script; or `after`
    expect unread p1-0,p1-1            no consumer ever read these
    expect reset out of range          a consumer lost its position, for this reason
    expect c1 stops                    … and left it to the application

Unlike a transcript, an expectation is never rewritten.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import NamedTuple

from lossless.errors import BadInput
from lossless.simulator.trace import Trace
from lossless.verifier.history import Acknowledged, Read, Reset, Sent


class Outcome(NamedTuple):
    holds: bool
    measured: str


class Seen(NamedTuple):
    """A run, and when its script began."""

    traced: Trace
    start_ms: int


class Expectation(NamedTuple):
    text: str
    measure: Callable[..., Outcome]
    arguments: tuple[str | None, ...]

    def check(self, seen: Seen) -> Outcome:
        return self.measure(seen, *self.arguments)


_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def parse_expectation(text: str, where: str) -> Expectation:
    for pattern, check in _FORMS.items():
        words = re.fullmatch(pattern, text, re.ASCII)
        if words:
            return Expectation(text, check, words.groups())
    raise BadInput(f"{where}: nothing can be expected by {text!r}; see docs/proving.md")


def _wait(seen: Seen, value: str | None, sign: str, limit: str) -> Outcome:
    history = seen.traced.result.history
    acknowledged = {event.value: event.time_ms for event in history.of(Acknowledged)}
    waits = [
        None if sent.value not in acknowledged else acknowledged[sent.value] - sent.time_ms
        for sent in history.of(Sent)
        if value in (None, sent.value)
    ]
    if not waits or None in waits:
        return Outcome(False, "never acknowledged")
    longest = max(wait for wait in waits if wait is not None)
    return Outcome(_COMPARE[sign](longest, int(limit)), f"{longest} ms")


def _refused(seen: Seen, error: str) -> Outcome:
    moments = seen.traced.moments
    count = sum(f"the answer is {error}" in moment.notes for moment in moments)
    return Outcome(count > 0, f"{count} times")


def _in_sync_sets(seen: Seen) -> list[tuple[int, ...]]:
    """Of the leader of the first partition, in the order of its changes."""
    sets: list[tuple[int, ...]] = []
    for moment in seen.traced.moments:
        for view in moment.replicas:
            members = tuple(sorted(view.in_sync))
            if view.role == "leader" and view.partition.partition == 0 and members:
                if not sets or sets[-1] != members:
                    sets.append(members)
                break
    return sets


def _in_sync(seen: Seen, members: str) -> Outcome:
    sets = _in_sync_sets(seen)
    wanted = tuple(sorted(int(member) for member in members.split(",")))
    measured = " then ".join(",".join(map(str, one)) for one in sets)
    return Outcome(wanted in sets, measured)


def _moves(seen: Seen, broker: str, verb: str, times: str) -> Outcome:
    if int(broker) > seen.traced.result.settings.brokers:
        return Outcome(False, "there is no such broker")
    is_in = [int(broker) in members for members in _in_sync_sets(seen)]
    change = (True, False) if verb == "leaves" else (False, True)
    count = sum(pair == change for pair in pairwise(is_in))
    return Outcome(count == int(times), f"{count} times")


def _read(seen: Seen, value: str, order: str, limit: str) -> Outcome:
    times = [event.time_ms for event in seen.traced.result.history.of(Read) if event.value == value]
    if not times:
        return Outcome(False, "never read")
    at_ms = min(times) - seen.start_ms
    is_before = at_ms < int(limit)
    return Outcome(is_before is (order == "before"), f"at {at_ms} ms")


def _unread(seen: Seen, values: str) -> Outcome:
    sent = {event.value for event in seen.traced.result.history.of(Sent)}
    never = [value for value in values.split(",") if value not in sent]
    if never:
        return Outcome(False, f"never sent: {', '.join(never)}")
    read = {event.value for event in seen.traced.result.history.of(Read)}
    found = [value for value in values.split(",") if value in read]
    return Outcome(not found, f"read: {', '.join(found) or 'none of them'}")


def _reset(seen: Seen, reason: str) -> Outcome:
    resets = [event for event in seen.traced.result.history.of(Reset) if event.reason == reason]
    measured = ", ".join(f"from {one.old_offset} to {one.new_offset}" for one in resets)
    return Outcome(bool(resets), measured or "never")


def _stops(seen: Seen, client: str) -> Outcome:
    notes = [note for moment in seen.traced.moments for note in moment.notes]
    has_stopped = any(note.startswith(f"{client} stops: ") for note in notes)
    return Outcome(has_stopped, "stops" if has_stopped else "does not stop")


_FORMS: Mapping[str, Callable[..., Outcome]] = {
    r"wait(?: of (p\d+-\d+))? (<|<=|>|>=) (\d{1,9}) ms": _wait,
    r"refused ([A-Z_]+)": _refused,
    r"in-sync (\d{1,3}(?:,\d{1,3})*)": _in_sync,
    r"broker (\d{1,3}) (leaves|joins) (\d{1,9}) times": _moves,
    r"read (p\d+-\d+) (before|after) (\d{1,9}) ms": _read,
    r"unread (p\d+-\d+(?:,p\d+-\d+)*)": _unread,
    r"reset (out of range|truncation detected|first start|assigned)": _reset,
    r"(c\d+) stops": _stops,
}
