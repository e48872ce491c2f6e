"""Which settings exist: a name that is not known is a typo, which clients warn about or ignore.

The names are data (`known_settings.ini`), by the party that reads them. Settings of a newer release
are allowed by name, with `[contract] allow_settings`.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Collection, Iterable
from functools import cache
from importlib.resources import files

from lossless.contract.place import nearest
from lossless.contract.rules.rule import Contradiction
from lossless.contract.values import Client

RULE = "unknown-setting"

# A listener has settings of its own under its name: listener.name.internal.ssl.key.password.
_OF_A_LISTENER = re.compile(r"listener\.name\.[^.]+\.(?:[^.]+\.)?(?P<base>.+)")
# Settings that Kafka's own list leaves out: those of its authorizer, and one of embedded brokers.
_BESIDES = frozenset({"allow.everyone.if.no.acl.found", "lossless.sasl.users", "super.users"})


@cache
def known_settings(*readers: str) -> frozenset[str]:
    """The names that any of these readers knows; the readers are the sections of the file."""
    return frozenset(name for reader in readers for name in _table()[reader])


def of_topics() -> frozenset[str]:
    return known_settings("topic")


def of_brokers() -> frozenset[str]:
    return known_settings("broker") | _BESIDES


def of_producers(client: Client) -> frozenset[str]:
    return known_settings("java producer", *_unless_java(client))


def of_consumers(client: Client) -> frozenset[str]:
    return known_settings("java consumer", *_unless_java(client))


def of_pipelines() -> frozenset[str]:
    """Spark reads records with the Java consumer."""
    return known_settings("java consumer")


def of_connections() -> frozenset[str]:
    """`[cluster] client` is shared by clients of every kind."""
    return known_settings("java producer", "java consumer", "java admin", "librdkafka")


def unknown_settings(
    names: Iterable[str], known: Collection[str], allowed: Collection[str]
) -> list[Contradiction]:
    """A contradiction for each name that is neither known nor allowed."""
    return [
        Contradiction(
            settings=(name,),
            reason=f"{name} is not a setting that Kafka 4.1 or librdkafka 2.16 has here",
            fix=_suggestion(name, known),
            rule=RULE,
        )
        for name in names
        if name not in known and name not in allowed and not _is_of_a_listener(name, known)
    ]


def _suggestion(name: str, known: Collection[str]) -> str:
    close = nearest(name, known)
    meant = f"did you mean {close}? " if close else ""
    return f'{meant}A setting of a newer release: [contract] allow_settings = ["{name}"]'


def _is_of_a_listener(name: str, known: Collection[str]) -> bool:
    match = _OF_A_LISTENER.fullmatch(name)
    if match is None:
        return False
    return any(name.endswith(f".{base}") for base in known if base.endswith(match["base"]))


def _unless_java(client: Client) -> tuple[str, ...]:
    """Both spellings are read for librdkafka; a Java client has no use for the other one."""
    return () if client == "java" else ("librdkafka",)


@cache
def _table() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(allow_no_value=True, delimiters="=", interpolation=None)
    file = files("lossless.contract.rules").joinpath("known_settings.ini")
    parser.read_string(file.read_text(encoding="utf-8"))
    return parser
