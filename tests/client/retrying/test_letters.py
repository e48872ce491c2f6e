"""Dead letters of every family, read into one value; ours as Spring's readers have them."""

from __future__ import annotations

import struct

import pytest
from failed_records import NOW_MS, THEN_MS, failure, forwarded, message
from hypothesis import given
from hypothesis import strategies as st

from lossless.client.retrying import DeadLetters, Forward, RetryTopics, read_letter
from lossless.client.retrying.bytes_in_headers import big_integer, number_of
from lossless.client.retrying.forwarding import is_retry_topic
from lossless.client.retrying.reading import Wanted


def dead(headers: list[tuple[str, bytes | None]]) -> object:
    return message("orders-dlt", partition=0, offset=5, headers=headers, timestamp_ms=NOW_MS)


def test_what_we_write_is_what_springs_readers_expect_byte_for_byte() -> None:
    decision = RetryTopics(delays_s=(10,)).decide(failure())
    assert isinstance(decision, Forward)
    headers = dict(decision.headers)
    trace = headers.pop("kafka_dlt-exception-stacktrace")
    assert trace is not None
    assert trace.startswith(b"Traceback (most recent call last)")
    assert headers.pop("lossless-operation-id") == b"orders-3@42"
    assert headers == {
        "kafka_dlt-original-topic": b"orders",
        "kafka_dlt-original-partition": struct.pack(">i", 3),
        "kafka_dlt-original-offset": struct.pack(">q", 42),
        "kafka_dlt-original-timestamp": struct.pack(">q", THEN_MS),
        "kafka_dlt-original-consumer-group": b"billing",
        # The attempt that comes; the timestamps as BigInteger.toByteArray has them.
        "retry_topic-attempts": struct.pack(">i", 2),
        "retry_topic-original-timestamp": struct.pack(">q", THEN_MS)[2:],
        "retry_topic-backoff-timestamp": struct.pack(">q", NOW_MS + 10_000)[2:],
        "kafka_dlt-exception-fqcn": b"ValueError",
        "kafka_dlt-exception-message": b"no such customer",
    }


def test_our_own_letter_is_read_back_whole() -> None:
    record = message(headers=[("colour", b"red"), ("lossless-operation-id", b"abc-1")])
    decision = DeadLetters().decide(failure(record))
    assert isinstance(decision, Forward)
    letter = read_letter(forwarded(record, decision, offset=5))
    assert letter.family == "spring"
    assert letter.place == "orders-dlt-0@5"
    assert letter.timestamp_ms == NOW_MS
    assert letter.original_place == "orders-3@42"
    assert letter.original_timestamp_ms == THEN_MS
    assert (letter.group, letter.attempts) == ("billing", 1)
    assert (letter.exception, letter.message) == ("ValueError", "no such customer")
    assert letter.stack_trace is not None
    assert letter.stack_trace.endswith("ValueError: no such customer\n")
    assert (letter.key, letter.value) == (b"k", b"v")
    assert list(letter.headers) == [("colour", b"red"), ("lossless-operation-id", b"abc-1")]


def test_who_forwards_signs_behind_who_sent_it_and_only_the_source_comes_back() -> None:
    signed: list[tuple[str, bytes | None]] = [
        ("colour", b"red"),
        ("colour", b"blue"),
        ("lossless-application", b"shop"),
        ("lossless-host", b"one"),
        ("lossless-operation-id", b"abc-1"),
    ]
    decision = DeadLetters().decide(failure(message(headers=signed)))
    assert isinstance(decision, Forward)
    forwarder = [("lossless-application", b"billing"), ("lossless-host", b"two")]
    letter = read_letter(dead([*decision.headers, *forwarder]))
    assert list(letter.headers) == signed


def test_a_record_without_an_operation_id_is_given_one_that_is_the_same_for_every_copy() -> None:
    ids = set()
    for attempt in (1, 2):
        decision = DeadLetters().decide(failure(attempt=attempt))
        assert isinstance(decision, Forward)
        ids.add(dict(decision.headers)["lossless-operation-id"])
    assert ids == {b"orders-3@42"}


