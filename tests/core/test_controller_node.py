"""A controller as a voter of the quorum: when it decides, when it answers, and when it may not."""

from __future__ import annotations

from typing import Any

import pytest
from instant_host import Host
from machines import PARTITION

from lossless.core.admin_messages import (
    ALL_BROKERS,
    AlterConfigs,
    AlterReassignment,
    CreatePartitions,
    ListReassignments,
    ListReassignmentsAnswer,
    UnregisterBroker,
)
from lossless.core.controller_node import ControllerConfig
from lossless.core.messages import (
    NO_LEADER,
    AdminAnswer,
    AlterConfig,
    AlterPartition,
    AlterPartitionAnswer,
    BrokerHeartbeat,
    BrokerHeartbeatAnswer,
    BrokerRegistration,
    BrokerRegistrationAnswer,
    CreateTopic,
    DeleteTopic,
    ElectLeader,
    Error,
    InSyncReplica,
)
from lossless.core.metadata import MIN_ISR, UNCLEAN
from lossless.core.quorum import METADATA, QuorumConfig

SESSION_MS = ControllerConfig().session_timeout_ms
THREE = (100, 101, 102)

REQUESTS = (
    BrokerRegistration(1, 1),
    BrokerHeartbeat(1, 0, 0),
    AlterPartition(1, 0, PARTITION, 0, 0, ()),
    CreateTopic("orders", 1, 1),
    DeleteTopic("orders"),
    AlterConfig("", MIN_ISR, "1"),
    ElectLeader(PARTITION),
    AlterConfigs(ALL_BROKERS, ()),
    CreatePartitions("orders", 2),
    AlterReassignment(PARTITION, (1,)),
    ListReassignments(None),
    UnregisterBroker(1),
)


@pytest.fixture
def alone() -> Host:
    return Host()


@pytest.fixture
def three() -> Host:
    """Three controllers, of which 100 leads: it draws the shortest time."""
    host = Host(controllers=THREE)
    host.wait(2_000)
    assert active(host) == [100]
    return host


def active(host: Host) -> list[int]:
    return [node for node in host.nodes if host.controller(node).active is not None]


def register(host: Host, broker: int, node: int = 100, incarnation: int = 1) -> int:
    """Registers and becomes active. Its broker epoch."""
    answer = host.ask(node, BrokerRegistration(broker, incarnation))
    assert answer.error is Error.NONE
    beat = host.ask(node, BrokerHeartbeat(broker, answer.broker_epoch, 1 << 30))
    assert beat == BrokerHeartbeatAnswer(Error.NONE, is_fenced=False)
    return int(answer.broker_epoch)


# Active and standby


def test_the_only_voter_is_active_from_the_start(alone: Host) -> None:
    assert active(alone) == [100]
    assert alone.controller().image is not alone.controller().committed


def test_one_of_three_is_active_and_all_know_what_it_decided(three: Host) -> None:
    register(three, 1)
    three.wait(1_000)
    for node in THREE:
        assert three.controller(node).image.is_active(1)
        assert three.controller(node).committed.end_offset == 3


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
def test_a_standby_refuses_to_decide(three: Host, request_: Any) -> None:
    answer = three.ask(101, request_)
    assert answer.error is Error.NOT_CONTROLLER
    assert type(answer) in (
        BrokerRegistrationAnswer,
        BrokerHeartbeatAnswer,
        AlterPartitionAnswer,
        AdminAnswer,
        ListReassignmentsAnswer,
    )


def test_a_controller_that_starts_again_knows_what_was_decided(alone: Host) -> None:
    epoch = register(alone, 1)
    alone.ask(100, CreateTopic("orders", 1, 1))
    before = alone.controller().image
    alone.lose_power(100)
    alone.start(100)
    alone.wait(2_000)  # whoever led does not go on in the epoch in which its process ended
    assert active(alone) == [100]
    after = alone.controller().image
    assert (after.partitions, after.topics) == (before.partitions, before.topics)
    assert after.brokers[1].epoch == epoch


# Deciding and answering


def test_every_kind_of_request_is_decided(alone: Host) -> None:
    epoch = register(alone, 1)
    assert alone.ask(100, CreateTopic("orders", 1, 1)).error is Error.NONE
    assert alone.ask(100, AlterConfig("orders", MIN_ISR, "1")).error is Error.NONE
    member = (InSyncReplica(1, epoch),)
    altered = alone.ask(100, AlterPartition(1, epoch, PARTITION, 0, 0, member))
    assert altered == AlterPartitionAnswer(PARTITION, Error.NONE, (1,), 0, 0)
    assert alone.ask(100, ElectLeader(PARTITION)).error is Error.ELECTION_NOT_NEEDED
    assert alone.ask(100, AlterConfigs(ALL_BROKERS, ())).error is Error.NONE
    assert alone.ask(100, CreatePartitions("orders", 2)).error is Error.NONE
    assert alone.ask(100, AlterReassignment(PARTITION, (1,))).error is Error.NONE
    assert alone.ask(100, ListReassignments(None)) == ListReassignmentsAnswer(Error.NONE)
    assert alone.ask(100, DeleteTopic("orders")).error is Error.NONE
    assert alone.controller().image.topics == {}


