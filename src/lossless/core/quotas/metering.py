"""How far clients have used their limits, and how long they have to wait before they go on.

    rates      bytes, or time, of the last seconds against the limit. Kafka's measure: samples of a
               second each, ten whole ones and the current one. A client that has used too much
               waits until the rate would be within the limit again (KIP-13, KIP-219)
    tokens     of mutations: a bucket that fills at the rate of the limit, and holds as much as
               eleven seconds bring. A mutation is accepted while anything is left (KIP-599)

Rules learnt
- A fetch that would use too much is not recorded, because its records are not sent. If the client
  has used nothing in the window it is sent all the same: a batch that is larger than the limit of
  a window could never be read otherwise.
- Requests wait for no more than one sample, because their time is measured afterwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from lossless.core.quotas.limits import Limit

SAMPLES, SAMPLE_MS = 11, 1_000  # quota.window.num, quota.window.size.seconds
WAIT_MS_MAX = (1 << 31) - 1  # as much as a throttle time holds
CLIENTS_MAX = 1_000  # then those that have used nothing for a while are forgotten


class Observed(NamedTuple):
    rate: float  # a second
    window_ms: int


class Rate:
    def __init__(self) -> None:
        self._samples: deque[tuple[int, float]] = deque()  # where each begins, and its sum
        self.used_ms = 0

    def record(self, amount: float, now_ms: int) -> None:
        self.used_ms = now_ms
        if self._samples and now_ms - self._samples[-1][0] < SAMPLE_MS:
            start_ms, total = self._samples.pop()
            self._samples.append((start_ms, total + amount))
        else:
            self._samples.append((now_ms, amount))

    def observed(self, now_ms: int) -> Observed:
        samples = self._samples
        while samples and now_ms - samples[0][0] >= SAMPLES * SAMPLE_MS:
            samples.popleft()
        elapsed_ms = now_ms - samples[0][0] if samples else 0
        whole = elapsed_ms // SAMPLE_MS
        window_ms = elapsed_ms + max(SAMPLES - 1 - whole, 0) * SAMPLE_MS
        return Observed(sum(total for _, total in samples) * 1000 / window_ms, window_ms)

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """How long nothing may be used until the rate is within the limit."""
        rate, window_ms = self.observed(now_ms)
        return _bounded_ms((rate - limit) / limit * window_ms) if rate > limit else 0


class Tokens:
    def __init__(self) -> None:
        self._tokens: float | None = None  # None: it is full
        self.used_ms = 0

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """How long until anything is left."""
        tokens = self._left(limit, now_ms)
        return _bounded_ms(-tokens / limit * 1000) if tokens < 0 else 0

    def take(self, amount: float, limit: float, now_ms: int) -> None:
        self._tokens = self._left(limit, now_ms) - amount
        self.used_ms = now_ms

    def _left(self, limit: float, now_ms: int) -> float:
        most = limit * SAMPLES * SAMPLE_MS / 1000
        if self._tokens is None:
            return most
        return min(most, self._tokens + limit * (now_ms - self.used_ms) / 1000)


def _bounded_ms(wait_ms: float) -> int:
    """Limits may be as small as a number can be, and then a wait is infinite."""
    return round(min(wait_ms, WAIT_MS_MAX))


Meter = TypeVar("Meter", Rate, Tokens)


class Meters(Generic[Meter]):
    """One for each limit and the clients that share it."""

    def __init__(self, make: Callable[[], Meter]) -> None:
        self._make: Callable[[], Meter] = make
        self._meters: dict[tuple[str, str, str], Meter] = {}

    def of(self, key: str, limit: Limit, now_ms: int) -> Meter:
        name = (key, limit.user, limit.client_id)
        found = self._meters.get(name)
        if found is None:
            if len(self._meters) >= CLIENTS_MAX:
                self._forget(now_ms - SAMPLES * SAMPLE_MS)
            found = self._meters[name] = self._make()
            found.used_ms = now_ms
        return found

    def _forget(self, before_ms: int) -> None:
        for name, meter in list(self._meters.items()):
            if meter.used_ms <= before_ms:
                del self._meters[name]


class Use:
    """What clients of one broker use."""

    def __init__(self) -> None:
        self._rates = Meters(Rate)

    def produced(self, key: str, limit: Limit, amount: float, now_ms: int) -> int:
        """Records what was used; how long the client has to wait."""
        rate = self._rates.of(key, limit, now_ms)
        rate.record(amount, now_ms)
        return rate.wait_ms(limit.value, now_ms)

    def worked(self, key: str, limit: Limit, percent: float, now_ms: int) -> int:
        """The same of a request's time, in seconds times 100."""
        return min(self.produced(key, limit, percent, now_ms), SAMPLE_MS)

    def connected(self, key: str, limit: Limit, now_ms: int) -> int:
        """The same of a connection, which is not taken if its client has to wait."""
        rate = self._rates.of(key, limit, now_ms)
        rate.record(1, now_ms)
        wait_ms = rate.wait_ms(limit.value, now_ms)
        if wait_ms > 0:
            rate.record(-1, now_ms)
        return min(wait_ms, SAMPLE_MS)

    def fetched(self, key: str, limit: Limit, size: int, now_ms: int) -> int:
        """The same of an answer, which is not sent if the client has to wait."""
        rate = self._rates.of(key, limit, now_ms)
        has_used = rate.observed(now_ms).rate > 0
        rate.record(size, now_ms)
        wait_ms = rate.wait_ms(limit.value, now_ms) if has_used else 0
        if wait_ms > 0:
            rate.record(-size, now_ms)
        return wait_ms


def fetch_bytes_max(limit: Limit) -> int:
    """How much an answer may hold: more would have to wait, whatever was used before."""
    return max(int(limit.value * (SAMPLES - 1) * SAMPLE_MS / 1000), 1)
