"""The controller's decisions: what it writes down, and what it answers."""

from __future__ import annotations

import pytest
from deciding import Cluster
from machines import PARTITION, without

from lossless.core.admin_messages import UnregisterBroker
from lossless.core.controller import Decision
from lossless.core.messages import (
    NO_LEADER,
    AdminAnswer,
    AlterPartitionAnswer,
    BrokerHeartbeat,
    BrokerHeartbeatAnswer,
    BrokerRegistrationAnswer,
    CreateTopic,
    DeleteTopic,
    ElectLeader,
    Error,
    TopicPartition,
)
from lossless.core.metadata import MIN_ISR, UNCLEAN, PartitionState
from lossless.log.rules import RULES, Rules


@pytest.fixture
def three() -> Cluster:
    """Brokers 1, 2 and 3, and a topic of one partition, led by 1, with everybody in sync."""
    cluster = Cluster(1, 2, 3)
    cluster.create()
    return cluster


# Registration and heartbeats


def test_a_broker_that_registers_gets_the_offset_of_its_registration_as_epoch() -> None:
    cluster = Cluster()
    assert cluster.register(1) == BrokerRegistrationAnswer(Error.NONE, 0)
    assert cluster.register(2, rack="a") == BrokerRegistrationAnswer(Error.NONE, 1)
    assert (cluster.epoch(1), cluster.epoch(2)) == (0, 1)
    assert cluster.image.brokers[2].rack == "a"


def test_a_registration_that_is_sent_again_gets_the_same_answer_and_no_record() -> None:
    cluster = Cluster()
    first = cluster.register(1)
    assert cluster.register(1, has_session=True) == first
    assert cluster.image.end_offset == 1


def test_two_processes_cannot_be_one_broker_at_a_time(three: Cluster) -> None:
    answer = three.register(1, incarnation=2, has_session=True)
    assert answer == BrokerRegistrationAnswer(Error.DUPLICATE_BROKER_REGISTRATION)
    assert three.image.brokers[1].incarnation == 1


def test_a_process_whose_predecessor_is_stopping_need_not_wait(three: Cluster) -> None:
    three.beat(1, want_shut_down=True)
    assert three.register(1, incarnation=2, has_session=True).error is Error.NONE


def test_a_broker_is_fenced_until_it_has_seen_its_own_registration() -> None:
    cluster = Cluster()
    cluster.register(1)
    late = cluster.controller.on_heartbeat(BrokerHeartbeat(1, 0, 0))
    assert late == ((), BrokerHeartbeatAnswer(Error.NONE, is_fenced=True))
    assert cluster.beat(1) == BrokerHeartbeatAnswer(Error.NONE, is_fenced=False)
    assert cluster.image.is_active(1)
    assert cluster.beat(1) == BrokerHeartbeatAnswer(Error.NONE, is_fenced=False)
    assert cluster.image.end_offset == 2  # the second had nothing to write


@pytest.mark.parametrize(("broker", "epoch"), [(1, 7), (9, 0)])
def test_a_heartbeat_of_another_process_is_stale(three: Cluster, broker: int, epoch: int) -> None:
    decision = three.controller.on_heartbeat(BrokerHeartbeat(broker, epoch, 100))
    assert decision == ((), BrokerHeartbeatAnswer(Error.STALE_BROKER_EPOCH))


def test_a_registration_over_partitions_names_the_epoch_that_it_will_have(three: Cluster) -> None:
    """What the broker led moves first, in the same decision."""
    three.fence(2)
    answer = three.register(1, incarnation=2)
    assert isinstance(answer, BrokerRegistrationAnswer)
    assert three.image.brokers[1].epoch == answer.broker_epoch
    assert (three.leads, three.isr) == (3, (3,))


# Fencing


def test_whoever_is_fenced_leads_nothing_and_is_in_sync_nowhere(three: Cluster) -> None:
    three.fence(1)
    assert (three.leads, three.isr) == (2, (2, 3))
    assert not three.image.is_active(1)
    assert three.controller.fence(1) == ()


