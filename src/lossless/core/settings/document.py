"""docs/settings.md, made of the tables: what differs from Kafka, what is honoured, what is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lossless.core.settings.brokers import BESIDES_KAFKA, BROKERS
from lossless.core.settings.deviations import DEVIATIONS
from lossless.core.settings.groups import GROUPS
from lossless.core.settings.kinds import Setting
from lossless.core.settings.topics import SYNONYMS, TOPICS

_OPENING = """\
# Settings of the embedded brokers

The embedded brokers take Kafka 4.1's settings by their names, with Kafka's defaults.
`scripts/document-settings` writes this file.

- A topic or group with a setting that is unknown or wrong is refused, in Kafka's words.
- A broker with a wrong value does not start. One that is unknown, or that is known and not honoured
  here, is warned about and ignored.
- `kafka-configs --describe` shows every setting with its value, where that comes from, and what
  would count without it.
"""

_LISTENERS = """\
Those of listeners, as `ssl.keystore.location`, may be given for one listener and one mechanism:
`listener.name.internal.scram-sha-256.sasl.jaas.config`.
"""


def render() -> str:
    honoured = [one for one in (*BROKERS.values(), *BESIDES_KAFKA.values()) if one.honoured]
    by_engine = [one for one in BROKERS.values() if one.by_engine]
    ignored = [one for one in BROKERS.values() if not (one.honoured or one.by_engine)]
    sections = (
        _OPENING,
        "## Other defaults than Kafka's\n\nWhat you set goes before them.\n",
        _deviations(),
        "## Topics\n",
        _with_synonyms(one for one in TOPICS.values() if one.honoured),
        "Known, kept and described, without effect:\n",
        _names(one for one in TOPICS.values() if not one.honoured),
        "## Groups\n",
        _table(one for one in GROUPS.values() if one.honoured),
        "Known, kept and described, without effect:\n",
        _names(one for one in GROUPS.values() if not one.honoured),
        "## Brokers\n",
        _LISTENERS,
        _table(honoured),
        "Decided by whoever starts the cluster, and not to be set:\n",
        _names(by_engine),
        "## Brokers: known, and not honoured\n",
        "Described with Kafka's values, and without effect.\n",
        _table(ignored),
    )
    return "\n".join(sections)


def _deviations() -> str:
    rows = (
        (f"`{one.name}`", BROKERS[one.name].default or "", one.rule, one.reason)
        for one in DEVIATIONS
    )
    return _rows(("setting", "Kafka", "here", "why"), rows)


def _table(settings: Iterable[Setting]) -> str:
    rows = (
        (f"`{one.name}`", one.kind.name.lower(), _default(one), one.documentation)
        for one in _shown(settings)
    )
    return _rows(("setting", "kind", "default", "what for"), rows)


def _with_synonyms(settings: Iterable[Setting]) -> str:
    rows = (
        (
            f"`{one.name}`",
            one.kind.name.lower(),
            _default(one),
            ", ".join(f"`{synonym.name}`" for synonym in SYNONYMS.get(one.name, ())),
            one.documentation,
        )
        for one in _shown(settings)
    )
    return _rows(("setting", "kind", "default", "from the broker's", "what for"), rows)


def _names(settings: Iterable[Setting]) -> str:
    return "\n".join(f"- `{one.name}`" for one in _shown(settings)) + "\n"


def _shown(settings: Iterable[Setting]) -> list[Setting]:
    by_name: Mapping[str, Setting] = {one.name: one for one in settings if not one.internal}
    return [by_name[name] for name in sorted(by_name)]


def _default(setting: Setting) -> str:
    return "" if setting.default is None else f"`{setting.default or ' '}`"


def _rows(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
