"""The tables say what Kafka 4.1 says."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import kafka_says
import pytest

import lossless
from lossless.core.settings.broker_settings import PARTS, setting_name
from lossless.core.settings.broker_tables import security
from lossless.core.settings.brokers import BROKERS
from lossless.core.settings.groups import GROUPS, bounds_of
from lossless.core.settings.kinds import Setting, problem, text_of, value_of
from lossless.core.settings.table import read_table
from lossless.core.settings.topics import SYNONYMS, TOPICS

SCOPES = {"broker": BROKERS, "topic": TOPICS, "group": GROUPS}

# Kafka checks these further. The engine decides the first two, and nobody acts on the others.
UNCHECKED = {
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "authorizer.class.name",
    "share.auto.offset.reset",
}

# In other tables than that of security.
OF_LISTENERS_ELSEWHERE = {
    "connection.failed.authentication.delay.ms",
    "security.inter.broker.protocol",
}


@pytest.mark.parametrize("scope", SCOPES)
def test_every_setting_is_there_with_kafkas_kind_default_and_limits(scope: str) -> None:
    table: Mapping[str, Setting] = SCOPES[scope]
    said = kafka_says.settings(scope)
    assert set(table) == set(said)
    for name, setting in table.items():
        ours = {
            "kind": setting.kind.name.lower(),
            "default": setting.default,
            "valid": "" if setting.limit is None else str(setting.limit),
            "required": setting.required,
            "internal": setting.internal,
            "mode": setting.mode.value,
        }
        assert ours == {
            **{key: said[name][key] for key in ours},
            **({"valid": ""} if name in UNCHECKED else {}),
        }, name


@pytest.mark.parametrize("scope", SCOPES)
def test_every_default_is_a_valid_value_in_its_own_spelling(scope: str) -> None:
    for setting in SCOPES[scope].values():
        if setting.default is not None:
            assert problem(setting, setting.default) is None
            assert text_of(value_of(setting, setting.default)) == setting.default


@pytest.mark.parametrize("scope", SCOPES)
def test_every_setting_is_documented_by_one_sentence(scope: str) -> None:
    for setting in SCOPES[scope].values():
        assert setting.documentation.endswith("."), setting.name
        assert len(setting.documentation) <= 100, setting.name


def test_a_topics_defaults_come_from_settings_of_the_broker() -> None:
    for name, synonyms in SYNONYMS.items():
        assert name in TOPICS
        assert all(synonym.name in BROKERS for synonym in synonyms)


def test_what_is_honoured_is_what_is_read() -> None:
    """What listeners read is compared in tests/broker/security/test_security_settings.py."""
    of_brokers = {setting_name(field.name) for part in PARTS for field in fields(part)}
    of_topics = {
        synonym.name
        for name, synonyms in SYNONYMS.items()
        if TOPICS[name].honoured
        for synonym in synonyms
    }
    of_groups = {bound for name, one in GROUPS.items() if one.honoured for bound in bounds_of(name)}
    of_listeners = {name for name in read_table(security.TABLE) if BROKERS[name].honoured}
    read = of_brokers | of_topics | of_groups | of_listeners | OF_LISTENERS_ELSEWHERE
    assert {one.name for one in BROKERS.values() if one.honoured} == read
    assert of_listeners.isdisjoint(of_brokers | of_topics | of_groups)
    assert not any(one.honoured and one.by_engine for one in BROKERS.values())


def test_every_field_of_the_settings_is_read_by_the_brokers_code() -> None:
    source = Path(lossless.__file__).parent
    files = [file for part in ("broker", "core", "wire") for file in (source / part).rglob("*.py")]
    read = {
        node.attr
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute)
    }
    unread = [field.name for part in PARTS for field in fields(part) if field.name not in read]
    assert unread == []


@pytest.mark.parametrize(
    "text",
    [
        "some.name: int\n    Once.\nsome.name: int\n    Twice.",
        "some.name: int (loved)\n    An unknown mark.",
        "some.name: int about 7\n    An unknown limit.",
        "some.name\n    Without a kind.",
    ],
)
def test_a_table_that_cannot_be_read_stops_at_once(text: str) -> None:
    with pytest.raises(AssertionError):
        read_table(text)
