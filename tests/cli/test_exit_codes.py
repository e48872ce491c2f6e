"""The exit code of a command that fails with an unexpected exception."""

from __future__ import annotations

import sys
from types import ModuleType

import click
import pytest

from lossless.cli.main import main


@click.command()
def broken() -> None:
    raise ValueError("year 55838 is out of range\nand more")


def test_an_internal_error_exits_70_and_prints_what_to_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = ModuleType("lossless.cli.doctor")
    module.command = broken  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lossless.cli.doctor", module)
    monkeypatch.setattr("sys.argv", ["lossless", "doctor"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 70
    error = capsys.readouterr().err
    assert "Traceback" in error
    assert "error: internal error: ValueError: year 55838 is out of range" in error
    assert "report the command, the traceback above and the version" in error.replace("\n", " ")
