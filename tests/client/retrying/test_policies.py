"""What becomes of a record whose handler raised."""

from __future__ import annotations

import pickle
import random

import pytest
from failed_records import NOW_MS, THEN_MS, failure, forwarded, message
from hypothesis import given
from hypothesis import strategies as st

from lossless.client.errors import DeserializationFailed
from lossless.client.record import header
from lossless.client.retrying import (
    Again,
    Backoff,
    DeadLetters,
    Forward,
    InPlace,
    RetryPolicy,
    RetryTopics,
    Stop,
    is_of_another_group,
    read_letter,
)
from lossless.client.retrying.forwarding import RECORD_BYTES_MAX
from lossless.errors import BadInput

QUIET = Backoff(first_s=1, factor=2, max_s=60, jitter=0)


def test_in_place_a_record_is_tried_for_ever_each_time_later_up_to_a_bound() -> None:
    policy = InPlace(backoff=QUIET)
    decisions = [policy.decide(failure(attempt=attempt)) for attempt in range(1, 9)]
    assert decisions == [Again(each) for each in (1, 2, 4, 8, 16, 32, 60, 60)]
    assert policy.decide(failure(attempt=100_000)) == Again(60)
    assert policy.retry_topics("orders") == ()


def test_in_place_ends_after_its_attempts_in_the_dead_letters_or_stops() -> None:
    letters = InPlace(attempts=3, backoff=QUIET)
    assert letters.decide(failure(attempt=2)) == Again(2)
    decision = letters.decide(failure(attempt=3))
    assert isinstance(decision, Forward)
    assert (decision.topic, decision.is_dead_letter) == ("orders-dlt", True)
    assert read_letter(forwarded(message(), decision)).attempts == 3

    stops = InPlace(attempts=3, backoff=QUIET, then="stop")
    decision = stops.decide(failure(attempt=3))
    assert isinstance(decision, Stop)
    assert decision.reason == (
        "orders-3@42 failed 3 times, at last with ValueError: no such customer"
    )
    assert stops.dead_letter_topic("orders") is None


def test_only_the_exceptions_that_are_named_are_tried_again() -> None:
    policy = InPlace(backoff=QUIET, on=(OSError,), not_on=(FileNotFoundError,))
    assert policy.decide(failure(error=TimeoutError())) == Again(1)
    for permanent in (FileNotFoundError(), ValueError()):
        decision = policy.decide(failure(error=permanent))
        assert isinstance(decision, Forward)
        assert decision.is_dead_letter
    topics = RetryTopics(on=(OSError,))
    assert topics.decide(failure(error=ValueError())).topic == "orders-dlt"  # type: ignore[union-attr]


def test_retry_topics_are_gone_through_one_by_one_each_with_its_delay() -> None:
    policy = RetryTopics(delays_s=(10, 60.5))
    assert policy.retry_topics("orders") == ("orders-retry-0", "orders-retry-1")
    record = message(headers=[("colour", b"red")])
    seen = []
    for attempts in (1, 2, 3):
        decision = policy.decide(failure(record))
        assert isinstance(decision, Forward)
        assert decision.partition is None
        seen.append(decision.topic)
        record = forwarded(record, decision)
        letter = read_letter(record)
        assert letter.attempts == attempts
        assert letter.original_place == "orders-3@42"
        assert letter.original_timestamp_ms == THEN_MS
        assert dict(letter.headers) == {
            "colour": b"red",
            "lossless-operation-id": b"orders-3@42",
        }
        if not decision.is_dead_letter:
            assert policy.due_ms(record) == NOW_MS + (10_000 if attempts == 1 else 60_500)
    assert seen == ["orders-retry-0", "orders-retry-1", "orders-dlt"]
    assert policy.due_ms(record) is None  # dead letters wait for nobody
    assert policy.due_ms(message()) is None


def test_a_retry_topic_of_longer_delays_that_are_no_longer_set_leads_to_the_dead_letters() -> None:
    longer = RetryTopics(delays_s=(1, 2, 3))
    record = message()
    for _ in range(3):
        decision = longer.decide(failure(record))
        assert isinstance(decision, Forward)
        record = forwarded(record, decision)
    assert record.topic() == "orders-retry-2"
    decision = RetryTopics(delays_s=(1,)).decide(failure(record))
    assert isinstance(decision, Forward)
    assert decision.topic == "orders-dlt"


