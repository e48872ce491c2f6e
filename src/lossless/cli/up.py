"""`lossless up`: starts a local cluster, in the foreground or detached."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lossless.cli.cluster import contract_option, optional_contract
from lossless.cli.console import print_aside
from lossless.contract import Contract
from lossless.contract.rules import known as known_settings
from lossless.contract.rules.judging import enforce, judge_cluster
from lossless.engines.interface import ClusterSpec
from lossless.engines.signals import stopped_by_signals, uninterrupted
from lossless.errors import EXIT_INTERRUPTED, BadInput, LosslessError, Unavailable

if TYPE_CHECKING:
    from lossless.engines.local.cluster import LocalCluster

LOOK_EVERY_S = 0.5


@click.command()
@click.option(
    "--kafka",
    "engine",
    default="embedded",
    show_default=True,
    metavar="embedded|apache",
    help="The brokers to run: this package's own, or Apache Kafka's (needs Java).",
)
@click.option("--brokers", type=int, help="Number of brokers [default: the contract's, else 3].")
@click.option(
    "--controllers",
    type=int,
    help="Number of controllers in separate processes, which survive broker crashes [default: the "
    "contract's, else 0: up to three brokers also act as controllers].",
)
@click.option("--rack", metavar="A,B,…", help="Assign the brokers to these racks in turn.")
@click.option(
    "--host",
    metavar="NAME",
    help="Accept connections from other machines, which reach this one by NAME "
    "[default: 127.0.0.1, this machine only].",
)
@click.option(
    "--port",
    type=int,
    help="Port of the first broker; the others use the ports that follow [default: free ports].",
)
@click.option("--config", multiple=True, metavar="NAME=VALUE", help="Broker setting; repeatable.")
@click.option(
    "--detach", is_flag=True, help="Run in the background; return once clients can connect."
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep data and ports in DIR, so that a later `up --data DIR` continues with them.",
)
@contract_option
def command(
    engine: str,
    brokers: int | None,
    controllers: int | None,
    rack: str | None,
    host: str | None,
    port: int | None,
    config: tuple[str, ...],
    detach: bool,
    data: Path | None,
    contract_path: Path | None,
) -> None:
    """Start a local cluster and print its bootstrap.servers.

    Runs in the foreground until Ctrl-C (exit code 130) or `lossless down` (exit code 0). The
    brokers stop with this command, even if it is killed. With --detach the cluster runs in the
    background until `lossless down`.

    If there is a contract, its topics are created. Without --data, all data is deleted when the
    cluster stops.
    """
    from lossless.engines.choose import ENGINES, check_choice
    from lossless.engines.detached import default_data, home

    check_choice(engine)
    if engine not in ENGINES:
        raise BadInput(f"--kafka {engine} is an address", hint="choose embedded or apache")
    contract = optional_contract(contract_path)
    if contract is not None:
        enforce(contract, cluster=True)
    place = home(contract.folder if contract else None)
    folder = data.absolute() if data else default_data(place)
    spec = _spec(contract, folder, brokers, controllers, rack, _settings(config))
    spec = dataclasses.replace(spec, port=port)
    if host is not None:
        spec = dataclasses.replace(spec, advertised_host=host)
    _refuse_second(place, folder, is_chosen=data is not None)
    if contract is not None:
        _warn_of_options(contract, spec)
    with stopped_by_signals():
        cluster = _start(
            spec,
            folder,
            place,
            contract,
            engine=engine,
            temporary=data is None,
            ends_with_program=not detach,
        )
        click.echo(f"bootstrap.servers={cluster.bootstrap_servers}")
        if detach:
            print_aside("show it with `lossless status`, stop it with `lossless down`")
        else:
            _stay(cluster, place)


def _start(
    spec: ClusterSpec,
    folder: Path,
    place: Path,
    contract: Contract | None,
    *,
    engine: str,
    temporary: bool,
    ends_with_program: bool,
) -> LocalCluster:
    from lossless.engines.detached import forget, note
    from lossless.engines.local.start import start_cluster

    cluster = None
    try:
        note(place, folder)  # first, so that `down` finds the brokers even if this process dies
        cluster = start_cluster(
            spec,
            folder,
            engine=engine,
            temporary=temporary,
            report=print_aside,
            ends_with_program=ends_with_program,
        )
        _create_topics(contract, cluster)
    except BaseException as error:
        with uninterrupted():
            dead = None if cluster is None else cluster.ended()
            if cluster is not None:
                cluster.stop()
            forget(place, folder)
        if dead is not None and isinstance(error, LosslessError):
            raise Unavailable(dead) from error
        raise
    return cluster


def _refuse_second(place: Path, folder: Path, *, is_chosen: bool) -> None:
    """Refuses a second cluster unless --data names its folder: `down` needs it to choose one."""
    from lossless.engines.detached import clusters_of, forget

    for noted in clusters_of(place):
        if any(row.state != "dead" for row in noted.status()):
            if is_chosen and noted.folder != folder:
                continue
            raise BadInput(
                f"a cluster is already running: bootstrap.servers={noted.bootstrap_servers}",
                hint="stop it with `lossless down`"
                + ("" if is_chosen else ", or start another one beside it with --data DIR"),
            )
        if noted.plan.temporary:
            raise BadInput(
                f"every broker of the cluster in {noted.folder} is dead, and `up` would discard "
                "its records",
                hint="start a broker with its records with `lossless restart BROKER`, or discard "
                "them with `lossless down`",
            )
        if noted.folder != folder:
            noted.stop()  # every broker died; only files can be left
            forget(place, noted.folder)


def _spec(
    contract: Contract | None,
    folder: Path,
    brokers: int | None,
    controllers: int | None,
    rack: str | None,
    settings: dict[str, str],
) -> ClusterSpec:
    """Returns the spec: options take precedence over the data folder, then comes the contract."""
    from lossless.engines.local.state import read_state

    spec = ClusterSpec()
    if contract is not None:
        promised = contract.cluster
        spec = ClusterSpec(
            brokers=promised.brokers,
            controllers=promised.controllers,
            racks=promised.racks,
            config=promised.config,
        )
    kept = read_state(folder)
    if kept is not None and not kept.plan.temporary:
        plan = kept.plan
        spec = dataclasses.replace(
            spec,
            brokers=len(plan.brokers),
            controllers=sum(not node.is_broker for node in plan.nodes),
            racks=tuple(node.rack for node in plan.brokers if node.rack is not None),
        )
    if brokers is not None:
        spec = dataclasses.replace(spec, brokers=brokers)
    if controllers is not None:
        spec = dataclasses.replace(spec, controllers=controllers)
    if rack is not None:
        racks = tuple(part.strip() for part in rack.split(","))
        if not all(racks):
            raise BadInput(f"--rack {rack!r} contains an empty rack name")
        spec = dataclasses.replace(spec, racks=racks)
    return dataclasses.replace(spec, config={**spec.config, **settings})


def _warn_of_options(contract: Contract, spec: ClusterSpec) -> None:
    """Warns if the options build a cluster on which the contract's promise does not hold."""
    built = dataclasses.replace(
        contract.cluster,
        brokers=spec.brokers,
        controllers=spec.controllers,
        config=dict(spec.config),
    )
    if built == contract.cluster:
        return
    for violation in judge_cluster(dataclasses.replace(contract, cluster=built)):
        if violation.rule == known_settings.RULE:
            continue  # the engine warns of it
        print_aside(f"warning: these options break the contract: {violation}")


