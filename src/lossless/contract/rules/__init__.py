"""Settings of a client that contradict each other, or what is promised: found before they lose.

A contradiction is one of three kinds: settings that the client itself refuses (told here with the
fix), settings that one client takes and quietly changes (KAFKA-13673), and settings that are fine
alone but break the promise they stand beside. Settings may have the Java client's names or
librdkafka's. Where they are silent, the defaults of the client that takes them apply: Java's,
librdkafka's, or those of the reliable client ("lossless"), which are safe ones.

One rule is one function; the decorator says which claims it keeps. `PRODUCER_RULES` and
`CONSUMER_RULES` are the tables. What was looked up: ProducerConfig, KafkaProducer and
ConsumerConfig of Kafka 3.9 to 4.1, rdkafka_conf.c (`rd_kafka_conf_finalize`) of librdkafka 2.16.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lossless.contract.rules.consumers import CONSUMER_RULES, Consuming
from lossless.contract.rules.misread import misread
from lossless.contract.rules.producers import PRODUCER_RULES, Producing
from lossless.contract.rules.rule import Contradiction, Rule, broken
from lossless.contract.rules.settings import Settings
from lossless.contract.values import Client, Commit, Delivery, Guarantee, Order
from lossless.errors import BadInput

__all__ = [
    "CONSUMER_RULES",
    "PRODUCER_RULES",
    "Contradiction",
    "Rule",
    "consumer_contradictions",
    "producer_contradictions",
    "refuse",
]


def producer_contradictions(
    settings: Mapping[str, object],
    *,
    client: Client = "lossless",
    delivery: Delivery | None = None,
    order: Order | None = None,
    guarantee: Guarantee | None = None,
) -> list[Contradiction]:
    """What contradicts in a producer's settings; `delivery` and `order` are what is promised.

    A `guarantee` is the whole promise of a contract, with the faults that it covers.
    """
    asked = Producing(
        settings=Settings(settings, client),
        delivery=delivery if guarantee is None else guarantee.delivery,
        order=order if guarantee is None else guarantee.order,
        guarantee=guarantee,
    )
    return [*misread(asked.settings), *broken(PRODUCER_RULES, asked)]


def consumer_contradictions(
    settings: Mapping[str, object],
    *,
    client: Client = "lossless",
    delivery: Delivery | None = None,
    commit: Commit = "after-processing",
    processing_s_max: float | None = None,
    workers: int = 1,
    polls_meanwhile: bool = False,
    members: int = 1,
    guarantee: Guarantee | None = None,
) -> list[Contradiction]:
    """What contradicts in a consumer's settings.

    `processing_s_max` is the longest that one record takes; `workers` beside the thread that polls,
    when there are several, and `polls_meanwhile` when one does; `members` share these settings.
    """
    asked = Consuming(
        settings=Settings(settings, client),
        delivery=delivery if guarantee is None else guarantee.delivery,
        commit=commit,
        processing_s_max=processing_s_max,
        workers=workers,
        polls_meanwhile=polls_meanwhile or workers > 1,
        members=members,
        guarantee=guarantee,
    )
    return [*misread(asked.settings), *broken(CONSUMER_RULES, asked)]


def refuse(contradictions: Iterable[Contradiction], *, where: str | None = None) -> None:
    """Raises BadInput with every reason and every fix; does nothing when there are none."""
    found = list(contradictions)
    if not found:
        return
    place = f"{where}: " if where else ""
    if len(found) == 1:
        raise BadInput(f"{place}{found[0].reason}", hint=found[0].fix)
    raise BadInput(
        f"{place}{len(found)} contradictions in the settings",
        hint="\n".join(f"- {each.reason}\n  {each.fix}" for each in found),
    )
