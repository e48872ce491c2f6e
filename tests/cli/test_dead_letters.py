"""`lossless dead-letters`, on a real cluster."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from command import lossless
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message, Producer

from lossless.cli.dead_letters import _shown, command
from lossless.client.retrying import Failure, Forward, InPlace
from lossless.engines.local.planned import PlannedCluster
from lossless.errors import BadInput
from topics import create_topic, read_all

THEN_MS = 1_700_000_000_000


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs each test without a contract: an address is enough."""
    monkeypatch.delenv("LOSSLESS_CONTRACT", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def servers(lossless_cluster: PlannedCluster) -> str:
    """Five dead letters of `baskets`, one of Kafka Connect, and empty topics."""
    address = lossless_cluster.bootstrap_servers
    for topic in ("baskets", "baskets-dlt", "payments", "payments-dlt", "s3-sink-letters"):
        create_topic(address, topic, partitions=1)
    errors = [ValueError("no such customer"), TimeoutError("no answer")]
    producer = Producer({"bootstrap.servers": address})
    for number in range(5):
        record = Message(
            topic="baskets",
            partition=0,
            offset=100 + number,
            key=b"customer-%d" % number,
            value=b'{"basket": %d}' % number if number else b"\x80\x81",
            headers=[("colour", b"red")],
            timestamp=(TIMESTAMP_CREATE_TIME, THEN_MS),
        )
        failure = Failure(
            message=record, error=errors[number % 2], attempt=3, now_ms=0, group="billing"
        )
        decision = InPlace(attempts=3).decide(failure)
        assert isinstance(decision, Forward)
        producer.produce(
            decision.topic,
            record.value(),
            record.key(),
            headers=list(decision.headers),  # type: ignore[arg-type]
            # --since can separate the first letter from the others.
            timestamp=THEN_MS if number == 0 else int(time.time() * 1000) + number,
        )
    producer.produce(
        "s3-sink-letters",
        "not [bold]JSON[/]\x1b[31m",
        headers={
            "__connect.errors.topic": "clicks",
            "__connect.errors.partition": "3",
            "__connect.errors.offset": "42",
            "__connect.errors.connector.name": "clicks-to-s3",
            "__connect.errors.exception.class.name": "org.apache.kafka.DataException",
        },
    )
    assert producer.flush(30) == 0
    return address


def run(servers: str, *arguments: str) -> Result:
    action, *rest = arguments
    return CliRunner().invoke(command, [action, "--kafka", servers, *rest], catch_exceptions=False)


def json_of(servers: str, *arguments: str) -> dict[str, Any]:
    result = run(servers, *arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def keys(answer: dict[str, Any]) -> list[str]:
    return [letter["key"] for letter in answer["letters"]]


def test_the_table_shows_time_origin_group_attempts_exception_key_and_value(servers: str) -> None:
    result = run(servers, "list", "baskets")
    assert result.exit_code == 0
    heading, *rows = [line for line in result.output.splitlines() if line.strip(" ─")]
    assert heading.split() == ["when", "from", "group", "attempts", "exception", "key", "value"]
    assert len(rows) == 5
    for cell in (
        "2023-11-14 22:13:20Z",
        "baskets-0@100",
        "billing",
        "3",
        "ValueError: no such customer",
        "customer-0",
        "0x8081",
    ):
        assert cell in rows[0]
    assert "TimeoutError: no answer" in rows[1]
    assert '{"basket": 4}' in rows[4]


def test_json_contains_all_fields_and_binary_values_as_base_64(servers: str) -> None:
    answer = json_of(servers, "list", "baskets-dlt")
    assert (answer["topics"], answer["count"]) == (["baskets-dlt"], 5)
    first = answer["letters"][0]
    trace = first.pop("stack_trace")
    assert trace.startswith("ValueError")
    assert first == {
        "when": "2023-11-14T22:13:20.000Z",
        "topic": "baskets-dlt",
        "partition": 0,
        "offset": 0,
        "family": "spring",
        "original": {
            "topic": "baskets",
            "partition": 0,
            "offset": 100,
            "timestamp": "2023-11-14T22:13:20.000Z",
        },
        "group": "billing",
        "attempts": 3,
        "exception": "ValueError",
        "message": "no such customer",
        "key": "customer-0",
        "value_base64": "gIE=",
        "headers": [
            {"name": "colour", "value": "red"},
            {"name": "lossless-operation-id", "value": "baskets-0@100"},
        ],
    }


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (("--exception", "TimeoutError"), [1, 3]),
        (("--exception", "*Error"), [0, 1, 2, 3, 4]),
        (("--exception", "KeyError"), []),
        (("--since", "2h"), [1, 2, 3, 4]),
        (("--until", "2023-12-01"), [0]),
        (("--since", "2023-11-14T22:13:20", "--until", "2023-11-14T22:13:21Z"), [0]),
        (("--original-topic", "baskets"), [0, 1, 2, 3, 4]),
        (("--original-topic", "clicks"), []),
        (("--limit", "2"), [3, 4]),  # the newest
        (("--exception", "ValueError", "--limit", "1"), [4]),
    ],
)
def test_filters_select_matching_letters(
    servers: str, filters: tuple[str, ...], expected: list[int]
) -> None:
    assert keys(json_of(servers, "list", "baskets", *filters)) == [
        f"customer-{number}" for number in expected
    ]


