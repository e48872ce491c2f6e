from __future__ import annotations

from pathlib import Path

from lossless.core.settings.brokers import BROKERS
from lossless.core.settings.deviations import DEVIATIONS
from lossless.core.settings.document import render

PAGE = Path(__file__).parents[3] / "docs" / "settings.md"


def test_the_page_is_what_the_tables_say() -> None:
    assert PAGE.read_text() == render(), "run scripts/document-settings"


def test_every_deviation_and_every_setting_is_on_the_page() -> None:
    page = render()
    for one in DEVIATIONS:
        assert f"| `{one.name}` | {BROKERS[one.name].default} | {one.rule} | {one.reason} |" in page
    for setting in BROKERS.values():
        assert (f"`{setting.name}`" in page) is not setting.internal
