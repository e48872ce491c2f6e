"""The same attacks on both engines: each is answered as docs/cluster.md says, and both serve on."""

from __future__ import annotations

from pathlib import Path

import pytest
from attacks import ATTACKS, STOPPED, Attack, render
from subject import Subject

GUIDE = Path(__file__).parents[2] / "docs" / "cluster.md"


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.name for attack in ATTACKS])
def test_an_attack_is_refused_and_others_are_served(kafka: Subject, attack: Attack) -> None:
    expected = attack.embedded if kafka.engine == "embedded" else attack.apache
    if expected == STOPPED:
        return  # the next tests need the cluster
    topic = kafka.topic()
    assert attack.run(kafka, topic) == expected
    kafka.send(topic, "afterwards")
    assert kafka.values(topic) == ["afterwards"]


def test_the_guide_has_the_table() -> None:
    assert render() in GUIDE.read_text()
