"""Every way to write a contract wrongly: the message, the line, the way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lossless.contract import Contract, ContractError, load_contract
from lossless.errors import BadInput

Load = Callable[..., Contract]

PIPELINE = """[pipelines.orders]
topics = ["shop.orders"]
format = "raw"
{0}
[pipelines.orders.sink]
type = "delta"
path = "warehouse"
"""
SINK = """[pipelines.orders]
topics = ["shop.orders"]
format = "raw"
[pipelines.orders.sink]
{0}
"""
KEYS_OF_CLUSTER = "known here: brokers, controllers, racks, config, client, properties"


def pipeline(line: str) -> str:
    return PIPELINE.format(line)


def sink(lines: str) -> str:
    return SINK.format(lines)


# text, line, what, (part of the) hint
REFUSALS = [
    # unknown keys
    (
        "[clutser]",
        1,
        "unknown key 'clutser' at the top of the contract",
        "did you mean 'cluster'? known here: guarantee, cluster, topics, producers, consumers",
    ),
    (
        "[cluster]\n\nbrokrs = 3",
        3,
        "unknown key 'brokrs' in [cluster]",
        f"did you mean 'brokers'? {KEYS_OF_CLUSTER}",
    ),
    ("[cluster]\nzzz = 3", 2, "unknown key 'zzz' in [cluster]", KEYS_OF_CLUSTER),
    (
        '[topics."shop.orders"]\npartitions = 1\nreplication-factor = 3',
        3,
        "unknown key 'replication-factor' in [topics.\"shop.orders\"]",
        "did you mean 'replication_factor'?",
    ),
    ("[producers.a]\nacks = 1", 2, "unknown key 'acks' in [producers.a]", "known here: client"),
    ("[consumers.a]\ncomit = 1", 2, "unknown key 'comit' in [consumers.a]", "'commit'"),
    ("[guarantee]\nsurvive = 1", 2, "unknown key 'survive' in [guarantee]", "'survives'"),
    (pipeline("topic = 1"), 4, "unknown key 'topic' in [pipelines.orders]", "'topics'"),
    (
        pipeline("guarantee.delivry = 1"),
        4,
        "unknown key 'delivry' in [pipelines.orders.guarantee]",
        "'delivery'",
    ),
    ("[contract]\nallow_setting = []", 2, "unknown key 'allow_setting' in [contract]", "'allow_s"),
    (
        "[contract]\nallow_settings = 'a'",
        2,
        '[contract] allow_settings must be an array of strings, as in ["a"], not "a"',
        None,
    ),
    (
        sink('type = "delta"\npath = "a"\ntable = "b"'),
        7,
        "unknown key 'table' in [pipelines.orders.sink]",
        "known here: type, path",
    ),
    # types and ranges
    (
        '[cluster]\nbrokers = "3"',
        2,
        '[cluster] brokers must be a whole number, not "3"',
        None,
    ),
    ("[cluster]\nbrokers = true", 2, "must be a whole number, not true", None),
    ("[cluster]\nbrokers = 0", 2, "[cluster] brokers must be at least 1, not 0", None),
    ("[cluster]\ncontrollers = -1", 2, "must be at least 0, not -1", None),
    (
        '[cluster]\nracks = "a"',
        2,
        '[cluster] racks must be an array of strings, as in ["a"], not "a"',
        None,
    ),
    ("[cluster]\nracks = [1]", 2, 'must be an array of strings, as in ["a"], not [1]', None),
    ("[cluster]\nconfig = 3", 2, "config must be settings, as in config.some.name", None),
    (
        "[cluster]\nconfig.a.b = 2025-01-01",
        2,
        "[cluster] config.a.b must be a string, a number, true or false, not 2025-01-01",
        None,
    ),
    (
        '[cluster]\nconfig.a.b = 1\nconfig."a.b" = 2',
        3,
        '[cluster] config."a.b" sets a.b twice, bare and quoted',
        None,
    ),
    ("cluster = 3", 1, "cluster must be a section, [cluster], not 3", None),
    ("[topics]\npartitions = 3", 2, "must be a section with a name of its own", "[topics.NAME]"),
    ("[topics.a]\npartitions = 0", 2, "[topics.a] partitions must be at least 1, not 0", None),
    ('[topics."a b"]', 1, '[topics."a b"] is not a name that Kafka allows', "letters, digits"),
    (
        '[producers.a]\nclient = "jav"',
        2,
        '[producers.a] client must be "lossless", "java" or "librdkafka", not "jav"',
        "did you mean 'java'?",
    ),
    (
        '[guarantee]\ndelivery = "exactly_once"',
        2,
        'must be "at-most-once", "at-least-once" or "exactly-once", not "exactly_once"',
        "did you mean 'exactly-once'?",
    ),
    ("[guarantee]\npause_max_s = -1", 2, "pause_max_s must be 0 or more seconds, not -1", None),
    ("[guarantee]\npause_max_s = nan", 2, "must be 0 or more seconds, not nan", None),
    ("[guarantee]\npause_max_s = inf", 2, "must be at most 3162240000 seconds, not inf", None),
    ("[guarantee]\npause_max_s = -inf", 2, "must be 0 or more seconds, not -inf", None),
    ("[guarantee]\npause_max_s = 1e300", 2, "must be at most 3162240000 seconds", None),
    (
        f"[guarantee]\npause_max_s = 1{'0' * 400}",
        2,
        "must be at most 3162240000 seconds, not a number of 401 digits",
        None,
    ),
    ("[cluster]\nbrokers = 2000000000", 2, "brokers must be at most 1000, not 2000000000", None),
    ("[cluster]\nbrokers = -3", 2, "brokers must be at least 1, not -3", None),
    (
        '[topics."shop.orders"]\npartitions = 9999999999999999999999999999',
        2,
        "partitions must be at most 1000000, not a number of 28 digits",
        None,
    ),
    (
        '[topics."shop.orders"]\nreplication_factor = 4294967296',
        2,
        "replication_factor must be at most 2147483647, not 4294967296",
        None,
    ),
    (
        "[cluster.config]\nnum.io.threads = 99999999999999999999",
        2,
        "num.io.threads must be a number of at most 64 bits, not 99999999999999999999",
        None,
    ),
    ("[cluster.config]\nnum.io.threads = nan", 2, "must be a number of at most 64 bits", None),
    (
        pipeline("records_per_batch_max = 9223372036854775808"),
        4,
        "records_per_batch_max must be at most 9223372036854775807",
        None,
    ),
    (pipeline("dead_letters_max = -1"), 4, "dead_letters_max must be at least 0, not -1", None),
    (pipeline("trigger_s = 1e12"), 4, "trigger_s must be at most 3162240000 seconds", None),
    (pipeline("start = 1969-12-31T23:59:59Z"), 4, "start is before 1970", "earliest"),
    # the character NUL, which no path and no name has
    (sink('type = "delta"\npath = "ware\\u0000house"'), 6, "path holds the character NUL", None),
    (
        sink('type = "parquet"\npath = "file:/ware%00house"'),
        6,
        "path holds the character NUL (%00)",
        None,
    ),
    (pipeline('group = "a\\u0000"'), 4, "group holds the character NUL", None),
    (
        pipeline('schema = "gone\\u0000.json"').replace('"raw"', '"json"'),
        4,
        "schema holds the character NUL",
        None,
    ),
    (
        pipeline('properties = "client\\u0000.properties"'),
        4,
        "properties holds the character NUL",
        None,
    ),
    (
        pipeline('config.client.id = "a\\u0000"'),
        4,
        "config.client.id holds the character NUL",
        None,
    ),
    ('[guarantee]\npause_max_s = "30"', 2, 'must be a number of seconds, not "30"', None),
    ("[guarantee]\nduplicates_max = -1", 2, "must be at least 0, not -1", None),
    # what nothing acts on
    (
        "[guarantee]\nduplicates_max = 5",
        2,
        "[guarantee] duplicates_max must be 0, not 5: nothing counts duplicates against a limit",
        "set 0, or leave it out",
    ),
    *(
        (
            f"[guarantee.survives]\n{fault} = true",
            2,
            f"[guarantee.survives] {fault} is not a fault that can be promised",
            "faults: broker-crash, leader-crash",
        )
        for fault in ("broker-resume", "network-mend", "disk-slow", "producer-crash")
    ),
    (
        pipeline("guarantee.order = 'none'"),
        4,
        "[pipelines.orders.guarantee] order has no meaning for a pipeline",
        "_lossless",
    ),
    (
        pipeline("key = ['a']"),
        4,
        "[pipelines.orders] key has no effect: rows are appended",
        'mode = "upsert", which is not supported yet',
    ),
    # types and ranges
    (
        "[guarantee]\norder = 'none'\nsurvives = { brokr-crash = 1 }",
        3,
        "[guarantee.survives] brokr-crash is not a fault",
        "did you mean 'broker-crash'? faults: broker-crash, leader-crash",
    ),
    (
        "[guarantee.survives]\nbroker-crash = 0",
        2,
        "[guarantee.survives] broker-crash must be at least 1, not 0",
        None,
    ),
    (
        "[guarantee.survives]\nbroker-crash = 'yes'",
        2,
        "broker-crash must be true, false or how many at a time, from 1",
        None,
    ),
    (pipeline("add_columns = 1"), 4, "add_columns must be true or false, not 1", None),
    (pipeline("stuck_after_s = 0"), 4, "stuck_after_s must be above 0 seconds, not 0", None),
    (pipeline("records_per_batch_max = 0"), 4, "must be at least 1, not 0", None),
    (pipeline("group = ' '"), 4, "[pipelines.orders] group is empty", None),
    (pipeline("").replace('["shop.orders"]', "[]"), 2, "[pipelines.orders] topics is empty", None),
    (pipeline("").replace('"]', '", ""]'), 2, "topics has an empty string in it", None),
    (pipeline("").replace('"]', '", "shop.orders"]'), 2, 'topics names "shop.orders" twice', None),
    (pipeline("transform = 'clean'"), 4, "transform does not name a function", "module:function"),
    (pipeline("transform = 5"), 4, "transform must be a string, not 5", None),
    # what a pipeline needs
    ('[pipelines."a/b"]', 1, '[pipelines."a/b"] is not a name for a pipeline', "letters"),
    (
        '[pipelines.a]\ntopics = ["a"]\nformat = "raw"',
        1,
        "[pipelines.a] needs 'sink'",
        "add [pipelines.a.sink]",
    ),
    (
        pipeline("").replace('topics = ["shop.orders"]', ""),
        1,
        "[pipelines.orders] reads no topic",
        "give topics",
    ),
    (
        pipeline("topic_pattern = 'a.*'"),
        4,
        "[pipelines.orders] topic_pattern stands beside topics: one of the two",
        "give topics",
    ),
    (
        pipeline("").replace('topics = ["shop.orders"]', 'topic_pattern = "shop.("'),
        2,
        "[pipelines.orders] topic_pattern is not a regular expression: missing ), unterminated",
        "a pattern reads like",
    ),
    (
        pipeline("").replace("shop.orders", "shop.*"),
        2,
        "topics has a name that Kafka does not allow, number 1",
        "topic_pattern",
    ),
    (
        pipeline("").replace('"raw"', '"json"'),
        1,
        "[pipelines.orders] decodes JSON and needs 'schema'",
        "JSON Schema",
    ),
    (
        pipeline(f'schema = "{"a:BIGINT," * 50}b:DATE"').replace('"raw"', '"json"'),
        4,
        "[pipelines.orders] schema names a file that does not exist",
        "DDL has a space before each type",
    ),
    (
        pipeline('schema = "gone.json"').replace('"raw"', '"json"'),
        4,
        "schema names a file that does not exist: gone.json",
        "relative to the contract",
    ),
    (
        pipeline('schema = "a BIGINT"'),
        4,
        'schema has no meaning with format = "raw"',
        "bytes",
    ),
    (pipeline("start = 'ealiest'"), 4, 'start must be "earliest", "latest" or a time', "Z"),
    (
        pipeline("start = 2025-01-31T12:00:00"),
        4,
        "start is a time without an offset",
        "add Z for UTC",
    ),
    (pipeline("start = 2025-01-31"), 4, "start must be a string, not 2025-01-31", None),
    (
        pipeline('config.group.id = "a"'),
        4,
        "config.group.id is not for the contract to set in a pipeline",
        "set `group` instead",
    ),
    # not built yet
    (
        pipeline("").replace('"raw"', '"avro"'),
        3,
        '[pipelines.orders] format "avro" is not supported yet',
        'use "json" or "raw"',
    ),
    (pipeline('mode = "upsert"'), 4, 'mode "upsert" is not supported yet', 'use "append"'),
    (sink('type = "iceberg"'), 5, 'type "iceberg" is not supported yet', 'use "delta"'),
    (sink('type = "kafka"'), 5, 'type "kafka" is not supported yet', 'use "delta"'),
    # sinks
    (sink(""), 4, "[pipelines.orders.sink] needs 'type'", "delta"),
    (sink('type = "detla"'), 5, 'must be "delta", "postgres" or "parquet", not "detla"', "'delta'"),
    (sink('type = "delta"'), 4, "[pipelines.orders.sink] needs 'path'", "path = "),
    (
        sink('type = "parquet"\npath = "s3a://b/o"'),
        6,
        "path is on s3a:, where no rename is atomic",
        "use a local path",
    ),
    (sink('type = "postgres"\ntable = "a"'), 4, "[pipelines.orders.sink] needs 'dsn'", None),
    (sink('type = "postgres"\ndsn = "host=a"'), 4, "needs 'table'", "table ="),
    (
        sink('type = "postgres"\ndsn = "mysql://a"\ntable = "a"'),
        6,
        "dsn is not an address of PostgreSQL",
        "postgresql://",
    ),
    (
        sink('type = "postgres"\ndsn = "host=a"\ntable = "a.b.c"'),
        7,
        "table is not the name of a table",
        "shop.orders",
    ),
    # references
    (
        '[cluster]\nclient.sasl.jaas.config = "${KAFKA_PASSWORD}"',
        2,
        "client.sasl.jaas.config cannot be filled in: the environment variable KAFKA_PASSWORD is",
        "export KAFKA_PASSWORD=",
    ),
    (
        '[cluster]\nclient.a = "${file:gone}"',
        2,
        "client.a cannot be filled in: ${file:gone} cannot be read: No such file or directory",
        "relative to the contract",
    ),
    (
        '[cluster]\nracks = ["${a b}"]',
        2,
        "racks cannot be filled in: ${a b} is not a reference",
        "${NAME:-default}",
    ),
    ('[cluster]\nracks = ["${a"]', 2, "'${' has no '}'", "$${"),
    (
        '[cluster]\nproperties = "gone.properties"',
        2,
        "properties names a file that cannot be read: No such file or directory",
        "relative to the contract",
    ),
    # syntax
    ("[cluster]\nbrokers = three", 2, "not valid TOML: Invalid value", "text values need quotes"),
    ("[cluster]\nbrokers =", 2, "not valid TOML: Invalid value", None),
    (
        '[cluster]\nconfig.sasl.mechanism = "PLAIN"\nconfig.sasl.mechanism.inter = "PLAIN"',
        3,
        "not valid TOML: Cannot overwrite a value",
        "quote both names",
    ),
]


@pytest.mark.parametrize(
    ("text", "line", "what", "hint"), REFUSALS, ids=[case[2][:60] for case in REFUSALS]
)
def test_it_is_refused_with_place_reason_and_way_out(
    load: Load, tmp_path: Path, text: str, line: int, what: str, hint: str | None
) -> None:
    with pytest.raises(ContractError) as caught:
        load(text)

    error = caught.value
    assert isinstance(error, BadInput)
    assert error.exit_code == 2
    assert error.file == tmp_path / "lossless.toml"
    assert (error.line, error.what.splitlines()) == (line, [error.what])
    assert error.what.startswith(f"{tmp_path / 'lossless.toml'}:{line}: ")
    assert what in error.what
    assert (hint or "") in (error.hint or "")


@pytest.mark.parametrize(
    ("first", "second", "key"),
    [
        ('type = "delta"\npath = "a"', 'type = "delta"\npath = "./a_dlt"', "path"),
        ('type = "delta"\npath = "s3://b/a/"', 'type = "delta"\npath = "s3://b/a_dlt"', "path"),
        ('type = "delta"\npath = "a"', 'type = "parquet"\npath = "a_dlt"', "path"),
        (
            'type = "postgres"\ndsn = "host=h"\ntable = "a"',
            'type = "postgres"\ndsn = "host=h"\ntable = "a_dlt"',
            "table",
        ),
    ],
)
def test_a_sink_among_the_dead_letters_of_another_is_refused(
    load: Load, first: str, second: str, key: str
) -> None:
    other = sink(second).replace("pipelines.orders", "pipelines.other")
    with pytest.raises(ContractError) as caught:
        load(f"{sink(first)}\n{other}")
    assert f"sink] {key} is where the pipeline orders keeps its dead letters" in caught.value.what


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ('type = "delta"\npath = "t"', 'type = "delta"\npath = "./t/sub"'),
        ('type = "parquet"\npath = "t"', 'type = "delta"\npath = "t/a/b"'),
        ('type = "delta"\npath = "t"', 'type = "delta"\npath = "t_dlt/sub"'),
        ('type = "delta"\npath = "s3://b/t/"', 'type = "delta"\npath = "s3://b/t/sub"'),
    ],
)
@pytest.mark.parametrize("outer_is_first", [True, False])
def test_a_sink_in_the_folder_of_another_is_refused(
    load: Load, outer: str, inner: str, outer_is_first: bool
) -> None:
    sections = [sink(outer), sink(inner).replace("pipelines.orders", "pipelines.other")]
    with pytest.raises(ContractError) as caught:
        load("\n".join(sections if outer_is_first else reversed(sections)))
    assert "pipelines.other.sink] path is in the folder of the pipeline orders" in caught.value.what


def test_sinks_beside_each_other_are_accepted(load: Load) -> None:
    beside = sink('type = "delta"\npath = "tables"').replace("pipelines.orders", "pipelines.other")
    load(sink('type = "delta"\npath = "table"') + "\n" + beside)


@pytest.mark.parametrize("value", ["1" + "0" * 5000, "[" * 100_000])
def test_toml_that_python_cannot_read_is_refused(load: Load, value: str) -> None:
    with pytest.raises(ContractError, match="cannot be read as TOML"):
        load(f"[cluster]\nbrokers = {value}")


def test_a_properties_file_with_the_character_nul_is_refused(load: Load, tmp_path: Path) -> None:
    (tmp_path / "consumer.properties").write_text("client.id=a\0")
    with pytest.raises(ContractError, match=r"a file in which client\.id holds the character NUL"):
        load(pipeline('properties = "consumer.properties"'))


def test_the_place_is_short_for_those_who_stand_in_the_folder(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ContractError, match=r"^lossless.toml:2: "):
        load("[cluster]\nbrokers = 0")


def test_the_nearest_name_is_an_attribute(load: Load) -> None:
    with pytest.raises(ContractError) as caught:
        load("[cluster]\nBrokers = 3")
    assert caught.value.nearest == "brokers"


def test_a_key_below_a_text_of_many_lines_keeps_its_own_line(load: Load) -> None:
    text = '[pipelines.a]\nschema = """\ntopics = 1\n[sink]\n"""\ntopics = [\n  "a",\n]\ntopcs = 1'
    with pytest.raises(ContractError) as caught:
        load(text)
    assert caught.value.line == 9


def test_a_setting_of_a_properties_file_that_a_pipeline_decides_is_refused(
    load: Load, tmp_path: Path
) -> None:
    (tmp_path / "consumer.properties").write_text("group.id=a")
    with pytest.raises(ContractError, match=r"config.group.id is not for the contract") as caught:
        load(pipeline('properties = "consumer.properties"'))
    assert caught.value.hint == "set `group` instead"


def test_a_file_that_is_not_text_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "lossless.toml"
    file.write_bytes(b"[cluster]\n# \xff\n")
    with pytest.raises(ContractError, match=r":2: is not text in UTF-8"):
        load_contract(file, environment={})
