"""Scenario files that claim what they do not show, and files that are not scenarios."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lossless.cli.main import cli
from lossless.errors import BadInput
from lossless.simulator.exhausting import scope_of, search
from lossless.simulator.scenario import load, run

SCENARIO = """title: One record
claims: R18
settings: acks=all producers=1 consumers=0
look for: lost
script:
  at 10 p1 sends 1
  at 12 broker 1 dies
---
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "scenario.txt"
    file.write_text(text)
    return file


def prove(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["prove", *map(str, arguments)])


@pytest.mark.parametrize(
    ("replaced", "by", "why"),
    [
        ("p1 sends", "p9 sends", "there is no such process"),
        ("broker 1 dies", "broker 9 dies", "there is no such process"),
        ("broker 1 dies", "broker 0 dies", "there is no such process"),
        ("broker 1 dies", "broker 1 > c1 is cut", "there is no such process"),
        ("broker 1 dies", "broker 1 > broker 2 Foo takes 9", "no request is called Foo"),
        ("at 12", "at 99999999999", "the largest is 60000"),
        ("sends 1", "sends 1000", "NAME sends N"),
        ("look for: lost", "look for: lost\nlook for: stuck", "look for is there twice"),
        ("acks=all", "acks=all acks=1", "acks is given twice"),
        ("look for: lost\n", "", "needs `look for`"),
        ("look for: lost", "right: acks=1\nexpect wait < 9 ms\nwithout: rf=1", "right needs"),
        ("script:", "exhaust: brokers=2\nscript:", "exhaust and settings cannot be had together"),
        ("script:", "seeds: 5\nscript:", "script and seeds cannot be had together"),
        ("script:", "expect wait < 9 ms\nexpect wait < 9 ms\nscript:", "is there twice"),
        ("script:", "expect waits < 9 ms\nscript:", "nothing can be expected"),
        ("script:", "expects wait < 9 ms\nscript:", "is not an expect line"),
    ],
)
def test_what_would_be_passed_over_is_refused_with_the_reason(
    tmp_path: Path, replaced: str, by: str, why: str
) -> None:
    text = SCENARIO.replace(replaced, by, 1)
    assert text != SCENARIO
    with pytest.raises(BadInput, match=why):
        load(written(tmp_path, text))


@pytest.mark.parametrize("seeds", ["0", "-1", "1" * 5_000, "\u0663"])
def test_a_number_of_seeds_that_is_out_of_range_is_refused(tmp_path: Path, seeds: str) -> None:
    head = SCENARIO.partition("script:")[0]
    with pytest.raises(BadInput, match="seeds is 1 to"):
        load(written(tmp_path, f"{head}seeds: {seeds}\n---\n"))


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "scenario.txt"
    file.write_bytes(b"\xff\xfetitle")
    with pytest.raises(BadInput, match="not UTF-8"):
        load(file)


def test_the_steps_of_a_script_are_taken_in_the_order_of_their_times(tmp_path: Path) -> None:
    swapped = SCENARIO.replace("at 10", "at 5000")
    script = load(written(tmp_path, swapped)).script
    assert [step.at_ms for step in script] == [12, 5000]


def test_a_script_in_which_nothing_could_go_wrong_is_unknown(tmp_path: Path) -> None:
    calm = written(tmp_path, SCENARIO.replace("  at 12 broker 1 dies\n", ""))
    shown = run(load(calm))
    assert "UNKNOWN; lost: no fault took effect" in shown.text
    assert shown.is_unknown
    assert prove("--rewrite", calm).exit_code == 3
    disturbed = run(load(written(tmp_path, SCENARIO)))
    assert (disturbed.complaints, disturbed.is_unknown) == ((), False)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("expect wait > 9000 ms\nwithout: rf=1", "expect wait > 9000 ms: fails"),
        ("expect wait < 9000 ms\nwithout: racks=a", "no expectation fails with racks=a"),
        ("right: flush-before-ack=true", "lost should be found, and is not"),
    ],
)
def test_what_a_scenario_does_not_show_ends_with_1_though_it_is_written_down(
    tmp_path: Path, line: str, complaint: str
) -> None:
    file = written(tmp_path, SCENARIO.replace("script:", f"{line}\nscript:"))
    rewritten = prove("--rewrite", file)
    again = prove(file)
    assert rewritten.exit_code == again.exit_code == 1
    assert "output differs" not in again.stderr
    assert complaint in again.stderr


def test_a_rewritten_file_without_a_ruler_can_be_read_again(tmp_path: Path) -> None:
    file = written(tmp_path, SCENARIO.removesuffix("\n---\n"))
    assert prove("--rewrite", file).exit_code == 0
    assert "  at 12 broker 1 dies\n---\n" in file.read_text()
    assert prove(file).exit_code == 0


def test_a_scope_with_one_broker_is_not_valid(tmp_path: Path) -> None:
    scope = "brokers=1 records=1 fences=1 crashes=1"
    assert search(scope_of(scope, "here")).verdict == "UNKNOWN"
    text = f"title: One broker\nclaims: R1\nexhaust: {scope}\n---\n"
    shown = run(load(written(tmp_path, text)))
    assert shown.complaints == ("with all rules the scope is UNKNOWN, not VALID",)


def test_a_rule_that_is_off_and_changes_nothing_is_a_complaint(tmp_path: Path) -> None:
    scope = "brokers=2 records=1 fences=1 at-once=true off=fetch_checks_epoch"
    text = f"title: A rule\nclaims: R1\nexhaust: {scope}\n---\n"
    shown = run(load(written(tmp_path, text)))
    assert shown.complaints == ("nothing is found without fetch_checks_epoch",)


@pytest.mark.parametrize("scope", ["brokers=0", "brokers=99", "records=" + "1" * 5_000])
def test_a_scope_out_of_range_is_refused(scope: str) -> None:
    with pytest.raises(BadInput, match="not part of a scope"):
        scope_of(scope, "here")


def test_a_scope_of_too_many_states_is_bad_input() -> None:
    with pytest.raises(BadInput, match="more than 50 states"):
        search(scope_of("brokers=2 records=1 fences=1", "here"), 50)
