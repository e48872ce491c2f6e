"""A contract from text: written to a folder of its own, with the schema that it may name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lossless.contract import Contract, load_contract

Load = Callable[..., Contract]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def loaded(text: str, environment: Mapping[str, str] | None = None) -> Contract:
        (tmp_path / "schemas").mkdir(exist_ok=True)
        (tmp_path / "schemas" / "orders.json").write_text("{}")
        file = tmp_path / "lossless.toml"
        file.write_text(text, encoding="utf-8")
        return load_contract(file, environment=environment or {})

    return loaded
