"""Careless contracts are refused by every command that uses the careless section.

Each is the contract of `lossless init`, with a consumer, and one thing in it changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import lossless
import lossless.cli.doctor
import lossless.cli.run
import lossless.cli.up
from lossless.errors import BadInput, Unavailable

CONSUMERS = """
[consumers.billing]
commit = "after-processing"
config.auto.offset.reset = "earliest"

[consumers.reports]
client = "java"
commit = "after-processing"
config.enable.auto.commit = false
config.auto.offset.reset = "earliest"
config.isolation.level = "read_committed"
"""


def up(file: Path) -> None:
    invoke(lossless.cli.up.command, file)


def run(file: Path) -> None:
    invoke(lossless.cli.run.command, file)


def pipeline(file: Path) -> None:
    lossless.Pipeline("orders", contract=file)


def dry_run(file: Path) -> None:
    lossless.Pipeline("orders", contract=file).dry_run()


def producer(file: Path) -> None:
    lossless.Producer.from_contract("shop", file)


def consumer(file: Path) -> None:
    lossless.Consumer.from_contract("billing", "shop.orders", contract=file)


def java_consumer(file: Path) -> None:
    lossless.Consumer.from_contract("reports", "shop.orders", contract=file)


def invoke(command: click.Command, file: Path) -> None:
    CliRunner().invoke(
        command, ["--contract", str(file)], catch_exceptions=False, standalone_mode=False
    )


ALL = [up, run, pipeline, producer, consumer]
USERS: dict[str, list[Callable[[Path], None]]] = {
    "cluster": [up],
    "client": [run, pipeline, producer, consumer],
    "producer": [producer],
    "consumer": [consumer],
    "pipeline": [run, pipeline],
}


@dataclass(frozen=True, kw_only=True)
class Careless:
    old: str
    new: str
    rule: str  # or what is said of a key
    users: list[Callable[[Path], None]]


ACKS = 'config.acks = "all"'
IDEMPOTENCE = "config.enable.idempotence = true"
MIN_ISR = "config.min.insync.replicas = 2"
REPLICAS = "replication_factor = 3"
RESET = 'config.auto.offset.reset = "earliest"'
SINK = "[pipelines.orders.sink] "

CARELESS = {
    "acks-0": Careless(
        old=ACKS, new='config.acks = "0"', rule="promise-needs-acks", users=USERS["producer"]
    ),
    "acks-1": Careless(
        old=ACKS, new='config.acks = "1"', rule="promise-needs-acks", users=USERS["producer"]
    ),
    "idempotence-off": Careless(
        old=IDEMPOTENCE,
        new="config.enable.idempotence = false",
        rule="exactly-once-needs-idempotence",
        users=USERS["producer"],
    ),
    "replication-factor-1": Careless(
        old=REPLICAS,
        new="replication_factor = 1",
        rule="replicas-outlive-faults",
        users=USERS["cluster"],
    ),
    "min-isr-1": Careless(
        old=MIN_ISR,
        new="config.min.insync.replicas = 1",
        rule="copies-outlive-faults",
        users=USERS["cluster"],
    ),
    "min-isr-as-replication-factor": Careless(
        old=MIN_ISR,
        new="config.min.insync.replicas = 3",
        rule="writes-go-on",
        users=USERS["cluster"],
    ),
    "unclean-election": Careless(
        old="config.unclean.leader.election.enable = false",
        new="config.unclean.leader.election.enable = true",
        rule="elected-unclean",
        users=USERS["cluster"],
    ),
    "latest": Careless(
        old=RESET,
        new='config.auto.offset.reset = "latest"',
        rule="latest-skips",
        users=USERS["consumer"],
    ),
    "commit-before-processing": Careless(
        old='commit = "after-processing"',
        new='commit = "before-processing"',
        rule='commit = "before-processing"',
        users=USERS["consumer"],
    ),
    "commit-of-a-java-consumer-before-processing": Careless(
        old='client = "java"\ncommit = "after-processing"',
        new='client = "java"\ncommit = "before-processing"',
        rule="promise-needs-commit-after",
        users=[java_consumer],
    ),
    "delivery-timeout-below-a-failover": Careless(
        old=ACKS,
        new=f"{ACKS}\nconfig.delivery.timeout.ms = 10000",
        rule="given-up-during-a-failover",
        users=USERS["producer"],
    ),
    "more-replicas-than-brokers": Careless(
        old=REPLICAS,
        new="replication_factor = 4",
        rule="more-replicas-than-brokers",
        users=USERS["cluster"],
    ),
    # a typo in each section: of a setting
    "typo-in-cluster": Careless(
        old="config.unclean.leader.election.enable",
        new="config.unclean.leader.election.enabled",
        rule="unknown-setting",
        users=USERS["cluster"],
    ),
    "typo-in-client": Careless(
        old="client.bootstrap.servers",
        new='client.bootstrap.sever = "a:1"\nclient.bootstrap.servers',
        rule="unknown-setting",
        users=USERS["client"],
    ),
    "typo-in-topics": Careless(
        old=MIN_ISR,
        new=f"{MIN_ISR}\nconfig.min.insync.replicaz = 2",
        rule="unknown-setting",
        users=USERS["cluster"],
    ),
    "typo-in-producers": Careless(
        old=IDEMPOTENCE,
        new=f"{IDEMPOTENCE}\nconfig.enable.idempotense = true",
        rule="unknown-setting",
        users=USERS["producer"],
    ),
    "typo-in-consumers": Careless(
        old=RESET,
        new=f"{RESET}\nconfig.session.timeout.msec = 45000",
        rule="unknown-setting",
        users=USERS["consumer"],
    ),
    "typo-in-pipelines": Careless(
        old='start = "earliest"',
        new='start = "earliest"\nconfig.fetch.max.wait.mz = 5',
        rule="unknown-setting",
        users=USERS["pipeline"],
    ),
    # of a key: then nothing in the file is used
    "typo-in-guarantee": Careless(
        old='delivery = "exactly-once"',
        new='delivry = "exactly-once"',
        rule="unknown key 'delivry' in [guarantee]",
        users=ALL,
    ),
    "typo-in-a-fault": Careless(
        old="leader-crash", new="leadr-crash", rule="leadr-crash is not a fault", users=ALL
    ),
    "typo-in-sink": Careless(
        old='path = "./ware', new='pth = "./ware', rule="unknown key 'pth' in ", users=ALL
    ),
    "typo-at-the-top": Careless(
        old="[guarantee] ", new="[garantee] ", rule="unknown key 'garantee'", users=ALL
    ),
}


@pytest.fixture
def careful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The contract of `lossless init`, with consumers; an address where nobody listens."""
    monkeypatch.setenv("KAFKA", "127.0.0.1:1")
    monkeypatch.chdir(tmp_path)
    template = files("lossless.contract").joinpath("template")
    (tmp_path / "schemas").mkdir()
    for name in ("lossless.toml", "schemas/orders.json"):
        (tmp_path / name).write_text(template.joinpath(name).read_text())
    file = tmp_path / "lossless.toml"
    file.write_text(file.read_text() + CONSUMERS)
    return file


