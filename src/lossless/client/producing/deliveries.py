"""The accounts of a producer: what is outstanding, since when, and what failed unnoticed.

Every record has a number that grows with sending. Outstanding ones are in a dictionary by number,
which keeps their order, so the oldest is the first. When it was sent is not written down for every
record, which would cost more than it is worth: a *mark* is taken now and then, a moment and the
number that sending had reached, and a record was sent before the first mark above its own number.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from lossless.client.errors import ClientError, Kind, NotDelivered
from lossless.client.producing.delivery import Delivery

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

MARKS_MAX = 1_000
NAMED_MAX = 3  # records that an error names
UNNOTICED_MAX = 10_000  # beyond, failures are only counted

OnFailure = Callable[["Delivery", "KafkaError", "Message"], None]


class Deliveries:
    """Sending threads add, and take away what they hear of while they send, as the serving thread
    does. Each step is one that the interpreter makes as a whole, so there is no lock. What comes of
    a failure, and the application's callbacks, are left to the serving thread."""

    def __init__(
        self,
        on_failure: OnFailure,
        check_may_wait: Callable[[str], None],
        count: Callable[[], None],
    ) -> None:
        """check_may_wait: raises where waiting for a delivery would never end. count: counts what
        is acknowledged and empties the list of it, in any thread."""
        self.count = count
        self.check_may_wait = check_may_wait
        self.numbers = itertools.count(1)
        self.outstanding: dict[int, Delivery] = {}
        self.acknowledged: list[Message] = []  # since they were last counted
        self.watched: dict[int, Delivery] = {}  # parked, and somebody is to be called
        self.failures: deque[tuple[Delivery, KafkaError, Message]] = deque()
        self._to_call: deque[Delivery] = deque()
        self._on_failure = on_failure
        self.marks_taken = 0
        self.unsent = 0  # numbers that no record got
        self._marks: deque[tuple[int, float]] = deque()
        self._unnoticed: list[Delivery] = []
        self._unnoticed_beyond = 0
        self._guard = threading.Lock()

    def new(self, number: int) -> Delivery:
        delivery = Delivery()
        delivery.number = number
        delivery.deliveries = self
        delivery.outcome = None
        return delivery

    def settled(self, delivery: Delivery) -> None:
        """Acknowledged, and somebody wants to know."""
        if delivery.call(wakers_only=True):
            self._to_call.append(delivery)

    def serve(self) -> bool:
        """In the serving thread: fails what failed, calls who is to be called."""
        served = bool(self.failures or self._to_call)
        while self.failures:
            self._on_failure(*self.failures.popleft())
        while self._to_call:
            self._to_call.popleft().call()
        return served

    @property
    def is_served(self) -> bool:
        return not self.failures and not self._to_call

    @property
    def undecided(self) -> int:
        """How many records librdkafka has not answered for, or whose failure is not decided yet,
        and how many callbacks are due."""
        return len(self.outstanding) + len(self.failures) + len(self._to_call)

    def fail_undecided(self) -> None:
        """The serving thread decides nothing any more."""
        undecided = [*self.outstanding.values()]
        self.outstanding.clear()
        while self.failures:
            undecided.append(self.failures.popleft()[0])
        for delivery in undecided:
            what = "the producer ended before the record was acknowledged"
            self.failed(delivery, NotDelivered(what))

    def fail_lost_reports(self) -> None:
        """When librdkafka has nothing left and nothing more to say: what an interrupt took away
        between its answer and our hearing it. Nobody knows whether these are stored."""
        for number, delivery in list(self.outstanding.items()):
            if self.outstanding.pop(number, None) is not None and not delivery.done:
                error = NotDelivered(
                    f"an interrupt came while the answer for record {number} was being read",
                    hint="it may be written or not",
                )
                self.failed(delivery, error)

    # Since when

    def mark(self, now: float) -> int:
        """Takes a mark; gives the number that sending has reached."""
        number = next(self.numbers)
        self.marks_taken += 1
        self._marks.append((number, now))
        oldest = self.oldest()
        while self._marks and (oldest is None or self._marks[0][0] < oldest):
            self._marks.popleft()
        if len(self._marks) > MARKS_MAX:  # every second one: half as exact, twice as long
            self._marks = deque(itertools.islice(self._marks, 0, None, 2))
        return number

    def oldest(self) -> int | None:
        """The number of the record that has been outstanding for longest."""
        while True:
            try:
                return next(iter(self.outstanding), None)
            except RuntimeError:  # a thread sent something in between
                continue

    def waited_s(self, now: float) -> float:
        """For how long, at least, the oldest outstanding record has waited."""
        oldest = self.oldest()
        if oldest is None:
            return 0.0
        for number, moment in self._marks:
            if number > oldest:
                return now - moment
        return 0.0

    # What failed

    def failed(self, delivery: Delivery, error: ClientError, *, handled: bool = False) -> None:
        delivery.fail(error, handled=handled)
        if delivery.is_looked_at:
            return
        with self._guard:
            # Not for each one: going through all of them takes longer than noting one.
            if len(self._unnoticed) >= UNNOTICED_MAX and not self._unnoticed_beyond % UNNOTICED_MAX:
                self._unnoticed = [kept for kept in self._unnoticed if not kept.is_looked_at]
            if len(self._unnoticed) < UNNOTICED_MAX:
                self._unnoticed.append(delivery)
            else:
                self._unnoticed_beyond += 1

    def raise_unnoticed(self) -> None:
        """Raises what failed and what nobody looked at; it counts as looked at from then on."""
        with self._guard:
            failed = [delivery for delivery in self._unnoticed if not delivery.is_looked_at]
            count = len(failed) + self._unnoticed_beyond
            self._unnoticed, self._unnoticed_beyond = [], 0
        if not count:
            return
        errors = [delivery.error for delivery in failed]  # looked at now
        raise not_delivered(count, [error for error in errors if error is not None])


def not_delivered(count: int, errors: list[ClientError]) -> ClientError:
    """One error for several: how many, the first few by name, and the first as its cause."""
    first = errors[0]
    if count == 1:
        return first
    named = errors[:NAMED_MAX]
    more = f"; and {count - NAMED_MAX} more" if count > NAMED_MAX else ""
    reasons = {error.what.removeprefix(f"{error.record}: ") for error in named}
    if len(reasons) == 1 and all(error.record for error in named):
        listed = f"{'; '.join(str(error.record) for error in named)}{more}: {reasons.pop()}"
    else:
        listed = f"{'; '.join(error.what for error in named)}{more}"
    same = all(type(error) is type(first) for error in errors)
    kind = type(first) if same or first.kind is Kind.FATAL else NotDelivered
    failed = kind(
        f"{count} records were not delivered: {listed}",
        hint=first.hint,
        code=first.code,
        record=first.record,
    )
    failed.__cause__ = first
    return failed
