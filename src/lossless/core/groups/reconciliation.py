"""How a member of a consumer group gets from what it has to what it is to have.

    stable ── a new target ──▶ unrevoked: gives up first ── has given up ──▶ unreleased: waits for
       ▲                                                     what others have to give up │
       └──────────────────────── has everything ◀──────────────────────────────────────────┘

Invariants
- A member gets a partition only when nobody else has it. So no two members have one partition,
  whatever they have been told.
- A member moves to the target's epoch only when it has given up what is not in the target.
"""

from __future__ import annotations

from lossless.core.groups.consumer_group import ConsumerMember
from lossless.core.groups.records import NO_PARTITIONS, MemberState, Partitions


def reconciled(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    taken: Partitions,
) -> ConsumerMember | None:
    """The member's next step. `owned` is what it says it has, if it says so, and `taken` what the
    others have. None: it has to begin from nothing."""
    match member.state:
        case MemberState.STABLE:
            if member.member_epoch == target_epoch:
                return member
            epoch = member.member_epoch
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_has(member.pending_revocation, owned):
                return member
            # What it had to give up belonged to one epoch; the target may have moved on since.
            epoch = member.member_epoch + 1
        case MemberState.UNRELEASED_PARTITIONS:
            epoch = member.member_epoch
        case _:
            # A newer broker knew what this member was doing. This one does not.
            if owned is None or owned:
                return None
            epoch = target_epoch
    kept = member.assigned & target
    to_revoke = member.assigned - target
    if to_revoke and _still_has(to_revoke, owned):
        return member.at_epoch(epoch)._replace(
            state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=to_revoke
        )
    wanted = target - kept
    return member.at_epoch(target_epoch)._replace(
        state=MemberState.UNRELEASED_PARTITIONS if wanted & taken else MemberState.STABLE,
        assigned=kept | (wanted - taken),
        pending_revocation=NO_PARTITIONS,
    )


def _still_has(partitions: Partitions, owned: Partitions | None) -> bool:
    """A member that does not say what it has is believed to have everything."""
    return owned is None or bool(partitions & owned)
