"""`lossless init`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from lossless.cli.init import command
from lossless.contract import DeltaSinkContract, Guarantee, load_contract
from lossless.errors import BadInput


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(*arguments: str) -> str:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False, standalone_mode=False)
    return result.output


def test_the_generated_contract_loads_without_changes(folder: Path) -> None:
    output = init()

    contract = load_contract(environment={})
    assert contract.path == folder / "lossless.toml"
    assert contract.guarantee == Guarantee()  # the template contains the defaults
    assert list(contract.topics) == ["shop.orders"]
    assert contract.cluster.client == {}
    pipeline = contract.pipelines["orders"]
    assert pipeline.topics == ("shop.orders",)
    assert pipeline.sink == DeltaSinkContract(path=str(folder / "warehouse" / "orders"))
    assert isinstance(pipeline.schema, Path)
    schema = json.loads(pipeline.schema.read_text())
    assert schema["properties"]["created_at"] == {"type": "string", "format": "date-time"}
    assert schema["required"] == list(schema["properties"])
    assert "wrote lossless.toml and schemas/orders.json" in output
    assert "lossless run orders" in output


def test_every_commented_line_of_the_template_loads_when_uncommented(folder: Path) -> None:
    """Users uncomment these lines, so they must be valid."""
    init()
    text = Path("lossless.toml").read_text()
    (folder / "client.properties").write_text("")
    (folder / "kafka.password").write_text("p")
    examples = [
        line
        for line in text.splitlines()
        if line.startswith("# ") and " = " in line and line[2].islower()
    ]
    postgres = [line for line in examples if line.startswith(("# type", "# dsn", "# table"))]
    assert len(postgres) == 3
    assert len(examples) == 13
    for line in examples:
        if line not in postgres:
            text = text.replace(line, line.removeprefix("# "))
    Path("lossless.toml").write_text(text)
    load_contract(environment={})

    for line in postgres:
        text = text.replace(line, line.removeprefix("# "))
    text = text.replace('type = "delta"', "").replace('path = "./warehouse/orders"', "")
    Path("lossless.toml").write_text(text)
    contract = load_contract(environment={"PGPASSWORD": "p"})
    assert contract.pipelines["orders"].sink.type == "postgres"


def test_the_path_may_be_a_folder_or_a_file_name(folder: Path) -> None:
    assert "cd shop\n" in init("shop")
    assert "cd other\n  lossless doctor --contract prod.toml\n" in init("other/prod.toml")
    assert load_contract(folder / "shop", environment={}).pipelines
    assert load_contract(folder / "other" / "prod.toml", environment={}).pipelines


@pytest.mark.parametrize("place", [".", "shop", "my shop/prod.toml", "prod.toml"])
def test_the_printed_next_steps_work(folder: Path, place: str) -> None:
    """A shell runs the steps as printed, with a stand-in for the command."""
    steps = init(place).partition("Review the file, then run:\n")[2].splitlines()
    (folder / "bin").mkdir()
    (folder / "bin" / "lossless").write_text(f"#!{sys.executable}\n{STAND_IN}")
    (folder / "bin" / "lossless").chmod(0o755)
    answer = subprocess.run(
        ["sh", "-ec", "\n".join(steps)],
        env={**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    expected = folder / place
    file = expected if expected.suffix == ".toml" else expected / "lossless.toml"
    assert answer.stdout.splitlines() == [
        f"{command} {file.resolve()}" for command in ("doctor", "up", "run")
    ], answer.stderr


# Prints the command and the contract that it would find.
STAND_IN = """
import sys
from pathlib import Path
from lossless.contract import find_contract
named = sys.argv[sys.argv.index("--contract") + 1] if "--contract" in sys.argv else None
print(sys.argv[1], find_contract(Path(named) if named else None).resolve())
"""


def test_an_existing_contract_is_overwritten_only_with_force(folder: Path) -> None:
    (folder / "lossless.toml").write_text("mine")
    with pytest.raises(BadInput, match=r"lossless.toml already exists") as caught:
        init()
    assert caught.value.exit_code == 2
    assert "--force" in str(caught.value)
    assert (folder / "lossless.toml").read_text() == "mine"
    assert not (folder / "schemas").exists()

    init("--force")
    assert load_contract(environment={}).pipelines


def test_an_existing_schema_is_not_overwritten(folder: Path) -> None:
    (folder / "schemas").mkdir()
    (folder / "schemas" / "orders.json").write_text("mine")
    with pytest.raises(BadInput, match=r"schemas/orders.json already exists"):
        init()
    assert not (folder / "lossless.toml").exists()


def test_an_unwritable_path_is_refused_with_one_message(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(
        BadInput, match=r"file/schemas/orders.json cannot be written to: Not a direc"
    ):
        init("file")


def test_a_refusal_exits_with_2_and_no_traceback(folder: Path) -> None:
    (folder / "lossless.toml").write_text("mine")
    lossless = Path(sys.executable).with_name("lossless")
    done = subprocess.run(
        [lossless, "init"], capture_output=True, text=True, env=os.environ, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: lossless.toml already exists\n"
        "overwrite with --force, or choose another folder: lossless init PATH\n"
    )
