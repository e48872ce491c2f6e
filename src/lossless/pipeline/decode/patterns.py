"""Regular expressions of a schema, checked by the engine that will run them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyspark.errors import IllegalArgumentException

from lossless.errors import BadInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_patterns(spark: SparkSession, patterns: Iterable[tuple[str, str]]) -> None:
    """Refuses a pattern that Java cannot compile: in a batch it would kill every task."""
    jvm: Any = spark._jvm
    for place, pattern in patterns:
        try:
            jvm.java.util.regex.Pattern.compile(pattern)
        except IllegalArgumentException as error:
            reason = str(error).splitlines()[0]
            raise BadInput(
                f"{place}: not a regular expression that Java understands: {pattern!r}: {reason}",
                hint="patterns are run by java.util.regex, which differs from ECMAScript in places",
            ) from None