def _settings(pairs: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise BadInput(f"--config {pair} is not a setting", hint="write NAME=VALUE")
        settings[name.strip()] = value.strip()
    return settings


def _create_topics(contract: Contract | None, cluster: LocalCluster) -> None:
    from lossless.engines.metadata import create_topics

    if contract is None or not contract.topics:
        return
    count = len(cluster.plan.brokers)
    for topic in contract.topics.values():
        if topic.replication_factor > count:
            print_aside(
                f"warning: topic {topic.name} gets {count} instead of {topic.replication_factor} "
                "replicas, because the cluster has too few brokers"
            )
    created = create_topics(
        cluster.client_settings, contract.topics.values(), replication_factor_max=count
    )
    if created:
        print_aside(f"created {'topic' if len(created) == 1 else 'topics'} {', '.join(created)}")


def _stay(cluster: LocalCluster, place: Path) -> None:
    """Waits for a signal or for `lossless down`, and reports brokers that die or restart."""
    from lossless.engines.detached import forget
    from lossless.engines.local.state import read_state

    known = {row.broker: row.state for row in cluster.status()}
    print_aside("Ctrl-C stops the cluster")
    try:
        while (state := read_state(cluster.folder)) and state.processes:
            rows = cluster.status()
            now = {row.broker: row.state for row in rows}
            why = {row.broker: f": {row.reason}" if row.reason else "" for row in rows}
            for broker in now:
                if now[broker] != known[broker]:
                    print_aside(f"{cluster.node(broker).name} is {now[broker]}{why[broker]}")
            known = now
            time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        print_aside("stopping")
        sys.exit(EXIT_INTERRUPTED)
    finally:
        cluster.stop()
        forget(place, cluster.folder)
