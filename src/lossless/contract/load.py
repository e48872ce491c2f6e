"""Finding the contract and reading it: `lossless.toml`, all of it or a message with its line."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from lossless.contract.faults import FaultKind
from lossless.contract.keys import TOP, keys_of
from lossless.contract.pipelines import (
    TOPIC_NAME,
    read_pipeline,
    refuse_sinks_among_dead_letters,
    refuse_sinks_within_others,
)
from lossless.contract.place import ContractError, nearest, shown, syntax_error
from lossless.contract.section import LONG_MAX, Document, Section
from lossless.contract.values import (
    SURVIVABLE,
    Client,
    ClusterContract,
    Commit,
    ConsumerContract,
    Contract,
    Delivery,
    Guarantee,
    Order,
    ProducerContract,
    TopicContract,
)

FILE_NAME = "lossless.toml"
VARIABLE = "LOSSLESS_CONTRACT"

_REPLICATION_FACTOR = 3
# More than any cluster has: a larger number is a slip of the keyboard.
BROKERS_MAX = 1_000
PARTITIONS_MAX = 1_000_000


def find_contract(
    path: Path | None = None, *, environment: Mapping[str, str] | None = None
) -> Path | None:
    """The contract's absolute path: the one named, else the nearest; None when there is none."""
    environment = os.environ if environment is None else environment
    named = path or (Path(environment[VARIABLE]) if environment.get(VARIABLE) else None)
    if named is not None:
        file = named / FILE_NAME if named.is_dir() else named
        if not file.is_file():
            by = "" if path else f", named by {VARIABLE}"
            raise ContractError(
                f"there is no contract at {shown(file)}{by}",
                hint="write one with: lossless init " + str(named),
            )
        return file.absolute()
    folder = Path.cwd()
    for candidate in (folder, *folder.parents):
        if (candidate / FILE_NAME).is_file():
            return candidate / FILE_NAME
    return None


def load_contract(
    path: Path | None = None, *, environment: Mapping[str, str] | None = None
) -> Contract:
    environment = os.environ if environment is None else environment
    file = find_contract(path, environment=environment)
    if file is None:
        raise ContractError(
            f"no {FILE_NAME} here or in any folder above",
            hint="write one with: lossless init; or name one with --contract",
        )
    text = _text_of(file)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise syntax_error(error, file, text) from error
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits, or thousands of brackets within each other.
        raise ContractError(f"cannot be read as TOML: {error}", file=file) from error
    root = Section(Document(file=file, text=text, environment=environment), (), values)
    root.allow(*TOP)
    general = root.table("contract")
    general.allow(*keys_of("contract"))
    promised = root.table("guarantee")
    promised.allow(*keys_of("guarantee"))
    guarantee = _read_guarantee(promised, Guarantee())
    cluster = _read_cluster(root.table("cluster"))
    pipelines = {
        section.name: read_pipeline(
            section, _read_guarantee_of_pipeline(section.table("guarantee"), guarantee)
        )
        for section in root.tables("pipelines")
    }
    refuse_sinks_among_dead_letters(root.tables("pipelines"), pipelines)
    refuse_sinks_within_others(root.tables("pipelines"), pipelines)
    return Contract(
        path=file,
        guarantee=guarantee,
        cluster=cluster,
        topics={s.name: _read_topic(s, cluster) for s in root.tables("topics")},
        producers={s.name: _read_producer(s) for s in root.tables("producers")},
        consumers={s.name: _read_consumer(s) for s in root.tables("consumers")},
        pipelines=pipelines,
        allow_settings=general.strings("allow_settings"),
        text=text,
    )


def _read_guarantee(section: Section, inherited: Guarantee) -> Guarantee:
    """A key that is given replaces what it inherits, `survives` as a whole among them."""
    delivery = section.choice("delivery", get_args(Delivery), inherited.delivery)
    return Guarantee(
        delivery=delivery,
        order=section.choice("order", get_args(Order), inherited.order),
        pause_max_s=section.seconds("pause_max_s", inherited.pause_max_s),
        duplicates_max=_read_duplicates_max(section, delivery, inherited),
        survives=_read_survives(section.table("survives"))
        if "survives" in section
        else inherited.survives,
    )


