"""Column names that a schema may use."""

from __future__ import annotations

from collections.abc import Sequence

from lossless.errors import BadInput

RESERVED = "_lossless"


def check_names(names: Sequence[str], *, where: str) -> None:
    """Refuses names that would clash: with ours, or with each other in a table."""
    seen: dict[str, str] = {}
    for name in names:
        if not name:
            raise BadInput(f"{where}: a column has an empty name")
        if name.lower().startswith(RESERVED):
            raise BadInput(
                f"{where}: the column {name!r} is reserved: names that start with {RESERVED!r} "
                "carry the provenance of a row",
                hint="give the column another name",
            )
        if "'" in name and '"' in name:
            raise BadInput(f"{where}: the name {name!r} has both kinds of quotes; use one at most")
        if name.lower() in seen:
            raise BadInput(
                f"{where}: the columns {seen[name.lower()]!r} and {name!r} are the same to Spark "
                "and to tables, which ignore case",
                hint="keep one of them",
            )
        seen[name.lower()] = name
