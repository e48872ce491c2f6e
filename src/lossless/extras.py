"""The extras of the package: the modules that each installs, and how to install it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from lossless.errors import Unavailable

# Top-level modules by the extra in pyproject.toml that installs them.
_EXTRA_OF: Mapping[str, str] = {
    "numpy": "spark",
    "pandas": "spark",
    "prometheus_client": "metrics",
    "psycopg": "postgres",
    "py4j": "spark",
    "pyarrow": "spark",
    "pyspark": "spark",
    "redis": "redis",
}


def missing_extra(error: ImportError) -> Unavailable | None:
    """Returns the error for a missing extra, or None for any other import error."""
    module = (error.name or "").partition(".")[0]
    extra = _EXTRA_OF.get(module)
    if extra is None or not isinstance(error, ModuleNotFoundError):
        return None
    return _absent(module, extra)


def require_extra(extra: str) -> None:
    """Raises Unavailable unless every module of the extra is installed. Imports none of them."""
    for module in (name for name, brought_by in _EXTRA_OF.items() if brought_by == extra):
        if find_spec(module) is None:
            raise _absent(module, extra)


def _absent(module: str, extra: str) -> Unavailable:
    return Unavailable(f"{module} is not installed", hint=f"pip install 'lossless[{extra}]'")
