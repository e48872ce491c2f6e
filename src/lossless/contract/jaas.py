"""The options of a JAAS line: `Module required username="u" password="p";`."""

from __future__ import annotations

import re

_OPTION = re.compile(
    r"""([\w.$-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))"""
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def jaas_options(line: str) -> dict[str, str]:
    return {
        match[1]: _ESCAPE.sub(r"\1", match[2] or match[3] or "") or (match[4] or "")
        for match in _OPTION.finditer(line)
    }
