"""docs/unsupported.md: which of Kafka's APIs are left out, and why; which are spoken; what is
answered differently.

`scripts/document-unsupported` writes the file from the tables in versions.py and differences.py.
"""

from __future__ import annotations

from lossless.log.compression import BODY_BYTES_MAX
from lossless.log.record_structure import ELEMENTS_MAX as BATCH_ELEMENTS_MAX
from lossless.wire.bounds import ELEMENTS_MAX, TAGS_MAX
from lossless.wire.differences import DIFFERENCES
from lossless.wire.versions import APIS, BOTH, BROKER, LEFT_OUT, Listener

_HEAD = """\
# What the embedded brokers do not speak

Written by `scripts/document-unsupported` from `src/lossless/wire/versions.py`; a test compares the
table with what Apache Kafka 4.1 advertises. Every other API is spoken in exactly its versions.

An API that is left out is not advertised either: clients see it in the answer to ApiVersions, and
say so. Whoever asks nevertheless loses the connection, as with Apache Kafka.

| API | key | listeners | why |
|---|---|---|---|
"""
_LIMITS = f"""
## Limits that Apache Kafka does not have

| limit | what happens |
|---|---|
| A request has at most {ELEMENTS_MAX:,} elements in all its lists | the connection is closed |
| A set of tagged fields has at most {TAGS_MAX} | the connection is closed |
| A compressed batch unpacks to at most {BODY_BYTES_MAX >> 20} MiB | MESSAGE_TOO_LARGE |
| A batch has at most {BATCH_ELEMENTS_MAX:,} records, and as many headers | MESSAGE_TOO_LARGE |
| The numbers in a record are written as short as possible (varints) | INVALID_RECORD |
| The offset deltas of a batch are 0, 1, 2 … | INVALID_RECORD |
"""
_DIFFERENCES = """
## What is answered differently

Tests ask both engines the same (`tests/conformance`); this is where the answers differ on purpose.

| what | embedded | Apache Kafka | why |
|---|---|---|---|
"""
_SPOKEN = """
## What is spoken

| API | key | versions | listeners |
|---|---|---|---|
"""


def render() -> str:
    left_out = "".join(
        f"| {_title(one.name)} | {one.key} | {_listeners(one.listeners)} | {one.why} |\n"
        for one in LEFT_OUT
    )
    spoken = "".join(
        f"| {_title(api.name)} | {api.key} | {_versions(api.lowest, api.highest)} "
        f"| {_listeners(api.listeners)} |\n"
        for _, api in sorted(APIS.items())
    )
    differences = "".join(
        f"| {one.behaviour} | {one.embedded.name} | {one.apache.name} | {one.why} |\n"
        for one in DIFFERENCES
    )
    return _HEAD + left_out + _LIMITS + _DIFFERENCES + differences + _SPOKEN + spoken


def _title(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _versions(lowest: int, highest: int) -> str:
    return str(lowest) if lowest == highest else f"{lowest} to {highest}"


def _listeners(listeners: Listener) -> str:
    if listeners == BOTH:
        return "brokers, controllers"
    return "brokers" if listeners == BROKER else "controllers"