def test_delays_are_used_up_by_retry_topics_and_not_by_attempts() -> None:
    """Attempts also count what was tried again after a crash."""
    policy = RetryTopics(delays_s=(10, 60))
    first = policy.decide(failure(attempt=5))
    assert isinstance(first, Forward)
    assert first.topic == "orders-retry-0"
    on_retry_topic = forwarded(message(), first)
    assert read_letter(on_retry_topic).attempts == 5
    second = policy.decide(failure(on_retry_topic))
    assert isinstance(second, Forward)
    assert second.topic == "orders-retry-1"


def test_with_key_order_there_is_one_retry_topic_where_a_record_is_tried_in_place() -> None:
    policy = RetryTopics(delays_s=(10, 60, 600), keep_key_order=True)
    assert policy.retry_topics("orders") == ("orders-retry-0",)
    record = message(partition=3)
    first = policy.decide(failure(record))
    assert isinstance(first, Forward)
    assert (first.topic, first.partition) == ("orders-retry-0", 3)
    waiting = forwarded(record, first)
    assert policy.due_ms(waiting) == NOW_MS + 10_000
    assert policy.decide(failure(waiting, attempt=1)) == Again(60)
    assert policy.decide(failure(waiting, attempt=2)) == Again(600)
    last = policy.decide(failure(waiting, attempt=3))
    assert isinstance(last, Forward)
    assert last.is_dead_letter
    assert read_letter(forwarded(waiting, last)).attempts == 4


def test_a_record_behind_one_that_waits_goes_to_the_same_partition_untried_and_at_once() -> None:
    policy = RetryTopics(delays_s=(10, 60), keep_key_order=True)
    record = message(offset=43)
    forward = policy.behind(record, group="billing", now_ms=NOW_MS)
    assert (forward.topic, forward.partition) == ("orders-retry-0", 3)
    waiting = forwarded(record, forward)
    letter = read_letter(waiting)
    assert (letter.attempts, letter.exception, letter.original_offset) == (0, None, 43)
    assert policy.due_ms(waiting) == NOW_MS
    # It has all its attempts still.
    assert policy.decide(failure(waiting, attempt=1)) == Again(10)
    assert policy.decide(failure(waiting, attempt=2)) == Again(60)
    assert policy.decide(failure(waiting, attempt=3)).is_dead_letter  # type: ignore[union-attr]


def test_a_record_that_another_tool_sent_back_with_its_headers_begins_anew() -> None:
    policy = RetryTopics(delays_s=(10,))
    decision = policy.decide(failure(message()))
    assert isinstance(decision, Forward)
    back = message("orders", partition=1, offset=99, headers=list(decision.headers))
    assert policy.due_ms(back) is None
    again = policy.decide(failure(back))
    assert isinstance(again, Forward)
    assert again.topic == "orders-retry-0"
    letter = read_letter(forwarded(back, again))
    assert (letter.original_place, letter.attempts) == ("orders-1@99", 1)
    names = [name for name, _ in again.headers]
    assert len(names) == len(set(names))


def test_dead_letters_are_final() -> None:
    decision = DeadLetters().decide(failure())
    assert isinstance(decision, Forward)
    assert (decision.topic, decision.is_dead_letter) == ("orders-dlt", True)
    assert header(decision.headers, "retry_topic-backoff-timestamp") is None
    assert DeadLetters().dead_letter_topic("orders") == "orders-dlt"


def test_the_same_seed_gives_the_same_delays_and_chance_only_shortens_them() -> None:
    def delays(seed: int) -> list[float]:
        backoff = Backoff(jitter=0.5, random=random.Random(seed))
        return [backoff.delay_s(attempt) for attempt in range(1, 12)]

    assert delays(1) == delays(1)
    assert delays(1) != delays(2)
    full = [QUIET.delay_s(attempt) for attempt in range(1, 12)]
    assert all(most / 2 <= each <= most for each, most in zip(delays(3), full, strict=True))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Backoff(first_s=-1),
        lambda: Backoff(factor=0.5),
        lambda: Backoff(first_s=10, max_s=5),
        lambda: Backoff(jitter=2),
        lambda: InPlace(attempts=0),
        lambda: InPlace(then="drop"),  # type: ignore[arg-type]
        lambda: RetryTopics(delays_s=()),
        lambda: RetryTopics(suffix=""),
        lambda: RetryTopics(suffix="/retry"),
        lambda: RetryTopics(delays_s=(1, -1)),
        lambda: RetryTopics(delays_s=(1, float("nan"))),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: type) -> None:
    with pytest.raises(BadInput):
        wrong()


