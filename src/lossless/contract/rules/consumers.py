"""What contradicts in a consumer's settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lossless.contract.faults import FaultKind
from lossless.contract.rules.rule import Contradiction, Rule, rule_of
from lossless.contract.rules.settings import Settings
from lossless.contract.values import Commit, Delivery, Guarantee

CONSUMER_RULES: list[Rule[Consuming]] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Consuming:
    settings: Settings
    delivery: Delivery | None
    commit: Commit
    processing_s_max: float | None
    workers: int
    polls_meanwhile: bool
    members: int
    guarantee: Guarantee | None = None  # the whole promise, if the settings are a contract's

    @property
    def may_not_lose(self) -> bool:
        return self.delivery in ("at-least-once", "exactly-once")

    @property
    def survives_crash(self) -> bool:
        return self.guarantee is None or self.guarantee.survived(FaultKind.CONSUMER_CRASH) > 0

    @property
    def may_not_duplicate(self) -> bool:
        promised = self.guarantee is not None and self.guarantee.may_not_duplicate
        return promised or self.delivery == "exactly-once"

    @property
    def classic(self) -> bool:
        return (self.settings.text("group.protocol") or "classic").lower() != "consumer"


def _consumer(*claims: str) -> Callable[[Callable[[Consuming], Contradiction | None]], None]:
    def register(function: Callable[[Consuming], Contradiction | None]) -> None:
        CONSUMER_RULES.append(rule_of(function, claims))

    return register


@_consumer("C1", "C3")
def _group_missing(asked: Consuming) -> Contradiction | None:
    """Without a group there is nowhere to commit to."""
    if asked.settings.text("group.id"):
        return None
    return Contradiction(
        settings=("group.id",),
        reason="group.id is missing: there is no group to share partitions with, and none to "
        "commit for",
        fix='set group.id = "…", one name for all members that share the work',
    )


@_consumer("C3", "C4")
def _committed_unprocessed(asked: Consuming) -> Contradiction | None:
    """A background commit does not know what is processed."""
    settings = asked.settings
    if asked.commit != "after-processing" or settings.yes("enable.auto.commit") is not True:
        return None
    if settings.client == "librdkafka" and settings.yes("enable.auto.offset.store") is False:
        return None  # then only what the application stored is committed
    silent = "" if "enable.auto.commit" in settings else " (the default)"
    return Contradiction(
        settings=("enable.auto.commit",),
        reason=f"enable.auto.commit = true{silent} with commits after processing: records that "
        "were read and not processed are committed in the background, and lost when the consumer "
        "crashes",
        fix="set enable.auto.commit = false"
        if settings.client != "librdkafka"
        else "set enable.auto.commit = false and commit what is processed; or "
        "enable.auto.offset.store = false and store it",
    )


@_consumer("C4")
def _stored_unprocessed(asked: Consuming) -> Contradiction | None:
    """The reliable consumer stores what is processed; librdkafka would store what was delivered."""
    settings = asked.settings
    if settings.client != "lossless" or settings.yes("enable.auto.offset.store") is not True:
        return None
    return Contradiction(
        settings=("enable.auto.offset.store",),
        reason="enable.auto.offset.store = true: a record would count as processed when it is "
        "handed over",
        fix="leave it out",
    )


@_consumer("C3", "C4")
def _promise_needs_commit_after(asked: Consuming) -> Contradiction | None:
    """Committed first and processed then means at most once."""
    settings = asked.settings
    if not asked.may_not_lose or not asked.survives_crash or asked.commit == "after-processing":
        return None
    if settings.client == "lossless":
        return None  # it takes no other commit in the first place
    if asked.commit == "auto":
        if settings.yes("enable.auto.commit") is False:
            return None
        if settings.client == "java" and asked.workers == 1:
            return None  # it commits what the previous poll gave, which is processed by then
        if settings.client == "librdkafka" and settings.yes("enable.auto.offset.store") is False:
            return None
    why = (
        'commit = "before-processing"'
        if asked.commit == "before-processing"
        else "the background commit takes what was handed over, processed or not"
    )
    return Contradiction(
        settings=("commit", "enable.auto.commit"),
        reason=f"{asked.delivery} is promised, and {why}: a crash loses the records in hand",
        fix='set commit = "after-processing" and enable.auto.commit = false',
    )


@_consumer("C3", "C4")
def _reliable_consumer_commits_after(asked: Consuming) -> Contradiction | None:
    """The reliable consumer has one way to commit, whatever is promised."""
    if asked.settings.client != "lossless" or asked.commit == "after-processing":
        return None
    return Contradiction(
        settings=("commit",),
        reason=f'commit = "{asked.commit}" with client = "lossless": the consumer of this package '
        "commits what is processed, and nothing else",
        fix='set commit = "after-processing"; or client = "java" or "librdkafka", if one of those '
        "takes these settings",
    )


@_consumer("C9")
def _longer_than_the_poll_interval(asked: Consuming) -> Contradiction | None:
    """A member that does not poll is put out of its group, and its records are read again."""
    settings = asked.settings
    interval_ms = settings.number("max.poll.interval.ms")
    if asked.polls_meanwhile or asked.processing_s_max is None or interval_ms is None:
        return None
    records = settings.number("max.poll.records") or 1 if settings.client == "java" else 1
    needed_ms = asked.processing_s_max * 1000 * records
    if needed_ms < interval_ms:
        return None
    several = f" for each of {records:.0f} records of a poll" if records > 1 else ""
    return Contradiction(
        settings=("max.poll.interval.ms",),
        reason=f"processing takes up to {asked.processing_s_max:g} s{several}, and "
        f"{settings.shown('max.poll.interval.ms')}: the group takes the partitions away meanwhile",
        fix=f"use workers = 2 or more, beside which polling goes on; or set max.poll.interval.ms "
        f"above {needed_ms:.0f}" + (", or fewer max.poll.records" if records > 1 else ""),
    )


@_consumer("C9")
def _poll_interval_below_session(asked: Consuming) -> Contradiction | None:
    """librdkafka refuses it: the session would outlive the patience with polling."""
    settings = asked.settings
    interval_ms, session_ms = (
        settings.number(name) for name in ("max.poll.interval.ms", "session.timeout.ms")
    )
    if not asked.classic or interval_ms is None or session_ms is None or interval_ms >= session_ms:
        return None
    return Contradiction(
        settings=("max.poll.interval.ms", "session.timeout.ms"),
        reason=f"{settings.shown('max.poll.interval.ms')} is below "
        f"{settings.shown('session.timeout.ms')}: a member that stopped polling would leave "
        "before one that died is noticed",
        fix=f"set max.poll.interval.ms to {session_ms:.0f} or more, or lower session.timeout.ms",
    )


@_consumer("C9")
def _heartbeat_reaches_session(asked: Consuming) -> Contradiction | None:
    """One heartbeat late is then a session lost; Java refuses it."""
    settings = asked.settings
    heartbeat_ms, session_ms = (
        settings.number(name) for name in ("heartbeat.interval.ms", "session.timeout.ms")
    )
    if not asked.classic or heartbeat_ms is None or session_ms is None:
        return None
    if heartbeat_ms < session_ms:
        return None
    return Contradiction(
        settings=("heartbeat.interval.ms", "session.timeout.ms"),
        reason=f"{settings.shown('heartbeat.interval.ms')} is not below "
        f"{settings.shown('session.timeout.ms')}: the session ends before its first heartbeat",
        fix=f"set heartbeat.interval.ms to a third: {session_ms / 3:.0f}",
    )


@_consumer("C6")
def _brokers_decide(asked: Consuming) -> Contradiction | None:
    """With KIP-848 these are the group's, kept by the brokers; both clients refuse them."""
    settings = asked.settings
    theirs = (
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "partition.assignment.strategy",
        "group.protocol.type",
    )
    found = tuple(name for name in theirs if name in settings)
    if asked.classic or not found:
        return None
    return Contradiction(
        settings=("group.protocol", *found),
        reason=f"group.protocol = consumer with {' and '.join(found)}: with this protocol the "
        "brokers decide that, for the whole group",
        fix=f"leave {' and '.join(found)} out; the brokers have group.consumer.session.timeout.ms "
        "and group.consumer.heartbeat.interval.ms, assignors go by group.remote.assignor",
    )