def test_springs_retryable_topics_leave_dlt_out_of_the_names_and_repeat_the_retries() -> None:
    letter = read_letter(
        dead(
            [
                ("colour", b"red"),
                ("kafka_original-topic", b"orders"),
                ("kafka_original-partition", struct.pack(">i", 3)),
                ("kafka_original-offset", struct.pack(">q", 42)),
                ("kafka_original-timestamp", struct.pack(">q", THEN_MS)),
                ("kafka_original-timestamp-type", b"CreateTime"),
                ("kafka_dlt-original-consumer-group", b"billing"),
                ("kafka_exception-fqcn", b"org.springframework.kafka.ListenerException"),
                ("kafka_exception-cause-fqcn", b"shop.NoSuchCustomer"),
                ("kafka_exception-message", b"Listener failed"),
                ("retry_topic-attempts", struct.pack(">i", 2)),
                ("retry_topic-attempts", struct.pack(">i", 3)),
                ("retry_topic-backoff-timestamp", b"\x01\x8b\xcf\xe5h\x00"),
            ]
        )
    )
    assert letter.family == "spring"
    assert letter.original_place == "orders-3@42"
    assert letter.original_timestamp_ms == THEN_MS
    assert (letter.group, letter.attempts) == ("billing", 2)
    assert letter.exception == "org.springframework.kafka.ListenerException"
    assert list(letter.headers) == [("colour", b"red")]


def test_where_spring_appended_a_second_origin_the_first_one_counts() -> None:
    letter = read_letter(
        dead(
            [
                ("kafka_dlt-original-topic", b"orders"),
                ("kafka_dlt-original-partition", struct.pack(">i", 3)),
                ("kafka_dlt-original-topic", b"orders-retry"),
                ("kafka_dlt-original-partition", struct.pack(">i", 0)),
                ("kafka_dlt-exception-fqcn", b"first.Error"),
                ("kafka_dlt-exception-fqcn", b"last.Error"),
            ]
        )
    )
    assert (letter.original_topic, letter.original_partition) == ("orders", 3)
    assert letter.exception == "last.Error"


def test_connects_letters_are_text_and_keep_the_time_of_the_record() -> None:
    letter = read_letter(
        dead(
            [
                ("colour", b"red"),
                ("__connect.errors.topic", b"orders"),
                ("__connect.errors.partition", b"3"),
                ("__connect.errors.offset", b"42"),
                ("__connect.errors.connector.name", b"orders-to-s3"),
                ("__connect.errors.task.id", b"0"),
                ("__connect.errors.stage", b"VALUE_CONVERTER"),
                ("__connect.errors.class.name", b"org.apache.kafka.connect.json.JsonConverter"),
                ("__connect.errors.exception.class.name", b"shop.DataException"),
                ("__connect.errors.exception.message", None),
                ("__connect.errors.exception.stacktrace", b"shop.DataException\n\tat ..."),
            ]
        )
    )
    assert letter.family == "connect"
    assert letter.original_place == "orders-3@42"
    assert letter.original_timestamp_ms == NOW_MS
    assert (letter.group, letter.attempts) == ("orders-to-s3", None)
    assert (letter.exception, letter.message) == ("shop.DataException", None)
    assert list(letter.headers) == [("colour", b"red")]


def test_streams_letters_say_class_and_message_in_one() -> None:
    letter = read_letter(
        dead(
            [
                ("__streams.errors.exception", b"shop.DataException: no: such customer"),
                ("__streams.errors.message", b"no: such customer"),
                ("__streams.errors.stacktrace", b"shop.DataException: no\n\tat ..."),
                ("__streams.errors.topic", b"orders"),
                ("__streams.errors.partition", b"3"),
                ("__streams.errors.offset", b"42"),
            ]
        )
    )
    assert letter.family == "streams"
    assert letter.original_place == "orders-3@42"
    assert (letter.exception, letter.message) == ("shop.DataException", "no: such customer")
    assert letter.headers == []


@pytest.mark.parametrize(("key", "value", "copied"), [(None, None, False), (None, b"v", True)])
def test_share_groups_letters_may_hold_no_copy_of_the_record(
    key: bytes | None, value: bytes | None, copied: bool
) -> None:
    letter = read_letter(
        message(
            "dlq.orders",
            key=key,
            value=value,
            headers=[
                ("__dlq.errors.topic", b"orders"),
                ("__dlq.errors.partition", b"3"),
                ("__dlq.errors.offset", b"42"),
                ("__dlq.errors.group", b"billing"),
                ("__dlq.errors.delivery.count", b"5"),
                ("__dlq.errors.message", b"Offset rejected by client."),
            ],
        )
    )
    assert letter.family == "share"
    assert letter.original_place == "orders-3@42"
    assert (letter.group, letter.attempts) == ("billing", 5)
    assert letter.message == "Offset rejected by client."
    assert letter.has_record == copied