def changed(file: Path, careless: Careless) -> int:
    """Changes the contract; the line of what was changed."""
    text = file.read_text()
    before, found, after = text.partition(careless.old)
    assert found, careless.old
    file.write_text(before + careless.new + after)
    line = before.count("\n") + 1
    return line + careless.new.count("\n") if careless.new.startswith(careless.old) else line


def doctor(file: Path) -> tuple[int, str]:
    result = CliRunner().invoke(
        lossless.cli.doctor.command, ["--contract", str(file)], catch_exceptions=False
    )
    return result.exit_code, result.output


@pytest.mark.parametrize("name", CARELESS)
def test_a_careless_contract_is_refused_by_each_command_that_uses_the_section(
    careful: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at_the_first_step(monkeypatch)  # what is not refused must not start a cluster
    careless = CARELESS[name]
    changed(careful, careless)
    for command in careless.users:
        with pytest.raises(BadInput) as caught:
            command(careful)
        said = str(caught.value)
        assert caught.value.exit_code == 2
        assert careless.rule in said
        assert "lossless.toml:" in said
        assert caught.value.hint
    code, output = doctor(careful)
    assert code == 2
    assert "wrong   contract" in output
    assert careless.rule in output


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("acks-1", "[producers.shop] acks = 1"),
        ("min-isr-1", '[topics."shop.orders"] min.insync.replicas = 1'),
        ("typo-in-producers", "[producers.shop] enable.idempotense is not a setting"),
    ],
)
def test_a_refusal_names_the_section_and_the_value(careful: Path, name: str, line: str) -> None:
    changed(careful, CARELESS[name])
    assert line in doctor(careful)[1]


