"""Reading `[pipelines.NAME]` and its sink."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args
from urllib.parse import unquote, urlsplit

from lossless.contract.keys import keys_of
from lossless.contract.section import LONG_MAX, Section, one_of
from lossless.contract.values import (
    DeltaSinkContract,
    Format,
    Guarantee,
    Isolation,
    Mode,
    ParquetSinkContract,
    PipelineContract,
    PostgresSinkContract,
    SinkContract,
    Start,
)

TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")

_FIRST_START = datetime(1970, 1, 1, tzinfo=UTC)

DEAD_LETTER_SUFFIX = "_dlt"
PAUSES_UNTIL_STUCK = 2  # an open transaction is reported after so many of the promised pauses

_PIPELINE_NAME = re.compile(r"[A-Za-z0-9._-]+")
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_TABLE = re.compile(r"[^\W\d][\w$]*(\.[^\W\d][\w$]*)?")
# Two letters at least, as a single one would be a Windows drive.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_DSN = re.compile(r"postgres(ql)?://\S+|\s*\w+\s*=.*", re.DOTALL)

# What the pipeline itself decides; a second value in `config` could only contradict it.
_DECIDED_BY: Mapping[str, str] = {
    "auto.offset.reset": "set `start` instead",
    "enable.auto.commit": "leave it out: offsets are committed after the sink's own commit",
    "group.id": "set `group` instead",
    "interceptor.classes": "leave it out: Spark's connector takes no interceptors",
    "isolation.level": "set `isolation` instead",
    "key.deserializer": "leave it out: records are read as bytes and decoded by `format`",
    "value.deserializer": "leave it out: records are read as bytes and decoded by `format`",
}
_NOT_YET: Mapping[tuple[str, str], str] = {
    ("format", "avro"): 'use "json" or "raw"',
    ("mode", "upsert"): 'use "append"',
    ("type", "iceberg"): 'use "delta", "postgres" or "parquet"',
    ("type", "kafka"): 'use "delta", "postgres" or "parquet"',
}


def read_pipeline(section: Section, guarantee: Guarantee) -> PipelineContract:
    if "key" in section:
        raise section.error(
            "key",
            "has no effect: rows are appended",
            hint='leave it out; it is for mode = "upsert", which is not supported yet',
        )
    section.allow(*keys_of("pipelines.NAME"))
    if not _PIPELINE_NAME.fullmatch(section.name):
        raise section.error(
            None,
            "is not a name for a pipeline",
            hint="letters, digits, '.', '_' and '-': it names folders and groups",
        )
    _refuse_not_yet(section, "format")
    _refuse_not_yet(section, "mode")
    section.require("sink", hint=f'add [pipelines.{section.name}.sink] with type = "delta"')
    return PipelineContract(
        name=section.name,
        sink=_read_sink(section.table("sink")),
        topics=_read_topics(section),
        topic_pattern=_read_pattern(section),
        format=section.choice("format", get_args(Format), "json"),
        schema=_read_schema(section),
        transform=_read_transform(section),
        mode=section.choice("mode", get_args(Mode), "append"),
        start=_read_start(section),
        isolation=section.choice("isolation", get_args(Isolation), "read_committed"),
        records_per_batch_max=section.integer(
            "records_per_batch_max", None, least=1, most=LONG_MAX
        ),
        trigger_s=section.seconds("trigger_s", 1.0),
        dead_letters_max=section.integer("dead_letters_max", None, least=0, most=LONG_MAX),
        add_columns=section.boolean("add_columns", False),
        group=section.string("group", f"lossless-{section.name}"),
        retry_max_s=section.seconds("retry_max_s", 300.0),
        stuck_after_s=section.seconds(
            "stuck_after_s",
            max(PAUSES_UNTIL_STUCK * guarantee.pause_max_s, 1.0),
            above_zero=True,
        ),
        config=_read_config(section),
        spark=section.settings("spark", prefix="spark."),
        guarantee=guarantee,
    )


def refuse_sinks_among_dead_letters(
    sections: Iterable[Section], pipelines: Mapping[str, PipelineContract]
) -> None:
    """Refuses a sink at the place where another one keeps its dead letters."""
    kept_at = {
        (server, place + DEAD_LETTER_SUFFIX): name
        for name, pipeline in pipelines.items()
        for server, place in [_place_of(pipeline.sink)]
    }
    for section in sections:
        owner = kept_at.get(_place_of(pipelines[section.name].sink))
        if owner is not None:
            raise section.table("sink").error(
                "table" if pipelines[section.name].sink.type == "postgres" else "path",
                f"is where the pipeline {owner} keeps its dead letters",
                hint="give the sink a place of its own",
            )


def refuse_sinks_within_others(
    sections: Iterable[Section], pipelines: Mapping[str, PipelineContract]
) -> None:
    """Refuses a sink whose folder is in the folder of another: readers would find both tables."""
    folders = {
        folder: name
        for name, pipeline in pipelines.items()
        if not isinstance(pipeline.sink, PostgresSinkContract)
        for place in [_place_of(pipeline.sink)[1]]
        for folder in (place, place + DEAD_LETTER_SUFFIX)
    }
    for section in sections:
        sink = pipelines[section.name].sink
        if isinstance(sink, PostgresSinkContract):
            continue
        place = _place_of(sink)[1]
        for folder, owner in folders.items():
            if place.startswith(f"{folder}/"):
                raise section.table("sink").error(
                    "path",
                    f"is in the folder of the pipeline {owner}, {folder}",
                    hint="give the sink a folder of its own",
                )


def _place_of(sink: SinkContract) -> tuple[str, str]:
    """The server, where there is one, and the table or path."""
    if isinstance(sink, PostgresSinkContract):
        return sink.dsn, sink.table
    return "", sink.path.rstrip("/")


def _read_topics(section: Section) -> tuple[str, ...]:
    if ("topics" in section) == ("topic_pattern" in section):
        raise section.error(
            "topic_pattern" if "topics" in section else None,
            "stands beside topics: one of the two" if "topics" in section else "reads no topic",
            hint='give topics = ["shop.orders"] or topic_pattern = "shop\\\\..*"',
        )
    topics = section.strings("topics")
    for position, topic in enumerate(topics):
        if not TOPIC_NAME.fullmatch(topic):
            raise section.error(
                "topics",
                f"has a name that Kafka does not allow, number {position + 1}",
                hint="letters, digits, '.', '_' and '-'; a pattern goes into topic_pattern",
            )
    return topics


def _read_pattern(section: Section) -> str | None:
    pattern = section.string("topic_pattern", None)
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise section.error(
            "topic_pattern",
            f"is not a regular expression: {error}",
            hint='a pattern reads like "shop\\..*"',
        ) from error
    return pattern


def _read_schema(section: Section) -> str | Path | None:
    text = section.string("schema", None)
    if section.raw("format") == "raw":
        if text is not None:
            raise section.error(
                "schema", 'has no meaning with format = "raw"', hint="the value stays bytes"
            )
        return None
    if text is None:
        raise section.error(
            None,
            "decodes JSON and needs 'schema'",
            hint='schema = "schemas/orders.json" (JSON Schema) or DDL: "order_id BIGINT, …"',
        )
    # DDL is at least a name, a space and a type; a file name rarely has a space in it.
    if any(character.isspace() for character in text) and not text.endswith(".json"):
        return text
    folder = section.document.file.parent
    file = folder / text
    try:
        exists = file.is_file()
    except OSError:  # a name that is too long for a file
        exists = False
    if not exists:
        raise section.error(
            "schema",
            f"names a file that does not exist: {section.raw('schema')}",
            hint=f"the path is relative to the contract, in {folder}; "
            "DDL has a space before each type",
        )
    return file


def _read_transform(section: Section) -> str | None:
    transform = section.string("transform", None)
    if transform is not None and not _FUNCTION.fullmatch(transform):
        raise section.error(
            "transform",
            "does not name a function",
            hint='write module:function, as in "my_app.orders:clean"',
        )
    return transform


def _read_start(section: Section) -> Start:
    value = section.raw("start")
    if isinstance(value, datetime):
        start = value
    else:
        text = section.string("start", "earliest")
        if text == "earliest":
            return "earliest"
        if text == "latest":
            return "latest"
        try:
            start = datetime.fromisoformat(text)
        except ValueError:
            raise section.error(
                "start",
                'must be "earliest", "latest" or a time',
                hint="a time is written as 2025-01-31T12:00:00Z or with +01:00 at the end",
            ) from None
    if start.tzinfo is None:
        raise section.error(
            "start",
            "is a time without an offset, which means another moment on every machine",
            hint="add Z for UTC or an offset: 2025-01-31T12:00:00+01:00",
        )
    if start < _FIRST_START:
        # Kafka takes negative times for "earliest", "latest" and more.
        raise section.error("start", "is before 1970", hint='for all records: start = "earliest"')
    return start


def _read_config(section: Section) -> dict[str, str]:
    config = {**section.properties(), **section.settings("config")}
    for name in config:
        if name in _DECIDED_BY:
            raise section.error(
                ("config", *name.split(".")),
                "is not for the contract to set in a pipeline",
                hint=_DECIDED_BY[name],
            )
    return config


def _read_sink(section: Section) -> SinkContract:
    section.require("type", hint='type = "delta", "postgres" or "parquet"')
    _refuse_not_yet(section, "type")
    kind = section.choice("type", ("delta", "postgres", "parquet"), "delta")
    if kind == "postgres":
        section.allow("type", "dsn", "table")
        return _read_postgres(section)
    section.allow("type", "path")
    section.require("path", hint='path = "./warehouse/orders"')
    path = section.string("path", "")
    scheme = _SCHEME.match(path)
    if scheme and scheme[1].lower() == "file":
        # file:/a, file:///a and file:a are all in use; a host in it is not.
        path = unquote(urlsplit(path).path)
        if "\0" in path:
            raise section.error("path", "holds the character NUL (%00)")
        scheme = None
    if scheme is None:
        path = str((section.document.file.parent / path).resolve())
    elif kind == "parquet":
        raise section.error(
            "path",
            f"is on {scheme[1]}:, where no rename is atomic, so that a batch cannot appear at once",
            hint='use a local path, or type = "delta"',
        )
    return DeltaSinkContract(path=path) if kind == "delta" else ParquetSinkContract(path=path)


def _read_postgres(section: Section) -> PostgresSinkContract:
    dsn = section.secret("dsn")
    if not _DSN.fullmatch(dsn):
        raise section.error(
            "dsn",
            "is not an address of PostgreSQL",
            hint='write "postgresql://user:${PASSWORD}@host:5432/database" or '
            '"host=… dbname=… user=… password=${PASSWORD}"',
        )
    section.require("table", hint='table = "orders" or "shop.orders"')
    table = section.string("table", "")
    if not _TABLE.fullmatch(table):
        raise section.error(
            "table", "is not the name of a table", hint='write "orders" or "shop.orders"'
        )
    return PostgresSinkContract(dsn=dsn, table=table)


def _refuse_not_yet(section: Section, key: str) -> None:
    value = section.raw(key)
    if isinstance(value, str) and (key, value) in _NOT_YET:
        raise section.error(
            key, f"{one_of([value])} is not supported yet", hint=_NOT_YET[(key, value)]
        )
