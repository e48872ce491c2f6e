"""What the processes of the soak do, beside the senders and consumers of the claims.

They are run by client_process.py, with a journal. SIGTERM ends each of them in order.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from client.claims.client_journal import Journal, now_ms
from lossless.verifier.history import Processed


def copy_batches(what: dict[str, Any], journal: Journal) -> None:
    """Copies each record to another topic, batch by batch, in transactions with the offsets."""
    from client.claims.client_process import is_fatal
    from lossless.client.consuming.consumer import Consumer
    from lossless.client.errors import ClientError
    from lossless.client.producing.producer import Producer

    sending = {**what["sending"], "transactional.id": what["name"]}
    producer = Producer(sending, audit=False)
    consumer = Consumer(what["topic"], what["settings"], group=what["group"])
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    journal.say("ready")
    with consumer:
        for batch in consumer.batches(50):
            try:
                with producer.transaction(consumer) as transaction:
                    for message in batch:
                        transaction.send(what["to"], f"{message.partition()}-{message.offset()}")
            except ClientError as error:
                journal.say("aborted", len(batch), type(error).__name__)
                if is_fatal(error):
                    producer = Producer(sending, audit=False)
            else:
                journal.say("copied", len(batch))
    try:
        producer.close()
    except ClientError as error:  # that of a transaction that was reported as aborted
        journal.say("closed", type(error).__name__)
    journal.say("ended")


class Noting:
    """A handler that other processes can import: notes each record of a topic as processed."""

    def __init__(self, journal: str, name: str, group: str) -> None:
        self.journal = journal
        self.name = name
        self.group = group

    def __call__(self, message: Any) -> None:
        journal = Journal(Path(self.journal))
        try:
            self.note(message, journal, message.topic(), message.partition(), message.offset())
        finally:
            journal.close()

    def note(self, message: Any, journal: Journal, topic: str, partition: int, offset: int) -> None:
        at, value = f"{topic}-{partition}", message.value().decode()
        journal.note(Processed(now_ms(), self.name, self.group, at, offset, value))


class Failing(Noting):
    """Every fifth record fails, and every tenth fails again on the first retry topic."""

    def __init__(self, journal: Journal, name: str, group: str, topic: str) -> None:
        super().__init__(str(journal.path), name, group)
        self._journal = journal
        self._topic = topic

    def __call__(self, message: Any) -> None:
        from lossless.client.retrying.forwarding import origin_of

        origin = origin_of(message, group=self.group)
        if origin.group != self.group:
            self._journal.say("of another group", origin.place)
        is_retried = message.topic() != self._topic
        if origin.offset % 10 == 0 and not message.topic().endswith("-retry-1"):
            raise RuntimeError(origin.place)
        if origin.offset % 5 == 0 and not is_retried:
            raise RuntimeError(origin.place)
        self.note(message, self._journal, origin.topic, origin.partition, origin.offset)


def retry_elsewhere(what: dict[str, Any], journal: Journal) -> None:
    from lossless.client.retrying import RetryTopics

    handler = Failing(journal, what["name"], what["group"], what["topic"])
    _run(what, journal, handler, workers=4, order="key", retry=RetryTopics(delays_s=(0.1, 0.2)))


def work_in_processes(what: dict[str, Any], journal: Journal) -> None:
    handler = Noting(str(journal.path), what["name"], what["group"])
    _run(what, journal, handler, workers=2, order="key", worker_kind="process")


def _run(
    what: dict[str, Any], journal: Journal, handler: Callable[[Any], None], **options: Any
) -> None:
    from lossless.client.consuming.consumer import Consumer

    consumer = Consumer(
        what["topic"], what["settings"], group=what["group"], commit_every_s=0.5, **options
    )
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    journal.say("ready")
    with consumer:
        consumer.run(handler)
    journal.say("ended")


ROLES: dict[str, Callable[[dict[str, Any], Journal], None]] = {
    "batch copier": copy_batches,
    "retrier": retry_elsewhere,
    "worker": work_in_processes,
}
