"""Java properties files, as every Kafka tool reads them: `properties = "client.properties"`."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SEPARATOR = re.compile(r"(?P<key>(?:[^\\=:\s]|\\.)*)\s*(?:[=:]\s*)?(?P<value>.*)", re.DOTALL)


def parse_properties(text: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _SEPARATOR.fullmatch(line)
        assert match is not None  # the pattern takes any line
        settings[_unescape(match["key"])] = _unescape(match["value"])
    return settings


def _logical_lines(text: str) -> list[str]:
    """Comments and blanks left out; a line that ends in an odd number of backslashes goes on."""
    lines: list[str] = []
    pending: str | None = None
    # Not splitlines(): Java knows no line ends but these.
    for line in re.split(r"\r\n|\n|\r", text):
        stripped = line.lstrip(" \t\f")
        if pending is None and (not stripped or stripped[0] in "#!"):
            continue
        joined = (pending or "") + stripped
        if (len(joined) - len(joined.rstrip("\\"))) % 2:
            pending = joined[:-1]
        else:
            lines.append(joined)
            pending = None
    return [*lines, pending] if pending else lines


def _unescape(text: str) -> str:
    def replacement(match: re.Match[str]) -> str:
        escaped = match.group(1)
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        return _ESCAPED.get(escaped, escaped)

    return _ESCAPE.sub(replacement, text)