def test_who_comes_back_leads_what_nobody_leads(three: Cluster) -> None:
    three.fence(2, 3, 1)
    assert three.leads == NO_LEADER
    three.beat(3)
    assert three.leads == NO_LEADER  # it left while others could commit
    three.beat(1)
    assert (three.leads, three.isr) == (1, (1,))


def test_who_comes_back_does_not_take_the_lead_from_somebody(three: Cluster) -> None:
    """B8."""
    three.fence(1)
    three.beat(1)
    assert (three.leads, three.isr) == (2, (2, 3))


def test_without_eligible_leaders_the_last_in_sync_stays_so(three: Cluster) -> None:
    cluster = Cluster(1, 2, 3, rules=without("eligible_leader_replicas"))
    cluster.create()
    cluster.fence(2, 3, 1)
    assert (cluster.leads, cluster.isr) == (NO_LEADER, (1,))
    three.fence(2, 3, 1)
    assert (three.leads, three.isr, three.state().elr) == (NO_LEADER, (), (1,))


# Controlled shutdown


def test_a_broker_that_wants_to_stop_leads_nothing_afterwards(three: Cluster) -> None:
    """B7."""
    answer = three.beat(1, want_shut_down=True)
    assert answer == BrokerHeartbeatAnswer(Error.NONE, is_fenced=False, should_shut_down=True)
    assert (three.leads, three.isr) == (2, (2, 3))
    assert three.image.brokers[1].stopping
    assert not three.image.brokers[1].fenced


def test_a_broker_that_asks_twice_whether_it_may_stop_may(three: Cluster) -> None:
    three.beat(1, want_shut_down=True)
    before = three.image.end_offset
    assert three.beat(1, want_shut_down=True).should_shut_down
    assert three.image.end_offset == before


def test_a_fenced_broker_may_stop_at_once(three: Cluster) -> None:
    three.fence(1)
    answer = three.beat(1, want_shut_down=True)
    assert answer == BrokerHeartbeatAnswer(Error.NONE, is_fenced=True, should_shut_down=True)
    assert not three.image.brokers[1].stopping


def test_the_last_broker_may_stop_too_and_then_nobody_leads(three: Cluster) -> None:
    for broker in (3, 2, 1):
        assert three.beat(broker, want_shut_down=True).should_shut_down
    assert (three.leads, three.state().elr) == (NO_LEADER, (1,))


def test_a_broker_that_has_stopped_is_fenced_when_its_session_ends(three: Cluster) -> None:
    three.beat(1, want_shut_down=True)
    three.fence(1)
    assert three.image.brokers[1].fenced
    assert not three.image.brokers[1].stopping


# Restarts


def test_a_clean_restart_keeps_a_broker_eligible(three: Cluster) -> None:
    three.configure(MIN_ISR, "2")
    three.fence(3, 2)
    assert (three.isr, three.state().elr) == ((1,), (2,))
    three.restart(2, clean=True)
    assert three.state().elr == (2,)


def test_an_unclean_restart_takes_a_broker_out_of_every_set(three: Cluster) -> None:
    """KIP-966."""
    three.configure(MIN_ISR, "2")
    three.fence(3, 2)
    three.restart(2, clean=False)
    assert (three.isr, three.state().elr) == ((1,), ())
    three.restart(1, clean=False)
    assert (three.isr, three.state().elr) == ((), ())
    assert three.state().last_known_leader == 1


@pytest.mark.parametrize(
    ("rules", "leader"),
    [(RULES, 2), (without("eligible_leader_replicas"), 1)],
    ids=["on", "off"],
)
def test_the_last_in_sync_that_lost_its_disk_does_not_lead_while_another_has_all(
    rules: Rules, leader: int
) -> None:
    """R16: unclean elections are off, and without the rule what was committed is lost."""
    cluster = Cluster(1, 2, rules=rules)
    cluster.create(copies=2, min_insync_replicas="2")
    cluster.fence(2, 1)  # first 2 leaves, cleanly, with all that was committed
    cluster.restart(1, clean=False)
    cluster.restart(2, clean=True)
    cluster.beat(1)
    cluster.beat(2)
    assert (cluster.leads, cluster.isr) == (leader, (leader,))


