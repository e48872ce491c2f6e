"""A host for a handful of machines: messages arrive at once, and time passes when a test says so.

started    on_start
a send     on_request at its receiver; whoever is dead or cut off is answered for, with None
a reply    on_answer at whoever asked, or kept for the test that asked
a flush    the log is flushed, and on_flushed says how far
wake_ms    on_timer at that time; what a node asked for earlier does not count
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from lossless.core.broker import Broker, BrokerConfig
from lossless.core.controller_node import ControllerConfig, ControllerNode
from lossless.core.machine import Effects
from lossless.core.messages import TopicPartition
from lossless.core.quorum import METADATA
from lossless.core.replica import Replica
from lossless.log.memory import MemoryStore
from lossless.log.rules import RULES, Rules

Node = Broker | ControllerNode


class Host:
    def __init__(
        self,
        *,
        controllers: tuple[int, ...] = (100,),
        brokers: tuple[int, ...] = (),
        broker_config: BrokerConfig | None = None,
        controller_config: ControllerConfig | None = None,
        rules: Rules = RULES,
    ) -> None:
        self.voters, self.rules = controllers, rules
        self.broker_config, self.controller_config = broker_config, controller_config
        self.now_ms = 0
        self.nodes: dict[int, Node] = {}
        self.answers: dict[int, Any] = {}  # to what a test asked, by token
        self.cut_off: set[int] = set()
        self.unheard: set[type] = set()  # requests of these kinds arrive, and the answers do not
        self.instead: dict[type, Callable[[Any], Any]] = {}  # and these the test answers itself
        self.delivers_flushes = True
        self.stores: dict[tuple[int, str], MemoryStore] = {}
        self._starts = 0
        self.wake_ms: dict[int, int | None] = {}
        self._asked: dict[int, tuple[int, int, Any]] = {}  # from whom, whom and what, by token
        self.sent: list[Any] = []  # every request of a node to another
        self._awaited: set[int] = set()  # tokens of what a test asked
        self._answered: set[int] = set()
        self._tokens = 0
        self._to_do: deque[Callable[[], None]] = deque()
        for node in (*controllers, *brokers):
            self.start(node)

    # Processes

    def store(self, node: int, name: str) -> MemoryStore:
        return self.stores.setdefault((node, name), MemoryStore())

    def start(self, node: int, *, rack: str | None = None) -> None:
        self._starts += 1
        common: dict[str, Any] = {
            "voters": self.voters,
            "stores": partial(self.store, node),
            "draw": lambda bound: node % bound,
            "rules": self.rules,
        }
        if node in self.voters:
            self.nodes[node] = ControllerNode(node, config=self.controller_config, **common)
        else:
            self.nodes[node] = Broker(
                node,
                stored=lambda: [name for owner, name in self.stores if owner == node],
                incarnation=self._starts,
                rack=rack,
                config=self.broker_config,
                **common,
            )
        self._do(node, self.nodes[node].on_start(self.now_ms))
        self._until_quiet()

    def kill(self, *nodes: int) -> None:
        """The processes are gone; whoever waits for their answers learns that none will come."""
        for node in nodes:
            del self.nodes[node], self.wake_ms[node]
        for token, (source, to, _) in list(self._asked.items()):
            if source in nodes:
                del self._asked[token]
            elif to in nodes:
                self._answer(token, None)
        self._until_quiet()

    def lose_power(self, *nodes: int) -> None:
        self.kill(*nodes)
        for (node, _), store in self.stores.items():
            if node in nodes:
                store.lose_power(lambda _: 0)

    # Time

    def wait(self, ms: int) -> None:
        """Passes time, and calls each node when it wants to be called."""
        until_ms = self.now_ms + ms
        while True:
            wakes = [(at, node) for node, at in self.wake_ms.items() if at is not None]
            at, node = min(wakes, default=(until_ms + 1, 0))
            if at > until_ms:
                break
            self.now_ms = max(at, self.now_ms)
            self._do(node, self.nodes[node].on_timer(self.now_ms))
            self._until_quiet()
        self.now_ms = until_ms

    # Messages

    def ask(self, node: int, request: Any) -> Any:
        """The answer, or the token under which `answers` will have it."""
        self._tokens += 1
        token = self._tokens
        self._awaited.add(token)
        self._do(node, self.nodes[node].on_request(-1, token, request, self.now_ms))
        self._until_quiet()
        return self.answers.pop(token, token)

    def do(self, node: int, event: Callable[[Any, int], Effects]) -> None:
        """Something that the test does to a node."""
        self._do(node, event(self.nodes[node], self.now_ms))
        self._until_quiet()

    def _do(self, node: int, effects: Effects) -> None:
        self.wake_ms[node] = effects.wake_ms
        for to, request in effects.send:
            self._tokens += 1
            self._asked[self._tokens] = (node, to, request)
            self.sent.append(request)
            self._to_do.append(partial(self._deliver, self._tokens))
        for token, answer in effects.reply:
            if token in self._asked:
                is_lost = type(self._asked[token][2]) in self.unheard
                self._answer(token, None if is_lost else answer)
            elif token in self._awaited:
                assert token not in self._answered, "answered twice"
                self._answered.add(token)
                self.answers[token] = answer
        for log in effects.flush:
            assert log == METADATA
            if self.delivers_flushes:
                self._to_do.append(partial(self._flush, self.nodes[node]))

    def _deliver(self, token: int) -> None:
        if token not in self._asked:
            return
        source, to, request = self._asked[token]
        if to not in self.nodes or not self.cut_off.isdisjoint((source, to)):
            self._answer(token, None)
        elif type(request) in self.instead:
            self._answer(token, self.instead[type(request)](request))
        else:
            self._do(to, self.nodes[to].on_request(source, token, request, self.now_ms))

    def _answer(self, token: int, answer: Any) -> None:
        source, to, request = self._asked.pop(token)
        if not self.cut_off.isdisjoint((source, to)):
            answer = None

        def heard() -> None:
            if source in self.nodes:
                node = self.nodes[source]
                self._do(source, node.on_answer(to, request, answer, self.now_ms))

        self._to_do.append(heard)

    def _flush(self, machine: Node) -> None:
        node = next((node for node, one in self.nodes.items() if one is machine), None)
        if node is not None:
            machine.metadata_log.flush()
            offset = machine.metadata_log.recovery_point
            self._do(node, machine.on_flushed(METADATA, offset, self.now_ms))

    def _until_quiet(self) -> None:
        for _ in range(10_000):
            if not self._to_do:
                return
            self._to_do.popleft()()
        raise AssertionError("the nodes never come to rest")

    # Looking

    def controller(self, node: int = 100) -> ControllerNode:
        found = self.nodes[node]
        assert isinstance(found, ControllerNode)
        return found

    def broker(self, node: int) -> Broker:
        found = self.nodes[node]
        assert isinstance(found, Broker)
        return found

    def replica(self, node: int, partition: TopicPartition) -> Replica:
        return self.broker(node).replicas[partition]
