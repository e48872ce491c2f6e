"""Secrets: what must never be shown, recognised by name, by where it came from, or by its shape.

A name says so (`ssl.key.password`, `sasl.jaas.config`, a `dsn`), or the value came into a client's
settings through `${ENV}` or `${file:path}`, or it looks like `scheme://user:password@host`. Values
seen while a contract is read are remembered for the life of the process, because they come back in
the error messages of other libraries; `redact_text` takes them out again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote

from lossless.contract.jaas import jaas_options

HIDDEN = "***"

# Shorter values are too common in ordinary text to be cut out of it.
_LENGTH_IN_TEXT_MIN = 4

_SECRET_NAME = re.compile(
    r"password|passwd|passphrase|secret|token|jaas|user\.info|dsn"
    r"|(private|access|account|api)[._-]?key|ssl\.key\.|ssl\.keystore\.key$",
    re.IGNORECASE,
)
_OPEN_NAME = re.compile(
    r"\.(url|ms|seconds|location|type|class|enabled?|algorithm|provider)$", re.IGNORECASE
)
# Settings that people bring in by ${ENV} and that say where or how, never who with what key.
_OPEN_SETTINGS = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "client.rack",
        "group.id",
        "group.instance.id",
        "sasl.mechanism",
        "security.protocol",
        "transactional.id",
    }
)
# Up to the last @: a password with an unescaped @ in it must not show its second half.
_URL_PASSWORD = re.compile(r"(?<=://)([^\s:/@]*):(\S+)@")
# What a reference often stands for and what is no secret, whoever sets it.
_ORDINARY = re.compile(r"true|false|-?\d+(\.\d+)?", re.IGNORECASE)
_ASSIGNED_PASSWORD = re.compile(
    r"""\b((?:\w*password|passwd|\w*secret|clientSecret)\s*=\s*)("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s'";,&]+)""",
    re.IGNORECASE,
)

_remembered: set[str] = set()


def is_secret_name(name: str) -> bool:
    return bool(_SECRET_NAME.search(name)) and not _OPEN_NAME.search(name)


def remember_setting(name: str, value: str, *, substituted: tuple[str, ...] = ()) -> None:
    """Takes note of what in this setting is secret; `substituted` are the parts from outside."""
    if is_secret_name(name):
        _remember(value)
        for option, inner in jaas_options(value).items():
            if is_secret_name(option):
                _remember(inner)
    if name not in _OPEN_SETTINGS:
        for part in substituted:
            if is_secret_name(name) or not _ORDINARY.fullmatch(part):
                _remember(part)
    for match in _URL_PASSWORD.finditer(value):
        _remember(match.group(2))
        _remember(unquote(match.group(2)))


def redacted(settings: Mapping[str, str]) -> dict[str, str]:
    """The same settings with every secret hidden: what may be printed, logged or stored."""
    return {name: _shown(name, value) for name, value in settings.items()}


def redact_text(text: str) -> str:
    """The same text without any secret seen so far and without passwords that show themselves."""
    # The longest first: a secret may be part of another.
    for secret in sorted(_remembered, key=len, reverse=True):
        if len(secret) >= _LENGTH_IN_TEXT_MIN:
            text = text.replace(secret, HIDDEN)
    text = _URL_PASSWORD.sub(rf"\1:{HIDDEN}@", text)
    return _ASSIGNED_PASSWORD.sub(rf"\1{HIDDEN}", text)


def _shown(name: str, value: str) -> str:
    if is_secret_name(name) or value in _remembered:
        return HIDDEN
    return redact_text(value)


def _remember(value: str) -> None:
    if value:
        _remembered.add(value)
