"""What went wrong below Delta, told apart by the names of the Java exceptions.

A conflict means that somebody else committed first; a storage failure is named by what the
operating system said. Everything else is not ours to interpret: a transform that throws must reach
the runner as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

# What a call into the JVM raises: Spark's own errors are converted by PySpark, others are not.
JAVA_ERRORS = (Py4JError, PySparkException)

_CONFLICTS = (
    "ConcurrentTransactionException",
    "ConcurrentAppendException",
    "ConcurrentDeleteReadException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentWriteException",
    "MetadataChangedException",
    "ProtocolChangedException",
)

_STORAGE_REASON = re.compile(
    "No space left on device|Disk quota exceeded|File too large|Read-only file system"
    "|Permission denied|Operation not permitted|Input/output error|Not a directory"
    "|Mkdirs failed to create[^\n(]*|Cannot create (?:directory|file)[^\n]*"
    "|(?:AccessControl|AccessDenied)Exception[^\n]*|Connection (?:refused|reset|timed out)"
)


_LASTING_REASON = re.compile("Permission|Operation not|Not a dir|Read-only|Mkdirs|Cannot|Access")


def is_conflict(error: Exception) -> bool:
    return any(name in _CONFLICTS for name in _names(error))


def storage_reason(error: Exception) -> str | None:
    """The operating system's words when storage failed, else None."""
    text = f"{error}\n" + "\n".join(str(each.toString()) for each in _java_chain(error))
    if "Traceback (most recent call last)" in text:
        return None  # a Python function of the user's failed, whatever it says about permissions
    found = _STORAGE_REASON.search(text)
    return found.group().strip() if found else None


def is_lasting(reason: str) -> bool:
    """Whether a storage failure is one that does not pass by itself."""
    return _LASTING_REASON.match(reason) is not None


def first_line(error: Exception) -> str:
    """What the innermost cause says, on one line."""
    chain = list(_java_chain(error))
    text = str(chain[-1].toString()) if chain else str(error)
    return text.strip().partition("\n")[0]


def _names(error: Exception) -> Iterator[str]:
    yield type(error).__name__  # delta-spark's Python package converts conflicts by itself
    for each in _java_chain(error):
        yield str(each.getClass().getSimpleName())


def _java_chain(error: Exception) -> Iterator[Any]:
    java = error.java_exception if isinstance(error, Py4JJavaError) else None
    java = java if java is not None else getattr(error, "_origin", None)
    depth = 0
    while java is not None and depth < 20:
        yield java
        java, depth = java.getCause(), depth + 1
