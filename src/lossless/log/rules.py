"""Rules that published bugs have taught, each with its name. All are on.

The simulator alone turns one off, to show what happens without it: nothing in a configuration, a
request or an environment reaches this.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    # Committing and reading
    consumers_read_committed: bool = True  # R4: else a read may vanish with its leader
    high_watermark_needs_min_isr: bool = True  # R2: committed below min.insync.replicas is not safe
    offset_not_available_after_election: bool = True  # R19: else the end of a log steps back

    # The in-sync set
    caught_up_to_previous_end: bool = True  # R7: else fetching is enough to stay in sync
    join_at_high_watermark: bool = True  # R10: else a replica joins without what was committed
    check_and_act_at_once: bool = True  # R12: else an append slips between check and expansion
    shrink_when_confirmed: bool = True  # R13: else a refused shrink has already acknowledged
    broker_epoch_in_isr: bool = True  # KIP-903, KAFKA-15221: else a wiped replica is re-added
    fenced_stay_out: bool = True  # KIP-841: else a fenced or stopping replica is in sync
    eligible_leader_replicas: bool = True  # KIP-966, R16: else the last in sync leads with less

    # Truncation
    truncate_by_epoch: bool = True  # KIP-101, R14: else a follower cuts at its high watermark
    diverging_epoch_named: bool = True  # KIP-279: else two fast failovers leave two histories
    fetch_checks_epoch: bool = True  # KIP-320: else a stale follower raises the high watermark
    truncate_before_high_watermark: bool = True  # KAFKA-14704: else uncommitted data is served
    epoch_kept_after_empty_fetch: bool = True  # KAFKA-15510: else divergence goes unseen
    high_watermark_from_log_start: bool = True  # KAFKA-9491: else it lies before the log's start

    # Groups
    commit_checks_generation: bool = True  # C13: else a member that was replaced undoes commits

    # The log
    empty_epochs_forgotten: bool = True  # KAFKA-10706: else a follower truncates for ever
    batches_recalled: bool = True  # ours: else a restart forgets four batches of five
    recovery_point_after_flush: bool = True  # KAFKA-10101: else recovery trusts what is not there


RULES = Rules()
