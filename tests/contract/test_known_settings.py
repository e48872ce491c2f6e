"""Which settings exist: the names in the package against those of Kafka and librdkafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, Producer

from contract.test_librdkafka_settings import JAVA_CLIENTS
from lossless.contract import Contract
from lossless.contract.rules import known
from lossless.contract.rules.judging import judge_all
from lossless.core.settings.brokers import BROKERS
from lossless.core.settings.topics import TOPICS

Load = Callable[..., Contract]

PIPELINE = """[pipelines.orders]
topics = ["a"]
format = "raw"
sink = { type = "delta", path = "table" }
"""


def test_the_names_of_topics_and_brokers_are_those_of_the_embedded_brokers() -> None:
    assert known.known_settings("topic") == TOPICS.keys()
    assert known.known_settings("broker") == BROKERS.keys()


@pytest.mark.parametrize("client", ["producer", "consumer", "admin"])
def test_the_names_of_java_clients_are_those_of_kafka(client: str) -> None:
    assert known.known_settings(f"java {client}") == JAVA_CLIENTS[client].keys()


def test_librdkafka_knows_every_name_that_is_listed_as_its_own() -> None:
    unknown = []
    for name in known.known_settings("librdkafka"):
        try:
            Producer({name: "\x01", "log_level": "0"})
        except KafkaException as error:
            if "No such configuration property" in error.args[0].str():
                unknown.append(name)
        except (TypeError, ValueError):  # known, and read by confluent-kafka itself
            continue
    assert unknown == []


# A section with one setting, misspelt, the line, and what was meant.
TYPOS = [
    ("[cluster]\nconfig.min.insync.replicaz = 2", 2, "min.insync.replicas"),
    ("[cluster]\nclient.bootstrap.server = 'a:1'\n[producers.p]", 2, "bootstrap.servers"),
    ("[topics.a]\nconfig.min.insync.replicas = 2\nconfig.retention.mz = 1", 3, "retention.ms"),
    ("[producers.p]\nconfig.enable.idempotense = true", 2, "enable.idempotence"),
    ("[producers.p]\nclient = 'java'\nconfig.linger.msec = 5", 3, "linger.ms"),
    ("[consumers.c]\nconfig.max.poll.intervall.ms = 300000", 2, "max.poll.interval.ms"),
    (PIPELINE + "config.fetch.max.wait = 5", 5, "fetch.max.wait.ms"),
]


@pytest.mark.parametrize(("text", "line", "meant"), TYPOS)
def test_an_unknown_setting_is_refused_with_the_nearest_name(
    load: Load, text: str, line: int, meant: str
) -> None:
    (found,) = judge_all(load(text))
    assert (found.rule, found.line) == ("unknown-setting", line)
    assert f"did you mean {meant}?" in found.fix
    assert "[contract] allow_settings" in found.fix


@pytest.mark.parametrize("text", [text for text, _, _ in TYPOS])
def test_a_setting_of_a_newer_release_is_allowed_by_name(load: Load, text: str) -> None:
    (found,) = judge_all(load(text))
    name = found.reason.split()[0]
    assert judge_all(load(f'{text}\n[contract]\nallow_settings = ["{name}"]')) == []
    (still,) = judge_all(load(f'{text}\n[contract]\nallow_settings = ["other"]'))
    assert still == found


@pytest.mark.parametrize(
    "text",
    [
        '[cluster]\nconfig."listener.name.internal.ssl.key.password" = "p"',
        '[cluster]\nconfig."listener.name.internal.plain.sasl.jaas.config" = "p"',
        '[cluster]\nconfig.lossless.sasl.users = "a:b"',
        '[cluster]\nconfig.super.users = "User:a"',
        "[cluster]\nconfig.allow.everyone.if.no.acl.found = true",
        '[cluster]\nclient.sasl.username = "a"',
        "[producers.p]\nconfig.queue.buffering.max.messages = 5",
        "[consumers.c]\nconfig.fetch.wait.max.ms = 5",
        PIPELINE + "config.default.api.timeout.ms = 5",
    ],
)
def test_settings_of_listeners_and_of_both_clients_are_known(load: Load, text: str) -> None:
    assert judge_all(load(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        '[cluster]\nconfig."listener.name.internal.ssl.key.pasword" = "p"',
        "[producers.p]\nclient = 'java'\nconfig.queue.buffering.max.messages = 5",
        "[topics.a]\nconfig.min.insync.replicas = 2\nconfig.acks = 1",
        PIPELINE + "config.fetch.wait.max.ms = 5",
    ],
)
def test_a_setting_of_something_else_is_unknown_here(load: Load, text: str) -> None:
    assert [each.rule for each in judge_all(load(text))] == ["unknown-setting"]
