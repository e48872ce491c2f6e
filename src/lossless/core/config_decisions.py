"""The controller's decisions on settings: of topics, of brokers, of groups.

A request changes several settings of one resource, or none: what it would come to is judged as a
whole, with what is set already.

    topic     what a topic may set
    broker    what Kafka lets change while a broker runs; for one broker or, by the broker without a
              name, for all. A setting that this broker does not act on is accepted with a warning,
              one that it reads only when it starts is refused
    group     what a group may set, within its broker's bounds

Rules learnt
- A wrong value of a broker is INVALID_REQUEST, one of a topic or group INVALID_CONFIG: Kafka
  regrets the difference, and keeps it (KAFKA-13609).
- How many must be in sync is agreed on by the cluster, or eligible leaders would depend on which
  broker is asked: no broker has its own number, and the cluster's is never taken away (KIP-966).
"""

from __future__ import annotations

from collections.abc import Mapping

from lossless.core.admin_messages import (
    ALL_BROKERS,
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    Resource,
    ResourceKind,
)
from lossless.core.dynamic_settings import AT_RUN_TIME
from lossless.core.messages import AdminAnswer, Error
from lossless.core.metadata import MIN_ISR, ConfigChanged, Image
from lossless.core.settings.broker_settings import BrokerSettings
from lossless.core.settings.brokers import BROKERS, effective, setting_for
from lossless.core.settings.groups import GROUPS, problem_with_group
from lossless.core.settings.kinds import InvalidSetting, Kind, Mode, Setting, problem
from lossless.core.settings.topics import TOPICS, problem_with_topic

_TABLES: Mapping[ResourceKind, Mapping[str, Setting]] = {
    ResourceKind.TOPIC: TOPICS,
    ResourceKind.BROKER: BROKERS,
    ResourceKind.GROUP: GROUPS,
}

