"""A broker and its controller: who is let in, who goes, who is turned to."""

from __future__ import annotations

from brokers import (
    SESSION_MS,
    create,
    error_of,
    produce,
    state,
    stop,
)
from instant_host import Host
from machines import PARTITION, records, values

from lossless.core.broker import NODE, Broker
from lossless.core.machine import NOTHING, Effects
from lossless.core.messages import (
    AlterConfig,
    AwaitMetadata,
    BrokerHeartbeat,
    BrokerHeartbeatAnswer,
    BrokerRegistration,
    BrokerRegistrationAnswer,
    DeleteTopic,
    Error,
    Fetch,
    FetchPartition,
    Produce,
    TopicPartition,
)
from lossless.core.metadata import MIN_ISR
from lossless.core.quorum_messages import BeginQuorumEpoch, Vote
from lossless.core.replica import Role
from lossless.core.standing import CLEAN_SHUTDOWN, Phase
from lossless.log.memory import MemoryStore

# Standing with the controller


def test_a_broker_registers_and_runs_as_soon_as_it_has_seen_its_own_registration() -> None:
    host = Host()
    host.instead[BrokerHeartbeat] = lambda _: BrokerHeartbeatAnswer(Error.NONE, is_fenced=True)
    host.start(1, rack="a")
    assert host.broker(1).phase is Phase.FENCED
    host.instead.clear()
    host.wait(100)
    assert host.broker(1).phase is Phase.RUNNING
    seen = [one.metadata_offset for one in host.sent if isinstance(one, BrokerHeartbeat)]
    assert seen[0] <= host.broker(1).broker_epoch < seen[1]
    known = host.controller().image.brokers[1]
    assert (known.is_active, known.rack, known.epoch) == (True, "a", host.broker(1).broker_epoch)


def test_a_fenced_broker_says_at_once_that_it_knows_more() -> None:
    host = Host()
    host.instead[BrokerHeartbeat] = lambda _: BrokerHeartbeatAnswer(Error.NONE, is_fenced=True)
    host.start(1)

    def said() -> list[int]:
        beats = [one for one in host.sent if isinstance(one, BrokerHeartbeat)]
        return [one.metadata_offset for one in beats if one.broker == 1]

    before = said()
    host.sent.clear()
    host.start(2)  # it registers, and no time passes
    news = said()
    assert news
    assert min(news) > max(before)


def test_clients_are_let_in_when_the_broker_that_they_ask_is_one_that_it_tells_of() -> None:
    host = Host()
    host.instead[BrokerHeartbeat] = lambda _: BrokerHeartbeatAnswer(Error.NONE, is_fenced=True)
    host.start(1)
    assert host.broker(1).knows_itself
    assert not host.broker(1).may_be_asked
    host.instead.clear()
    host.wait(100)
    assert host.broker(1).may_be_asked
    host.kill(1)
    host.instead[BrokerHeartbeat] = lambda _: BrokerHeartbeatAnswer(Error.NONE, is_fenced=True)
    host.start(1)
    host.wait(2 * SESSION_MS)
    assert host.broker(1).phase is Phase.FENCED  # what it was before it died does not count
    assert not host.broker(1).may_be_asked


def test_heartbeats_keep_a_broker_running(two: Host) -> None:
    two.wait(5 * SESSION_MS)
    assert {two.broker(broker).phase for broker in (1, 2)} == {Phase.RUNNING}
    assert two.controller().image.is_active(1)


def test_a_broker_asks_the_controller_one_thing_at_a_time() -> None:
    host = Host()
    host.delivers_flushes = False
    host.start(1)
    host.wait(5_000)
    registrations = [one for one in host.sent if isinstance(one, BrokerRegistration)]
    assert len(registrations) == 1


def test_a_broker_that_was_cut_off_is_fenced_and_runs_again(two: Host) -> None:
    two.cut_off = {2}
    two.wait(SESSION_MS)
    assert not two.controller().image.is_active(2)
    two.instead[BrokerHeartbeat] = lambda _: BrokerHeartbeatAnswer(Error.NONE, is_fenced=True)
    two.cut_off = set()
    two.wait(500)
    assert two.broker(2).phase is Phase.FENCED
    two.instead.clear()
    two.wait(500)
    assert two.broker(2).phase is Phase.RUNNING


