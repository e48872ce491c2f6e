"""Whatever happens, in whatever order: epochs never step back, a commit is a commit, and everything
that was decided ends. Producers are replaced and come back as zombies, leaders fail and move, the
coordinator moves and loses what was not committed.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from transaction_host import LEADER, NEW, OLD, ORDERS, PAYMENTS, Host

from lossless.core.coordinator import Outcome
from lossless.core.messages import Error, Producer, WriteTxnMarker
from lossless.core.transactions.messages import (
    AddPartitionsToTxn,
    AddPartitionsToTxnAnswer,
    EndTxn,
    EndTxnAnswer,
    InitProducerId,
    InitProducerIdAnswer,
)
from lossless.core.transactions.records import decode_key, decode_value
from lossless.core.transactions.state import (
    ALLOWED_BEFORE,
    EPOCH_LAST_USED,
    EPOCH_MAX,
    PREPARED,
    Transaction,
    TransactionState,
    created,
)

NAMES = st.sampled_from(["shop", "bank"])
WHICH = st.integers(0, 20)
TROUBLES = st.sampled_from([None, Error.NOT_LEADER_OR_FOLLOWER, Error.UNKNOWN_TOPIC_OR_PARTITION])


@dataclass
class Client:
    """An instance of a producer. It may have been replaced without knowing it."""

    name: str
    version: int
    producer: Producer | None = None


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.host = Host()
        self.host.on_decided = self.on_decided
        self.clients: list[Client] = []
        self.told: dict[Producer, Client] = {}  # who was given which producer id and epoch
        self.requests: dict[int, tuple[Client, object]] = {}
        self.seen = 0
        # One of them has nearly used its epochs up.
        self.host.put("bank", created(1, 60_000, 0)._replace(producer_epoch=EPOCH_LAST_USED - 2))

    def on_decided(self, outcome: Outcome) -> None:
        """Deciding has changed nothing that has to survive."""
        assert self.host.shard.transactions == self.host.replayed().transactions
        for send in outcome.send:
            self.check_marker(send.request, outcome)

    def check_marker(self, marker: WriteTxnMarker, outcome: Outcome) -> None:
        """It is sent for a decision that is in the log, or comes with it."""
        logged = [value for _, value in (*self.host.log, *outcome.records) if value is not None]
        mine = [decode_value(value) for value in logged]
        last = [known for known in mine if known.producer_id == marker.producer_id][-1]
        decided = TransactionState.PREPARE_COMMIT
        assert last.state is (decided if marker.committed else TransactionState.PREPARE_ABORT)
        assert last.producer_epoch == marker.producer_epoch

    def client(self, which: int) -> Client:
        return self.clients[which % len(self.clients)]

    def ask(self, client: Client, request: object) -> None:
        self.requests[self.host.tokens + 1] = (client, request)
        self.host.ask(request)
        self.hear()

    def hear(self) -> None:
        for token in [token for token in self.requests if token in self.host.replies]:
            client, request = self.requests.pop(token)
            match self.host.replies[token]:
                case InitProducerIdAnswer(Error.NONE, producer_id, epoch):
                    self.given(client, Producer(producer_id, epoch))
                case EndTxnAnswer(Error.NONE, producer_id, epoch):
                    assert isinstance(request, EndTxn)
                    self.check_end(request)
                    self.given(client, Producer(producer_id, epoch))
                case InitProducerIdAnswer() | EndTxnAnswer() | AddPartitionsToTxnAnswer():
                    pass
                case other:
                    raise AssertionError(other)

    def given(self, client: Client, producer: Producer) -> None:
        """A producer id and an epoch are one instance's alone."""
        assert producer.epoch < EPOCH_MAX
        assert self.told.setdefault(producer, client) is client
        client.producer = producer

    def check_end(self, request: EndTxn) -> None:
        """Its transaction has ended as the answer says."""
        raised = 1 if request.version == NEW else 0
        epoch = request.producer_epoch + raised
        ends = [
            known
            for known in self.host.logged()
            if known.state in PREPARED
            and (known.producer_id, known.producer_epoch) == (request.producer_id, epoch)
        ]
        decided = TransactionState.PREPARE_COMMIT
        assert ends[-1].state is (decided if request.committed else TransactionState.PREPARE_ABORT)

    # What clients do

    @rule(name=NAMES, version=st.sampled_from([OLD, NEW]))
    def start(self, name: str, version: int) -> None:
        client = Client(name, version)
        self.clients.append(client)
        self.ask(client, InitProducerId(name, 60_000))

    @precondition(lambda self: self.clients)
    @rule(which=WHICH)
    def start_again(self, which: int) -> None:
        """It was told to come again, or has lost its answer. It may know who it is."""
        client = self.client(which)
        known = client.producer or Producer(-1, -1)
        self.ask(client, InitProducerId(client.name, 60_000, *known))

    @precondition(lambda self: self.clients)
    @rule(which=WHICH, partition=st.sampled_from([ORDERS, PAYMENTS]))
    def add(self, which: int, partition: object) -> None:
        client = self.client(which)
        if client.producer is not None:
            version = 3 if client.version == OLD else 5
            request = AddPartitionsToTxn(
                client.name, *client.producer, (partition,), version=version
            )
            self.ask(client, request)

    @precondition(lambda self: self.clients)
    @rule(which=WHICH, committed=st.booleans())
    def end(self, which: int, committed: bool) -> None:
        client = self.client(which)
        if client.producer is not None:
            self.ask(client, EndTxn(client.name, *client.producer, committed, client.version))

    # What else happens

    @precondition(lambda self: self.host.sent)
    @rule(which=WHICH)
    def write_marker(self, which: int) -> None:
        self.host.answer(self.host.sent[which % len(self.host.sent)])

    @precondition(lambda self: self.host.sent)
    @rule(which=WHICH, error=TROUBLES)
    def fail_to_write_marker(self, which: int, error: Error | None) -> None:
        self.host.answer(self.host.sent[which % len(self.host.sent)], error)

    @rule(leader=st.sampled_from([None, LEADER, LEADER + 1]))
    def move_leader(self, leader: int | None) -> None:
        self.host.leaders[ORDERS] = leader

    @rule(ms=st.sampled_from([100, 10_000, 70_000]))
    def wait(self, ms: int) -> None:
        self.host.wait(ms)

    @rule(keeps_all=st.booleans())
    def fail_over(self, keeps_all: bool) -> None:
        self.requests.clear()
        self.host.fail_over(keeps_all=keeps_all)
        self.seen = 0

    @rule()
    def stop_committing(self) -> None:
        self.host.is_committing = False

    @rule()
    def commit(self) -> None:
        self.host.is_committing = True
        self.host.commit()
        self.hear()

    @rule()
    def run_out_of_producer_ids(self) -> None:
        self.host.has_ids = not self.host.has_ids

    # What is always so

    @invariant()
    def a_replay_of_the_log_gives_the_same(self) -> None:
        assert self.host.shard.transactions == self.host.replayed().transactions

    @invariant()
    def no_two_names_share_a_producer_id(self) -> None:
        """So no two transactions are ever going on with one producer id and epoch."""
        known = self.host.shard.transactions.values()
        assert len({transaction.producer_id for transaction in known}) == len(known)

    @invariant()
    def every_step_in_the_log_is_a_legal_one(self) -> None:
        if len(self.host.log) == self.seen:
            return
        self.seen = len(self.host.log)
        before: dict[str, Transaction] = {}
        for key, value in self.host.log:
            name = decode_key(key)
            assert name is not None
            assert value is not None
            known = decode_value(value)
            if name in before:
                self.check_step(before[name], known)
            before[name] = known

    @staticmethod
    def check_step(before: Transaction, after: Transaction) -> None:
        assert before.state in ALLOWED_BEFORE[after.state]
        if before.producer_id != after.producer_id:
            assert after.producer_epoch == 0
            assert before.is_epoch_exhausted
        else:
            assert 0 <= after.producer_epoch - before.producer_epoch <= 1
        if before.state in PREPARED:
            assert set(after.partitions) == set()

    def teardown(self) -> None:
        """Once leaders answer, everything that was decided is complete."""
        self.commit()
        self.host.leaders.clear()
        for _ in range(3):
            self.host.answer_all()
            self.host.wait(100)
        states = {known.state for known in self.host.shard.transactions.values()}
        assert not states & PREPARED


Histories.TestCase.settings = settings(max_examples=150, stateful_step_count=60)
TestHistories = Histories.TestCase