def test_numbers_below_zero_mean_that_nobody_knows() -> None:
    headers: list[tuple[str, bytes | None]] = [
        ("kafka_dlt-original-topic", b"orders"),
        ("kafka_dlt-original-partition", struct.pack(">i", -1)),
        ("kafka_dlt-original-offset", struct.pack(">q", -1)),
        ("kafka_dlt-original-timestamp", struct.pack(">q", -1)),
    ]
    letter = read_letter(message("orders-dlt", headers=headers))
    assert (letter.original_partition, letter.original_offset) == (None, None)
    assert letter.original_timestamp_ms is None
    assert letter.original_place == "orders"


def test_a_window_of_time_has_its_beginning_and_not_its_end() -> None:
    letters = [read_letter(message(timestamp_ms=THEN_MS + passed)) for passed in range(4)]
    wanted = Wanted(since_ms=THEN_MS + 1, until_ms=THEN_MS + 3)
    assert [wanted.matches(letter) for letter in letters] == [False, True, True, False]


def test_a_record_without_any_of_these_headers_is_a_letter_from_nowhere() -> None:
    letter = read_letter(dead([("colour", b"red")]))
    assert (letter.family, letter.original_place) == ("none", None)
    assert (letter.key, letter.value) == (b"k", b"v")
    assert letter.has_record


def test_spring_families_numbers_are_read_as_text_too() -> None:
    letter = read_letter(
        dead(
            [
                ("kafka_dlt-original-topic", b"orders"),
                ("kafka_dlt-original-partition", b"12"),
                ("kafka_dlt-original-offset", b"12345678"),
                ("kafka_dlt-original-timestamp", str(THEN_MS).encode()),
            ]
        )
    )
    assert (letter.original_partition, letter.original_offset) == (12, 12345678)
    assert letter.original_timestamp_ms == THEN_MS


NAMES = [
    "kafka_dlt-original-topic",
    "kafka_dlt-original-partition",
    "kafka_original-topic",
    "kafka_original-offset",
    "retry_topic-attempts",
    "__connect.errors.topic",
    "__connect.errors.partition",
    "__streams.errors.exception",
    "__dlq.errors.offset",
    "x",
]


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.none() | st.binary(max_size=20)), max_size=8))
def test_no_headers_break_the_reader(headers: list[tuple[str, bytes | None]]) -> None:
    letter = read_letter(dead(headers))
    assert [name for name, _ in letter.headers] == [name for name, _ in headers if name == "x"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "kafka_dlt-original-partition",
                    "kafka_dlt-original-offset",
                    "kafka_dlt-original-timestamp",
                    "kafka_dlt-original-consumer-group",
                    "retry_topic-attempts",
                    "retry_topic-backoff-timestamp",
                    "retry_topic-original-timestamp",
                ]
            ),
            st.none()
            | st.binary(max_size=10)
            | st.integers(0, 2**70).map(lambda number: str(number).encode())
            | st.just(b"9" * 5_000),
        ),
        max_size=7,
    ),
    st.booleans(),
)
def test_no_headers_of_others_break_a_policy(
    headers: list[tuple[str, bytes | None]], keep_key_order: bool
) -> None:
    origin: list[tuple[str, bytes | None]] = [("kafka_dlt-original-topic", b"orders")]
    waiting = message("orders-retry-0", headers=origin + headers)
    policy = RetryTopics(delays_s=(1, 2), keep_key_order=keep_key_order)
    policy.decide(failure(waiting))
    policy.due_ms(waiting)
    assert isinstance(DeadLetters().decide(failure(waiting)), Forward)


@given(st.integers(-(2**63), 2**63 - 1))
def test_big_integers_are_as_short_as_java_writes_them(number: int) -> None:
    encoded = big_integer(number)
    assert int.from_bytes(encoded, "big", signed=True) == number
    if len(encoded) > 1:
        with pytest.raises(OverflowError):
            number.to_bytes(len(encoded) - 1, "big", signed=True)


@given(
    st.one_of(
        st.integers(0, 1_000_000).map(lambda number: (number, struct.pack(">i", number))),
        st.integers(0, 2**60).map(lambda number: (number, struct.pack(">q", number))),
        st.integers(10, 2**62).map(lambda number: (number, str(number).encode())),
        st.integers(10**12, 10**13).map(lambda number: (number, big_integer(number))),
    )
)
def test_a_number_is_told_from_text_by_its_bytes(pair: tuple[int, bytes]) -> None:
    number, encoded = pair
    assert number_of(encoded) == number


def test_what_is_a_retry_topic() -> None:
    assert is_retry_topic("orders-retry-0", of="orders")
    assert is_retry_topic("orders-retry", of="orders")
    assert is_retry_topic("orders-retry-60000", of="orders")
    assert not is_retry_topic("orders", of="orders")
    assert not is_retry_topic("orders-dlt", of="orders")
    assert not is_retry_topic("orders-retries", of="orders")