def test_a_refusal_names_the_line_the_rule_and_the_fix(careful: Path) -> None:
    line = changed(careful, CARELESS["min-isr-as-replication-factor"])
    with pytest.raises(BadInput) as caught:
        up(careful)
    assert caught.value.what.startswith(f"lossless.toml:{line}: [topics.")
    assert caught.value.what.endswith("(writes-go-on)")
    assert "set replication_factor = 3 and config.min.insync.replicas = 2" in str(caught.value)


@pytest.mark.parametrize("name", [name for name in CARELESS if CARELESS[name].users != ALL])
def test_a_section_that_a_command_does_not_use_does_not_stop_it(
    careful: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = stop_at_the_first_step(monkeypatch)
    changed(careful, CARELESS[name])
    for command in ALL:
        if command not in CARELESS[name].users:
            started.clear()
            begin(command, careful)
            assert started == [command.__name__]


def test_the_contract_of_init_is_accepted_by_every_command(
    careful: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = stop_at_the_first_step(monkeypatch)
    for command in ALL:
        begin(command, careful)
    assert started == [command.__name__ for command in ALL]
    _, output = doctor(careful)
    assert "ok      contract" in output


def test_options_may_try_what_the_contract_may_not_promise(
    careful: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at_the_first_step(monkeypatch)
    option = "unclean.leader.election.enable=true"
    result = CliRunner().invoke(
        lossless.cli.up.command, ["--contract", str(careful), "--config", option]
    )
    assert isinstance(result.exception, Unavailable)


def test_a_cluster_without_a_contract_takes_any_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOSSLESS_CONTRACT", raising=False)
    started = stop_at_the_first_step(monkeypatch)
    arguments = ["--brokers", "1", "--config", "unclean.leader.election.enable=true"]
    with pytest.raises(Unavailable):
        CliRunner().invoke(
            lossless.cli.up.command, arguments, catch_exceptions=False, standalone_mode=False
        )
    assert started == ["up"]


def stop_at_the_first_step(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Commands end where they would start something, and note that they came so far."""
    started: list[str] = []

    def stop(name: str) -> Callable[..., Any]:
        def stopped(*_: Any, **__: Any) -> Any:
            started.append(name)
            raise Unavailable("started")

        return stopped

    monkeypatch.setattr("lossless.engines.local.start.start_cluster", stop("up"))
    monkeypatch.setattr("lossless.pipeline.pipeline.Pipeline.run", stop("run"))
    monkeypatch.setattr("lossless.pipeline.pipeline.Pipeline.dry_run", stop("pipeline"))
    monkeypatch.setattr("lossless.client.producing.producer.Producer.__init__", stop("producer"))
    monkeypatch.setattr("lossless.client.consuming.consumer.Consumer.__init__", stop("consumer"))
    return started


def begin(command: Callable[[Path], None], file: Path) -> None:
    """Making a pipeline starts nothing yet: it also begins with a dry run."""
    whole = dry_run if command is pipeline else command
    with pytest.raises(Unavailable):
        whole(file)
