"""A replica leads, follows or does neither; as leader it appends, and says what came of it.

A test with the ids `on` and `off` runs one history twice: with the rule nothing bad happens, and
without it the published bug does.
"""

from __future__ import annotations

import pytest
from machines import PARTITION, Replicas, ended, latest, led_by, read, records

from lossless.core.messages import NO_LEADER, DeleteRecords, Error, OffsetForLeaderEpoch, Produced
from lossless.core.replica import ALL, ReplicaConfig, Role

LAG_MS = ReplicaConfig().lag_ms_max


# Roles


def test_a_replica_serves_nobody_before_it_is_told_who_leads() -> None:
    replica = Replicas()[1]
    assert replica.role is Role.OFFLINE
    assert replica.append(records(), 1, 0).produced.error is Error.NOT_LEADER_OR_FOLLOWER
    assert read(replica).error is Error.NOT_LEADER_OR_FOLLOWER
    assert latest(replica) == (Error.NOT_LEADER_OR_FOLLOWER, -1)
    assert ended(replica, committed=True) is Error.NOT_LEADER_OR_FOLLOWER
    deleted = replica.on_delete_records(DeleteRecords(PARTITION, 0))
    assert deleted.error is Error.NOT_LEADER_OR_FOLLOWER


def test_a_new_leader_epoch_is_a_change_of_who_leads_and_a_new_partition_epoch_is_not() -> None:
    replica = Replicas()[1]
    assert replica.on_partition_state(led_by(1, 1), 1, 0)
    assert replica.role is Role.LEADER
    assert not replica.on_partition_state(led_by(1, 1, isr=(1,), partition_epoch=2), 1, 0)
    assert replica.in_sync.isr == (1,)
    assert replica.on_partition_state(led_by(2, 2, partition_epoch=3), 1, 0)
    assert (replica.role, replica.leader) == (Role.FOLLOWER, 2)
    assert replica.on_partition_state(led_by(NO_LEADER, 3, partition_epoch=4), 1, 0)
    assert replica.role is Role.OFFLINE


def test_what_the_controller_said_earlier_changes_nothing(three: Replicas) -> None:
    three.told(led_by(1, 1, isr=(1,), partition_epoch=5), 1)
    three.told(led_by(1, 1, isr=(1, 2), partition_epoch=4), 1)
    three.told(led_by(2, 0, partition_epoch=4), 1)
    assert (three[1].leader, three[1].in_sync.isr, three[1].partition_epoch) == (1, (1,), 5)


def test_a_follower_takes_note_of_a_new_partition_epoch(three: Replicas) -> None:
    three.told(led_by(1, 1, isr=(1,), partition_epoch=5), 2)
    assert three[2].partition_epoch == 5


def test_a_follower_answers_consumers_and_nobody_else(three: Replicas) -> None:
    """KIP-392."""
    assert read(three[2]).error is Error.NONE
    assert three.ask(3, 2).error is Error.NOT_LEADER_OR_FOLLOWER
    assert three[2].append(records(), 0, 0).produced.error is Error.NOT_LEADER_OR_FOLLOWER
    asked = OffsetForLeaderEpoch(PARTITION, 1, 1)
    assert three[2].on_offset_for_leader_epoch(asked).error is Error.NOT_LEADER_OR_FOLLOWER
    assert latest(three[2])[0] is Error.NOT_LEADER_OR_FOLLOWER


def test_a_follower_and_a_replica_that_nobody_leads_propose_nothing(three: Replicas) -> None:
    three[2].on_tick(10 * LAG_MS)
    three[2].on_isr_changed((2,), 9, 0)
    assert (three[2].proposal, three[2].in_sync.isr) == (None, ())


# Appending, and what the producer is told


def test_records_get_the_next_offsets_and_the_leaders_epoch(three: Replicas) -> None:
    one = three[1].append(records(b"a", b"b"), 1, 0)
    assert one == (Produced(PARTITION, Error.NONE, 0, 0), 2)
    two = three[1].append(records(b"c"), 1, 0)
    assert two == (Produced(PARTITION, Error.NONE, 2, 0), 3)
    assert three[1].log.latest_epoch == 1


@pytest.mark.parametrize("data", [b"", records(b"a") + records(b"b")])
def test_a_producer_sends_one_batch_at_a_time(three: Replicas, data: bytes) -> None:
    assert three[1].append(data, 1, 0).produced.error is Error.INVALID_RECORD
    assert three[1].log.log_end_offset == 0


@pytest.mark.parametrize("acks", [-2, 2, 3])
def test_a_producer_waits_for_nobody_the_leader_or_all(three: Replicas, acks: int) -> None:
    assert three[1].append(records(), acks, 0).produced.error is Error.INVALID_REQUIRED_ACKS
    assert three[1].log.log_end_offset == 0


def test_bytes_that_are_no_batch_are_refused(three: Replicas) -> None:
    damaged = bytearray(records(b"a"))
    damaged[-1] ^= 1
    assert three[1].append(bytes(damaged), 1, 0).produced.error is Error.CORRUPT_MESSAGE
    cut = records(b"a")[:-1]
    assert three[1].append(cut, 1, 0).produced.error is Error.INVALID_RECORD
    assert three[1].append(b"", 1, 0).produced.error is Error.INVALID_RECORD
    assert three[1].log.log_end_offset == 0