def _read_guarantee_of_pipeline(section: Section, inherited: Guarantee) -> Guarantee:
    if "order" in section:
        raise section.error(
            "order",
            "has no meaning for a pipeline: the rows of a table have no order",
            hint="leave it out; every row has its partition and offset in the column _lossless",
        )
    section.allow(*keys_of("pipelines.NAME.guarantee"))
    return _read_guarantee(section, inherited)


def _read_duplicates_max(section: Section, delivery: Delivery, inherited: Guarantee) -> int | None:
    limit = section.integer("duplicates_max", None, least=0, most=LONG_MAX)
    if limit is None:
        if delivery == inherited.delivery:
            return inherited.duplicates_max
        return 0 if delivery == "exactly-once" else None
    if limit > 0:
        raise section.error(
            "duplicates_max",
            f"must be 0, not {limit}: nothing counts duplicates against a limit",
            hint='set 0, or leave it out and promise delivery = "at-least-once"',
        )
    return limit


def _read_survives(section: Section) -> dict[FaultKind, int | bool]:
    survives: dict[FaultKind, int | bool] = {}
    kinds = [kind.value for kind in SURVIVABLE]
    for name in section:
        if name not in kinds:
            raise section.error(
                name,
                "is not a fault that can be promised"
                if name in list(FaultKind)
                else "is not a fault",
                nearest=nearest(name, kinds),
                hint=f"faults: {', '.join(kinds)}",
            )
        value = section.raw(name)
        if not isinstance(value, bool):
            if not isinstance(value, int):
                raise section.error(name, "must be true, false or how many at a time, from 1")
            value = section.integer(name, 1, least=1)
        survives[FaultKind(name)] = value
    return survives


def _read_cluster(section: Section) -> ClusterContract:
    section.allow(*keys_of("cluster"))
    return ClusterContract(
        brokers=section.integer("brokers", 3, least=1, most=BROKERS_MAX),
        controllers=section.integer("controllers", 0, least=0, most=BROKERS_MAX),
        racks=section.strings("racks"),
        config=section.settings("config"),
        client={**section.properties(), **section.settings("client")},
    )


def _read_topic(section: Section, cluster: ClusterContract) -> TopicContract:
    section.allow(*keys_of("topics.NAME"))
    if not TOPIC_NAME.fullmatch(section.name):
        raise section.error(
            None,
            "is not a name that Kafka allows",
            hint="letters, digits, '.', '_' and '-', at most 249; a name with dots needs quotes: "
            '[topics."shop.orders"]',
        )
    return TopicContract(
        name=section.name,
        partitions=section.integer("partitions", 1, least=1, most=PARTITIONS_MAX),
        replication_factor=section.integer(
            "replication_factor", min(_REPLICATION_FACTOR, cluster.brokers), least=1
        ),
        config=section.settings("config"),
    )


def _read_producer(section: Section) -> ProducerContract:
    section.allow(*keys_of("producers.NAME"))
    return ProducerContract(
        name=section.name,
        client=section.choice("client", get_args(Client), "lossless"),
        config={**section.properties(), **section.settings("config")},
    )


def _read_consumer(section: Section) -> ConsumerContract:
    section.allow(*keys_of("consumers.NAME"))
    client = section.choice("client", get_args(Client), "lossless")
    # What a client does unless told otherwise.
    commit: Commit = "after-processing" if client == "lossless" else "auto"
    return ConsumerContract(
        name=section.name,
        client=client,
        commit=section.choice("commit", get_args(Commit), commit),
        config={**section.properties(), **section.settings("config")},
    )


def _text_of(file: Path) -> str:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ContractError(f"cannot be read: {error.strerror}", file=file) from error
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ContractError(
            "is not text in UTF-8", file=file, line=line, hint="save the file as UTF-8"
        ) from error
