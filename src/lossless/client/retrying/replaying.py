"""Dead letters go back to where they came from, each once.

A letter goes to its original topic (and partition, where that exists) with the key, value, headers,
timestamp and operation id that it had there; the headers that say why it was dead are left out.

What went back is remembered in the commits of a group of its own, `lossless-replay-<topic>`: see
`replayed.py`. The order is: sent, acknowledged, committed. So a replay that is killed repeats at
most what was acknowledged and not committed, and repeats it with the same operation id, by which
consumers can tell (P6). A letter that came without an operation id is given one made of its place.

Two replays of one topic at the same time would both send. The second to commit notices and stops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_INVALID, TopicPartition

from lossless.client import headers as names
from lossless.client.record import header
from lossless.client.retrying.letters import DeadLetter
from lossless.client.retrying.reading import End, LetterReader, Wanted
from lossless.client.retrying.replayed import Replayed
from lossless.client.sending import Sender, Sent
from lossless.errors import BadInput, LosslessError, Undecided

_SEND_TIMEOUT_S = 300.0


@dataclass(slots=True, kw_only=True)
class ReplayReport:
    topic: str
    sent: int = 0
    matched: int = 0  # sent, or would be
    before: int = 0  # went back in an earlier replay, as far as they were read again
    others: int = 0  # were not asked for
    deleted: int = 0  # offsets that retention took before anybody sent them back
    unknown: list[str] = field(default_factory=list)  # places of letters that cannot go back
    strangers: int = 0  # records without the headers of a dead letter
    more: bool = False  # the limit was reached

    @property
    def has_letters(self) -> bool:
        """Whether any of the records that were read is a dead letter."""
        return bool(self.matched or self.before or self.others or self.unknown)


def group_of(topic: str) -> str:
    """`lossless-replay-orders` for `orders-dlt`."""
    return f"lossless-replay-{topic.removesuffix('-dlt')}"


def replay(
    settings: Mapping[str, Any],
    topic: str,
    *,
    sender: Sender | None,
    wanted: Wanted | None = None,
    limit: int | None = None,
    on_letter: Callable[[DeadLetter], None] | None = None,
) -> ReplayReport:
    """`settings` are librdkafka's; `on_letter` sees each letter when it is acknowledged.

    Without a sender nothing is sent and nothing noted: it shows what would be.
    """
    with LetterReader(settings, topic, group=group_of(topic)) as reader:
        return _Replay(
            reader,
            sender=sender,
            wanted=wanted or Wanted(),
            limit=limit,
            on_letter=on_letter or (lambda _: None),
        ).run()


class _Replay:
    def __init__(
        self,
        reader: LetterReader,
        *,
        sender: Sender | None,
        wanted: Wanted,
        limit: int | None,
        on_letter: Callable[[DeadLetter], None],
    ) -> None:
        self._reader = reader
        self._sender = sender
        self._wanted = wanted
        self._limit = limit
        self._on_letter = on_letter
        self._report = ReplayReport(topic=reader.topic)
        self._committed = reader.committed()
        self._replayed = {
            partition: Replayed.of(max(0, position.offset), position.metadata)
            for partition, position in self._committed.items()
        }
        self._read_up_to: dict[int, int] = {}
        self._partitions = reader.topics()

    def run(self) -> ReplayReport:
        for partition, replayed in self._replayed.items():
            first, _ = self._reader.bounds(partition)
            if self._committed[partition].offset != OFFSET_INVALID:
                self._report.deleted += replayed.missing_before(first)
            replayed.add(0, first)
            self._read_up_to[partition] = replayed.next_offset
        for chunk in self._reader.read(dict(self._read_up_to)):
            chosen = [letter for found in chunk for letter in self._chosen(found)]
            self._send(chosen)
            if self._report.more:
                break
        return self._report

    def _chosen(self, found: DeadLetter | End) -> list[DeadLetter]:
        report = self._report
        offset = found.next_offset if isinstance(found, End) else found.offset
        if report.more:
            return []
        # Offsets between two records are no letters: markers of transactions, or compacted away.
        self._replayed[found.partition].add(self._read_up_to[found.partition], offset)
        if isinstance(found, End):
            return []
        self._read_up_to[found.partition] = offset + 1
        if offset in self._replayed[found.partition]:
            report.before += 1
        elif not found.is_letter:
            report.strangers += 1
        elif not self._wanted.matches(found):
            report.others += 1
        elif found.original_topic is None or not found.has_record:
            report.unknown.append(found.place)
        elif self._limit is not None and report.matched >= self._limit:
            report.more = True
        else:
            report.matched += 1
            return [found]
        return []

    def _send(self, letters: list[DeadLetter]) -> None:
        if self._sender is None:
            for letter in letters:
                self._on_letter(letter)
            return
        self._check_topics(letters)
        self._check_room(letters)
        sent: list[tuple[DeadLetter, Sent]] = []
        failure: LosslessError | None = None
        for letter in letters:
            try:
                sent.append((letter, self._send_back(self._sender, letter)))
            except LosslessError as error:  # what was sent before it is still noted
                failure = error
                break
        for letter, delivery in sent:
            try:
                delivery.result(_SEND_TIMEOUT_S)
            except LosslessError as error:
                failure = failure or error
                continue
            self._replayed[letter.partition].add(letter.offset)
            self._report.sent += 1
            self._on_letter(letter)
        self._commit()
        if failure is not None:
            raise failure

    def _send_back(self, sender: Sender, letter: DeadLetter) -> Sent:
        topic, partition = letter.original_topic, letter.original_partition
        assert topic is not None
        timestamp_ms = letter.original_timestamp_ms
        given = header(letter.headers, names.OPERATION_ID)
        return sender.send(
            topic,
            letter.value,
            letter.key,
            headers=[pair for pair in letter.headers if pair[0] != names.OPERATION_ID],
            partition=partition if (partition or 0) < self._partitions[topic] else None,
            # librdkafka cannot send 0: it stands for the current time.
            timestamp_ms=None if timestamp_ms is None else max(1, timestamp_ms),
            operation_id=letter.place if given is None else given.decode(errors="replace"),
        )

    def _check_topics(self, letters: list[DeadLetter]) -> None:
        """Before anything is sent: a broker might create a topic that nobody wants any more."""
        for letter in letters:
            if letter.original_topic not in self._partitions:
                raise BadInput(
                    f"{letter.place} is from {letter.original_topic}, and there is no such topic; "
                    f"{self._report.sent} letters were sent back, and are noted",
                    hint="create it again, or choose others with --original-topic",
                )

    def _check_room(self, letters: list[DeadLetter]) -> None:
        """Before anything is sent: what cannot be remembered would be sent again."""
        for partition in {letter.partition for letter in letters}:
            trial = self._replayed[partition].copy()
            for letter in letters:
                if letter.partition == partition:
                    trial.add(letter.offset)
            if not trial.fits:
                raise BadInput(
                    f"{self._reader.topic}-{partition}: what went back lies too scattered to be "
                    f"remembered; {self._report.sent} letters were sent back, and are noted",
                    hint="replay more of it at once: with fewer filters, or without",
                )

    def _commit(self) -> None:
        positions = [
            TopicPartition(
                self._reader.topic, partition, replayed.next_offset, metadata=replayed.metadata()
            )
            for partition, replayed in self._replayed.items()
        ]
        changed = [
            position
            for position in positions
            if _told(position) != _told(self._committed[position.partition])
            and not (position.offset == 0 and not position.metadata)
        ]
        if not changed:
            return
        now = self._reader.committed()
        for position in changed:
            if _told(now[position.partition]) != _told(self._committed[position.partition]):
                raise Undecided(
                    f"another replay of {self._reader.topic} is running: both sent letters back",
                    hint="consumers can tell the repeated ones by their operation id; wait until "
                    "the other one has ended, then run this again",
                )
        self._reader.commit(changed)
        self._committed.update({position.partition: position for position in changed})


def _told(position: TopicPartition) -> tuple[int, str]:
    return position.offset, position.metadata or ""