# Brokers that are not expected back


def test_who_is_not_expected_back_is_in_no_set_and_keeps_its_replicas(three: Cluster) -> None:
    three.configure(MIN_ISR, "2")
    three.fence(3, 2)
    assert (three.isr, three.state().elr) == ((1,), (2,))
    answer = three.committed(three.controller.on_unregister(UnregisterBroker(2)))
    assert answer == AdminAnswer(Error.NONE)
    assert (three.isr, three.state().elr, three.state().replicas) == ((1,), (), (1, 2, 3))
    assert 2 not in three.image.brokers
    answer = three.committed(three.controller.on_unregister(UnregisterBroker(2)))
    assert answer == AdminAnswer(Error.BROKER_ID_NOT_REGISTERED, "there is no broker 2")


# In-sync sets


def test_a_leader_changes_who_is_in_sync(three: Cluster) -> None:
    assert three.alter(1, 2) == AlterPartitionAnswer(PARTITION, Error.NONE, (1, 2), 0, 1)
    assert three.alter(1, 2, 3) == AlterPartitionAnswer(PARTITION, Error.NONE, (1, 2, 3), 0, 2)
    assert three.isr == (1, 2, 3)


def test_what_is_so_already_is_answered_without_a_record(three: Cluster) -> None:
    assert three.alter(1, 2, 3) == AlterPartitionAnswer(PARTITION, Error.NONE, (1, 2, 3), 0, 0)


@pytest.mark.parametrize(
    ("other", "error"),
    [
        ({"broker": 9}, Error.STALE_BROKER_EPOCH),
        ({"broker_epoch": 99}, Error.STALE_BROKER_EPOCH),
        ({"partition": TopicPartition("payments", 0)}, Error.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 7}, Error.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 7}, Error.INVALID_UPDATE_VERSION),
    ],
)
def test_a_change_of_something_else_than_what_is_so_is_refused(
    three: Cluster, other: dict[str, int], error: Error
) -> None:
    answer = three.alter(1, 2, **other)
    assert answer.error is error
    assert three.isr == (1, 2, 3)


@pytest.mark.parametrize("stranger", [4, 9], ids=["without a replica", "unknown"])
def test_somebody_without_a_replica_is_never_in_sync(three: Cluster, stranger: int) -> None:
    three.start(4)
    assert three.alter(1, stranger).error is Error.INELIGIBLE_REPLICA


def test_a_leader_that_leaves_itself_out_is_told_who_leads_now(three: Cluster) -> None:
    answer = three.alter(2, 3)
    assert answer == AlterPartitionAnswer(PARTITION, Error.NEW_LEADER_ELECTED, (2, 3), 1, 1)


@pytest.mark.parametrize(
    ("rules", "error"),
    [(RULES, Error.INELIGIBLE_REPLICA), (without("broker_epoch_in_isr"), Error.NONE)],
    ids=["on", "off"],
)
def test_a_replica_does_not_join_as_the_process_that_it_was(rules: Rules, error: Error) -> None:
    """KIP-903: 3 has caught up, and before the change arrives it is wiped and registers again."""
    cluster = Cluster(1, 2, 3, rules=rules)
    cluster.create()
    cluster.alter(1, 2)
    fetched_as = cluster.epoch(3)
    cluster.restart(3, clean=False)
    cluster.beat(3)
    assert cluster.alter(1, 2, 3, epochs={3: fetched_as}).error is error
    assert (3 in cluster.isr) is (error is Error.NONE)


def test_a_member_whose_process_is_not_known_to_the_leader_stays(three: Cluster) -> None:
    assert three.alter(1, 2, epochs={1: -1, 2: -1}).error is Error.NONE