def test_a_limit_prints_the_total_number_of_letters(servers: str) -> None:
    result = run(servers, "list", "baskets", "--limit", "2")
    assert result.output.splitlines()[-1] == "showing the last 2 of 5; use --limit to show more"


def test_letters_of_other_programs_are_shown_without_markup_or_control_characters(
    servers: str,
) -> None:
    result = run(servers, "list", "s3-sink-letters")
    assert "clicks-3@42" in result.output
    assert "clicks-to-s3" in result.output
    assert "DataException" in result.output
    assert "not [bold]JSON[/]" in result.output
    assert "\x1b" not in result.output


def test_without_a_topic_all_dead_letter_topics_are_listed(servers: str) -> None:
    topics = json_of(servers, "list")["topics"]
    assert {"baskets-dlt", "payments-dlt"} <= set(topics)
    assert "s3-sink-letters" not in topics


def test_an_empty_dead_letter_topic_is_reported_with_exit_code_0(servers: str) -> None:
    result = run(servers, "list", "payments")
    assert (result.exit_code, result.output) == (0, "no dead letters in payments-dlt\n")
    result = run(servers, "replay", "payments")
    assert (result.exit_code, result.output) == (0, "payments-dlt: nothing to send back\n")


@pytest.mark.parametrize("action", ["list", "replay"])
def test_an_unknown_topic_is_refused_with_the_nearest_name(servers: str, action: str) -> None:
    with pytest.raises(BadInput) as refused:
        run(servers, action, "basket")
    assert "neither topic 'basket'" in str(refused.value)
    assert "did you mean 'baskets-dlt'?" in str(refused.value)


@pytest.mark.parametrize("wrong", [("--since", "yesterday"), ("--until", "2h ago")])
def test_an_invalid_time_is_refused_with_examples(servers: str, wrong: tuple[str, str]) -> None:
    with pytest.raises(BadInput, match="is not a time") as refused:
        run(servers, "list", "baskets", *wrong)
    assert "2h" in (refused.value.hint or "")


@pytest.fixture(scope="module")
def ordinary(servers: str) -> str:
    """A topic of ordinary records, and one of ordinary records and dead letters."""
    producer = Producer({"bootstrap.servers": servers})
    for topic in ("clicks-of-today", "mixed-dlt"):
        create_topic(servers, topic, partitions=1)
        for number in range(4):
            producer.produce(topic, b"%d" % number)
    headers = {"kafka_dlt-original-topic": "mixed", "kafka_dlt-exception-fqcn": "ValueError"}
    producer.produce("mixed-dlt", b"letter", headers=headers)
    assert producer.flush(30) == 0
    return "clicks-of-today"


@pytest.mark.parametrize("layout", ["table", "json"])
@pytest.mark.parametrize("action", ["list", "replay"])
def test_a_topic_without_letters_is_refused(
    servers: str, ordinary: str, action: str, layout: str
) -> None:
    with pytest.raises(BadInput, match="clicks-of-today contains no dead letters: 4 records") as no:
        run(servers, action, ordinary, "--format", layout)
    assert "end in -dlt" in (no.value.hint or "")


@pytest.mark.usefixtures("ordinary")
def test_records_among_letters_are_counted_and_not_shown(servers: str) -> None:
    result = run(servers, "list", "mixed")
    assert "letter" in result.stdout
    assert "mixed-dlt: 4 records without the headers of a dead letter" in result.stderr
    answer = json_of(servers, "list", "mixed")
    assert (answer["count"], answer["not_letters"]) == (1, 4)
    result = run(servers, "replay", "mixed", "--dry-run")
    assert "mixed-dlt: 1 letter would be sent back" in result.stdout
    assert "mixed-dlt: 4 records without the headers of a dead letter" in result.stderr


