"""What breaks the promise in the topics, and in the cluster that holds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lossless.contract.faults import FaultKind
from lossless.contract.rules.rule import Contradiction, Rule, rule_of
from lossless.contract.rules.settings import BOOLEANS
from lossless.contract.values import ClusterContract, Guarantee, TopicContract

TOPIC_RULES: list[Rule[Keeping]] = []
CLUSTER_RULES: list[Rule[Holding]] = []

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
QUORUM_OF_BROKERS_MAX = 3  # without controllers of their own, so many brokers are controllers too

_INTERNAL_COPIES = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """A topic, the cluster it is created in, and what is promised of its records."""

    topic: TopicContract
    cluster: ClusterContract
    guarantee: Guarantee

    def text(self, name: str, default: str) -> str:
        return self.topic.config.get(name, self.cluster.config.get(name, default)).strip()

    @property
    def in_sync_min(self) -> int | None:
        return _whole(self.text(MIN_ISR, "1"))

    @property
    def has_too_few_replicas(self) -> bool:
        return self.topic.replication_factor <= self.guarantee.brokers_away

    @property
    def fix(self) -> str:
        away = self.guarantee.brokers_away
        return (
            f"set replication_factor = {max(2 * away + 1, self.topic.replication_factor)} and "
            f"config.{MIN_ISR} = {away + 1}; or promise less under survives"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The cluster on its own."""

    cluster: ClusterContract
    guarantee: Guarantee


def _topic(*claims: str) -> Callable[[Callable[[Keeping], Contradiction | None]], None]:
    def register(function: Callable[[Keeping], Contradiction | None]) -> None:
        TOPIC_RULES.append(rule_of(function, claims))

    return register


def _cluster(*claims: str) -> Callable[[Callable[[Holding], Contradiction | None]], None]:
    def register(function: Callable[[Holding], Contradiction | None]) -> None:
        CLUSTER_RULES.append(rule_of(function, claims))

    return register


@_topic()
def _more_replicas_than_brokers(asked: Keeping) -> Contradiction | None:
    """Each replica needs a broker of its own."""
    wanted, brokers = asked.topic.replication_factor, asked.cluster.brokers
    if wanted <= brokers:
        return None
    return Contradiction(
        settings=("replication_factor",),
        reason=f"replication_factor = {wanted} needs as many brokers, and [cluster] has {brokers}",
        fix=f"set replication_factor = {brokers}, or [cluster] brokers = {wanted}",
    )


@_topic("R4", "R6")
def _replicas_outlive_faults(asked: Keeping) -> Contradiction | None:
    """One replica more than brokers may be away."""
    away = asked.guarantee.brokers_away
    if not asked.has_too_few_replicas:
        return None
    return Contradiction(
        settings=("replication_factor",),
        reason=f"replication_factor = {asked.topic.replication_factor} while the contract survives "
        f"{_brokers(away)} away: the topic would be gone with {'it' if away == 1 else 'them'}",
        fix=asked.fix,
    )


@_topic("R2", "R4", "R6")
def _copies_outlive_faults(asked: Keeping) -> Contradiction | None:
    """A record is acknowledged only when more brokers have it than may be away."""
    away, least = asked.guarantee.brokers_away, asked.in_sync_min
    if not asked.guarantee.may_not_lose or asked.has_too_few_replicas:
        return None
    if least is None or least > away:
        return None
    silent = "" if _is_set(asked, MIN_ISR) else " (the default)"
    return Contradiction(
        settings=(MIN_ISR,),
        reason=f"{MIN_ISR} = {least}{silent} with {asked.guarantee.delivery} promised through "
        f"{_brokers(away)} away: a record can be acknowledged that only "
        f"{'that broker has' if away == 1 else 'those brokers have'}",
        fix=asked.fix,
    )


@_topic("B5")
def _writes_go_on(asked: Keeping) -> Contradiction | None:
    """Enough replicas must be left for acks=all while brokers are away."""
    away, least = asked.guarantee.brokers_away, asked.in_sync_min
    left = asked.topic.replication_factor - away
    if least is None or least <= left or asked.has_too_few_replicas:
        return None
    while_away = f" while {_brokers(away)} may be away" if away else ""
    return Contradiction(
        settings=(MIN_ISR,),
        reason=f"{MIN_ISR} = {least} of {asked.topic.replication_factor} replicas{while_away}: "
        "writes with acks=all stop until it is back",
        fix=asked.fix,
    )


@_topic("B3")
def _elected_unclean(asked: Keeping) -> Contradiction | None:
    """A leader that missed acknowledged records deletes them from the others."""
    if BOOLEANS.get(asked.text(UNCLEAN, "false").lower()) is not True:
        return None
    if not asked.guarantee.may_not_lose or not asked.guarantee.brokers_away:
        return None
    return Contradiction(
        settings=(UNCLEAN,),
        reason=f"{UNCLEAN} = true with {asked.guarantee.delivery} promised: a replica that missed "
        "acknowledged records can become leader, and they are gone",
        fix=f'leave {UNCLEAN} out; or promise delivery = "at-most-once"',
    )


@_topic("R2", "B3")
def _topic_misread(asked: Keeping) -> Contradiction | None:
    """The two settings that the other rules need must be readable."""
    if asked.in_sync_min is None:
        name, expected = MIN_ISR, "an integer from 1"
    elif asked.text(UNCLEAN, "false").lower() not in ("true", "false"):
        name, expected = UNCLEAN, "true or false"
    else:
        return None
    return Contradiction(
        settings=(name,),
        reason=f"{name} = {asked.text(name, '')} is not {expected}",
        fix=f"write {expected}",
    )


@_cluster("KIP-595")
def _quorum_outlives_faults(asked: Holding) -> Contradiction | None:
    """A majority of the controllers elects leaders; without it no failover happens."""
    cluster, promised = asked.cluster, asked.guarantee
    own = cluster.controllers > 0
    quorum = cluster.controllers or min(cluster.brokers, QUORUM_OF_BROKERS_MAX)
    away = promised.survived(FaultKind.CONTROLLER_CRASH)
    if not own:  # then whatever takes a broker away takes a controller away
        away = max(away, promised.brokers_away)
    if quorum >= 2 * away + 1:
        return None
    which = "of their own" if own else "among the brokers"
    return Contradiction(
        settings=("controllers",) if own else ("brokers",),
        reason=f"{_controllers(quorum)} {which} while {away} may be away: without a majority no "
        "leader is elected",
        fix=f"set controllers = {2 * away + 1}"
        + ("" if own or away > 1 else ", or brokers = 3")
        + "; or promise less under survives",
    )


@_cluster("R6")
def _internal_topics_outlive_faults(asked: Holding) -> Contradiction | None:
    """Groups and transactions live in topics too."""
    away = asked.guarantee.brokers_away
    few = [
        name
        for name in _INTERNAL_COPIES
        if (copies := _whole(asked.cluster.config.get(name, ""))) is not None and copies <= away
    ]
    if not few:
        return None
    shown = " and ".join(f"{name} = {asked.cluster.config[name]}" for name in few)
    return Contradiction(
        settings=tuple(few),
        reason=f"{shown} while {_brokers(away)} may be away: topics that nobody lists, of groups "
        "and transactions among them, would be gone",
        fix=f"leave {' and '.join(few)} out",
    )


def _is_set(asked: Keeping, name: str) -> bool:
    return name in asked.topic.config or name in asked.cluster.config


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() else None


def _brokers(count: int) -> str:
    return f"{count} broker" if count == 1 else f"{count} brokers"


def _controllers(count: int) -> str:
    return f"{count} controller" if count == 1 else f"{count} controllers"
