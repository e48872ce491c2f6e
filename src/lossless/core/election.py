"""Who leads a partition, and who may: the controller's choice, as a function of what is known.

    in sync          has everything committed: may lead whenever it is active
    eligible (ELR)   left the in-sync set while that was too small to commit anything, so it has
                     everything committed too; lost as soon as its process dies uncleanly
    last known       led when nobody was left: leads again if in-sync set and ELR are both empty
    any other        only unclean: what was committed may be lost (B3)

Invariants
- The leader is active and a member of the in-sync set, or there is none.
- A new leader means a new leader epoch, and so does a replica that is no more: what its broker
  still sends is of the past. Any change means a new partition epoch.
- With eligible leaders (KIP-966), whoever died uncleanly is in neither set: the last in sync that
  comes back with less does not lead while somebody else has all (R16). Without them the last member
  stays in the set, whatever became of its disk.
"""

from __future__ import annotations

from collections.abc import Callable

from lossless.core.messages import NO_LEADER
from lossless.core.metadata import PartitionState
from lossless.core.reassignment import Assignment, assignment_of, completed
from lossless.log.rules import Rules


def changed(
    state: PartitionState,
    *,
    isr: tuple[int, ...] | None = None,
    assignment: Assignment | None = None,
    uncleanly_stopped: int | None = None,
    is_active: Callable[[int], bool],
    min_isr: int,
    may_be_unclean: bool = False,
    prefer: int | None = None,
    rules: Rules,
) -> PartitionState | None:
    """The state after a change of the in-sync set, of where replicas are, or of who is active;
    None: nothing changes. A move of replicas that can end with it does.

    `prefer` is to lead if it may; otherwise the leader stays as long as it may.
    """
    has_elr = rules.eligible_leader_replicas
    wanted_isr = state.isr if isr is None else isr
    if not wanted_isr and not has_elr:
        wanted_isr = state.isr
    placed = assignment_of(state) if assignment is None else assignment
    done = completed(placed, wanted_isr)
    if done is not None:
        placed, wanted_isr = done
    replicas = placed.replicas
    # Who leaves the set now may be eligible by that, and then nobody with less is to lead.
    elr = _eligible(state, replicas, wanted_isr, uncleanly_stopped, min_isr, False, rules)
    may_lead = [
        broker
        for broker in replicas
        if (broker in wanted_isr or broker in elr) and is_active(broker)
    ]
    is_recovery = False
    if prefer is not None and prefer in may_lead:
        leader = prefer
    elif state.leader in may_lead:
        leader = state.leader
    elif may_lead:
        leader = may_lead[0]
    elif _last_known_leads(state, replicas, wanted_isr, elr, is_active, rules):
        leader, is_recovery = state.last_known_leader, True
    elif may_be_unclean:
        leader = next((broker for broker in replicas if is_active(broker)), NO_LEADER)
        is_recovery = leader != NO_LEADER
    else:
        leader = NO_LEADER
    if leader != NO_LEADER and (is_recovery or leader not in wanted_isr):
        wanted_isr = (leader,)
    target = state._replace(
        replicas=replicas,
        isr=wanted_isr,
        leader=leader,
        elr=_eligible(state, replicas, wanted_isr, uncleanly_stopped, min_isr, is_recovery, rules),
        last_known_leader=_last_known(state, wanted_isr, min_isr),
        adding=placed.adding,
        removing=placed.removing,
    )
    if target == state:
        return None
    is_new_epoch = leader != state.leader or not set(state.replicas) <= set(replicas)
    return target._replace(
        leader_epoch=state.leader_epoch + is_new_epoch,
        partition_epoch=state.partition_epoch + 1,
    )


def _last_known_leads(
    state: PartitionState,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    is_active: Callable[[int], bool],
    rules: Rules,
) -> bool:
    return (
        rules.eligible_leader_replicas
        and not isr
        and not elr
        and state.last_known_leader in replicas
        and is_active(state.last_known_leader)
    )


def _eligible(
    state: PartitionState,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    uncleanly_stopped: int | None,
    min_isr: int,
    is_recovery: bool,
    rules: Rules,
) -> tuple[int, ...]:
    """Nothing is committed while the set is too small, so whoever leaves it then keeps up."""
    if not rules.eligible_leader_replicas or len(isr) >= min_isr or is_recovery:
        return ()
    left = {*state.elr, *state.isr} - {*isr, uncleanly_stopped}
    return tuple(broker for broker in replicas if broker in left)


def _last_known(state: PartitionState, isr: tuple[int, ...], min_isr: int) -> int:
    if not isr and state.leader != NO_LEADER:
        return state.leader
    return NO_LEADER if len(isr) >= min_isr else state.last_known_leader
