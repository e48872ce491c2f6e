"""What DescribeConfigs answers: every setting with its value, where that comes from, and what would
count without it.

    topic     own value ▸ the broker's settings that it has its default from
    broker    changed for this broker ▸ changed for all ▸ static ▸ Kafka's default
    cluster   what was changed for all brokers, and nothing else
    group     own value, or what the broker says

Rules learnt
- Kafka looks for the sources of a topic's default under the first of their names, and leaves out
  what comes before it: retention.ms that is really log.retention.hours is shown as a default, with
  no synonyms. So it is here: tools compare.
- What nobody knows might be a secret, and its value is not shown.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from itertools import dropwhile
from typing import NamedTuple

from lossless.core.settings.brokers import BROKERS, effective, kind_of, setting_for, synonyms_of
from lossless.core.settings.groups import GROUPS, group_value
from lossless.core.settings.kinds import Kind, Mode, Setting, text_of, value_of
from lossless.core.settings.topics import SYNONYMS, TOPICS, topic_value


class Source(enum.IntEnum):
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class DescribedSynonym(NamedTuple):
    name: str
    value: str | None
    source: Source


class Described(NamedTuple):
    name: str
    value: str | None  # None: it has none, or is secret
    source: Source
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[DescribedSynonym, ...]  # the one that counts first
    kind: Kind
    documentation: str | None


_DEFAULTS = {one.name: one.default for one in BROKERS.values() if one.default is not None}


class _Layers(NamedTuple):
    """Where a broker's values come from, the one that counts first."""

    changed_here: Mapping[str, str]
    changed_for_all: Mapping[str, str]
    static: Mapping[str, str]

    def sources_of(self, name: str, is_sensitive: bool) -> tuple[DescribedSynonym, ...]:
        layers = (
            (self.changed_here, Source.DYNAMIC_BROKER_CONFIG),
            (self.changed_for_all, Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.static, Source.STATIC_BROKER_CONFIG),
            (_DEFAULTS, Source.DEFAULT_CONFIG),
        )
        found = (
            DescribedSynonym(one, None if is_sensitive else layer[one], source)
            for layer, source in layers
            for one in synonyms_of(name)
            if one in layer
        )
        return tuple(dropwhile(lambda synonym: synonym.name != name, found))

    def merged(self) -> dict[str, str]:
        return effective(self.static, self.changed_for_all, self.changed_here)


def describe_topic(
    overrides: Mapping[str, str],
    broker_properties: Mapping[str, str],
    cluster_defaults: Mapping[str, str],
    broker_overrides: Mapping[str, str] | None = None,
) -> list[Described]:
    layers = _Layers(broker_overrides or {}, cluster_defaults, effective(broker_properties))
    properties = layers.merged()
    described = []
    for name, setting in sorted(TOPICS.items()):
        if setting.internal and name not in overrides:
            continue
        value = topic_value(name, overrides, properties)
        text = None if value is None else text_of(value)
        own = (DescribedSynonym(name, text, Source.TOPIC_CONFIG),) if name in overrides else ()
        of_broker = SYNONYMS.get(name)
        behind = layers.sources_of(of_broker[0].name, setting.is_sensitive) if of_broker else ()
        described.append(_described(setting, text, own + behind, is_read_only=False))
    return described


def describe_broker(
    broker_properties: Mapping[str, str],
    cluster_defaults: Mapping[str, str],
    broker_overrides: Mapping[str, str] | None = None,
) -> list[Described]:
    layers = _Layers(broker_overrides or {}, cluster_defaults, effective(broker_properties))
    properties = layers.merged()
    shown = {name for name, setting in BROKERS.items() if not setting.internal}
    return [
        _described_broker(name, properties, layers, of_cluster=False)
        for name in sorted(shown | set(properties))
    ]


def describe_cluster_defaults(cluster_defaults: Mapping[str, str]) -> list[Described]:
    """The broker without a number: what was changed for all of them."""
    layers = _Layers({}, cluster_defaults, {})
    return [
        _described_broker(name, cluster_defaults, layers, of_cluster=True)
        for name in sorted(cluster_defaults)
    ]


def describe_group(
    overrides: Mapping[str, str], broker_properties: Mapping[str, str]
) -> list[Described]:
    described = []
    for name, setting in sorted(GROUPS.items()):
        text = text_of(group_value(name, overrides, broker_properties))
        source = Source.GROUP_CONFIG if name in overrides else Source.DEFAULT_CONFIG
        synonyms = (DescribedSynonym(name, text, source),)
        described.append(_described(setting, text, synonyms, is_read_only=False))
    return described


def _described_broker(
    name: str, properties: Mapping[str, str], layers: _Layers, *, of_cluster: bool
) -> Described:
    setting = BROKERS.get(name)
    known = setting_for(name)
    is_sensitive = known is None or known.is_sensitive
    synonyms = layers.sources_of(name, is_sensitive)
    if of_cluster:
        of_all = Source.DYNAMIC_DEFAULT_BROKER_CONFIG
        synonyms = tuple(synonym for synonym in synonyms if synonym.source is of_all)
    text = properties.get(name, setting.default if setting else None)
    if text is not None and setting is not None:
        text = text_of(value_of(setting, text))
    if setting is not None:
        is_read_only = setting.mode is Mode.READ_ONLY
        return _described(setting, text, synonyms, is_read_only=is_read_only)
    return Described(
        name=name,
        value=None if is_sensitive else text,
        source=synonyms[0].source,
        is_sensitive=is_sensitive,
        is_read_only=True,
        synonyms=synonyms,
        kind=kind_of(name),
        documentation=None,
    )


def _described(
    setting: Setting,
    text: str | None,
    synonyms: tuple[DescribedSynonym, ...],
    *,
    is_read_only: bool,
) -> Described:
    return Described(
        name=setting.name,
        value=None if setting.is_sensitive else text,
        source=synonyms[0].source if synonyms else Source.DEFAULT_CONFIG,
        is_sensitive=setting.is_sensitive,
        is_read_only=is_read_only,
        synonyms=synonyms,
        kind=setting.kind,
        documentation=setting.documentation,
    )
