"""A consumer in a process of its own, to be killed and stopped. Says on its output what it does.

python consumer_process.py SERVERS TOPIC GROUP HALT_AT SETTINGS [STORE]

At record HALT_AT it says "in hand", and goes on when it is told to on its input.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from confluent_kafka import Message, TopicPartition

from lossless.client.consuming import Consumer
from lossless.client.stores import SqliteStore


def say(*words: object) -> None:
    """In one piece: the handler's thread speaks, and the one that hears of rebalances."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main() -> None:
    servers, topic, group, halt_at, settings, *store = sys.argv[1:]

    def halt(message: Message) -> None:
        if message.value() == halt_at.encode():
            say("in hand")
            sys.stdin.readline()

    def handler(message: Message, unit: Any = None) -> None:
        number = int(message.value() or b"")
        if unit is not None:
            unit.execute("INSERT INTO orders VALUES (?)", (number,))
            state = unit.state(message)
            state["sum"] = state.get("sum", 0) + number
        else:
            say("processed", number)
        halt(message)

    def told(what: str) -> Any:
        def hook(partitions: list[TopicPartition]) -> None:
            say(what, *sorted(each.partition for each in partitions))

        return hook

    with Consumer(
        topic,
        {"bootstrap.servers": servers, **json.loads(settings)},
        group=group,
        commit_every_s=0.05,
        store=SqliteStore(store[0]) if store else None,
        on_assigned=told("assigned"),
        on_revoked=told("revoked"),
        on_lost=told("lost"),
    ) as consumer:
        try:
            consumer.run(handler)
        except KeyboardInterrupt:
            say("interrupted")
    say("closed")


if __name__ == "__main__":
    main()
