"""Every key of the contract: what it takes, what holds without it, and what acts on it.

The reader allows a key only if it stands here, `docs/contract.md` is generated from this table, and
a test changes each key and observes that the behaviour or the verdict changes with it.
"""

from __future__ import annotations

from typing import NamedTuple


class Key(NamedTuple):
    section: str
    name: str
    takes: str
    default: str
    acts: str  # what happens because of it


_GUARANTEE = (
    (
        "delivery",
        '"at-most-once", "at-least-once" or "exactly-once"',
        '"exactly-once"',
        "the rules ask for acknowledgements, retries, idempotence, copies and commits accordingly",
    ),
    (
        "pause_max_s",
        "seconds",
        "30",
        (
            "the longest pause while a fault is handled: a delivery timeout has to be longer "
            "(four times as long by default), and a pipeline says that it is stuck after two"
        ),
    ),
    (
        "duplicates_max",
        "0",
        "0 with exactly-once, else no limit",
        (
            "0 asks for idempotent producers and read_committed where less than exactly-once is "
            "promised; nothing counts duplicates against a higher limit, so that one is refused"
        ),
    ),
    (
        "survives",
        "faults, each with true, false or how many at a time",
        "see below",
        (
            "the rules ask for replicas, in-sync replicas, controllers, timeouts and commits that "
            "outlive each of these faults"
        ),
    ),
)
_DELIVERY, _PAUSE, _DUPLICATES, _SURVIVES = _GUARANTEE
_ORDER = (
    "order",
    '"none", "per-key" or "per-partition"',
    '"per-partition"',
    "the rules refuse producers that may reorder",
)
_PROPERTIES = (
    "properties",
    "the name of a Java properties file",
    "none",
    "its settings are read first, those of the contract override them",
)
_CLIENT = (
    "client",
    '"lossless", "java" or "librdkafka"',
    '"lossless"',
    (
        "whose defaults the rules assume where nothing is set: `lossless.Producer` and "
        "`lossless.Consumer`, the Java client, or librdkafka as it is"
    ),
)

_KEYS: dict[str, tuple[tuple[str, str, str, str], ...]] = {
    "guarantee": (_DELIVERY, _ORDER, _PAUSE, _DUPLICATES, _SURVIVES),
    "cluster": (
        ("brokers", "a number", "3", "`up` starts so many; the rules count replicas against it"),
        (
            "controllers",
            "a number",
            "0: up to three brokers are controllers too",
            (
                "`up` starts so many in processes of their own; the rules ask for a majority that "
                "outlives the faults"
            ),
        ),
        ("racks", "names", "none", "`up` spreads the brokers over them in turn"),
        (
            "config.*",
            "settings of brokers",
            "none",
            "`up` starts brokers with them; they are the defaults of topics in the rules",
        ),
        (
            "client.*",
            "settings of clients of any kind",
            "none",
            "pipelines, `Producer`, `Consumer`, `audit` and `dead-letters` connect with them",
        ),
        (
            "properties",
            "the name of a Java properties file",
            "none",
            "its settings are read first, those under client override them",
        ),
    ),
    "topics.NAME": (
        ("partitions", "a number", "1", "`up` creates the topic with so many"),
        (
            "replication_factor",
            "a number",
            "3, or as many as there are brokers",
            "`up` creates the topic with so many; the rules ask for enough to survive the faults",
        ),
        ("config.*", "settings of topics", "none", "`up` creates the topic with them"),
    ),
    "producers.NAME": (
        _CLIENT,
        ("config.*", "settings of producers", "none", "`Producer.from_contract` sends with them"),
        _PROPERTIES,
    ),
    "consumers.NAME": (
        _CLIENT,
        (
            "commit",
            '"after-processing", "before-processing" or "auto"',
            '"after-processing" with client = "lossless", else "auto"',
            "the rules refuse commits that come before processing where nothing may be lost",
        ),
        ("config.*", "settings of consumers", "none", "`Consumer.from_contract` reads with them"),
        _PROPERTIES,
    ),
    "pipelines.NAME": (
        ("topics", "names of topics", "this or topic_pattern", "these are read"),
        (
            "topic_pattern",
            "a regular expression",
            "this or topics",
            "topics that match are read, but for those whose names begin with `__`",
        ),
        ("format", '"json" or "raw"', '"json"', "values are decoded, or stay bytes"),
        ("schema", "a JSON Schema file, or DDL", "needed for json", "decides columns and types"),
        ("transform", '"module:function"', "none", "the function changes every batch"),
        ("mode", '"append"', '"append"', "rows are appended; upsert is refused: it is not built"),
        (
            "start",
            '"earliest", "latest" or a time',
            '"earliest"',
            "where reading begins when the ledger does not say",
        ),
        (
            "isolation",
            '"read_committed" or "read_uncommitted"',
            '"read_committed"',
            "whether records of aborted transactions are stored",
        ),
        ("records_per_batch_max", "a number", "no limit", "a batch reads no more offsets"),
        ("trigger_s", "seconds", "1", "how often a batch begins"),
        ("dead_letters_max", "a number", "no limit", "the pipeline stops beyond so many"),
        ("add_columns", "true or false", "false", "whether the table may grow by columns"),
        ("group", "a name", "lossless-NAME", "offsets are committed to this group, for lag tools"),
        ("retry_max_s", "seconds", "300", "how long a failing batch is retried"),
        (
            "stuck_after_s",
            "seconds",
            "twice pause_max_s",
            "a transaction that has been open for so long is reported",
        ),
        ("config.*", "settings of the Java consumer", "none", "Spark reads the topics with them"),
        _PROPERTIES,
        ("spark.*", "settings of Spark", "none", "the Spark session is built with them"),
        ("sink", "a section", "needed", "see [pipelines.NAME.sink]"),
        ("guarantee", "a section", "[guarantee]", "see [pipelines.NAME.guarantee]"),
    ),
    "pipelines.NAME.guarantee": (
        (
            "delivery",
            _DELIVERY[1],
            "of [guarantee]",
            "the rules ask for read_committed with exactly-once; a pipeline always delivers so",
        ),
        (
            "pause_max_s",
            "seconds",
            "of [guarantee]",
            (
                "open transactions are reported after twice as long; retries must last longer if "
                "sink-outage is survived"
            ),
        ),
        (
            "duplicates_max",
            "0",
            "of [guarantee]",
            "0 asks for read_committed where less than exactly-once is promised",
        ),
        (
            "survives",
            _SURVIVES[1],
            "of [guarantee]",
            "the rules ask for retries that outlive sink-outage and executor-crash",
        ),
    ),
    "pipelines.NAME.sink": (
        ("type", '"delta", "postgres" or "parquet"', "needed", "which kind of table is written"),
        ("path", "a folder; for delta also a URI", "needed", "the table of delta or parquet"),
        ("dsn", "an address of PostgreSQL", "needed", "the server of a postgres table"),
        ("table", '"table" or "schema.table"', "needed", "the postgres table"),
    ),
    "contract": (
        (
            "allow_settings",
            "names of settings",
            "none",
            (
                "settings with these names are not refused as unknown, for releases newer than the "
                "tables here"
            ),
        ),
    ),
}

KEYS = tuple(Key(section, *rest) for section, keys in _KEYS.items() for rest in keys)
SECTIONS = tuple(_KEYS)
# The top of the contract, in the order of the reference.
TOP = tuple(dict.fromkeys(section.partition(".")[0] for section in SECTIONS))


def keys_of(section: str) -> tuple[str, ...]:
    """The keys that may stand in this section."""
    return tuple(key.name.removesuffix(".*") for key in KEYS if key.section == section)