def test_a_broker_asks_again_when_the_controller_is_none_or_does_not_answer() -> None:
    host = Host()
    host.instead[BrokerRegistration] = lambda _: BrokerRegistrationAnswer(Error.NOT_CONTROLLER)
    host.start(1)
    host.wait(1_000)
    assert host.broker(1).phase is Phase.STARTING
    host.instead = {BrokerRegistration: lambda _: None}
    host.wait(1_000)
    host.instead = {BrokerHeartbeat: lambda _: BrokerHeartbeatAnswer(Error.NOT_CONTROLLER)}
    host.wait(1_000)
    assert host.broker(1).phase is Phase.FENCED
    host.instead = {BrokerHeartbeat: lambda _: None}
    host.wait(1_000)
    assert host.broker(1).phase is Phase.FENCED
    host.instead.clear()
    host.wait(1_000)
    assert host.broker(1).phase is Phase.RUNNING


def test_a_broker_that_knows_no_controller_waits_until_it_does() -> None:
    host = Host()
    host.kill(100)
    host.start(1)
    wakes = 0
    for host.now_ms in range(100):
        if host.wake_ms[1] == host.now_ms:
            wakes += 1
            host.do(1, lambda broker, now_ms: broker.on_timer(now_ms))
    assert wakes <= 10  # it asks voters, a while apart


def test_a_process_that_lost_its_name_to_another_registers_anew_and_catches_up(two: Host) -> None:
    """What was decided about it in the meantime counts, also what it did not look at then."""
    two.cut_off = {1}
    two.wait(SESSION_MS)
    assert state(two).leader == 2
    assert two.ask(100, BrokerRegistration(1, 999)).error is Error.NONE
    two.cut_off = set()
    two.wait(1_000)
    assert two.broker(1).phase is Phase.STARTING
    two.wait(SESSION_MS)
    assert two.broker(1).phase is Phase.RUNNING
    replica = two.replica(1, PARTITION)
    assert (replica.role, replica.leader) == (Role.FOLLOWER, 2)
    assert state(two).isr == (2, 1)


def test_a_broker_acts_only_on_metadata_with_its_own_registration(two: Host) -> None:
    """Else it would take up a leadership that was given to its predecessor."""
    two.kill(1)
    two.start(1)
    two.wait(500)
    assert state(two).leader == 1  # its predecessor's session has not ended
    assert two.broker(1).replicas == {}
    two.wait(SESSION_MS)
    assert two.replica(1, PARTITION).role is Role.FOLLOWER


def test_a_broker_that_hears_of_its_epoch_after_the_metadata_begins_then() -> None:
    host = Host(brokers=(1,))
    host.wait(500)
    create(host, (1,))
    host.do(1, stop)
    host.kill(1)
    host.unheard = {BrokerRegistration}
    host.start(1)
    host.wait(50)
    assert host.broker(1).image.brokers[1].epoch > 1
    assert host.broker(1).replicas == {}
    host.unheard = set()
    host.wait(500)
    assert host.replica(1, PARTITION).role is Role.LEADER


# What is found on the disk


def kept_by(host: Host, broker: int) -> list[str]:
    """Stores that have something in them, but for the broker's own."""
    names = [name for owner, name in host.stores if owner == broker and name.startswith("o")]
    return sorted(name for name in names if host.store(broker, name).names())


def test_what_was_deleted_while_a_broker_was_away_goes_when_it_is_back(two: Host) -> None:
    others = TopicPartition("others", 0)
    create(two, (1, 2), topic="others")
    produce(two, b"first")
    produce(two, b"other", partition=others)
    before = kept_by(two, 2)
    assert [name.split(".")[0] for name in before] == ["orders-0", "others-0"]
    two.kill(2)
    assert two.ask(100, DeleteTopic("others")).error is Error.NONE
    assert kept_by(two, 2) == before
    two.start(2)
    two.wait(2 * SESSION_MS)
    assert [name.split(".")[0] for name in kept_by(two, 2)] == ["orders-0"]
    assert values(two.replica(2, PARTITION).log) == [b"first"]


def test_nothing_is_taken_for_deleted_before_a_broker_knows_itself(two: Host) -> None:
    produce(two, b"first")
    before = kept_by(two, 2)
    two.kill(2)
    two.unheard = {BrokerRegistration}  # its metadata is of the life before
    two.start(2)
    two.wait(2 * SESSION_MS)
    assert two.broker(2).replicas == {}
    assert kept_by(two, 2) == before
    two.unheard = set()
    two.wait(2 * SESSION_MS)
    assert kept_by(two, 2) == before
    assert values(two.replica(2, PARTITION).log) == [b"first"]