def test_a_producer_that_waits_for_all_waits_for_everybody_in_sync(three: Replicas) -> None:
    """R17: three of three, whatever min.insync.replicas says."""
    end_offset = three[1].append(records(), ALL, 0).end_offset
    assert three[1].acknowledged(end_offset, 1) is None
    three.fetch(2, 1, times=2)
    assert three[1].acknowledged(end_offset, 1) is None
    three.fetch(3, 1, times=2)
    assert three[1].acknowledged(end_offset, 1) is Error.NONE


def test_who_waits_for_a_leader_that_leads_no_more_is_told_so(three: Replicas) -> None:
    three.append(1, b"a")
    three.told(led_by(2, 2), 1)
    assert three[1].acknowledged(1, 1) is Error.NOT_LEADER_OR_FOLLOWER


def test_who_waits_for_an_earlier_epoch_of_the_same_leader_is_told_so(three: Replicas) -> None:
    three.append(1, b"a")
    three.told(led_by(1, 3), 1)
    assert three[1].acknowledged(1, 1) is Error.NOT_LEADER_OR_FOLLOWER


def test_too_few_in_sync_refuse_who_waits_for_all_and_take_from_others(three: Replicas) -> None:
    """B4."""
    three.told(led_by(1, 1, isr=(1,), partition_epoch=2), min_isr=2)
    assert three[1].append(records(), ALL, 0).produced.error is Error.NOT_ENOUGH_REPLICAS
    assert three[1].log.log_end_offset == 0
    assert three[1].append(records(), 1, 0).produced.error is Error.NONE
    assert three[1].append(records(), 0, 0).produced.error is Error.NONE


def test_who_was_appended_before_the_set_became_too_small_is_told_so(three: Replicas) -> None:
    end_offset = three[1].append(records(), ALL, 0).end_offset
    three.fetch(2, 1, times=2)
    three.fetch(3, 1, times=2)
    three.told(led_by(1, 1, isr=(1,), partition_epoch=2), min_isr=2)
    assert three[1].acknowledged(end_offset, 1) is Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_a_batch_that_is_sent_again_is_answered_with_its_first_offset(three: Replicas) -> None:
    """P4: and it is acknowledged when the first one is."""
    sent = records(b"a", b"b", producer_id=7, epoch=0, sequence=0)
    three.append(1, b"x")
    first = three[1].append(sent, ALL, 0)
    assert three[1].append(sent, ALL, 0) == first == (Produced(PARTITION, Error.NONE, 1, 0), 3)
    assert three[1].log.log_end_offset == 3


def test_a_new_leader_knows_what_was_sent_to_the_old_one(three: Replicas) -> None:
    sent = records(b"a", producer_id=7, epoch=0, sequence=0)
    first = three[1].append(sent, ALL, 0)
    three.fetch(2, 1)
    three.told(led_by(2, 2, isr=(2, 3)))
    assert three[2].append(sent, ALL, 0) == first


@pytest.mark.parametrize(
    ("epoch", "sequence", "error"),
    [
        (1, 5, Error.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (0, 1, Error.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_batch_out_of_turn_is_refused(
    three: Replicas, epoch: int, sequence: int, error: Error
) -> None:
    three[1].append(records(producer_id=7, epoch=1, sequence=0), 1, 0)
    sent = records(producer_id=7, epoch=epoch, sequence=sequence)
    assert three[1].append(sent, 1, 0).produced == Produced(PARTITION, error)


def test_a_batch_outside_its_producers_transaction_is_refused(three: Replicas) -> None:
    three[1].append(records(producer_id=7, epoch=0, sequence=0, transactional=True), 1, 0)
    sent = records(producer_id=7, epoch=0, sequence=1)
    assert three[1].append(sent, 1, 0).produced.error is Error.INVALID_TXN_STATE


@pytest.mark.parametrize("flushes", [False, True])
def test_what_is_acknowledged_survives_a_loss_of_power_if_it_is_flushed_first(
    flushes: bool,
) -> None:
    """R15: with Kafka's default all replicas may lose together what all have acknowledged."""
    both = Replicas(1, 2, config=ReplicaConfig(flush_before_ack=flushes))
    both.told(led_by(1, 1, isr=(1, 2), replicas=(1, 2)))
    both.append(1, b"a", acks=ALL)
    both.fetch(2, 1, times=2)
    assert both[1].acknowledged(1, 1) is Error.NONE
    for broker in (1, 2):
        both.stores[broker].lose_power(lambda _: 0)
        both.restart(broker)
        assert both.values(broker) == ([b"a"] if flushes else [])


def test_just_enough_in_sync_are_enough(three: Replicas) -> None:
    """B4."""
    three.told(led_by(1, 1, isr=(1, 2), partition_epoch=2), min_isr=2)
    produced, end_offset = three[1].append(records(), ALL, 0)
    assert produced.error is Error.NONE
    three.fetch(2, 1, times=2)
    assert three[1].acknowledged(end_offset, 1) is Error.NONE
