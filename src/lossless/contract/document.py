"""docs/contract.md, made of the tables: every key, every fault, every rule."""

from __future__ import annotations

from collections.abc import Iterable

from lossless.contract.faults import FaultKind
from lossless.contract.keys import KEYS, SECTIONS
from lossless.contract.rules import CONSUMER_RULES, PRODUCER_RULES
from lossless.contract.rules.known import RULE as UNKNOWN_SETTING
from lossless.contract.rules.pipelines import PIPELINE_RULES
from lossless.contract.rules.topics import CLUSTER_RULES, TOPIC_RULES
from lossless.contract.values import BROKER_FAULTS, SURVIVABLE, SURVIVES_BY_DEFAULT

_OPENING = """\
# The contract

`lossless.toml` says what is promised and with which settings. `lossless init` writes one with
comments. It is found in the current folder or above it, by `--contract` or by `LOSSLESS_CONTRACT`.
`scripts/document-contract` writes this file.

- A key that is not listed here is refused when the file is read: nothing would act on it.
- Settings of Kafka carry their Java names, bare (`config.acks = "all"`) or quoted. A name that
  neither Kafka 4.1 nor librdkafka 2.16 has there is refused with the nearest known one.
  `[contract] allow_settings` takes the names of settings that a newer release has.
- `${NAME}`, `${NAME:-default}` and `${file:path}` bring in what should not stand in the file. Paths
  are relative to the file.
- `up`, `run`, `lossless.Pipeline`, `Producer.from_contract` and `Consumer.from_contract` judge the
  sections that they use by the rules below, and end with exit code 2 if one is broken. `doctor`
  judges the whole file.
- What a rule refuses can still be tried where no contract promises anything: `lossless up` in a
  folder without one, `lossless prove --set`. `lossless up --config` goes before the contract, and
  says which promise does not hold then.
"""
_FAULTS = """\
## Faults that can be survived

A number says how many at a time; `true` means one. A `survives` that is given replaces the default
as a whole.

| fault | by default | kept by |
| --- | --- | --- |
"""
_RULES = """\
## Rules

Judged with the defaults of the client that takes the settings. Each refusal names its rule.

| section | rule | what it is about |
| --- | --- | --- |
"""
_KEPT_BY_REPLICAS = "replicas, in-sync replicas, acknowledgements"
_KEPT_BY = {
    FaultKind.CONTROLLER_CRASH: "a majority of the controllers",
    FaultKind.CLIENT_DISCONNECT: "acknowledgements and delivery timeouts",
    FaultKind.CONSUMER_CRASH: "commits after processing",
    FaultKind.DRIVER_CRASH: "the ledger, whatever is set",
    FaultKind.EXECUTOR_CRASH: "tasks that are tried again",
    FaultKind.SINK_OUTAGE: "retries that last longer than pause_max_s",
}


def render() -> str:
    """The whole page."""
    sections = "\n".join(_section(section) for section in SECTIONS)
    return "\n".join([_OPENING, sections, _FAULTS + _faults(), _RULES + _rules()])


def _section(section: str) -> str:
    rows = (
        f"| `{key.name}` | {key.takes} | {key.default} | {key.acts} |"
        for key in KEYS
        if key.section == section
    )
    head = "| key | takes | default | what acts on it |\n| --- | --- | --- | --- |\n"
    return f"## [{section}]\n\n{head}{_lines(rows)}"


def _faults() -> str:
    rows = []
    for fault in SURVIVABLE:
        by_default = str(SURVIVES_BY_DEFAULT.get(fault, False)).lower()
        kept_by = _KEPT_BY_REPLICAS if fault in BROKER_FAULTS else _KEPT_BY[fault]
        rows.append(f"| `{fault.value}` | {by_default} | {kept_by} |")
    return _lines(rows)


def _rules() -> str:
    rows = [
        ("every section", UNKNOWN_SETTING, "A setting that nothing reads is a typo."),
        *(("cluster", rule.name, rule.says) for rule in CLUSTER_RULES),
        *(("topics", rule.name, rule.says) for rule in TOPIC_RULES),
        ("producers, consumers", "misread", "Values must be readable, and given once."),
        *(("producers", rule.name, rule.says) for rule in PRODUCER_RULES),
        *(("consumers", rule.name, rule.says) for rule in CONSUMER_RULES),
        *(("pipelines", rule.name, rule.says) for rule in PIPELINE_RULES),
    ]
    return _lines(f"| {section} | `{rule}` | {says} |" for section, rule, says in rows)


def _lines(rows: Iterable[str]) -> str:
    return "".join(f"{row}\n" for row in rows)
