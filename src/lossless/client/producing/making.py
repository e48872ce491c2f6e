"""What a producer is made of: librdkafka's client, who reports, and what cannot go together."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka import Producer as Client

from lossless.acknowledged import AcknowledgedCounter
from lossless.client.connecting import Connections, check_files
from lossless.client.producing.giving_up import GivingUp, Raise
from lossless.client.producing.reporting import Reporting
from lossless.client.producing.settings import ProducerSettings, chained
from lossless.client.unknown_settings import refused_settings
from lossless.contract.rules import known
from lossless.errors import BadInput

logger = logging.getLogger("lossless.client.producer")


def check_policy(settings: ProducerSettings, policy: GivingUp) -> None:
    if not isinstance(policy, GivingUp):
        raise BadInput(
            f"giving_up={policy!r:.60} is not a decision about records that are given up",
            hint='for instance giving_up=Park("spool")',
        )
    if settings.transactional_id is not None and not isinstance(policy, Raise):
        raise BadInput(
            f"a producer with a transactional.id cannot give records up by {type(policy).__name__}:"
            " a transaction that lacks one of its records is aborted",
            hint="leave giving_up out, and repeat the whole transaction when it is aborted",
        )


def make_client(
    settings: ProducerSettings,
    connections: Connections,
    *,
    parks: bool,
    on_statistics: Callable[[str], None],
) -> Client:
    given = settings.for_records(ourselves_timed=parks)
    given["logger"] = connections
    given["stats_cb"] = chained(on_statistics, given.get("stats_cb"))
    for name in {"error_cb", "throttle_cb"} & given.keys():
        given[name] = chained(lambda _: None, given[name])
    check_files(given)
    try:
        return Client(given)
    except (KafkaException, TypeError, ValueError) as error:
        raise refused_settings(error, known.of_producers("lossless")) from error


def make_reporting(
    client: Client, settings: ProducerSettings, *, application: str, instance: str
) -> Reporting:
    others = settings.for_others()
    counter = AcknowledgedCounter(
        producer=f"{application}@{socket.gethostname()}#{os.getpid()}", instance=instance
    )
    is_transactional = settings.transactional_id is not None
    if is_transactional:
        # What is reported must not be a part of a transaction.
        client = Client(
            {**others, "acks": "all", "enable.idempotence": True, "logger": Connections(logger)}
        )
    return Reporting(counter, client, others, polls=is_transactional)


def program() -> str:
    return Path(sys.argv[0]).stem or "python"
