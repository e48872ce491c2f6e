"""`lossless prove`: verdicts, exit codes, replay, and invalid options."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lossless.cli.main import cli, main
from lossless.errors import BadInput
from lossless.simulator.options import changed
from lossless.simulator.run import Run
from lossless.simulator.settings import Settings

SCENARIOS = Path(__file__).parent.parent / "scenarios"
LOSES = ["prove", "--acks", "1", "--faults", "broker-crash,broker-pause", "--look-for", "lost"]


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), catch_exceptions=True)


def test_a_broken_promise_prints_the_failing_run_and_exits_with_1() -> None:
    result = _run(*LOSES)
    assert result.exit_code == 1
    assert "INVALID: " in result.stdout
    assert "is told: p" in result.stdout
    assert "at the end\n" in result.stdout
    assert "lost: p" in result.stdout


def test_an_unrefuted_promise_exits_with_0_and_prints_the_searched_schedules() -> None:
    result = _run("prove", "--faults", "broker-crash", "--seeds", "5")
    assert result.exit_code == 0
    assert "UNREFUTED: none of lost, " in result.stdout
    assert "in 5 schedules, " in result.stdout
    assert "seeds 1 to 5" in result.stdout


def test_the_recommended_settings_hold_under_the_recommended_faults() -> None:
    result = _run("prove", "--seeds", "20")
    assert result.exit_code == 0
    assert "UNREFUTED: none of lost, " in result.stdout
    output = " ".join(result.stdout.split())
    assert "settings brokers=3 controllers=3 rf=3 min-isr=2 unclean=false" in output
    assert "faults broker-crash=1, leader-crash=1, rolling-restart=1" in output


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            ("--set", "producers=0", "--set", "consumers=0"),
            "lost, unseen had no opportunity, because no record was acknowledged",
        ),
        (
            ("--set", "consumers=0"),
            "unseen, precommitted read had no opportunity, because no record was read",
        ),
        (("--faults", "none"), "reordered, stuck had no opportunity, because no fault took effect"),
        (("--look-for", "aborted read"), "because no transaction was aborted"),
        (("--look-for", "OneOwner"), "because no group shared out its partitions"),
        (("--faults", "consumer-crash", "--look-for", "lost"), "no fault reached the brokers"),
    ],
)
def test_a_run_without_opportunity_to_fail_is_unknown_and_exits_with_3(
    arguments: tuple[str, ...], why: str
) -> None:
    result = _run("prove", *arguments, "--seeds", "5")
    assert result.exit_code == 3
    assert "UNREFUTED" not in result.stdout
    assert why in result.stdout


def test_the_exercised_faults_and_records_are_printed_as_text_and_json() -> None:
    arguments = ("prove", "--faults", "leader-crash,late-messages=400", "--seeds", "5")
    rows = {
        line.split()[0]: line for line in _run(*arguments).stdout.splitlines() if line[:2] == "  "
    }
    assert "60 attempted" in rows["records"] or "100 attempted" in rows["records"]
    assert "leader-crash " in rows["took"]
    assert " clean, " in rows["elections"]
    document = json.loads(_run(*arguments, "--format", "json").stdout)
    assert document["seeds"] == [1, 5]
    assert document["settings"]["faults"] == "leader-crash=1,late-messages=400"
    assert document["exercised"]["attempted"] == 100
    assert document["exercised"]["faults"]["leader-crash"] > 0
    assert document["simulated_hours"] > 0


def test_a_counterexample_names_the_exceeded_budget_and_other_anomalies() -> None:
    result = _run("prove", "--faults", "power-loss-everywhere", "--look-for", "lost")
    assert result.exit_code == 1
    beyond = "beyond the budget: power-loss-everywhere, 1 at a time: these settings survive none"
    assert beyond in result.stdout
    assert "not looked for" in result.stdout


@pytest.mark.full
def test_a_run_that_does_not_settle_is_unknown_unless_stuck_is_looked_for() -> None:
    arguments = ("--set", "off=empty_epochs_forgotten", "--set", "faults-max=6", "--seed", "22")
    stuck = _run("prove", "--faults", "leader-crash=2", *arguments)
    assert (stuck.exit_code, "INVALID: stuck" in stuck.stdout) == (1, True)
    result = _run("prove", "--faults", "leader-crash=2", *arguments, "--look-for", "duplicate")
    assert result.exit_code == 3
    assert "did not settle" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("--acks", "1", "--set", "acks=all"),
        ("--faults", "none", "--set", "faults=broker-crash"),
        ("--set", "brokers=3", "--set", "brokers=4"),
    ],
)
def test_a_setting_that_is_given_twice_is_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(BadInput, match="is given twice"):
        CliRunner().invoke(cli, ["prove", *arguments], catch_exceptions=False)


@pytest.mark.parametrize("number", ["1" * 5_000, "\u0663", "+3", "03 "])
def test_a_number_that_is_not_one_within_the_limits_is_refused(number: str) -> None:
    for name in ("brokers", "chaos-ms"):
        with pytest.raises(BadInput, match="is not"):
            changed(Settings(), [(name, number)], "here")
    with pytest.raises(BadInput, match="is not accepted"):
        changed(Settings(), [("faults", f"broker-crash={number}")], "here")


def test_a_seed_replays_one_run_byte_for_byte() -> None:
    first, second = (_run(*LOSES, "--seed", "3").stdout for _ in range(2))
    assert first == second
    assert "trace " in first or "UNREFUTED" in first


def test_json_names_verdict_seed_settings_and_anomalies() -> None:
    result = _run(*LOSES, "--format", "json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["verdict"] == "INVALID"
    assert document["settings"]["acks"] == "1"
    assert document["beyond_the_budget"]
    assert document["anomalies"][0]["kind"] == "lost"
    assert document["trace"]


def test_the_html_option_writes_a_page(tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    assert _run(*LOSES, "--html", str(page)).exit_code == 1
    assert "<!doctype html>" in page.read_text()


def test_the_page_of_a_seed_shows_the_same_run_as_the_text(tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    output = _run(*LOSES, "--seed", "1", "--html", str(page)).stdout
    at_the_end = output.partition("at the end\n")[2].splitlines()[0]
    drawn = page.read_text().replace("<mark>", "").replace("</mark>", "")
    assert at_the_end.partition(": ")[2] in drawn


def test_text_json_and_page_show_the_same_finding(tmp_path: Path) -> None:
    file = tmp_path / "run.html"
    text = _run(*LOSES, "--html", str(file)).stdout
    document = json.loads(_run(*LOSES, "--format", "json").stdout)
    page = html.unescape(re.sub("</?(mark|b)>", "", file.read_text()))
    assert [anomaly["kind"] for anomaly in document["anomalies"]] == ["lost"]
    for anomaly in document["anomalies"]:
        assert f"  {anomaly['kind']}: {anomaly['what']}\n" in text
        assert f"{anomaly['kind']}: {anomaly['what']}" in page
    assert document["looked_for"] == ["lost"]
    where = f"{document['schedules']}, seed {document['seed']}\n"
    assert f"\n{document['verdict']}: lost in schedule {where}" in text
    assert f"; trace {document['trace']}\n" in text
    assert f"seed {document['seed']}" in page
    for what in document["beyond_the_budget"]:
        assert f"  beyond the budget: {what}\n" in text


def test_the_seed_that_a_search_finds_repeats_its_run() -> None:
    found = json.loads(_run(*LOSES, "--whole", "--format", "json").stdout)
    seed = found["seed"]
    assert found["anomalies"]
    assert seed > 1, "the search has run other schedules before"
    again = _run(*LOSES, "--seed", str(seed), "--format", "json")
    repeated = json.loads(again.stdout)
    assert again.exit_code == 1
    same = ("verdict", "seed", "trace", "faults", "faults_at_a_time", "late_messages", "anomalies")
    assert {name: repeated[name] for name in same} == {name: found[name] for name in same}
    other = json.loads(_run(*LOSES, "--seed", str(seed - 1), "--format", "json").stdout)
    assert other.get("trace") != found["trace"]


def test_a_scenario_file_is_run() -> None:
    result = _run("prove", str(SCENARIOS / "isolated_leader.txt"))
    assert result.exit_code == 0
    assert "INVALID: lost" in result.stdout


def test_a_scenario_with_different_output_exits_with_1_and_can_be_rewritten(tmp_path: Path) -> None:
    file = tmp_path / "isolated_leader.txt"
    right = (SCENARIOS / "isolated_leader.txt").read_text()
    file.write_text(right.replace("INVALID: lost", "UNREFUTED"))
    result = _run("prove", str(file))
    assert result.exit_code == 1
    assert "output differs from the file: isolated_leader" in result.stderr
    assert _run("prove", "--rewrite", str(file)).exit_code == 0
    assert file.read_text() == right


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--faults", "meteor"],
            "faults=meteor is not accepted; faults is none, or of broker-crash",
        ),
        (
            ["--faults", "broker-crash=0"],
            "name=N is at most N at a time (1 to 9), late-messages=N at most N ms late (1 to 1200)",
        ),
        (["--brokers", "3", "--rf", "5"], "rf=5 needs as many brokers, and there are 3"),
        (["--acks", "2"], "acks=2 is not accepted; acks is 0, 1, all"),
        (["--set", "records=²"], "records=² is not accepted; records is 1 to 100"),
        (["--brokers", "²"], "brokers=² is not accepted; brokers is 1 to 9"),
        (["--faults", "broker-crash=²"], "faults=broker-crash=² is not accepted"),
        (["--set", "acsk=1"], "there is no setting acsk"),
        (["--set", "records"], "'records' is not of the form name=value"),
        (["--look-for", "trouble"], "nothing is called 'trouble'"),
        (["no-such-file.txt"], "no-such-file.txt: No such file or directory"),
        (["--seeds", "0"], "0 is not in the range"),
        (["--seed", "3", "--seeds", "9"], "--seed and --seeds exclude each other"),
        (["--set", "idempotent=true", "--acks", "1"], "idempotent=true needs acks=all, not acks=1"),
        (
            ["--set", "idempotent=true", "--in-flight", "6"],
            "in-flight is 1 to 5 with an idempotent",
        ),
        (["--idempotent", "true", "--set", "retries=false"], "idempotent=true needs retries=true"),
        (["--transactions", "true", "--acks", "1"], "transactions need an idempotent producer"),
        (
            ["--rf", "1", "--min-isr", "1", "--set", "from-follower=true"],
            "from-follower=true needs a follower; rf is 2 or more",
        ),
        (["--groups", "3"], "groups=3 needs as many consumers, and there are 2"),
        (
            ["--faults", "consumer-crash", "--set", "consumers=0"],
            "faults=consumer-crash has nothing to strike with consumers=0",
        ),
        (["--rewrite"], "--rewrite needs scenarios name their files"),
        (["a.txt", "--acks", "1"], "--acks does not apply to scenarios; edit their files"),
        (["--html", "nowhere/run.html"], "--html nowhere/run.html: folder nowhere does not exist"),
    ],
)
def test_invalid_options_are_refused_in_one_line_with_exit_code_2(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["lossless", "prove", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err.replace("\n", " ")


def test_an_internal_error_exits_with_70_and_prints_the_command_that_reproduces_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Run.settle

    def fails_in_seed_3(run: Run) -> bool:
        if run.seed == 3:
            raise KeyError("planted")
        return whole(run)

    monkeypatch.setattr(Run, "settle", fails_in_seed_3)
    arguments = ["--faults", "broker-stop", "--set", "producers=1"]
    monkeypatch.setattr("sys.argv", ["lossless", "prove", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 70
    captured = capsys.readouterr()
    assert "VALID" not in captured.out
    error = " ".join(captured.err.split())
    assert "internal error in the schedule of seed 3: KeyError: 'planted'" in error
    assert "lossless prove --faults broker-stop --set producers=1 --seed 3" in error


def test_a_consumer_that_reads_from_followers_fetches_only_from_brokers_with_a_replica() -> None:
    """With four brokers and two replicas, a broker may have no replica of the partition."""
    arguments = ("--brokers", "4", "--rf", "2", "--set", "from-follower=true")
    result = _run("prove", *arguments, "--faults", "late-messages", "--seeds", "5")
    assert "UNREFUTED" in result.stdout
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "colour: red",
            "line 3: 'colour: red' is not an expect line and has none of the keys title, claims",
        ),
        ("  at 10 broker 1 explodes", "line 3: 'at 10 broker 1 explodes' is not a step"),
        ("  broker 1 dies", "line 3: 'broker 1 dies' is not a step"),
        ("settings: acks=3", "acks=3 is not accepted"),
        ("seeds: many", "seeds is 1 to 1000000, not 'many'"),
        ("seeds: ²", "seeds is 1 to 1000000, not '²'"),
        ("exhaust: brokers=x", "brokers=x is not part of a scope"),
        ("when: tomorrow", "when is always or soak, not 'tomorrow'"),
    ],
)
def test_a_mistake_in_a_scenario_is_reported_with_file_line_and_accepted_values(
    line: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "mistaken.txt"
    look_for = "" if line.startswith("exhaust") else "look for: lost\n"
    file.write_text(f"title: a mistake\nclaims: R1\n{line}\n{look_for}---\n")
    monkeypatch.setattr("sys.argv", ["lossless", "prove", str(file)])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    error = capsys.readouterr().err.replace("\n", " ")
    assert "mistaken.txt" in error
    assert message in error
