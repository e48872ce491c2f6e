"""Whether the sections of a contract keep what it promises: the rules, applied to what is used.

A command names the sections that it is about to use:

    enforce(contract, cluster=True)              up
    enforce(contract, pipelines=["orders"])      run, Pipeline
    enforce(contract, producers=["shop"])        Producer
    enforce(contract, consumers=["billing"])     Consumer

`judge_all` is for commands that look at the whole file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from lossless.contract.keys import keys_of
from lossless.contract.place import ContractError, KeyPath, first_line_of, shown
from lossless.contract.rules import consumer_contradictions, known, producer_contradictions
from lossless.contract.rules.pipelines import PIPELINE_RULES
from lossless.contract.rules.rule import Contradiction, broken
from lossless.contract.rules.topics import CLUSTER_RULES, TOPIC_RULES, Holding, Keeping
from lossless.contract.section import dotted
from lossless.contract.values import Contract

_CONNECTION: KeyPath = ("cluster", "client")


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A rule that a section breaks, and where."""

    section: KeyPath
    line: int | None
    rule: str
    reason: str
    fix: str

    def __str__(self) -> str:
        return f"[{dotted(self.section)}] {self.reason} ({self.rule})"


def enforce(
    contract: Contract,
    *,
    cluster: bool = False,
    producers: Collection[str] = (),
    consumers: Collection[str] = (),
    pipelines: Collection[str] = (),
) -> None:
    """Raises ContractError if one of these sections breaks a rule; names it must have."""
    refuse_violations(
        contract,
        [
            *(judge_cluster(contract) if cluster else ()),
            *(_judge_connection(contract) if producers or consumers or pipelines else ()),
            *(found for name in producers for found in _judge_producer(contract, name)),
            *(found for name in consumers for found in _judge_consumer(contract, name)),
            *(found for name in pipelines for found in _judge_pipeline(contract, name)),
        ],
    )


def judge_all(contract: Contract) -> list[Violation]:
    """Every rule that any section breaks."""
    return [
        *judge_cluster(contract),
        *_judge_connection(contract),
        *(found for name in contract.producers for found in _judge_producer(contract, name)),
        *(found for name in contract.consumers for found in _judge_consumer(contract, name)),
        *(found for name in contract.pipelines for found in _judge_pipeline(contract, name)),
    ]


def refuse_violations(contract: Contract, found: Iterable[Violation]) -> None:
    """Raises ContractError with every place, rule and fix; does nothing without violations."""
    violations = list(dict.fromkeys(found))
    if not violations:
        return
    if len(violations) == 1:
        (only,) = violations
        raise ContractError(str(only), file=contract.path, line=only.line, hint=only.fix)
    lines = []
    for each in violations:
        place = f"{shown(contract.path)}:{each.line}: " if each.line else ""
        lines.append(f"- {place}{each}\n  {each.fix}")
    raise ContractError(
        f"{len(violations)} rules are broken", file=contract.path, hint="\n".join(lines)
    )


def judge_cluster(contract: Contract) -> list[Violation]:
    """[cluster] and [topics.*], as `up` builds them."""
    cluster, promised = contract.cluster, contract.guarantee
    at: KeyPath = ("cluster",)
    found = list(_placed(contract, [at], _unknown(contract, cluster.config, known.of_brokers())))
    if contract.topics:  # a cluster without topics holds nothing that could be lost
        asked = Holding(cluster=cluster, guarantee=promised)
        found += _placed(contract, [at], broken(CLUSTER_RULES, asked))
    for name, topic in contract.topics.items():
        keeping = Keeping(topic=topic, cluster=cluster, guarantee=promised)
        contradictions = [
            *_unknown(contract, topic.config, known.of_topics()),
            *broken(TOPIC_RULES, keeping),
        ]
        found += _placed(contract, [("topics", name), at], contradictions)
    return found


def _judge_connection(contract: Contract) -> list[Violation]:
    """[cluster] client: the settings of every client."""
    unknown = _unknown(contract, contract.cluster.client, known.of_connections())
    return list(_placed(contract, [_CONNECTION], unknown))


def _judge_producer(contract: Contract, name: str) -> list[Violation]:
    producer = contract.producers[name]
    settings = {**contract.cluster.client, **producer.config}
    contradictions = [
        *_unknown(contract, producer.config, known.of_producers(producer.client)),
        *producer_contradictions(settings, client=producer.client, guarantee=contract.guarantee),
    ]
    return list(_placed(contract, [("producers", name), _CONNECTION], contradictions))


def _judge_consumer(contract: Contract, name: str) -> list[Violation]:
    consumer = contract.consumers[name]
    # The section's name is the group where no other is set, as for `Consumer.from_contract`.
    settings = {"group.id": name, **contract.cluster.client, **consumer.config}
    contradictions = [
        *_unknown(contract, consumer.config, known.of_consumers(consumer.client)),
        *consumer_contradictions(
            settings,
            client=consumer.client,
            commit=consumer.commit,
            guarantee=contract.guarantee,
        ),
    ]
    return list(_placed(contract, [("consumers", name), _CONNECTION], contradictions))


def _judge_pipeline(contract: Contract, name: str) -> list[Violation]:
    pipeline = contract.pipelines[name]
    contradictions = [
        *_unknown(contract, pipeline.config, known.of_pipelines()),
        *broken(PIPELINE_RULES, pipeline),
    ]
    return list(_placed(contract, [("pipelines", name)], contradictions))


def _unknown(
    contract: Contract, names: Iterable[str], settings: Collection[str]
) -> list[Contradiction]:
    return known.unknown_settings(names, settings, contract.allow_settings)


def _placed(
    contract: Contract,
    sections: list[KeyPath],
    contradictions: Iterable[Contradiction],
) -> Iterator[Violation]:
    """Each at the line of its first setting that is written, else at its section's."""
    for each in contradictions:
        line, section = None, sections[0]
        for candidate in sections:
            line = first_line_of(contract.text, _spellings(candidate, each.settings))
            if line is not None:
                section = candidate
                break
        if line is None:
            line = first_line_of(contract.text, [sections[0]])
        yield Violation(
            section=section, line=line, rule=each.rule, reason=each.reason, fix=each.fix
        )


def _spellings(section: KeyPath, settings: Iterable[str]) -> Iterator[KeyPath]:
    """The paths under which a key or setting may stand: bare dots make tables in TOML."""
    own = set(keys_of("cluster" if section == ("cluster",) else f"{section[0]}.NAME"))
    for name in settings:
        if name in own:
            yield (*section, name)
            continue
        for table in (("config",), ()):  # () in [cluster.client], and for spark.…
            yield (*section, *table, name)
            yield (*section, *table, *name.split("."))
    yield (*section, "properties")
