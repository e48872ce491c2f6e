"""Which names topics may have, as Kafka checks them."""

from __future__ import annotations

import re

LENGTH_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def problem(name: str) -> str | None:
    if not name:
        return "a topic needs a name"
    if name in (".", ".."):
        return f"a topic cannot be called {name!r}"
    if len(name) > LENGTH_MAX:
        return f"a topic's name has at most {LENGTH_MAX} characters, not {len(name)}"
    if not _LEGAL.fullmatch(name):
        return f"a topic's name has letters, digits, '.', '_' and '-' only, not {name!r}"
    return None