_THREADS = frozenset(
    {
        "background.threads",
        "log.cleaner.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    }
)


def altered(
    image: Image, request: AlterConfigs, *, has_elr: bool
) -> tuple[ConfigChanged, ...] | AdminAnswer:
    """The records of a change, or why it is not made."""
    before = image.overrides(request.resource)
    if request.resource.kind not in _TABLES:
        kind = request.resource.kind.name.lower().replace("_", " ")
        return AdminAnswer(Error.INVALID_REQUEST, f"settings of a {kind} cannot be changed here")
    if wrong := _malformed(request.changes):
        return AdminAnswer(Error.INVALID_REQUEST, wrong)
    after = {} if request.replaces_all else dict(before)
    for change in request.changes:
        value = _changed(request.resource.kind, change, before.get(change.key))
        if isinstance(value, AdminAnswer):
            return value
        if value is None:
            after.pop(change.key, None)
        else:
            after[change.key] = value
    refusal = _refusal(image, request.resource, before, after, has_elr)
    if refusal is not None:
        return refusal
    return tuple(
        ConfigChanged.of(request.resource, key, after.get(key))
        for key in dict.fromkeys((*(change.key for change in request.changes), *before))
        if before.get(key) != after.get(key)
    )


def without_effect(request: AlterConfigs) -> str:
    """A warning about settings of brokers that Kafka has and embedded brokers do not act on; empty
    if there are none. They are accepted, as in a broker's own properties."""
    if request.resource.kind is not ResourceKind.BROKER:
        return ""
    names = [
        change.key
        for change in request.changes
        if change.operation is not ConfigOperation.DELETE
        and (setting := setting_for(change.key)) is not None
        and not (setting.honoured or setting.by_engine)
    ]
    if not names:
        return ""
    return f"accepted, without effect on embedded brokers: {', '.join(sorted(names))}"


def _malformed(changes: tuple[ConfigChange, ...]) -> str | None:
    keys = [change.key for change in changes]
    if len(set(keys)) < len(keys):
        return "Error due to duplicate config keys"
    without = [
        change.key
        for change in changes
        if change.value is None and change.operation is not ConfigOperation.DELETE
    ]
    return f"Null value not supported for : {', '.join(without)}" if without else None


def _changed(
    kind: ResourceKind, change: ConfigChange, before: str | None
) -> str | AdminAnswer | None:
    """The value afterwards; None: it is deleted."""
    if change.operation is ConfigOperation.DELETE:
        return None
    if change.operation is ConfigOperation.SET:
        return change.value
    setting = _TABLES[kind].get(change.key)
    if setting is None or setting.kind is not Kind.LIST:
        return AdminAnswer(
            Error.INVALID_CONFIG,
            f"Can't {change.operation.name} to key {change.key} because its type is not LIST.",
        )
    # Kafka goes by its own default where nothing is set, not by what the broker says.
    words = [word for word in (before or setting.default or "").split(",") if word]
    given = (change.value or "").split(",")
    if change.operation is ConfigOperation.APPEND:
        words += [word for word in dict.fromkeys(given) if word not in words]
    else:
        words = [word for word in words if word not in given]
    return ",".join(words)


def _refusal(
    image: Image,
    resource: Resource,
    before: Mapping[str, str],
    after: Mapping[str, str],
    has_elr: bool,
) -> AdminAnswer | None:
    match resource.kind:
        case ResourceKind.TOPIC:
            return _refused_topic(image, resource.name, after)
        case ResourceKind.GROUP:
            if not resource.name:
                return AdminAnswer(
                    Error.INVALID_REQUEST, "Default group resources are not allowed."
                )
            wrong = problem_with_group(after, image.effective_properties())
            return None if wrong is None else AdminAnswer(Error.INVALID_CONFIG, wrong)
        case _:
            return (
                _refused_broker_name(image, resource)
                or _refused_broker(image, resource, before, after)
                or (_refused_minimum(resource, before, after) if has_elr else None)
            )


def _refused_topic(image: Image, topic: str, after: Mapping[str, str]) -> AdminAnswer | None:
    if not topic:
        return AdminAnswer(Error.INVALID_REQUEST, "Default topic resources are not allowed.")
    wrong = problem_with_topic(after, image.effective_properties())
    if wrong is not None:
        return AdminAnswer(Error.INVALID_CONFIG, wrong)
    if topic not in image.topics:
        return AdminAnswer(Error.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
    return None


def _refused_broker_name(image: Image, resource: Resource) -> AdminAnswer | None:
    if resource == ALL_BROKERS:
        return None
    if not (resource.name.isascii() and resource.name.isdecimal()):
        what = f"Unable to parse broker name as a base 10 number: {resource.name!r}"
        return AdminAnswer(Error.INVALID_REQUEST, what)
    if int(resource.name) not in image.brokers:
        what = f"No broker with id {resource.name} found."
        return AdminAnswer(Error.BROKER_ID_NOT_REGISTERED, what)
    return None


def _refused_minimum(
    resource: Resource, before: Mapping[str, str], after: Mapping[str, str]
) -> AdminAnswer | None:
    if before.get(MIN_ISR) == after.get(MIN_ISR):
        return None
    if resource != ALL_BROKERS:
        what = f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled."
    elif MIN_ISR not in after:
        what = f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled."
    else:
        return None
    return AdminAnswer(Error.INVALID_CONFIG, what)


def _refused_broker(
    image: Image, resource: Resource, before: Mapping[str, str], after: Mapping[str, str]
) -> AdminAnswer | None:
    known = {name: setting for name in after if (setting := setting_for(name)) is not None}
    fixed = [name for name, setting in known.items() if setting.mode is Mode.READ_ONLY]
    if fixed:
        return _not_now("Cannot update these configs dynamically", fixed)
    for name, setting in known.items():
        if wrong := problem(setting, after[name]):
            return AdminAnswer(Error.INVALID_REQUEST, wrong)
    of_one = [name for name, setting in known.items() if setting.mode is Mode.PER_BROKER]
    if resource == ALL_BROKERS and of_one:
        what = "Cannot update these configs at default cluster level, broker id must be specified"
        return _not_now(what, of_one)
    fixed = [
        name
        for name, setting in known.items()
        if (setting.honoured or setting.by_engine) and setting.name not in AT_RUN_TIME
    ]
    if fixed:
        return _not_now("The embedded broker reads these only when it starts", fixed)
    now = image.effective_properties(None if resource == ALL_BROKERS else int(resource.name))
    for name in sorted(_THREADS & after.keys()):
        if after[name] != before.get(name) and (wrong := _too_sudden(name, now, after[name])):
            return AdminAnswer(Error.INVALID_REQUEST, wrong)
    try:
        # Kafka's own check: the broker as it would be then.
        BrokerSettings.from_properties(effective(image.effective_properties(), after))
    except InvalidSetting as invalid:
        return AdminAnswer(Error.INVALID_REQUEST, str(invalid))
    return None


def _too_sudden(name: str, now: Mapping[str, str], text: str) -> str | None:
    """Kafka lets the size of a pool of threads at most double or halve in one change."""
    current, wanted = int(now.get(name, BROKERS[name].default or "1")), int(text)
    if wanted < current // 2:
        limit = f"be at least half the current value {current}"
    elif wanted > current * 2:
        limit = f"not be greater than double the current value {current}"
    else:
        return None
    failed = f"Dynamic thread count update validation failed for {name}={wanted}"
    return f"{failed}, value should {limit}"


def _not_now(what: str, names: list[str]) -> AdminAnswer:
    return AdminAnswer(Error.INVALID_REQUEST, f"{what}: {', '.join(sorted(names))}")