# A controller that stands still


def a_broker_that_follows(controller: int) -> Broker:
    stores: dict[str, MemoryStore] = {}
    broker = Broker(
        1,
        voters=(101, 102),
        stores=lambda name: stores.setdefault(name, MemoryStore()),
        stored=lambda: tuple(stores),
        incarnation=7,
        draw=lambda _: 0,
    )
    broker.on_start(0)
    broker.on_request(controller, "told", BeginQuorumEpoch(1, controller), 1)
    return broker


def asked_of(effects: Effects) -> list[int]:
    return [to for to, request in effects.send if isinstance(request, BrokerRegistration)]


def test_a_broker_turns_to_the_next_controller_when_the_last_one_never_answers() -> None:
    broker = a_broker_that_follows(101)
    effects = broker.on_request(102, "told", BeginQuorumEpoch(2, 102), 50)
    assert asked_of(effects) == [102]


def test_a_broker_makes_itself_known_to_the_next_controller_at_once() -> None:
    broker = a_broker_that_follows(101)
    broker.on_answer(101, BrokerRegistration(1, 7), BrokerRegistrationAnswer(Error.NONE, 9), 10)
    running = BrokerHeartbeatAnswer(Error.NONE, is_fenced=False)
    broker.on_answer(101, BrokerHeartbeat(1, 9, 0, False), running, 20)
    effects = broker.on_request(102, "told", BeginQuorumEpoch(2, 102), 50)
    assert [to for to, asked in effects.send if isinstance(asked, BrokerHeartbeat)] == [102]


def test_what_a_former_controller_answers_late_is_not_heard() -> None:
    broker = a_broker_that_follows(101)
    broker.on_request(102, "told", BeginQuorumEpoch(2, 102), 50)
    late = BrokerRegistrationAnswer(Error.NONE, 5)
    broker.on_answer(101, BrokerRegistration(1, 7), late, 60)
    assert (broker.phase, broker.broker_epoch) == (Phase.STARTING, -1)
    broker.on_answer(102, BrokerRegistration(1, 7), BrokerRegistrationAnswer(Error.NONE, 9), 70)
    assert (broker.phase, broker.broker_epoch) == (Phase.FENCED, 9)


# Stopping


def written(host: Host, node: int) -> dict[str, dict[str, bytes]]:
    """Everything that a node has stored."""
    return {
        name: {file: store.read(file, 0, store.size(file)) for file in store.names()}
        for (owner, name), store in host.stores.items()
        if owner == node
    }


def test_a_broker_that_stops_hands_over_and_says_so_when_it_is_back(two: Host) -> None:
    """B7: nothing is lost, and it stays eligible."""
    two.ask(100, AlterConfig("orders", MIN_ISR, "2"))
    assert error_of(produce(two, b"a")) is Error.NONE
    epoch = two.broker(1).broker_epoch
    two.do(1, stop)
    assert two.broker(1).phase is Phase.STOPPED
    assert two.wake_ms[1] is None
    assert two.store(1, NODE).read(CLEAN_SHUTDOWN, 0, 20) == str(epoch).encode()
    assert (state(two).leader, state(two).isr, state(two).elr) == (2, (2,), (1,))
    two.lose_power(1)
    two.start(1)
    assert state(two).elr == (1,)
    two.wait(1_000)
    assert (state(two).leader, state(two).isr) == (2, (2, 1))
    assert values(two.replica(1, PARTITION).log) == [b"a"]


def test_a_broker_that_no_controller_answers_closes_what_it_leads(two: Host) -> None:
    """Nobody else may lead yet, and nothing of it is in doubt when it is back."""
    assert error_of(produce(two, b"a")) is Error.NONE
    epoch = two.broker(1).broker_epoch
    two.do(1, Broker.close)
    assert (two.broker(1).phase, two.wake_ms[1]) == (Phase.STOPPED, None)
    assert two.store(1, NODE).read(CLEAN_SHUTDOWN, 0, 20) == str(epoch).encode()
    assert state(two).leader == 1
    two.lose_power(1)
    two.start(1)
    two.wait(2 * SESSION_MS)  # it did not say that it stops, and may be alive
    assert values(two.replica(1, PARTITION).log) == [b"a"]