def test_tables_of_pipelines_with_dead_letters_are_named(
    servers: str, ordinary: str, tmp_path: Path
) -> None:
    (tmp_path / "lossless.toml").write_text(
        f"""
[cluster.client]
"bootstrap.servers" = "{servers}"
[pipelines.clicks]
topics = ["{ordinary}"]
format = "raw"
sink = {{ type = "delta", path = "clicks" }}
[pipelines.others]
topics = ["payments"]
format = "raw"
sink = {{ type = "delta", path = "others" }}
[pipelines.orders]
topics = ["orders"]
format = "raw"
sink = {{ type = "postgres", dsn = "host=nowhere", table = "shop.orders" }}
"""
    )
    (tmp_path / "clicks_dlt").mkdir()
    reads = f"spark.read.format('delta').load('{tmp_path / 'clicks_dlt'}')"
    result = run(servers, "list")
    assert "pipeline clicks stores its dead letters in" in result.stdout
    assert reads in result.stdout
    assert "SELECT * FROM shop.orders_dlt" in result.stdout
    assert "pipeline others" not in result.stdout  # its table does not exist
    names = [each["pipeline"] for each in json_of(servers, "list", "payments")["in_tables"]]
    assert names == []
    with pytest.raises(BadInput) as refused:
        run(servers, "list", ordinary)
    assert reads in (refused.value.hint or "")
    assert "orders_dlt" not in (refused.value.hint or "")


def test_replay_sends_each_letter_once_and_dry_run_sends_none(servers: str) -> None:
    assert keys(json_of(servers, "replay", "baskets", "--dry-run")) == [
        f"customer-{number}" for number in range(5)
    ]
    shown = run(servers, "replay", "baskets", "--dry-run", "--exception", "TimeoutError")
    assert "baskets-dlt: 2 letters would be sent back (3 did not match the filters)" in shown.output
    assert len(read_all(servers, "baskets")) == 0

    sent = run(servers, "replay", "baskets", "--exception", "TimeoutError")
    assert sent.output == "baskets-dlt: 2 letters sent back (3 did not match the filters)\n"
    sent = run(servers, "replay", "baskets", "--limit", "1")
    assert sent.output == "baskets-dlt: 1 letter sent back (more are left; --limit was reached)\n"
    [report] = json_of(servers, "replay", "baskets")["topics"]
    assert report == {
        "topic": "baskets-dlt",
        "matched": 2,
        "sent": 2,
        "not_asked_for": 0,
        "deleted": 0,
        "left": [],
        "not_letters": 0,
        "more": False,
    }
    sent = run(servers, "replay", "baskets")
    assert sent.output == "baskets-dlt: nothing to send back\n"
    found = read_all(servers, "baskets")
    assert [each.key() for each in found] == [b"customer-%d" % number for number in (1, 3, 0, 2, 4)]
    assert {each.timestamp()[1] for each in found} == {THEN_MS}
    # Letters stay where they are.
    assert json_of(servers, "list", "baskets")["count"] == 5


def test_the_command_uses_the_exit_codes_of_all_commands(servers: str, tmp_path: Path) -> None:
    there = lossless(tmp_path, "dead-letters", "list", "payments", "--kafka", servers)
    assert (there.returncode, there.stdout) == (0, "no dead letters in payments-dlt\n")
    missing = lossless(tmp_path, "dead-letters", "replay", "basket", "--kafka", servers)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr.startswith("error: neither topic 'basket'")
    none = lossless(tmp_path, "dead-letters", "replay", "--kafka", servers)
    assert none.returncode == 2
    taught = lossless(tmp_path, "dead-letters", "replay", "--help")
    assert "lossless dead-letters replay orders --dry-run" in taught.stdout
    assert "dead-letters" in lossless(tmp_path, "--help").stdout


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "-"),
        (b"", ""),
        (b"plain", "plain"),
        ("füß".encode(), "füß"),
        (b"two\nlines", "two lines"),
        (b"\x00\xff", "0x00ff"),
        (b"a" * 30, "a" * 9 + "…"),
        ("ä".encode() * 30, "ä" * 9 + "…"),
        ("x" + "😀" * 30, "x" + "😀" * 8 + "…"),
        (b"\xff" * 30, "0xfffffff…"),
    ],
)
def test_utf8_bytes_are_shown_as_text_and_others_in_hex(
    value: bytes | str | None, expected: str
) -> None:
    assert _shown(value.encode() if isinstance(value, str) else value, 10) == expected
