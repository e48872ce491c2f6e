"""The rules for topics, clusters and pipelines: which one a contract breaks, and where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lossless.contract import Contract, ContractError
from lossless.contract.faults import FaultKind
from lossless.contract.rules.judging import Violation, enforce, judge_all
from lossless.contract.rules.pipelines import PIPELINE_RULES
from lossless.contract.rules.topics import CLUSTER_RULES, TOPIC_RULES
from lossless.contract.values import SURVIVABLE

Load = Callable[..., Contract]

GOOD_TOPIC = "[topics.a]\nconfig.min.insync.replicas = 2\n"
AT_MOST_ONCE = '[guarantee]\ndelivery = "at-most-once"\n'
NO_FAULTS = "[guarantee]\nsurvives = {}\n"
TWO_BROKERS = "[guarantee]\nsurvives = { broker-crash = 2 }\n"
PIPELINE = """[pipelines.orders]
topics = ["a"]
format = "raw"
sink = {{ type = "delta", path = "table" }}
{0}
"""


def pipeline(*lines: str) -> str:
    return PIPELINE.format("\n".join(lines))


def survives(*faults: str) -> str:
    return "[guarantee]\nsurvives = { " + ", ".join(f"{fault} = true" for fault in faults) + " }\n"


# A contract, and the rules that it breaks with the line of each.
CASES: list[tuple[str, list[tuple[int, str]]]] = [
    ("", []),
    (GOOD_TOPIC, []),
    # replicas and brokers
    (
        "[topics.a]\nreplication_factor = 4\nconfig.min.insync.replicas = 2",
        [(2, "more-replicas-than-brokers")],
    ),
    (
        (
            "[cluster]\nbrokers = 5\n[topics.a]\nreplication_factor = 4\n"
            "config.min.insync.replicas = 2"
        ),
        [],
    ),
    ("[topics.a]\nreplication_factor = 1", [(2, "replicas-outlive-faults")]),
    (AT_MOST_ONCE + "[topics.a]\nreplication_factor = 1", [(4, "replicas-outlive-faults")]),
    (NO_FAULTS + "[topics.a]\nreplication_factor = 1", []),
    (
        survives("rolling-restart") + "[topics.a]\nreplication_factor = 1",
        [(4, "replicas-outlive-faults")],
    ),
    ("[cluster]\nbrokers = 1", []),  # nothing in it yet that could be lost
    (
        "[cluster]\nbrokers = 1\n[topics.a]",
        [(2, "quorum-outlives-faults"), (3, "replicas-outlive-faults")],
    ),
    # copies before an acknowledgement
    ("[topics.a]", [(1, "copies-outlive-faults")]),
    ("[topics.a]\nconfig.min.insync.replicas = 1", [(2, "copies-outlive-faults")]),
    ('[topics.a]\nconfig."min.insync.replicas" = 1', [(2, "copies-outlive-faults")]),
    ("[topics.a.config.min]\ninsync.replicas = 1", [(2, "copies-outlive-faults")]),
    ("[cluster]\nconfig.min.insync.replicas = 2\n[topics.a]", []),
    ("[cluster]\nconfig.min.insync.replicas = 1\n[topics.a]", [(2, "copies-outlive-faults")]),
    (AT_MOST_ONCE + "[topics.a]", []),
    (NO_FAULTS + "[topics.a]", []),
    # writes while a broker is away
    ("[topics.a]\nconfig.min.insync.replicas = 3", [(2, "writes-go-on")]),
    (NO_FAULTS + "[topics.a]\nconfig.min.insync.replicas = 3", []),
    (NO_FAULTS + "[topics.a]\nconfig.min.insync.replicas = 4", [(4, "writes-go-on")]),
    (
        TWO_BROKERS + "[cluster]\nbrokers = 5\ncontrollers = 5\n[topics.a]\n"
        "replication_factor = 5\nconfig.min.insync.replicas = 3",
        [],
    ),
    (
        TWO_BROKERS + "[cluster]\nbrokers = 5\ncontrollers = 5\n[topics.a]\n"
        "replication_factor = 5\nconfig.min.insync.replicas = 2",
        [(8, "copies-outlive-faults")],
    ),
    # unclean election
    (
        GOOD_TOPIC + "config.unclean.leader.election.enable = true",
        [(3, "elected-unclean")],
    ),
    (
        "[cluster]\nconfig.unclean.leader.election.enable = true\n" + GOOD_TOPIC,
        [(2, "elected-unclean")],
    ),
    (
        "[cluster]\nconfig.unclean.leader.election.enable = true\n"
        + GOOD_TOPIC
        + "config.unclean.leader.election.enable = false",
        [],
    ),
    (AT_MOST_ONCE + GOOD_TOPIC + "config.unclean.leader.election.enable = true", []),
    (NO_FAULTS + GOOD_TOPIC + "config.unclean.leader.election.enable = true", []),
    # values that the rules cannot read
    ("[topics.a]\nconfig.min.insync.replicas = 'two'", [(2, "topic-misread")]),
    (GOOD_TOPIC + "config.unclean.leader.election.enable = 'yes'", [(3, "topic-misread")]),
    # controllers
    (
        survives("controller-crash") + "[cluster]\ncontrollers = 1\n" + GOOD_TOPIC,
        [(4, "quorum-outlives-faults")],
    ),
    (survives("controller-crash") + "[cluster]\ncontrollers = 3\n" + GOOD_TOPIC, []),
    ("[cluster]\ncontrollers = 1\n" + GOOD_TOPIC, []),  # broker-crash leaves it alone
    (
        TWO_BROKERS + "[cluster]\nbrokers = 5\n[topics.a]\nreplication_factor = 5\n"
        "config.min.insync.replicas = 3",
        [(4, "quorum-outlives-faults")],
    ),
    # internal topics
    (
        "[cluster]\nconfig.offsets.topic.replication.factor = 1\n" + GOOD_TOPIC,
        [(2, "internal-topics-outlive-faults")],
    ),
    ("[cluster]\nconfig.offsets.topic.replication.factor = 2\n" + GOOD_TOPIC, []),
    # pipelines
    (pipeline('isolation = "read_uncommitted"'), [(5, "aborted-stored")]),
    (
        pipeline('isolation = "read_uncommitted"', 'guarantee.delivery = "at-least-once"'),
        [],
    ),
    (
        pipeline(
            'isolation = "read_uncommitted"',
            'guarantee = { delivery = "at-least-once", duplicates_max = 0 }',
        ),
        [(5, "aborted-stored")],
    ),
    (pipeline("retry_max_s = 20"), []),
    (
        pipeline("retry_max_s = 20", "guarantee.survives = { sink-outage = true }"),
        [(5, "outage-outlasts-retries")],
    ),
    (
        pipeline(
            "retry_max_s = 20",
            "guarantee = { pause_max_s = 10, survives = { sink-outage = true } }",
        ),
        [],
    ),
    (
        pipeline("spark.task.maxFailures = 1", "guarantee.survives = { executor-crash = true }"),
        [(5, "executor-lost-once")],
    ),
    (pipeline("spark.task.maxFailures = 1"), []),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_a_contract_breaks_exactly_these_rules_at_these_lines(
    load: Load, text: str, expected: list[tuple[int, str]]
) -> None:
    found = judge_all(load(text))
    assert sorted((each.line, each.rule) for each in found) == sorted(expected)
    assert all(each.reason and each.fix for each in found)


def test_every_rule_is_shown_by_a_case_and_says_what_it_is_for() -> None:
    shown = {rule for _, expected in CASES for _, rule in expected}
    for rule in (*TOPIC_RULES, *CLUSTER_RULES, *PIPELINE_RULES):
        assert rule.name in shown
        assert rule.says.endswith(".")


# What each fault, promised alone, refuses; without the fault each of these is accepted.
BY_FAULT = {
    **dict.fromkeys(
        [
            "broker-crash",
            "leader-crash",
            "broker-pause",
            "broker-stop",
            "rolling-restart",
            "power-loss",
            "network-partition",
            "disk-full",
            "disk-failure",
        ],
        ("[topics.a]\nreplication_factor = 1", "replicas-outlive-faults"),
    ),
    "controller-crash": ("[cluster]\ncontrollers = 1\n[topics.a]", "quorum-outlives-faults"),
    "client-disconnect": (
        "[producers.p]\nconfig.delivery.timeout.ms = 5000",
        "given-up-during-a-failover",
    ),
    "consumer-crash": (
        (
            '[consumers.c]\nclient = "librdkafka"\ncommit = "before-processing"\n'
            'config."enable.auto.commit" = false\nconfig.auto.offset.reset = "earliest"'
        ),
        "promise-needs-commit-after",
    ),
    "executor-crash": (pipeline("spark.task.maxFailures = 1"), "executor-lost-once"),
    "sink-outage": (pipeline("retry_max_s = 1"), "outage-outlasts-retries"),
}
BY_THE_LEDGER = {"driver-crash"}  # tests/crash_matrix: kept whatever is set


@pytest.mark.parametrize("fault", BY_FAULT)
def test_a_fault_that_is_survived_asks_for_settings_that_outlive_it(load: Load, fault: str) -> None:
    text, rule = BY_FAULT[fault]
    found = judge_all(load(survives(fault) + text))
    assert [each.rule for each in found] == [rule]
    assert judge_all(load(NO_FAULTS + text)) == []
    assert judge_all(load(f"[guarantee]\nsurvives.{fault} = false\n{text}")) == []


def test_every_fault_that_can_be_promised_has_a_rule_or_the_ledger() -> None:
    assert {FaultKind(name) for name in (*BY_FAULT, *BY_THE_LEDGER)} == set(SURVIVABLE)


def test_a_setting_of_a_properties_file_is_placed_at_the_line_that_names_the_file(
    load: Load, tmp_path: Path
) -> None:
    (tmp_path / "producer.properties").write_text("acks=0\n")
    text = (
        '[producers.shop]\n\nproperties = "producer.properties"\nconfig.enable.idempotence = true'
    )
    places = {(each.line, each.rule) for each in judge_all(load(text))}
    assert (3, "promise-needs-acks") in places


def test_a_setting_that_clients_share_is_placed_where_it_stands(load: Load) -> None:
    text = '[cluster]\nclient.acks = "1"\nclient.enable.idempotence = true\n[producers.shop]'
    found = judge_all(load(text))
    assert [(each.section, each.line, each.rule) for each in found] == [
        (("cluster", "client"), 2, "idempotence-needs-acks"),
        (("cluster", "client"), 2, "promise-needs-acks"),
    ]


def test_one_violation_is_refused_with_place_rule_and_fix(load: Load) -> None:
    contract = load("[topics.a]\nconfig.min.insync.replicas = 3")
    with pytest.raises(ContractError) as caught:
        enforce(contract, cluster=True)
    error = caught.value
    assert (error.exit_code, error.line) == (2, 2)
    assert error.what.startswith(f"{contract.path}:2: [topics.a] min.insync.replicas = 3 of 3")
    assert error.what.endswith("(writes-go-on)")
    assert error.hint is not None
    assert "config.min.insync.replicas = 2" in error.hint


def test_several_violations_are_refused_together_each_with_its_place(load: Load) -> None:
    contract = load("[topics.a]\nreplication_factor = 1\n[topics.b]\nreplication_factor = 1")
    with pytest.raises(ContractError) as caught:
        enforce(contract, cluster=True)
    assert "2 rules are broken" in caught.value.what
    assert caught.value.hint is not None
    for line in (2, 4):
        assert f"- {contract.path}:{line}: [topics." in caught.value.hint


def test_only_the_sections_that_are_used_are_judged(load: Load) -> None:
    contract = load(
        "[topics.a]\nreplication_factor = 1\n[producers.bad]\nconfig.acks = 0\n[producers.good]\n"
        "[consumers.bad]\ncommit = 'auto'\n[consumers.good]\n"
        + pipeline('isolation = "read_uncommitted"')
    )
    enforce(contract)
    enforce(contract, producers=["good"], consumers=["good"])
    for used in (
        {"cluster": True},
        {"producers": ["bad"]},
        {"consumers": ["bad"]},
        {"pipelines": ["orders"]},
    ):
        with pytest.raises(ContractError):
            enforce(contract, **used)  # type: ignore[arg-type]


def test_a_rule_broken_once_for_many_topics_is_told_once(load: Load) -> None:
    text = "[cluster]\nconfig.unclean.leader.election.enable = true\n"
    text += "".join(f"[topics.t{i}]\nconfig.min.insync.replicas = 2\n" for i in range(3))
    with pytest.raises(ContractError) as caught:
        enforce(load(text), cluster=True)
    assert caught.value.line == 2


def test_a_violation_reads_as_a_sentence_with_its_section_and_rule() -> None:
    violation = Violation(section=("topics", "shop.a"), line=1, rule="r", reason="x = 1", fix="f")
    assert str(violation) == '[topics."shop.a"] x = 1 (r)'
