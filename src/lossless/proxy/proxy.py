"""A proxy that knows Kafka's protocol: clients reach every broker through it, and no other way.

Brokers tell clients where all brokers are, so a proxy that only hands bytes on is bypassed at once.
This one opens a port for every broker that it hears of, and puts these ports into the answers.

    with Proxy(cluster.bootstrap_servers) as proxy:
        producer = Producer({"bootstrap.servers": proxy.bootstrap_servers})
        proxy.half_open("answers", broker=1)       # what arrives is stored, and nobody hears of it
        ...
        proxy.mend()

It runs in a thread with an event loop of its own. Faults may be called from any thread; each
returns once it holds, with a sentence that says what it struck. What passes afterwards is in
`counters`, and `wait_until` waits for it.

What it does not do: TLS (it has to read what passes), and SASL by raw tokens (SaslHandshake
version 0). SASL by SaslAuthenticate passes through.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Self, TypeVar

from lossless.errors import BadInput, Unavailable, Undecided
from lossless.proxy.address import Address, addresses_of
from lossless.proxy.apis import METADATA, api_key, api_name
from lossless.proxy.conditions import Drop, Rule, Target
from lossless.proxy.counters import Counters, total
from lossless.proxy.listener import Listener
from lossless.proxy.probe import brokers_at
from lossless.proxy.rewriting import rewritten
from lossless.proxy.routes import Routes

Direction = Literal["requests", "answers", "both"]

STOP_S_MAX = 10.0
_POLL_S = 0.005

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")


class Proxy:
    def __init__(
        self,
        bootstrap: str | Sequence[str | tuple[str, int]],
        listen_host: str = "127.0.0.1",
        *,
        seed: int | None = None,
    ) -> None:
        """`seed`: for the jitter of delays."""
        self._bootstrap = addresses_of(bootstrap)
        self._listen_host = listen_host
        self._chance = random.Random(seed)
        self._thread: threading.Thread | None = None
        self._started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._routes_or_none: Routes | None = None
        self._entrances: tuple[Listener, ...] = ()
        self._asked_to_stop: asyncio.Event | None = None
        self._is_to_stop = False

    # Life

    def start(self) -> Self:
        if self._thread is not None:
            raise BadInput("this proxy has been started already")
        self._thread = threading.Thread(target=self._run, name="lossless-proxy", daemon=True)
        self._thread.start()
        try:
            self._started.result()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Every connection is reset, every port closed, and the thread has ended."""
        thread = self._thread
        if thread is None or not thread.is_alive():
            return
        self._is_to_stop = True  # seen by a loop that is not there yet
        routes, asked = self._routes_or_none, self._asked_to_stop
        if routes is not None and asked is not None:
            with contextlib.suppress(RuntimeError):  # it has ended in between
                routes.loop.call_soon_threadsafe(asked.set)
        thread.join(STOP_S_MAX)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # What clients need, and what has passed

    @property
    def bootstrap_servers(self) -> str:
        self._routes()
        return ",".join(str(listener.listens_at) for listener in self._entrances)

    @property
    def brokers(self) -> Mapping[int, tuple[Address, Address]]:
        """By node id: where clients find it, and where it is."""
        routes = self._routes()
        return self._call(
            lambda: {
                node: (listener.listens_at, listener.address)
                for node, listener in sorted(routes.brokers.items())
            }
        )

    @property
    def counters(self) -> Counters:
        return self.counters_of(None)

    def counters_of(self, broker: int | None) -> Counters:
        routes = self._routes()
        return self._call(
            lambda: total(
                listener.tally
                for listener in routes.listeners
                if broker is None or listener.broker == broker
            )
        )

    @property
    def troubles(self) -> Sequence[str]:
        """What could not be followed, and was refused."""
        routes = self._routes()
        return self._call(lambda: tuple(routes.troubles))

    def wait_until(
        self,
        holds: Callable[[Counters], bool],
        *,
        broker: int | None = None,
        timeout_s: float = 10.0,
    ) -> Counters:
        """The counters, once they say so."""
        deadline = time.monotonic() + timeout_s
        while not holds(counters := self.counters_of(broker)):
            if time.monotonic() > deadline:
                raise Undecided(f"what was waited for did not pass in {timeout_s} s: {counters}")
            time.sleep(_POLL_S)
        return counters

    # Faults

    def delay(
        self,
        ms: float,
        jitter_ms: float = 0.0,
        *,
        broker: int | None = None,
        client_id: str | None = None,
    ) -> str:
        """Everything takes `ms` longer, each way, and up to `jitter_ms` more. Order is kept."""
        if ms < 0 or jitter_ms < 0:
            raise BadInput("a delay cannot be negative")
        told = f"up to {jitter_ms:g} ms more" if jitter_ms else "no more and no less"
        return self._add(
            Rule(
                f"delay of {ms:g} ms",
                Target(broker, client_id),
                {"delay_ms": float(ms), "jitter_ms": float(jitter_ms)},
            ),
            f"what passes takes {ms:g} ms longer each way, {told}",
        )

    def throttle(
        self, bytes_per_second: float, *, broker: int | None = None, client_id: str | None = None
    ) -> str:
        """Each connection carries no more than this, each way."""
        if bytes_per_second <= 0:
            raise BadInput("a throttled connection still carries something")
        return self._add(
            Rule(
                f"throttle to {bytes_per_second:g} bytes/s",
                Target(broker, client_id),
                {"bytes_per_second": bytes_per_second},
            ),
            f"no more than {bytes_per_second:g} bytes/s pass each way",
        )

    def half_open(
        self,
        direction: Direction = "requests",
        *,
        broker: int | None = None,
        client_id: str | None = None,
    ) -> str:
        """Connections stay open, and bytes vanish: those of the client (`requests`), so that
        nothing arrives, or those of the broker (`answers`), so that what arrives is done and nobody
        hears of it."""
        if direction not in ("requests", "answers", "both"):
            raise BadInput(f"a connection is half open for requests or answers, not {direction!r}")
        return self._add(
            Rule(
                f"half open for {direction}",
                Target(broker, client_id),
                {
                    "swallows_requests": direction in ("requests", "both"),
                    "swallows_answers": direction in ("answers", "both"),
                },
            ),
            f"{'requests and answers' if direction == 'both' else direction} vanish",
        )

    def cut(self, *, broker: int | None = None, client_id: str | None = None) -> str:
        """Connections are reset, and new ones refused. With a client: reset at its first request,
        because nothing else tells who it is."""
        routes = self._routes()
        target = Target(broker, client_id)

        def cut() -> str:
            before = routes.resets()
            routes.rules.add(Rule("cut", target, {"is_cut": True}))
            routes.apply()
            refused = "new ones are refused"
            if client_id is not None:
                refused = "new ones are reset at their first request"
            return f"{routes.resets() - before} connections {target} were reset; {refused}"

        return self._fire(target, cut)

    def drop_after(
        self,
        api: str | int,
        count: int = 1,
        *,
        times: int = 1,
        broker: int | None = None,
        client_id: str | None = None,
    ) -> str:
        """The `count`-th request of this API from now on is answered, but the answer is lost, and
        the connection with it; `times` times. A request without an answer (acks=0) arrives, and the
        connection is closed."""
        if count < 1 or times < 1:
            raise BadInput("requests are counted from 1")
        key = api if isinstance(api, int) else api_key(api)
        routes = self._routes()
        target = Target(broker, client_id)

        def arm() -> str:
            routes.rules.add_drop(Drop(key, target, count=count, times=times))
            which = f"request {count}" if times == 1 else f"every request {count}, {times} times,"
            return f"{which} of {api_name(key)} {target} loses its answer and its connection"

        return self._fire(target, arm)

    def mend(self, *, broker: int | None = None, client_id: str | None = None) -> str:
        """Ends the faults of this target; without one, all of them. Connections that have swallowed
        bytes are reset, because they cannot go on."""
        routes = self._routes()
        target = Target(broker, client_id)

        def mend() -> str:
            before = routes.resets()
            gone = routes.rules.remove(target)
            routes.apply()
            told = f"mended {target}: {', '.join(gone) or 'nothing'}"
            if torn := routes.resets() - before:
                told += f"; {torn} connections had lost bytes and were reset"
            if left := routes.rules.in_force(target):
                told += f"; still in force: {', '.join(left)}"
            return told

        return self._fire(target, mend)

    def _add(self, rule: Rule, effect: str) -> str:
        routes = self._routes()

        def add() -> str:
            routes.rules.add(rule)
            routes.apply()
            return f"{routes.struck(rule.target)} connections {rule.target} are struck: {effect}"

        return self._fire(rule.target, add)

    def _fire(self, target: Target, fault: Callable[[], str]) -> str:
        if self._thread is None or not self._thread.is_alive():
            raise BadInput("the proxy has been stopped: it has no connections to strike")
        known = self._call(lambda: sorted(self._routes().brokers))
        if target.broker is not None and target.broker not in known:
            raise BadInput(
                f"the proxy has not heard of broker {target.broker}",
                hint=f"It knows {', '.join(map(str, known)) or 'none yet'}.",
            )
        return self._call(fault)

    # The thread

    def _routes(self) -> Routes:
        if self._routes_or_none is None:
            raise BadInput("the proxy has not been started", hint="Use it in a with statement.")
        return self._routes_or_none

    def _call(self, work: Callable[[], _T]) -> _T:
        """Runs it between two events of the loop; once that has ended, here."""
        routes = self._routes()
        thread = self._thread
        if thread is None or not thread.is_alive() or thread is threading.current_thread():
            return work()

        async def run() -> _T:
            return work()

        coroutine = run()
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, routes.loop).result(STOP_S_MAX)
        except (RuntimeError, concurrent.futures.CancelledError):
            coroutine.close()
            thread.join(STOP_S_MAX)
            return work()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            else:
                _logger.exception("the proxy has ended")

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        routes = Routes(loop, self._listen_host, self._chance)
        self._routes_or_none = routes
        self._asked_to_stop = asyncio.Event()
        if self._is_to_stop:
            return
        try:
            opening = loop.create_task(self._open(routes))
            stopping = loop.create_task(self._asked_to_stop.wait())
            await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                opening.result()
                self._started.set_result(None)
                await stopping
        finally:
            await routes.stop()

    async def _open(self, routes: Routes) -> None:
        """A port for each address given; then for each broker of which the first one tells."""
        self._entrances = tuple(routes.open(address, None) for address in self._bootstrap)
        failures = []
        for address in self._bootstrap:
            try:
                answer = await brokers_at(address)
            except OSError as error:
                failures.append(f"{address}: {error or type(error).__name__}")
                continue
            if answer is not None:
                rewritten(METADATA, 1, answer, routes.relocate)
            return
        raise Unavailable(f"no broker can be reached ({'; '.join(failures)})")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
