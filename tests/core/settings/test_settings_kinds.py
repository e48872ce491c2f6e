from __future__ import annotations

import math

import pytest

from lossless.core.settings.kinds import (
    InvalidSetting,
    Kind,
    NonEmpty,
    OneOf,
    Range,
    Setting,
    problem,
    text_of,
    value_of,
)


def setting(kind: Kind, limit: Range | OneOf | NonEmpty | None = None) -> Setting:
    return Setting(name="some.name", kind=kind, limit=limit, documentation="For tests.")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.BOOLEAN, "true", True),
        (Kind.BOOLEAN, " False\n", False),
        (Kind.INT, "+7", 7),
        (Kind.INT, "-2147483648", -(1 << 31)),
        (Kind.SHORT, "0032767", 32767),
        (Kind.LONG, "9223372036854775807", (1 << 63) - 1),
        (Kind.DOUBLE, ".5", 0.5),
        (Kind.DOUBLE, "1e3f", 1000.0),
        (Kind.DOUBLE, "-Infinity", -math.inf),
        (Kind.LIST, "", ()),
        (Kind.LIST, " a , b,,c ", ("a", "b", "", "c")),
        (Kind.STRING, "  as it is  ", "as it is"),
        (Kind.CLASS, "org.example.Some", "org.example.Some"),
    ],
)
def test_a_text_means_what_java_reads_in_it(kind: Kind, text: str, value: object) -> None:
    assert value_of(setting(kind), text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.BOOLEAN, "yes"),
        (Kind.INT, "2147483648"),
        (Kind.INT, "1_000"),
        (Kind.INT, "9" * 5000),
        (Kind.SHORT, "32768"),
        (Kind.LONG, ""),
        (Kind.LONG, "1.0"),
        (Kind.DOUBLE, "half"),
        (Kind.DOUBLE, ""),
    ],
)
def test_a_text_of_another_kind_is_refused(kind: Kind, text: str) -> None:
    with pytest.raises(InvalidSetting, match=r"^Invalid value .* for configuration some.name: "):
        value_of(setting(kind), text)


def test_the_message_names_value_setting_and_what_is_expected() -> None:
    assert problem(setting(Kind.INT, Range(1, 17)), "18") == (
        "Invalid value 18 for configuration some.name: Value must be no more than 17"
    )
    assert problem(setting(Kind.STRING, OneOf(("A", "B"), any_case=True)), "c") == (
        "Invalid value c for configuration some.name: "
        "String must be one of (case insensitive): A, B"
    )
    assert problem(setting(Kind.STRING, NonEmpty()), " ") == (
        "Invalid value  for configuration some.name: String must be non-empty"
    )


def test_a_secret_is_not_in_the_message() -> None:
    wrong = problem(setting(Kind.PASSWORD, OneOf(("x",))), "hunter2")
    assert wrong is not None
    assert "hunter2" not in wrong


def test_capitals_do_not_matter_where_kafka_does_not_mind_them() -> None:
    assert problem(setting(Kind.STRING, OneOf(("UPGRADE",), any_case=True)), "upgrade") is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (12, "12"),
        (("a", "b"), "a,b"),
        (0.0, "0.0"),
        (0.01, "0.01"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.0, "1.2345678E7"),
        (-2.5e10, "-2.5E10"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
    ],
)
def test_a_value_is_written_as_java_writes_it(value: float, text: str) -> None:
    assert text_of(value) == text
