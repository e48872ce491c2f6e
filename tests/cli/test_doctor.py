"""`lossless doctor` on the test machine, and with single components missing."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lossless import jars
from lossless.cli import doctor
from lossless.cli.init import command as init_command
from lossless.jars.checksums import expected

POSTGRES = """
[pipelines.orders]
topics = ["a"]
format = "raw"
sink = { type = "postgres", dsn = "postgresql://shop:hunter2@db/shop", table = "orders" }
"""


@pytest.fixture(autouse=True)
def _equipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a contract and all jars, so that only what a test removes is missing."""
    monkeypatch.delenv("LOSSLESS_CONTRACT", raising=False)
    for name in ("kafka", "spark", "jdbc"):
        (tmp_path / "jars" / name).mkdir(parents=True)
        for file in expected(name):
            (tmp_path / "jars" / name / file).touch()
    monkeypatch.setenv("LOSSLESS_JARS", str(tmp_path / "jars"))
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(init_command, [], catch_exceptions=False)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(doctor.command, arguments, catch_exceptions=False)


def findings(*arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    result = run("--format", "json", *arguments)
    report = json.loads(result.output)
    assert report["ok"] == (result.exit_code == 0)
    return result.exit_code, {finding["name"]: finding for finding in report["findings"]}


def test_a_machine_that_has_everything_is_ok_line_by_line() -> None:
    result = run()
    assert result.exit_code == 0, result.output
    assert "missing" not in result.output
    assert "\x1b" not in result.output  # colour is for terminals
    names = [line[8:24].strip() for line in result.output.splitlines()]
    assert names == [
        "python",
        "java",
        "pyspark",
        "confluent-kafka",
        "psycopg",
        "kafka jars",
        "spark jars",
        "jdbc jars",
        "postgresql",
        "contract",
        "locale",
        "disk",
        "memory",
        "cores",
    ]


def test_versions_and_locations_are_printed() -> None:
    _, found = findings()
    assert sys.executable in found["python"]["detail"]
    assert found["java"]["detail"].split(",")[0].isdecimal()
    assert found["pyspark"]["detail"].startswith("4.1.3;")
    assert "librdkafka 2." in found["confluent-kafka"]["detail"]
    assert found["kafka jars"]["detail"] == str(jars.folder("kafka"))
    assert found["contract"]["detail"] == "lossless.toml; pipelines: orders"
    assert all(finding["mend"] is None for finding in found.values())


def test_missing_java_exits_with_4_and_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    real = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "java" else real(name))
    code, found = findings()
    assert code == 4
    assert not found["java"]["ok"]
    assert "17" in found["java"]["mend"]
    assert "install" in found["java"]["mend"]


def test_an_invalid_java_home_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    code, found = findings()
    assert code == 4
    assert found["java"]["detail"] == "JAVA_HOME=/nowhere contains no Java"
    assert found["java"]["mend"].startswith("unset JAVA_HOME")


def test_another_pyspark_release_is_reported_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor.version
    monkeypatch.setattr(
        doctor, "version", lambda name: "4.0.0" if name == "pyspark" else real(name)
    )
    code, found = findings()
    assert code == 4
    assert "4.0.0 is installed, but the jars need 4.1.3" in found["pyspark"]["detail"]
    assert found["pyspark"]["mend"] == "pip install 'lossless[spark]'"


def test_pyspark_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise doctor.PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "version", lambda name: absent(name) if name == "pyspark" else "1")
    code, found = findings()
    assert (code, found["pyspark"]["detail"]) == (4, "not installed: pyspark")


# Only `up --kafka apache` needs the jars of Apache Kafka.
@pytest.mark.parametrize(("name", "expected"), [("kafka", 0), ("spark", 4)])
def test_missing_jars_are_named_and_can_be_fetched(name: str, expected: int) -> None:
    next(iter(jars.folder(name).glob("*.jar"))).unlink()
    code, found = findings()
    assert (code, found[f"{name} jars"]["mend"]) == (expected, "lossless doctor --fetch")

    # Nothing is fetched into LOSSLESS_JARS: the folder is the user's own.
    code, found = findings("--fetch")
    assert code == expected
    assert (
        f"the {name} jars in {jars.folder(name)} cannot be used" in found[f"{name} jars"]["detail"]
    )


def test_postgres_components_are_required_only_by_a_postgres_sink(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)  # makes its import fail
    code, found = findings()
    assert (code, found["psycopg"]["ok"], found["psycopg"]["required"]) == (0, False, False)
    assert found["psycopg"]["mend"] == "pip install 'lossless[postgres]'"

    Path("lossless.toml").write_text(POSTGRES)
    code, found = findings()
    assert (code, found["psycopg"]["required"], found["jdbc jars"]["required"]) == (4, True, True)


def test_without_a_contract_only_the_requirements_of_up_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After `pip install lossless`, neither Java nor a contract is needed."""
    Path("lossless.toml").unlink()
    monkeypatch.setenv("JAVA_HOME", "nowhere")
    monkeypatch.setenv("LOSSLESS_JARS", "nowhere")
    monkeypatch.setattr(doctor, "_version", lambda _: None)
    result = run()
    assert result.exit_code == 0, result.output
    assert "missing contract         no lossless.toml in this folder or above" in result.output
    assert "needed for run, audit: lossless init" in result.output


def test_an_invalid_contract_is_reported_with_its_line() -> None:
    Path("lossless.toml").write_text("[cluster]\nbrokrs = 3")
    code, found = findings()
    assert code == 2
    assert found["contract"]["wrong"]
    assert found["contract"]["detail"] == "lossless.toml:2: unknown key 'brokrs' in [cluster]"
    assert found["contract"]["mend"].startswith("did you mean 'brokers'?")


def test_a_contract_that_breaks_its_promise_is_reported_rule_by_rule() -> None:
    Path("lossless.toml").write_text(
        "[topics.a]\nreplication_factor = 1\n[producers.p]\nconfig.acks = 0"
    )
    result = run()
    assert result.exit_code == 2
    assert "wrong   contract" in result.output
    for rule in ("replicas-outlive-faults", "promise-needs-acks", "idempotence-needs-acks"):
        assert f"({rule})" in result.output
    assert "lossless.toml:2: [topics.a] replication_factor = 1" in result.output


def test_another_contract_can_be_named() -> None:
    Path("other.toml").write_text(POSTGRES)
    _, found = findings("--contract", "other.toml")
    assert found["contract"]["detail"] == "other.toml; pipelines: orders"


def test_a_full_disk_and_too_little_memory_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DISK_FREE_GB_MIN", 1e9)
    monkeypatch.setattr(doctor, "MEMORY_GB_MIN", 1e9)
    code, found = findings()
    assert (code, found["disk"]["ok"], found["memory"]["ok"]) == (4, False, False)
