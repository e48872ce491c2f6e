"""The fault vocabulary: one set of names for `survives`, `--faults`, drills and the CLI.

A fault is a name and, where it strikes one of several, a target. Not every engine can inject every
fault; an engine that cannot says so (`Unsupported`) instead of pretending.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    BROKER_CRASH = "broker-crash"  # kill -9 of a broker process
    LEADER_CRASH = "leader-crash"  # kill -9 of the broker that leads a partition
    CONTROLLER_CRASH = "controller-crash"  # kill -9 of the active controller
    BROKER_PAUSE = "broker-pause"  # SIGSTOP: the process lives, its session does not
    BROKER_RESUME = "broker-resume"  # SIGCONT
    BROKER_RESTART = "broker-restart"  # start again on the same port with the same data
    BROKER_STOP = "broker-stop"  # controlled shutdown
    ROLLING_RESTART = "rolling-restart"  # every broker in turn, each back in sync before the next
    POWER_LOSS = "power-loss"  # of one broker: everything written but not flushed is gone
    POWER_LOSS_EVERYWHERE = "power-loss-everywhere"  # of all brokers and controllers at once
    NETWORK_PARTITION = (
        "network-partition"  # a broker from one other, or from all; not from clients
    )
    NETWORK_MEND = "network-mend"  # whatever was cut, and the disk, is as it was
    DISK_FULL = "disk-full"
    DISK_SLOW = "disk-slow"
    DISK_FAILURE = "disk-failure"  # writes and flushes fail, and what was not flushed is gone
    LATE_MESSAGES = "late-messages"  # between any two processes; its number is milliseconds
    CLIENT_DISCONNECT = "client-disconnect"
    PRODUCER_CRASH = "producer-crash"
    CONSUMER_CRASH = "consumer-crash"
    DRIVER_CRASH = "driver-crash"  # kill -9 of the Spark driver, Python and JVM
    EXECUTOR_CRASH = "executor-crash"
    SINK_OUTAGE = "sink-outage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    kind: FaultKind
    broker: int | None = None
    other: int | None = None  # of two brokers
    delay_ms: int = 0
    topic: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """The fault took effect, and this is how we know."""

    fault: Fault
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    """This engine has no way to inject the fault."""

    fault: Fault
    why: str