@pytest.mark.parametrize("how", ["fenced", "stopping"])
@pytest.mark.parametrize(
    ("rules", "error"),
    [(RULES, Error.INELIGIBLE_REPLICA), (without("fenced_stay_out"), Error.NONE)],
    ids=["on", "off"],
)
def test_who_is_fenced_or_stopping_does_not_join(rules: Rules, error: Error, how: str) -> None:
    """KIP-841."""
    cluster = Cluster(1, 2, 3, rules=rules)
    cluster.create()
    if how == "fenced":
        cluster.fence(3)
    else:
        cluster.beat(3, want_shut_down=True)
    assert cluster.isr == (1, 2)
    assert cluster.alter(1, 2, 3).error is error
    assert (3 in cluster.isr) is (error is Error.NONE)


# Elections on request


def test_the_preferred_leader_leads_again_when_it_is_asked_for(three: Cluster) -> None:
    three.fence(1)
    three.beat(1)
    assert three.elect() is Error.PREFERRED_LEADER_NOT_AVAILABLE  # not in sync yet
    three.alter(2, 3, 1)
    assert three.elect() is Error.NONE
    assert (three.leads, three.state().leader_epoch) == (1, 2)
    assert three.elect() is Error.ELECTION_NOT_NEEDED


def test_an_unclean_election_is_not_needed_while_somebody_leads(three: Cluster) -> None:
    assert three.elect(unclean=True) is Error.ELECTION_NOT_NEEDED


def test_an_unclean_election_is_made_where_nobody_leads(three: Cluster) -> None:
    """B3."""
    three.fence(2, 3, 1)
    assert three.elect(unclean=True) is Error.ELIGIBLE_LEADERS_NOT_AVAILABLE
    three.beat(3)
    assert three.elect(unclean=True) is Error.NONE
    assert (three.leads, three.isr, three.state().elr) == (3, (3,), ())


def test_there_is_no_election_for_what_does_not_exist(three: Cluster) -> None:
    request = ElectLeader(TopicPartition("orders", 9))
    answer = three.controller.on_elect_leader(request).answer
    assert answer == AdminAnswer(Error.UNKNOWN_TOPIC_OR_PARTITION, "orders-9")


# Topics


def test_a_new_topic_spreads_over_active_brokers_and_racks() -> None:
    """B2."""
    cluster = Cluster()
    for broker, rack in ((1, "a"), (2, "a"), (3, "b"), (4, "b")):
        cluster.start(broker, rack=rack)
    cluster.fence(4)
    cluster.create(6, copies=2)
    for partition in range(6):
        state = cluster.state(partition)
        assert state.isr == state.replicas
        assert state.leader == state.preferred
        assert 3 in state.replicas
        assert 4 not in state.replicas


def test_a_topic_may_say_where_its_replicas_go(three: Cluster) -> None:
    three.fence(1)
    request = CreateTopic("payments", 2, 2, assignment=((1, 2), (3, 2)))
    three.committed(three.controller.on_create_topic(request, three.image.end_offset))
    states = [three.image.partitions[TopicPartition("payments", n)] for n in (0, 1)]
    assert states == [PartitionState((1, 2), (2,), 2), PartitionState((3, 2), (3, 2), 3)]