def test_a_broker_that_has_closed_writes_nothing_more(two: Host) -> None:
    """It would be in no snapshot, nor flushed, and the logs are marked as clean."""
    assert error_of(produce(two, b"a")) is Error.NONE
    fetch = Fetch(1, two.broker(1).broker_epoch, 500, 1, (FetchPartition(PARTITION, 1),))
    two.do(1, Broker.close)
    broker, before = two.broker(1), written(two, 1)
    late = Produce(1, 1_000, ((PARTITION, records(b"late")),))
    assert broker.on_request(-1, "late", late, two.now_ms) == NOTHING
    assert broker.on_answer(2, fetch, None, two.now_ms) == NOTHING
    assert broker.on_timer(two.now_ms + 1_000_000) == NOTHING
    assert written(two, 1) == before


def close_and_produce(host: Host, *, late: bool) -> list[Error]:
    """Both in one turn; what a producer is told, and then the power is cut."""
    request = Produce(1, 1_000, ((PARTITION, records(b"a")),))
    told: list[Error] = []

    def turn(broker: Broker, now_ms: int) -> Effects:
        broker.defer()
        if late:
            broker.close(now_ms)
        broker.on_request(-1, "a", request, now_ms)
        if not late:
            broker.close(now_ms)
        told.extend(error_of(answer) for _, answer in broker.settle(now_ms).reply)
        return NOTHING

    host.do(1, turn)
    host.lose_power(1)
    host.start(1)
    host.wait(2 * SESSION_MS)  # it did not say that it stops, and may be alive
    return told


def test_what_was_written_just_before_a_broker_closed_is_answered_and_kept(alone: Host) -> None:
    assert close_and_produce(alone, late=False) == [Error.NONE]
    assert values(alone.replica(1, PARTITION).log) == [b"a"]


def test_what_comes_after_a_broker_closed_is_neither_written_nor_answered(alone: Host) -> None:
    assert close_and_produce(alone, late=True) == []
    assert values(alone.replica(1, PARTITION).log) == []


def test_a_broker_that_was_never_let_in_leaves_word_of_its_last_stop(two: Host) -> None:
    epoch = two.broker(1).broker_epoch
    two.do(1, stop)
    two.unheard = {BrokerRegistration}
    two.start(1)
    two.do(1, Broker.close)
    assert two.store(1, NODE).read(CLEAN_SHUTDOWN, 0, 20) == str(epoch).encode()


def test_a_broker_that_dies_is_not_taken_to_have_stopped(two: Host) -> None:
    """KIP-966."""
    two.ask(100, AlterConfig("orders", MIN_ISR, "2"))
    two.do(1, stop)
    two.kill(1)
    two.start(1)
    two.kill(1)
    two.wait(SESSION_MS)
    assert state(two).elr == (1,)
    two.start(1)
    assert state(two).elr == ()


def test_a_broker_goes_on_until_it_may_stop(two: Host) -> None:
    two.instead[BrokerHeartbeat] = lambda _: BrokerHeartbeatAnswer(Error.NONE, is_fenced=False)
    two.do(1, stop)
    assert two.broker(1).phase is Phase.STOPPING
    two.do(1, stop)
    assert error_of(produce(two, b"a")) is Error.NONE
    two.instead.clear()
    two.wait(500)
    assert two.broker(1).phase is Phase.STOPPED


def test_a_broker_that_is_asked_to_stop_before_it_is_registered_stops_then(two: Host) -> None:
    refused = BrokerRegistrationAnswer(Error.DUPLICATE_BROKER_REGISTRATION)
    two.instead[BrokerRegistration] = lambda _: refused
    two.kill(1)
    two.start(1)
    two.do(1, stop)
    assert two.broker(1).phase is Phase.STARTING
    two.instead.clear()
    two.wait(SESSION_MS + 1_000)
    assert two.broker(1).phase is Phase.STOPPED


def test_a_broker_has_no_vote(alone: Host) -> None:
    """It observes the quorum; whoever asks it is told what it knows."""
    answer = alone.ask(1, Vote(9, 100, 9, 99, False))
    assert (answer.granted, answer.leader) == (False, 100)


def test_metadata_is_awaited_until_the_broker_has_applied_it(two: Host) -> None:
    two.cut_off = {2}
    create(two, (1,), topic="later")
    request = AwaitMetadata(two.controller().committed.end_offset)
    assert two.ask(1, request) == request
    token = two.ask(2, request)
    two.wait(100)
    assert token not in two.answers
    two.cut_off = set()
    two.wait(5_000)
    assert two.answers.pop(token) == request
