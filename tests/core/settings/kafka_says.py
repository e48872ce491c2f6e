"""What Apache Kafka 4.1 printed about its settings: kafka-4.1.jsonl, by PrintSettings.java."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_LINES = (Path(__file__).parent / "kafka-4.1.jsonl").read_text().splitlines()
_SAID: list[dict[str, Any]] = [json.loads(line) for line in _LINES]


def settings(scope: str) -> dict[str, dict[str, Any]]:
    return {
        said["name"]: said for said in _SAID if said["is"] == "setting" and said["scope"] == scope
    }


def topic_refusals() -> list[tuple[dict[str, str], str | None]]:
    return [(said["overrides"], said["refusal"]) for said in _SAID if said["is"] == "topic refusal"]


def described(resource: str) -> list[dict[str, Any]]:
    """Cases with all their entries; in the file only the first has all of them."""
    cases = [said for said in _SAID if said["is"] == "described" and said["resource"] == resource]
    return [{**case, "entries": {**cases[0]["entries"], **case["entries"]}} for case in cases]