@_consumer("C6")
def _assignor_of_the_other_protocol(asked: Consuming) -> Contradiction | None:
    """Java refuses it; librdkafka ignores it."""
    if not asked.classic or "group.remote.assignor" not in asked.settings:
        return None
    return Contradiction(
        settings=("group.remote.assignor", "group.protocol"),
        reason="group.remote.assignor without group.protocol = consumer has no effect",
        fix="set group.protocol = consumer, or use partition.assignment.strategy",
    )


@_consumer("C2", "C11", "C12")
def _policy_replaces_reset(asked: Consuming) -> Contradiction | None:
    """The reliable consumer never jumps on its own: its policies say what to do, one by one."""
    settings = asked.settings
    value = (settings.text("auto.offset.reset") or "error").lower()
    if settings.client != "lossless" or value in ("error", "none"):
        return None
    if asked.guarantee is not None:
        return None  # a contract's value is taken for a group without an offset, and for no other
    chosen = "earliest" if value in ("earliest", "smallest", "beginning") else "latest"
    return Contradiction(
        settings=("auto.offset.reset",),
        reason=f"auto.offset.reset = {value} treats a new group, an expired offset and deleted or "
        "truncated records alike, without a word",
        fix=f'leave it out and give no_offset="{chosen}", for a group without an offset; '
        'out_of_range and truncated are "stop" unless you say otherwise',
    )


