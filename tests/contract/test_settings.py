"""Settings as text: flattening, references, properties files."""

from __future__ import annotations

import json
import string
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lossless.contract import load_contract
from lossless.contract.properties import parse_properties
from lossless.contract.substitution import SubstitutionError, substitute

WORDS = st.text(alphabet=string.ascii_lowercase + string.digits + "-_", min_size=1, max_size=8)
NAMES = st.lists(WORDS, min_size=1, max_size=4).map(".".join)
TEXTS = st.text(
    alphabet=st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="$"), min_size=1
)
VALUES = st.one_of(st.booleans(), st.integers(-(2**40), 2**40), TEXTS)


def as_setting(value: bool | int | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def loaded(text: str) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "lossless.toml"
        file.write_text(text, encoding="utf-8")
        return dict(load_contract(file, environment={}).cluster.config)


@settings(deadline=None)  # it writes files, on machines that may be busy
@given(values=st.dictionaries(NAMES, VALUES, max_size=6))
def test_quoted_names_come_out_as_they_were_written(values: dict[str, Any]) -> None:
    lines = [
        f'config."{name}" = {json.dumps(value, ensure_ascii=False)}'
        for name, value in values.items()
    ]
    assert loaded("\n".join(["[cluster]", *lines])) == {
        name: as_setting(value) for name, value in values.items()
    }


@settings(deadline=None)  # it writes files, on machines that may be busy
@given(values=st.dictionaries(NAMES, VALUES, max_size=6))
def test_bare_names_mean_the_same_as_quoted_ones(values: dict[str, Any]) -> None:
    # One name may not begin with another's parts: TOML itself refuses that, and so do we below.
    apart = {
        name: value
        for name, value in values.items()
        if not any(other.startswith(name + ".") for other in values)
    }
    lines = [
        f"config.{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in apart.items()
    ]
    assert loaded("\n".join(["[cluster]", *lines])) == {
        name: as_setting(value) for name, value in apart.items()
    }


@given(before=TEXTS, value=TEXTS, after=TEXTS)
def test_a_reference_is_replaced_once_and_its_value_taken_as_it_is(
    before: str, value: str, after: str
) -> None:
    environment = {"A": value + "${B}", "B": "never"}
    found = substitute(f"{before}${{A}}{after}", environment=environment, folder=Path())
    assert found.text == f"{before}{value}${{B}}{after}"
    assert found.parts == (value + "${B}",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${SET:-other}", "value"),
        ("${EMPTY:-other}", "other"),
        ("${EMPTY}", ""),
        ("${UNSET:-}", ""),
        ("${UNSET:-a:-b}", "a:-b"),
        ("$${SET} $SET $$", "${SET} $SET $$"),
        ("${file:secret}", "from file"),
    ],
)
def test_references_follow_the_shell(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from file\n")
    environment = {"SET": "value", "EMPTY": ""}
    assert substitute(text, environment=environment, folder=tmp_path).text == expected


def test_a_secret_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\xff\xfe")
    with pytest.raises(SubstitutionError, match="not text in UTF-8"):
        substitute("${file:secret}", environment={}, folder=tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb = 2\nc: 3\nd 4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# a=1\n! b=2\n\n  c=3", {"c": "3"}),
        ("a=1\\\n   2\\\n   3\nb=4", {"a": "123", "b": "4"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a\\=b=c=d", {"a=b": "c=d"}),
        ("a=\\u00e9\\t\\n\\z", {"a": "é\t\nz"}),
        ("a=1\r\nb=2\r", {"a": "1", "b": "2"}),
        ("a=\nb", {"a": "", "b": ""}),
        ("a=1\\", {"a": "1"}),
        ("a=1\na=2", {"a": "2"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected
