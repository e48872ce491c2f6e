"""A broker's standing with the controller.

    starting     not registered yet; what its metadata says may be of another life
    fenced       registered; leads nothing until the controller trusts it
    running      active
    stopping     leaders move away (controlled shutdown)
    stopped      closed cleanly: the next start may say which broker epoch it had

One registration or heartbeat is under way at a time.
"""

from __future__ import annotations

import enum

from lossless.core.messages import (
    BrokerHeartbeat,
    BrokerHeartbeatAnswer,
    BrokerRegistration,
    BrokerRegistrationAnswer,
    Endpoint,
    Error,
)
from lossless.log.store import Store

CLEAN_SHUTDOWN = "clean-shutdown"


class Phase(enum.Enum):
    STARTING = "starting"
    FENCED = "fenced"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Standing:
    def __init__(
        self,
        broker: int,
        store: Store,
        *,
        incarnation: int,
        rack: str | None,
        endpoints: tuple[Endpoint, ...],
        heartbeat_ms: int,
        backoff_ms: int,
    ) -> None:
        self.phase = Phase.STARTING
        self.broker_epoch = -1
        self.controller: int | None = None  # whom this broker turns to
        self.heard_ms = 0  # when it answered last
        self._broker = broker
        self._store = store
        self._incarnation = incarnation
        self._rack = rack
        self._endpoints = endpoints
        self._heartbeat_ms = heartbeat_ms
        self._backoff_ms = backoff_ms
        clean = store.read(CLEAN_SHUTDOWN, 0, 20)
        self._previous_epoch = int(clean) if clean.isdigit() else -1
        store.remove(CLEAN_SHUTDOWN)
        self._is_to_stop = False  # as soon as it is registered
        self._is_asking = False
        self._ask_ms = 0

    # What to ask, and when

    @property
    def wake_ms(self) -> int | None:
        return None if self._is_asking else self._ask_ms

    def turn_to(self, controller: int, now_ms: int) -> bool:
        """True if another one is active: who was asked before may never answer, and need not."""
        if controller == self.controller:
            return False
        if self.controller is not None:
            self._ask_ms = now_ms
        self.controller = controller
        self._is_asking = False
        return True

    def request(
        self, metadata_offset: int, now_ms: int
    ) -> BrokerRegistration | BrokerHeartbeat | None:
        """What the controller is to be asked now, if anything."""
        if self._is_asking or now_ms < self._ask_ms:
            return None
        self._is_asking = True
        if self.phase is Phase.STARTING:
            return BrokerRegistration(
                self._broker, self._incarnation, self._rack, self._previous_epoch, self._endpoints
            )
        is_stopping = self.phase is Phase.STOPPING
        return BrokerHeartbeat(self._broker, self.broker_epoch, metadata_offset, is_stopping)

    def on_metadata(self, now_ms: int) -> None:
        """There is more of it."""
        if self.phase is Phase.FENCED:
            self._ask_ms = now_ms  # it may be let in, now that it knows more

    # What the controller says

    def on_registered(self, answer: BrokerRegistrationAnswer | None, now_ms: int) -> bool:
        """True if it is."""
        self._is_asking = False
        self._ask_ms = now_ms + self._backoff_ms
        if answer is None or answer.error is not Error.NONE:
            return False
        self.heard_ms = now_ms
        self.broker_epoch = answer.broker_epoch
        self.phase = Phase.STOPPING if self._is_to_stop else Phase.FENCED
        self._ask_ms = now_ms
        return True

    def on_heartbeat_answer(
        self,
        request: BrokerHeartbeat,
        answer: BrokerHeartbeatAnswer | None,
        metadata_offset: int,
        now_ms: int,
    ) -> bool:
        """True if the broker may close, and is to say so when it has."""
        self._is_asking = False
        self._ask_ms = now_ms + self._backoff_ms
        if answer is None or answer.error is Error.NOT_CONTROLLER:
            return False
        self.heard_ms = now_ms
        if answer.error is Error.STALE_BROKER_EPOCH:
            # Somebody else has registered under this name: this process is not that broker.
            self.phase = Phase.STARTING
            return False
        if answer.should_shut_down and request.want_shut_down:
            return True
        if self.phase is not Phase.STOPPING:
            self.phase = Phase.FENCED if answer.is_fenced else Phase.RUNNING
            if self.phase is Phase.RUNNING:
                self._ask_ms = now_ms + self._heartbeat_ms
            elif request.metadata_offset < metadata_offset:
                self._ask_ms = now_ms
        return False

    # The end

    def stop(self, now_ms: int) -> None:
        """A controlled shutdown begins."""
        self._is_to_stop = True
        if self.phase in (Phase.FENCED, Phase.RUNNING):
            self.phase = Phase.STOPPING
            self._ask_ms = now_ms

    def on_closed(self) -> None:
        is_registered = self.phase is not Phase.STARTING
        epoch = self.broker_epoch if is_registered else self._previous_epoch
        self._store.replace(CLEAN_SHUTDOWN, str(epoch).encode())
        self.phase = Phase.STOPPED
