"""Partitions that come and go: eager, cooperative-sticky and by the group protocol of KIP-848.

    assigned   where to begin is decided (positions.py), state is loaded (on_assigned), then read
    revoked    nothing more is handed out, the record in hand may finish, what is finished is
               committed, state is dropped (on_revoked), then the partition is let go (claim C6)
    lost       another member has it already: nothing is waited for, nothing is committed (C13)

Called by librdkafka inside consume() and close(), in the poll thread. Whatever is raised here ends
the consumer; it must not get out into librdkafka. Letting go (unassign) is done by confluent-kafka
after the callback, in the way that the protocol of the group asks for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from lossless.client.consuming.committing import Committer
from lossless.client.consuming.interfaces import (
    Hook,
    Place,
    Work,
    has_epoch,
    place_of,
    shown,
)
from lossless.client.consuming.positions import Leaving, Positions, Start
from lossless.client.consuming.settings import ConsumerOptions
from lossless.client.consuming.waiting_keys import WaitingKeys
from lossless.client.errors import ClientFailed
from lossless.client.metrics import ConsumerMetrics
from lossless.client.stores.interface import Store
from lossless.errors import BadInput

logger = logging.getLogger(__name__)

SEEK_S = 20.0  # for the brokers to say where the log begins and ends
FENCED_S_MAX = 120.0  # longer than a session: the group does not know of the one who has it


class Assignment:
    def __init__(
        self,
        consumer: Consumer,
        work: Work,
        committer: Committer,
        positions: Positions,
        options: ConsumerOptions,
        metrics: ConsumerMetrics,
        *,
        cooperative: bool,
        store: Store | None,
        waiting_keys: WaitingKeys | None,
        fail: Callable[[BaseException], None],
        closing: threading.Event,
    ) -> None:
        self._closing = closing
        self._consumer = consumer
        self._work = work
        self._committer = committer
        self._positions = positions
        self._options = options
        self._metrics = metrics
        self._cooperative = cooperative
        self._store = store
        self._waiting_keys = waiting_keys
        self._fail = fail
        self._began: dict[Place, TopicPartition] = {}  # where each one was begun
        self._paused: set[Place] = set()
        self._asked_to_pause: set[Place] = set()  # by the application, in threads of its own
        self._asking = threading.Lock()
        self._left_paused: set[Place] = set()  # librdkafka keeps that over a new assignment
        self._unchecked: dict[Place, TopicPartition] = {}
        self._fenced: dict[Place, tuple[float, BaseException]] = {}  # since when, and by what
        self._is_leaving = False
        self.partitions: list[TopicPartition] = []  # all that are assigned, as confluent has them
        self.gone_lately: set[Place] = set()
        self.waiting_for_hands_since: float | None = None  # until records in hand are finished

    # Callbacks

    def on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        del consumer
        if self._is_leaving:
            # The group did not know that yet. Whoever closes gets no answers any more: asking where
            # to begin would wait for ever.
            self._assign([])
            return
        try:
            self._committer.group_has_spoken()
            self._metrics.rebalances += bool(partitions)
            starts = self._positions.starts(partitions) if partitions else []
            for start in starts:
                self._begin(start)
            begun = [start.position for start in starts]
            if self._waiting_keys is not None:
                self._waiting_keys.begin(
                    self._consumer, [_place(each) for each in begun], self._closing
                )
            if begun:
                logger.info("assigned: %s", shown([_place(each) for each in begun]))
                _call(self._options.on_assigned, begun)
            self._assign(begun)
            self._resume(self._left_paused & _places(begun))
            self._unchecked.update({_place(p): p for p in begun if has_epoch(p)})
            self.apply_pauses()
        except Leaving:
            if self._store is not None:
                self._store.release(_places(partitions))
            self._assign([])
        except BaseException as error:
            self._fail(error)

    def _assign(self, begun: list[TopicPartition]) -> None:
        if self._cooperative:
            self._consumer.incremental_assign(begun)
        else:
            self._consumer.assign(begun)

    def _begin(self, start: Start) -> None:
        place = _place(start.position)
        self._began[place] = start.position
        self.partitions = [TopicPartition(*each) for each in self._began]
        self._work.begin(place, start.position.offset, start.finished_beyond)
        if start.committed is not None:
            self._committer.committed_before(place, start.committed)
        if start.commit_at_once:
            self._committer.add({place: start.position})
            self._committer.soon()

    def on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        del consumer
        try:
            self._give_back(_places(partitions) & set(self._began))
        except BaseException as error:
            self._fail(error)

    def on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        del consumer
        try:
            places = _places(partitions) & set(self._began)
            if not places:
                return
            logger.warning("lost: %s; nothing of it is committed", shown(places))
            self._work.hold(places)
            self._let_go(places, self._options.on_lost)
        except BaseException as error:
            self._fail(error)

    def give_back_all(self) -> None:
        """Before leaving: as if everything were revoked. Nothing is begun after that."""
        self._is_leaving = True
        self._give_back(set(self._began))

    def _give_back(self, places: set[Place]) -> None:
        if not places:
            return
        self._work.hold(places)
        if not self._wait_for_hands(places):
            logger.warning(
                "%s: a record is still in hand after %.0f s; it will be repeated",
                shown(places),
                self._options.drain_timeout_s,
            )
        self._committer.add(self._work.collect())
        self._committer.commit_now(places, self._options.drain_timeout_s)
        logger.info("revoked: %s", shown(places))
        self._let_go(places, self._options.on_revoked)

    def _wait_for_hands(self, places: set[Place]) -> bool:
        self.waiting_for_hands_since = time.monotonic()
        try:
            return self._work.wait_for_hands(places, self._options.drain_timeout_s)
        finally:
            self.waiting_for_hands_since = None

    def _let_go(self, places: set[Place], hook: Hook | None) -> None:
        """Whatever the hook does, the partitions are gone afterwards."""
        self._metrics.rebalances += 1
        try:
            _call(hook, [TopicPartition(*place) for place in sorted(places)])
        finally:
            self._work.forget(places)
            self._committer.forget(places)
            self._committer.group_has_spoken()
            if self._waiting_keys is not None:
                self._waiting_keys.forget(places)
            for place in places:
                self._began.pop(place, None)
                self._fenced.pop(place, None)
                self._unchecked.pop(place, None)
                self._metrics.lag.pop(f"{place[0]}-{place[1]}", None)
            self._left_paused |= self._paused & places
            self._paused -= places
            with self._asking:
                self._asked_to_pause -= places
            self.gone_lately |= places
            self.partitions = [TopicPartition(*place) for place in self._began]
            if self._store is not None:
                self._store.release(places)

    # Between two reads

    @property
    def all_paused(self) -> bool:
        return self._paused >= set(self._began)

    def apply_pauses(self) -> None:
        assigned = set(self._began)
        wanted = self._work.to_pause(assigned) | set(self._fenced) | set(self._unchecked)
        wanted = (wanted | self._asked_to_pause) & assigned
        if wanted == self._paused:
            return
        to_pause, to_resume = wanted - self._paused, self._paused - wanted
        if to_pause:
            self._consumer.pause([TopicPartition(*place) for place in to_pause])
        if to_resume:
            self._consumer.resume([TopicPartition(*place) for place in to_resume])
        self._paused = set(wanted)
        self._metrics.paused = len(wanted)

    def check_epochs(self) -> bool:
        """Whether all positions were compared with the leader's log. librdkafka does that when it
        seeks a position with a leader epoch, not when it is assigned one; and it can only seek when
        reading has begun. Until then the partition is paused."""
        for place, position in list(self._unchecked.items()):
            try:
                self._consumer.seek(position)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE:
                    raise
            else:
                del self._unchecked[place]
        return not self._unchecked

    def fence(self, places: set[Place], error: BaseException) -> None:
        """The store says that another member has them. So will the group, soon: until then nothing
        of them is processed. They are not claimed back, which would fence the rightful owner."""
        places = places & set(self._began)
        self._work.hold(places)
        self._work.forget(places)
        self._work.hold(places)
        self._committer.forget(places)
        self._fenced.update({place: (time.monotonic(), error) for place in places})
        self.apply_pauses()

    def check_fenced(self) -> None:
        for since, error in self._fenced.values():
            if time.monotonic() - since >= FENCED_S_MAX:
                raise error

    def recover(self, message: Message) -> None:
        """A partition that librdkafka has stopped reading, for want of a valid position."""
        place = place_of(message)
        if place not in self._began:
            return
        self._unchecked.pop(place, None)
        chosen = self._positions.recover(message, self._stood_at(place))
        # What was read before is finished first: it would come again, or never have been.
        self._work.hold({place})
        self._wait_for_hands({place})
        self._move(place, chosen)

    def seek(self, wanted: TopicPartition) -> None:
        place = _place(wanted)
        self._check_assigned({place})
        try:
            first, end = self._positions.watermarks(place, timeout_s=SEEK_S)
        except Leaving:
            raise ClientFailed(
                "the consumer was closed during seek", hint="nothing was changed"
            ) from None
        offset = {OFFSET_BEGINNING: first, OFFSET_END: end}.get(wanted.offset, wanted.offset)
        if not first <= offset <= end:
            raise BadInput(
                f"{shown([place])}: offset {offset} is not in the log, which has {first} to {end}",
                hint="choose one of these, or OFFSET_BEGINNING or OFFSET_END",
            )
        self._unchecked.pop(place, None)
        self._work.hold({place})
        self._move(place, TopicPartition(*place, offset))

    def _move(self, place: Place, chosen: TopicPartition) -> None:
        self._work.forget({place})
        self._committer.forget({place})
        self._begin(Start(position=chosen))
        self._committer.add({place: chosen})
        self._committer.soon()
        self._assign_anew(place, chosen)

    def pause(self, places: set[Place]) -> None:
        """May be called from any thread; the poll thread applies it before it reads again."""
        self._check_assigned(places)
        with self._asking:
            self._asked_to_pause |= places

    def resume(self, places: set[Place]) -> None:
        self._check_assigned(places)
        with self._asking:
            self._asked_to_pause -= places

    def _check_assigned(self, places: set[Place]) -> None:
        if missing := places - set(self._began):
            raise BadInput(
                f"{shown(missing)}: not assigned to this consumer",
                hint="consumer.assigned has those that are; they come and go",
            )

    def _stood_at(self, place: Place) -> TopicPartition:
        (position,) = self._consumer.position([TopicPartition(*place)])
        return position if position.offset >= 0 else self._began[place]

    def _assign_anew(self, place: Place, chosen: TopicPartition) -> None:
        if self._cooperative:
            self._consumer.incremental_unassign([TopicPartition(*place)])
            self._consumer.incremental_assign([chosen])
        else:
            others = [
                position if position.offset >= 0 else self._began[_place(position)]
                for position in self._consumer.position(self.partitions)
                if _place(position) != place
            ]
            self._consumer.assign([*others, chosen])
        self._resume(self._paused & {place})
        self.apply_pauses()

    def _resume(self, places: set[Place]) -> None:
        if places:
            self._consumer.resume([TopicPartition(*place) for place in places])
            self._paused -= places
            self._left_paused -= places

    def ask_for_waiting_keys(self) -> None:
        if self._waiting_keys is not None:
            self._waiting_keys.ask(self._consumer)

    def measure_lag(self) -> None:
        """From what the last fetch told; asks nobody."""
        for partition in self.partitions:
            _, end = self._consumer.get_watermark_offsets(partition, cached=True)
            committed = self._committer.committed(_place(partition))
            began = self._began[_place(partition)].offset
            done = committed if committed is not None else began
            if end >= 0 and done >= 0:
                self._metrics.lag[f"{partition.topic}-{partition.partition}"] = max(0, end - done)


def _call(hook: Hook | None, partitions: list[TopicPartition]) -> None:
    if hook is not None:
        hook(partitions)


def _place(partition: TopicPartition) -> Place:
    return partition.topic, partition.partition


def _places(partitions: Iterable[TopicPartition] | Sequence[TopicPartition]) -> set[Place]:
    return {_place(partition) for partition in partitions}
