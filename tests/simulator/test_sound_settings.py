"""Sound settings within their budgets are not refuted; `make soak` goes on where this ends."""

from __future__ import annotations

from importlib.resources import as_file, files

import pytest
from benchmarks.sound import SOUND, run, sound_settings

from lossless.contract.faults import FaultKind
from lossless.contract.load import load_contract
from lossless.simulator.settings import FAULTS, RECOMMENDED, RECOMMENDED_FAULTS
from lossless.verifier.verdict import Verdict

SEEDS = 200


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SOUND)
def test_sound_settings_are_not_refuted_within_their_budget(name: str) -> None:
    exploration = run(name, 1, SEEDS)
    assert (exploration.verdict, exploration.missing) == (Verdict.UNREFUTED, {})
    assert exploration.schedules == SEEDS
    kinds = {kind.value for kind, _ in sound_settings(name).faults} - {"late-messages"}
    assert set(exploration.exercised.faults) == kinds
    assert exploration.exercised.late_messages > SEEDS


def test_the_recommended_settings_and_faults_are_those_of_the_template_that_init_writes() -> None:
    with as_file(files("lossless.contract") / "template" / "lossless.toml") as file:
        contract = load_contract(file)
    (topic,), (producer,) = contract.topics.values(), contract.producers.values()
    assert RECOMMENDED.brokers == contract.cluster.brokers
    assert RECOMMENDED.racks == contract.cluster.racks
    assert RECOMMENDED.replication_factor == topic.replication_factor
    assert str(RECOMMENDED.min_isr) == topic.config["min.insync.replicas"]
    assert producer.client == "lossless"  # which is built on librdkafka
    assert RECOMMENDED.producer.client == "librdkafka"
    assert RECOMMENDED.producer.acks == -1
    assert producer.config["acks"] == "all"
    assert RECOMMENDED.producer.is_idempotent
    assert producer.config["enable.idempotence"] == "true"
    survives = {kind: 1 for kind in contract.guarantee.survives if kind in FAULTS}
    assert dict(RECOMMENDED_FAULTS) == survives | {FaultKind.LATE_MESSAGES: 1200}