def test_no_answer_is_given_before_its_records_are_committed(alone: Host) -> None:
    alone.delivers_flushes = False
    token = alone.ask(100, BrokerRegistration(1, 1))
    assert 1 in alone.controller().image.brokers
    assert 1 not in alone.controller().committed.brokers
    assert alone.answers == {}
    alone.delivers_flushes = True
    alone.do(100, flushed)
    assert alone.answers[token] == BrokerRegistrationAnswer(Error.NONE, 1)
    assert 1 in alone.controller().committed.brokers


def test_an_answer_without_records_waits_for_what_it_rests_on(alone: Host) -> None:
    """The registration that it repeats may yet be lost."""
    alone.delivers_flushes = False
    alone.ask(100, BrokerRegistration(1, 1))
    again = alone.ask(100, BrokerRegistration(1, 1))
    assert alone.answers == {}
    alone.do(100, flushed)
    assert alone.answers[again] == BrokerRegistrationAnswer(Error.NONE, 1)


def flushed(controller: Any, now_ms: int) -> Any:
    controller.metadata_log.flush()
    return controller.on_flushed(METADATA, controller.metadata_log.recovery_point, now_ms)


def test_a_change_of_settings_is_followed_by_the_elections_that_are_due(alone: Host) -> None:
    for broker in (1, 2):
        register(alone, broker)
    alone.ask(100, CreateTopic("orders", 1, 2, assignment=((1, 2),)))
    beat = BrokerHeartbeat(2, alone.controller().image.brokers[2].epoch, 1 << 30)
    alone.wait(SESSION_MS)  # both are fenced: 1 first, then 2, which is eligible
    assert alone.controller().image.partitions[PARTITION].leader == NO_LEADER
    alone.ask(100, beat)
    first = BrokerHeartbeat(1, alone.controller().image.brokers[1].epoch, 1 << 30)
    assert alone.controller().image.partitions[PARTITION].leader == 2
    alone.ask(100, first)
    alone.wait(SESSION_MS // 2)
    alone.ask(100, first)
    alone.wait(SESSION_MS // 2)
    assert alone.controller().image.partitions[PARTITION].leader == NO_LEADER
    assert alone.ask(100, AlterConfig("orders", UNCLEAN, "true")).error is Error.NONE
    assert alone.controller().image.partitions[PARTITION].leader == 1


# What a cluster has to agree on


def test_the_first_controllers_minimum_of_in_sync_replicas_is_everybodys() -> None:
    """KIP-966: brokers learn it from the metadata, whatever their own settings say."""
    config = ControllerConfig(properties={MIN_ISR: "2"})
    host = Host(brokers=(1, 2), controller_config=config)
    host.wait(500)
    assert host.ask(100, CreateTopic("orders", 1, 2)).error is Error.NONE
    host.wait(500)
    assert [host.replica(broker, PARTITION).min_isr for broker in (1, 2)] == [2, 2]


def test_a_later_controller_does_not_take_back_what_was_agreed_on() -> None:
    host = Host(controller_config=ControllerConfig(properties={MIN_ISR: "2"}))
    assert host.ask(100, AlterConfig("", MIN_ISR, "3")).error is Error.NONE
    end = host.controller().metadata_log.log_end_offset
    host.kill(100)
    host.controller_config = ControllerConfig(properties={MIN_ISR: "1"})
    host.start(100)
    host.wait(2_000)
    assert active(host) == [100]
    assert host.controller().image.overrides(ALL_BROKERS) == {MIN_ISR: "3"}
    assert host.controller().metadata_log.log_end_offset == end + 1  # that it leads


def test_where_no_minimum_is_set_nothing_is_written(alone: Host) -> None:
    assert alone.controller().image.configs == {}


# Sessions


def test_a_broker_that_is_not_heard_for_a_session_is_fenced(alone: Host) -> None:
    epoch = register(alone, 1)
    alone.wait(SESSION_MS - 1)
    assert alone.controller().image.is_active(1)
    alone.ask(100, BrokerHeartbeat(1, epoch, 1 << 30))
    alone.wait(SESSION_MS - 1)
    assert alone.controller().image.is_active(1)
    alone.wait(1)
    assert not alone.controller().image.is_active(1)


def test_a_broker_that_is_not_expected_back_has_no_session(alone: Host) -> None:
    register(alone, 1)
    assert alone.ask(100, UnregisterBroker(1)).error is Error.NONE
    assert alone.wake_ms[100] is None
    alone.wait(SESSION_MS)
    assert alone.controller().image.brokers == {}
    register(alone, 1)  # and yet it may come


def test_a_heartbeat_of_another_process_does_not_prolong_a_session(alone: Host) -> None:
    epoch = register(alone, 1)
    alone.wait(SESSION_MS - 1)
    stale = alone.ask(100, BrokerHeartbeat(1, epoch - 1, 1 << 30))
    assert stale.error is Error.STALE_BROKER_EPOCH
    alone.wait(1)
    assert not alone.controller().image.is_active(1)


def test_a_process_that_died_keeps_its_successor_waiting_for_a_session(alone: Host) -> None:
    register(alone, 1)
    answer = alone.ask(100, BrokerRegistration(1, 2))
    assert answer.error is Error.DUPLICATE_BROKER_REGISTRATION
    alone.wait(SESSION_MS)
    assert alone.ask(100, BrokerRegistration(1, 2)).error is Error.NONE


def test_a_new_active_controller_gives_every_broker_a_whole_session(three: Host) -> None:
    """B6: nobody is fenced because the controller was away."""
    register(three, 1)
    three.kill(100)
    before_ms = three.now_ms
    while not active(three):
        three.wait(100)
    assert three.now_ms - before_ms < SESSION_MS
    (node,) = active(three)
    three.wait(SESSION_MS - 200)
    assert three.controller(node).image.is_active(1)
    three.wait(200)
    assert not three.controller(node).image.is_active(1)


def test_who_was_fenced_keeps_nobody_waiting_at_a_new_active_controller(three: Host) -> None:
    register(three, 1)
    three.wait(SESSION_MS)
    assert not three.controller(100).image.is_active(1)
    three.kill(100)
    while not active(three):
        three.wait(100)
    (node,) = active(three)
    register(three, 1, node, incarnation=2)


# Losing the lead


def test_a_controller_without_a_majority_answers_only_that_it_is_none(three: Host) -> None:
    """B6: what it has not committed may not have happened."""
    register(three, 1)
    three.cut_off = {100}
    token = three.ask(100, CreateTopic("orders", 1, 1))
    assert three.answers == {}
    assert "orders" in three.controller(100).image.topics
    three.wait(QuorumConfig().check_quorum_ms)
    assert three.answers[token] == AdminAnswer(Error.NOT_CONTROLLER)
    assert three.controller(100).active is None
    assert "orders" not in three.controller(100).image.topics


def test_what_only_the_old_controller_had_decided_is_gone(three: Host) -> None:
    register(three, 1)
    three.wait(1_000)
    three.cut_off = {100}
    three.ask(100, CreateTopic("orders", 1, 1))
    three.wait(10_000)
    assert 100 not in active(three)
    three.cut_off = set()
    three.wait(5_000)
    assert len(active(three)) == 1
    for node in THREE:
        assert three.controller(node).image.topics == {}
        assert 1 in three.controller(node).image.brokers


def test_a_new_controller_begins_with_all_that_was_committed(three: Host) -> None:
    """B6."""
    register(three, 1)
    assert three.ask(100, CreateTopic("orders", 1, 1)).error is Error.NONE
    three.kill(100)
    three.wait(10_000)
    (node,) = active(three)
    assert "orders" in three.controller(node).image.topics
    assert three.ask(node, CreateTopic("orders", 1, 1)).error is Error.TOPIC_ALREADY_EXISTS


def test_a_controller_that_has_lost_the_lead_fences_nobody() -> None:
    """Its own clock says that the session has ended, and at that moment it resigns."""
    config = ControllerConfig(session_timeout_ms=QuorumConfig().check_quorum_ms)
    host = Host(controllers=THREE, controller_config=config)
    host.wait(2_000)
    register(host, 1)
    host.cut_off = {100}
    end = host.controller(100).metadata_log.log_end_offset
    host.now_ms += 2 * config.session_timeout_ms  # the process was paused
    host.do(100, lambda controller, now_ms: controller.on_timer(now_ms))
    assert host.controller(100).active is None
    assert host.controller(100).metadata_log.log_end_offset == end


def test_a_controller_wakes_when_the_first_session_ends(alone: Host) -> None:
    assert alone.wake_ms[100] is None
    register(alone, 1)
    alone.wait(500)
    register(alone, 2)
    assert alone.wake_ms[100] == SESSION_MS
    alone.wait(SESSION_MS - 500)
    assert alone.wake_ms[100] == SESSION_MS + 500
    alone.wait(500)
    assert alone.wake_ms[100] is None