@pytest.mark.parametrize(
    ("partitions", "assignment", "told"),
    [
        (1, ((1,),), "of (1,) nobody is there to lead"),
        (2, ((2, 3),), "1 partitions are placed, not 2"),
        (1, ((2, 2),), "replicas are on different brokers, not on (2, 2)"),
        (1, ((),), "replicas are on different brokers, not on ()"),
        (1, ((2, 9),), "there is no broker 9"),
    ],
)
def test_replicas_that_cannot_be_where_they_are_asked_for_are_refused(
    three: Cluster, partitions: int, assignment: tuple[tuple[int, ...], ...], told: str
) -> None:
    three.fence(1)
    request = CreateTopic("payments", partitions, 1, assignment=assignment)
    decision = three.controller.on_create_topic(request, three.image.end_offset)
    assert decision == Decision((), AdminAnswer(Error.INVALID_REPLICA_ASSIGNMENT, told))


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (CreateTopic("orders", 1, 1), Error.TOPIC_ALREADY_EXISTS),
        (CreateTopic("payments", 0, 1), Error.INVALID_PARTITIONS),
        (CreateTopic("payments", 1, 4), Error.INVALID_REPLICATION_FACTOR),
        (CreateTopic("payments", 1, 0), Error.INVALID_REPLICATION_FACTOR),
        (CreateTopic("payments", 1, 1, ((MIN_ISR, "0"),)), Error.INVALID_CONFIG),
        (CreateTopic("payments", 1, 1, ((UNCLEAN, "yes"),)), Error.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_is_refused(
    three: Cluster, request_: CreateTopic, error: Error
) -> None:
    decision = three.controller.on_create_topic(request_, three.image.end_offset)
    assert (decision.records, decision.answer.error) == ((), error)


def test_a_topic_has_settings_from_the_start() -> None:
    cluster = Cluster(1, 2)
    cluster.create(copies=2, min_insync_replicas="2", cleanup_policy="compact")
    assert cluster.image.min_isr(PARTITION) == 2
    assert cluster.image.config("orders", "cleanup.policy", "delete") == "compact"


def test_a_topic_is_deleted_once(three: Cluster) -> None:
    assert three.committed(three.controller.on_delete_topic(DeleteTopic("orders"))).error == 0
    assert three.image.partitions == {}
    answer = three.committed(three.controller.on_delete_topic(DeleteTopic("orders")))
    assert answer == AdminAnswer(Error.UNKNOWN_TOPIC_OR_PARTITION, "orders")


# Settings


@pytest.mark.parametrize("value", ["0", "-1", "two", "", "²"])
def test_a_minimum_of_in_sync_replicas_is_a_number_from_one_on(three: Cluster, value: str) -> None:
    assert three.configure(MIN_ISR, value) is Error.INVALID_CONFIG
    assert three.image.configs == {}


def test_a_setting_is_for_one_topic_or_for_all_and_can_be_taken_back(three: Cluster) -> None:
    assert three.configure(MIN_ISR, "3", topic="") is Error.NONE
    assert three.image.min_isr(PARTITION) == 3
    assert three.configure(MIN_ISR, "2") is Error.NONE
    assert three.image.min_isr(PARTITION) == 2
    assert three.configure(MIN_ISR, None) is Error.NONE
    assert three.image.min_isr(PARTITION) == 3
    assert three.configure(MIN_ISR, "1", topic="none") is Error.UNKNOWN_TOPIC_OR_PARTITION


def test_allowing_unclean_elections_makes_those_that_are_due(three: Cluster) -> None:
    three.fence(2, 3, 1)
    three.beat(3)
    assert three.leads == NO_LEADER
    three.configure(UNCLEAN, "true")
    assert (three.leads, three.isr) == (3, (3,))


def test_an_election_is_due_also_where_nobody_is_eligible(three: Cluster) -> None:
    three.fence(2, 3, 1)
    three.restart(1, clean=False)
    three.beat(3)
    assert (three.leads, three.state().elr) == (NO_LEADER, ())
    three.configure(UNCLEAN, "true")
    assert three.leads == 3


def test_with_unclean_elections_allowed_any_active_replica_leads(three: Cluster) -> None:
    """B3."""
    three.configure(UNCLEAN, "true")
    three.alter(1)
    three.fence(1)
    assert (three.leads, three.isr) == (2, (2,))


def test_nobody_is_eligible_any_more_once_less_is_enough_to_commit(three: Cluster) -> None:
    """Whoever is in sync may now commit what the eligible do not have."""
    three.configure(MIN_ISR, "2")
    three.fence(3, 2)
    three.beat(2)
    assert (three.isr, three.state().elr) == ((1,), (2,))
    three.configure(MIN_ISR, "1")
    assert three.state().elr == ()
    three.fence(1)
    assert three.leads == NO_LEADER