@pytest.mark.parametrize("policy", [InPlace(), RetryTopics(), DeadLetters()])
def test_policies_can_be_sent_to_other_processes(policy: object) -> None:
    assert pickle.loads(pickle.dumps(policy)) == policy


@given(
    value_bytes=st.integers(RECORD_BYTES_MAX - 20_000, RECORD_BYTES_MAX - 600),
    reason=st.text(max_size=3_000),
)
def test_a_record_that_fitted_still_fits_with_its_reasons(value_bytes: int, reason: str) -> None:
    record = message(value=bytes(value_bytes), headers=[("colour", b"red")])
    decision = DeadLetters().decide(failure(record, ValueError(reason)))
    assert isinstance(decision, Forward)
    headers = sum(len(name) + len(value or b"") + 8 for name, value in decision.headers)
    assert value_bytes + len(b"k") + headers + 100 <= RECORD_BYTES_MAX
    letter = read_letter(forwarded(record, decision))
    assert letter.original_place == "orders-3@42"


def test_the_reasons_are_bounded_and_give_way_from_the_least_needed() -> None:
    def deep(level: int) -> None:
        if level == 0:
            raise ValueError("ä" * 100_000)
        deep(level - 1)

    try:
        deep(200)
    except ValueError as error:
        long = error
    decision = DeadLetters().decide(failure(error=long))
    assert isinstance(decision, Forward)
    assert sum(len(value or b"") for _, value in decision.headers) < 10_000
    letter = read_letter(forwarded(message(), decision))
    assert letter.message is not None
    assert letter.message.startswith("ä")
    assert letter.message.endswith("…")
    assert letter.stack_trace is not None
    assert letter.stack_trace.endswith("ä\n")

    full = message(value=bytes(RECORD_BYTES_MAX))
    decision = DeadLetters().decide(failure(full, long))
    assert isinstance(decision, Forward)
    letter = read_letter(forwarded(full, decision))
    assert (letter.original_place, letter.exception) == ("orders-3@42", None)


def test_a_retried_record_belongs_to_the_group_that_it_failed_in() -> None:
    decision = RetryTopics(delays_s=(1,)).decide(failure())
    assert isinstance(decision, Forward)
    retried = forwarded(message(), decision)
    assert not is_of_another_group(retried, "billing")
    assert is_of_another_group(retried, "shipping")
    assert not is_of_another_group(message(), "shipping")


def test_groups_with_a_suffix_have_retry_topics_of_their_own() -> None:
    policy = RetryTopics(delays_s=(1, 2), suffix="-billing")
    assert policy.retry_topics("orders") == ("orders-billing-0", "orders-billing-1")
    first = policy.decide(failure())
    assert isinstance(first, Forward)
    assert first.topic == "orders-billing-0"
    retried = forwarded(message(), first)
    assert policy.due_ms(retried) is not None
    assert RetryTopics().due_ms(retried) is None
    second = policy.decide(failure(retried))
    assert isinstance(second, Forward)
    assert second.topic == "orders-billing-1"
    last = policy.decide(failure(forwarded(retried, second)))
    assert isinstance(last, Forward)
    assert (last.topic, last.is_dead_letter) == ("orders-dlt", True)
    letter = read_letter(forwarded(retried, last))
    assert (letter.original_place, letter.attempts) == ("orders-3@42", 3)


@pytest.mark.parametrize("policy", [InPlace(), InPlace(attempts=None), RetryTopics()])
def test_what_cannot_be_deserialised_is_not_tried_again(policy: RetryPolicy) -> None:
    decision = policy.decide(failure(error=DeserializationFailed("no JSON")))
    assert isinstance(decision, Forward)
    assert decision.is_dead_letter