@_consumer("C2", "C12", "KIP-1327")
def _latest_skips(asked: Consuming) -> Contradiction | None:
    """No valid offset and `latest`: what came before is skipped without an error."""
    settings = asked.settings
    value = (settings.text("auto.offset.reset") or "").lower()
    if not asked.may_not_lose:
        return None
    if value not in ("latest", "largest", "end"):
        return None
    silent = "" if "auto.offset.reset" in settings else " (the default)"
    return Contradiction(
        settings=("auto.offset.reset",),
        reason=f"auto.offset.reset = {value}{silent} with {asked.delivery} promised: what is in "
        "a new partition, or after an expired offset, is skipped",
        fix="set auto.offset.reset = earliest, or none to be told",
    )


@_consumer("C14")
def _uncommitted_read(asked: Consuming) -> Contradiction | None:
    """Records of aborted transactions were never sent, as far as anybody promised."""
    settings = asked.settings
    value = (settings.text("isolation.level") or "").lower()
    if not asked.may_not_duplicate or value != "read_uncommitted":
        return None
    silent = "" if "isolation.level" in settings else " (the default)"
    promised = "exactly-once" if asked.delivery == "exactly-once" else "duplicates_max = 0"
    return Contradiction(
        settings=("isolation.level",),
        reason=f"isolation.level = read_uncommitted{silent} with {promised} promised: records of "
        "aborted transactions are processed, and again when they are sent anew",
        fix="set isolation.level = read_committed",
    )


@_consumer("C13")
def _instance_shared(asked: Consuming) -> Contradiction | None:
    """A static member is one: the next with its name fences it."""
    if asked.members <= 1 or "group.instance.id" not in asked.settings:
        return None
    return Contradiction(
        settings=("group.instance.id",),
        reason=f"{asked.settings.shown('group.instance.id')} for {asked.members} members: each one "
        "that joins puts the one before it out of the group",
        fix="give each member a group.instance.id of its own, or leave it out",
    )
