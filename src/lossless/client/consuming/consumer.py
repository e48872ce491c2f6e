"""Consumer: records are committed when they are done, and never before.

    with Consumer("orders", {"bootstrap.servers": …}, group="billing") as consumer:
        for message in consumer:          # finished when the loop asks for the next one
            bill(message)

    with Consumer("orders", …, workers=32, order="key", retry=RetryTopics()) as consumer:
        consumer.run(enrich)              # until consumer.stop()

A loop that is left, by `break` or by an exception, has not finished the record in hand: a new loop,
and a new consumer, begins with it. To end after a record, call `stop()` in the loop instead.

One engine stands behind both: see polling.py (the thread that talks to Kafka), chunks.py (loops),
lanes.py and workers.py (handlers beside each other), units.py (handlers with a store).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Message, TopicPartition

from lossless.client.consuming.assignment import Assignment
from lossless.client.consuming.checking import (
    check_arguments,
    check_functions,
    check_numbers,
    check_times,
)
from lossless.client.consuming.chunks import Chunks, forked
from lossless.client.consuming.deserializing import Deserializer, Deserializing
from lossless.client.consuming.failures import DeadLetterHook, Failures, outage_delay_s
from lossless.client.consuming.handling import Done, check_handler
from lossless.client.consuming.interfaces import Hook, Work
from lossless.client.consuming.lanes import Lanes
from lossless.client.consuming.polling import CALL_S, Poller
from lossless.client.consuming.settings import (
    BUFFERED_BYTES_MAX,
    CHUNK_RECORDS,
    ConsumerOptions,
    NoOffset,
    Order,
    OutOfRange,
    Truncated,
    WorkerKind,
    check_options,
    checked_partitions,
    contract_settings,
    is_async,
    no_offset_of,
    read_settings,
    topics_of,
)
from lossless.client.consuming.units import Units
from lossless.client.consuming.waiting_keys import KeepsKeyOrder, WaitingKeys
from lossless.client.consuming.workers import Workers
from lossless.client.errors import (
    ClientError,
    HandlerFailed,
    StoreUnavailable,
    TransactionAborted,
)
from lossless.client.metrics import ConsumerMetrics
from lossless.client.retrying import RetryPolicy
from lossless.client.sending import Sender
from lossless.client.stores.interface import Store
from lossless.contract import Contract, load_contract
from lossless.errors import BadInput, Unavailable

logger = logging.getLogger(__name__)

CLOSE_S = 30.0  # beside what records in hand may take
BATCH_RECORDS = 500
LOOK_S = 0.1
HANDS_S = 0.5  # a handler that seeks cannot finish its record meanwhile


class Consumer:
    def __init__(
        self,
        topics: str | Sequence[str],
        settings: Mapping[str, object],
        *,
        group: str | None = None,
        workers: int = 1,
        worker_kind: WorkerKind = "thread",
        order: Order = "partition",
        commit_every_s: float = 5.0,
        commit_every_records: int | None = None,
        no_offset: NoOffset | None = None,
        out_of_range: OutOfRange = "stop",
        truncated: Truncated = "stop",
        retry: RetryPolicy | None = None,
        store: Store | None = None,
        remember_finished: bool = False,
        buffered_max: int = 10_000,
        buffered_bytes_max: int = BUFFERED_BYTES_MAX,
        drain_timeout_s: float = 30.0,
        connect_timeout_s: float | None = 120.0,
        on_assigned: Hook | None = None,
        on_revoked: Hook | None = None,
        on_lost: Hook | None = None,
        on_dead_letter: DeadLetterHook | None = None,
        deserialize_key: Deserializer | None = None,
        deserialize_value: Deserializer | None = None,
        metrics: ConsumerMetrics | None = None,
        producer: Sender | None = None,
    ) -> None:
        """`producer` sends failed records on, where `retry` says so; one is made if none is given.

        A consumer that has not reached any broker after `connect_timeout_s` fails, and the error
        names the addresses; None waits without end, and so does a consumer that has reached one.

        `no_offset` is "earliest" if neither it nor auto.offset.reset says where a group begins.

        Hooks are called in the poll thread, with the partitions: state is loaded by `on_assigned`
        before the first record is handed out, stored and dropped by `on_revoked` after the last
        commit, only dropped by `on_lost`.

        `on_dead_letter(message, error)` is called in the worker's thread when the record is
        acknowledged as a dead letter.

        Deserialisers are confluent-kafka's: `deserialize_value(data, context)`. A record for which
        one raises fails with DeserializationFailed: in a loop it is raised, and `retry` sends the
        record to the dead letters without another attempt.

        `buffered_max` and `buffered_bytes_max` bound the records that are read and not finished,
        by number and by the size of their values; the bytes include librdkafka's queue.
        """
        check_arguments(
            topics, settings, retry=retry, store=store, producer=producer, metrics=metrics
        )
        check_functions(on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost)
        check_functions(on_dead_letter=on_dead_letter)
        named = topics_of(topics)
        retry_topics = [
            each for topic in named for each in (retry.retry_topics(topic) if retry else ())
        ]
        self._options = check_options(
            ConsumerOptions(
                topics=(*named, *(each for each in retry_topics if each not in named)),
                workers=workers,
                worker_kind=worker_kind,
                order=order,
                commit_every_s=commit_every_s,
                commit_every_records=commit_every_records,
                no_offset=no_offset_of(settings, no_offset),
                out_of_range=out_of_range,
                truncated=truncated,
                remember_finished=remember_finished,
                buffered_max=buffered_max,
                drain_timeout_s=drain_timeout_s,
                connect_timeout_s=connect_timeout_s,
                on_assigned=on_assigned,
                on_revoked=on_revoked,
                on_lost=on_lost,
                retries=retry is not None,
                stores=store is not None,
            )
        )
        if isinstance(retry, KeepsKeyOrder) and retry.keep_key_order and order == "none":
            raise BadInput(
                'keep_key_order with order="none": records of a key run beside each other anyway',
                hint='choose order="key" or "partition"',
            )
        self._deserializing = (
            Deserializing(deserialize_key, deserialize_value)
            if deserialize_key is not None or deserialize_value is not None
            else None
        )
        self._named = named
        self._settings = read_settings(
            settings, group=group, workers=workers, buffered_bytes_max=buffered_bytes_max
        )
        self.metrics = metrics or ConsumerMetrics(group=self._settings.group)
        self._retry = retry
        self._store = store
        self._producer = producer
        self._own_producer: Any = None
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._poller: Poller | None = None
        self._work: Chunks | Lanes | None = None
        self._failures = Failures(
            retry,
            self.metrics,
            group=self._settings.group,
            forwarder=self._forwarder,
            retry_topics=frozenset(retry_topics),
            on_dead_letter=on_dead_letter,
        )
        self._failures.waiting_keys = self._make_waiting_keys()
        self._closed = False
        self._stopped_early = False
        self._transaction_group: object = None

    @classmethod
    def from_contract(
        cls,
        name: str,
        topics: str | Sequence[str],
        *,
        contract: Contract | str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Self:
        """By the [consumers.NAME] of a contract: the one given, or the nearest lossless.toml."""
        if not isinstance(contract, Contract):
            contract = load_contract(Path(contract) if contract is not None else None)
        settings = contract_settings(contract, name)
        reset = {"auto.offset.reset": settings.pop("auto.offset.reset", "")}
        options.setdefault("no_offset", no_offset_of(reset, None))
        return cls(topics, settings, **options)

    @property
    def group(self) -> str:
        return self._settings.group

    # Loops

    def __iter__(self) -> Iterator[Message]:
        messages = self._chunks(self._options.chunk_records, "a loop").messages()
        return messages if self._deserializing is None else map(self._deserializing, messages)

    def batches(self, records_max: int = BATCH_RECORDS) -> Iterator[list[Message]]:
        """As many as are there, up to `records_max`, and at least one; finished all at once, when
        the next batch is asked for."""
        check_numbers(records_max=records_max)
        if records_max < 1:
            raise BadInput(f"batches of {records_max} records")
        chunks = self._chunks(min(records_max, CHUNK_RECORDS * 20), "a loop")
        batches, deserializing = chunks.batches(records_max), self._deserializing
        if deserializing is None:
            return batches
        return ([*map(deserializing, batch)] for batch in batches)

    def _chunks(self, chunk_records: int, what: str) -> Chunks:
        if what == "a loop":
            self._refuse_for_loops()
        work = self._begin(
            lambda: Chunks(self.metrics, buffered_max=self._options.buffered_max), chunk_records
        )
        if not isinstance(work, Chunks):
            raise BadInput("this consumer runs workers already", hint="make another one for a loop")
        return work

    def _refuse_for_loops(self) -> None:
        options = self._options
        asked = {
            f"workers={options.workers}": options.workers > 1,
            f"worker_kind={options.worker_kind!r}": options.worker_kind != "thread",
            "retry": options.retries,
            "store": options.stores,
            "remember_finished": options.remember_finished,
        }
        given = [name for name, is_given in asked.items() if is_given]
        if given:
            raise BadInput(
                f"{', '.join(given)}: a for loop takes one record after the other, and what is "
                "raised in it is not seen here",
                hint="use consumer.run(handler)",
            )

    # Handlers

    def run(self, handler: Callable[..., Any]) -> None:
        """Calls `handler(message)`, or with a store `handler(message, unit)`, for every record,
        until `stop()`. HandlerFailed when it raises and no policy goes past the record."""
        check_handler(handler)
        options = self._options
        kind = "asyncio" if is_async(handler) else options.worker_kind
        if kind == "asyncio" and not is_async(handler):
            raise BadInput(
                'worker_kind="asyncio" and a handler that is not `async def`',
                hint='write it as a coroutine, or use worker_kind="thread"',
            )
        if kind == "asyncio" and (options.worker_kind == "process" or options.stores):
            raise BadInput(
                "a handler that is `async def` runs on an event loop of this process, without a "
                "store",
                hint="write it as a plain function",
            )
        if kind != "asyncio":
            handler = Done(handler)
        if self._deserializing is not None:
            handler = self._deserializing.around(handler, is_async=kind == "asyncio")
        failures = self._failures
        if self._store is not None:
            self._run_units(self._store, handler, failures)
        elif options.workers == 1 and kind == "thread" and not self._needs_lanes:
            self._run_plainly(handler, failures)
        else:
            self._run_workers(handler, kind, failures)

    @property
    def _needs_lanes(self) -> bool:
        return self._options.retries or self._options.remember_finished

    def _run_plainly(self, handler: Callable[..., Any], failures: Failures) -> None:
        chunks = self._chunks(self._options.chunk_records, "a handler")
        outages = 0
        while True:
            finished = chunks.finished()
            try:
                for message in chunks.messages():
                    try:
                        handler(message)
                    except (StoreUnavailable, HandlerFailed):
                        raise
                    except Exception as error:
                        failures.decide(message, error, 1)
                return
            except StoreUnavailable as error:
                outages = 1 if chunks.finished() > finished else outages + 1
                if chunks.over(outage_delay_s(error, outages)):
                    return

    def _run_units(self, store: Store, handler: Callable[..., Any], failures: Failures) -> None:
        chunks = self._chunks(self._options.chunk_records, "a handler")
        poller = self._poller
        assert poller is not None
        Units(
            chunks,
            store,
            failures,
            handler,
            commit_every_s=self._options.commit_every_s,
            fence=lambda places, error: poller.call(
                lambda: poller.assignment.fence(places, error)
            ).result(),
        ).run()

    def _run_workers(
        self, handler: Callable[..., Any], kind: WorkerKind, failures: Failures
    ) -> None:
        options = self._options
        lanes = self._begin(
            lambda: Lanes(
                self.metrics,
                order=options.order,
                buffered_max=options.buffered_max,
                buffered_bytes_max=self._settings.buffered_bytes_max,
                remember_finished=options.remember_finished,
                due_ms=self._due_ms if self._retry is not None else None,
            ),
            options.chunk_records,
        )
        if not isinstance(lanes, Lanes):
            raise BadInput("this consumer has a loop already", hint="make another one for run()")
        Workers(
            lanes,
            failures,
            count=options.workers,
            kind=kind,
            handler=handler,
            drain_timeout_s=options.drain_timeout_s,
        ).run()

    def _due_ms(self, message: Message) -> int | None:
        if self._retry is None or self._failures.is_others(message):
            return None
        return self._retry.due_ms(message)

    def _make_waiting_keys(self) -> WaitingKeys | None:
        policy = self._retry
        if not isinstance(policy, KeepsKeyOrder) or not policy.keep_key_order:
            return None
        return WaitingKeys(
            policy,
            group=self.group,
            topics=self._named,
            settings=self._settings.librdkafka,
            timeout_s=self._settings.max_poll_interval_s / 2,
            send=lambda message, to: self._failures.forward(message, to),
        )

    def _forwarder(self) -> Sender:
        with self._lock:
            if self._producer is None:
                from lossless.client.producing.producer import (
                    Producer,
                )  # only when something failed

                self._producer = self._own_producer = Producer(
                    self._settings.of_a_producer(), audit=False
                )
            return self._producer

    # Beginning and ending

    def _begin(self, make: Callable[[], Chunks | Lanes], chunk_records: int) -> Chunks | Lanes:
        with self._lock:
            if self._closed:
                raise BadInput("the consumer is closed", hint="make a new one")
            self._refuse_in_child()
            if self._poller is not None:
                self._poller.refuse_in_hook()
            if self._work is None:
                work = make()
                self._poller = self._start(work, chunk_records)
                self._work = work
                if self._stopped_early:  # asked last: see stop()
                    work.stop()
            elif isinstance(self._work, Lanes):
                self._work.go_on()
            return self._work

    def _refuse_in_child(self) -> None:
        if os.getpid() != self._process:
            raise forked()

    def _start(self, work: Work, chunk_records: int) -> Poller:
        poller = Poller(
            self._settings,
            self._options,
            self.metrics,
            work,
            chunk_records=chunk_records,
            store=self._store,
            waiting_keys=self._failures.waiting_keys,
        )
        self._failures.look_for = poller.look_for
        poller.start()
        return poller

    def stop(self) -> None:
        """The loop, or run(), ends after the records in hand. May be called from anywhere, signal
        handlers included, and before there is a loop."""
        if self._work is None:
            self._stopped_early = True
        # A loop may have begun since. A lock could be held by the thread that a signal interrupted.
        if self._work is not None:
            self._work.stop()

    def close(self, timeout_s: float | None = None) -> None:
        """Waits for records in hand, commits, leaves the group. Safe to repeat.

        Records in hand may take `drain_timeout_s`, and so may the commit when no broker answers.
        `timeout_s` bounds all of it.

        Called by the thread of a loop, it does not wait for that loop's record: it is not finished.
        """
        if timeout_s is not None:
            check_times(timeout_s=timeout_s)
        if os.getpid() != self._process:
            return  # it is the parent's, which closes it
        if self._poller is not None:
            self._poller.refuse_in_hook()
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if timeout_s is None:
            timeout_s = 2 * self._options.drain_timeout_s + CLOSE_S
        work, poller = self._work, self._poller
        if isinstance(work, Chunks):
            work.abandon()
        if work is not None:
            work.stop()
        began = time.monotonic()
        commit_timeout_s = self._options.drain_timeout_s
        if poller is not None and not poller.close(timeout_s, commit_timeout_s=commit_timeout_s):
            logger.warning(
                "group %s is not left after %.0f s: the brokers do not answer, or a hook hangs; "
                "what was not committed will be repeated",
                self.group,
                time.monotonic() - began,
            )
        if self._own_producer is not None:
            self._own_producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Positions

    def seek(self, position: TopicPartition) -> None:
        """The next record of this partition is the one at `position.offset`, which is committed.

        OFFSET_BEGINNING and OFFSET_END are the first record that is there and the end. A record in
        hand changes nothing any more. Raises Unavailable while partitions are being revoked, which
        waits for records in hand: of the handler, perhaps, that calls this.
        """
        if self._store is not None:
            raise BadInput(
                "seek with a store: positions are the store's, next to what was stored",
                hint="change the position in the store while no consumer of the group runs",
            )
        checked_partitions([position])
        assignment = self._assignment()
        assert self._poller is not None
        sought = self._poller.call(lambda: assignment.seek(position))
        deadline = time.monotonic() + CALL_S
        while not wait([sought], LOOK_S).done:
            now, waiting_since = time.monotonic(), assignment.waiting_for_hands_since
            is_revoking = waiting_since is not None and now - waiting_since >= HANDS_S
            # One that has begun is asking the brokers, which has an end.
            if (is_revoking or now >= deadline) and sought.cancel():
                raise Unavailable(
                    "seek did not begin: partitions are being revoked, which waits for the records "
                    "in hand"
                    if is_revoking
                    else f"seek did not begin for {CALL_S:.0f} s: partitions are being assigned or "
                    "revoked, or a hook hangs",
                    hint="nothing was changed: try again",
                )
        sought.result()

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Reads no more of these until `resume`, or until they are revoked. Records that were read
        ahead still come."""
        named = checked_partitions(partitions)
        self._assignment().pause(named)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        named = checked_partitions(partitions)
        self._assignment().resume(named)

    @property
    def assigned(self) -> list[TopicPartition]:
        """The partitions that this consumer has at the moment."""
        poller = self._poller
        return list(poller.assignment.partitions) if poller is not None else []

    def _assignment(self) -> Assignment:
        self._refuse_in_child()
        if self._poller is None:
            raise BadInput(
                "no partition is assigned yet",
                hint="begin a loop or run() first; on_assigned says when partitions have come",
            )
        return self._poller.assignment

    # Transactions

    def transaction_begun(self) -> None:
        """A producer's transaction begins: it covers the record or batch in hand.

        Its offsets and the group's metadata are fixed here. From the first call on, the offsets of
        this consumer are committed by transactions only.
        """
        poller, work = self._in_transaction()
        if self._settings.reads_uncommitted:
            raise BadInput(
                "isolation.level = read_uncommitted with a transaction: what is made of records of "
                "aborted transactions would be committed",
                hint="set isolation.level = read_committed, the default",
            )
        if not poller.committer.leave_to_transactions(CLOSE_S):
            raise TransactionAborted(
                f"an earlier commit of group {self.group} was not answered for {CLOSE_S:.0f} s",
                hint="are the brokers available? nothing of the transaction was sent: retry it",
            )
        # The metadata first: positions of a later generation are refused together with it.
        group = poller.group_metadata()
        work.begin_transaction(poller.committer.uncommitted())
        if group is None:
            work.end_transaction(committed=False)
            raise TransactionAborted(
                f"this consumer is not a member of group {self.group} at the moment",
                hint="continue with the loop: records are handed out when it has rejoined",
            )
        self._transaction_group = group

    def transaction_offsets(self) -> tuple[list[TopicPartition], object]:
        """The offsets to commit with the transaction, and the metadata of the group.

        Raises PartitionLost if a partition was revoked or lost since the transaction began.
        """
        _, work = self._in_transaction()
        return list(work.transaction_positions().values()), self._transaction_group

    def transaction_committed(self) -> None:
        """The records of the transaction are finished."""
        poller, work = self._in_transaction()
        poller.committer.committed_by_transaction(work.end_transaction(committed=True))

    def transaction_aborted(self) -> None:
        """The records of the transaction are handed out again."""
        if isinstance(self._work, Chunks):
            self._work.end_transaction(committed=False)

    def transaction_undecided(self, error: ClientError) -> None:
        """The loop raises the error: records that may be stored are not handed out again."""
        if isinstance(self._work, Chunks):
            self._work.end_transaction(committed=False)
            self._work.end(error)

    def _in_transaction(self) -> tuple[Poller, Chunks]:
        work, poller = self._work, self._poller
        if poller is None or not isinstance(work, Chunks):
            raise BadInput(
                "a transaction needs records that are in hand in one thread",
                hint="begin it inside `for message in consumer` or `for batch in "
                "consumer.batches()`; or in a handler with workers=1",
            )
        return poller, work
