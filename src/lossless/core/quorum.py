"""The controllers' quorum: one log, kept by a majority of voters, as KRaft does it (KIP-595).

States, and what ends them
    unattached     the epoch's leader is not known; has voted, or has not
                   ▸ follower when a leader is heard of ▸ prospective at the election timeout
    prospective    asks whether it would be elected, and changes nothing by asking (KIP-996)
                   ▸ candidate by a majority ▸ follower or unattached, as it was, when refused or
                   not heard, and as soon as the leader itself is heard
    candidate      has opened the next epoch and voted for itself
                   ▸ leader by a majority ▸ prospective at its timeout, sooner when it has lost
    leader         takes records, and learns from fetches who has them
                   ▸ resigned when told to, or when a majority has stopped fetching
    resigned       led this epoch and never will again; a leader's process that starts anew, too
                   ▸ unattached, one epoch later, at the election timeout
    follower       fetches from the leader
                   ▸ prospective when no fetch succeeds for the fetch timeout

    A later epoch, whoever tells of it, makes of everybody a follower of its leader or, while that
    is not known, unattached. An observer, which is any node that is no voter, is a follower, or is
    unattached and asks one voter after the other who leads; so it does at the fetch timeout.

Invariants
- One leader and one vote in an epoch: `goes_forward`, checked when either is written down, which
  is before anybody hears of it.
- Committed records are never truncated: `keeps_committed`.
- Epoch and offset name a record: no node writes in an epoch in which its process began.
- Nobody counts what a loss of power could take: a follower flushes before it fetches what follows,
  and the leader's own log counts as far as it is flushed.

Rules learnt
- A leader commits a record of its own epoch before any of earlier ones: those may be on a majority
  and yet be overwritten by somebody who was elected without them (KIP-595).
- Histories part where an epoch ends: a follower cuts there, not at its high watermark (KIP-101).
  The fetch is the question, so that nothing comes between question and data (KIP-595).
- A voter that was cut off must not raise the epoch when it returns: first a pre-vote (KIP-996).
- A follower refuses pre-votes only if it has fetched in this epoch. Otherwise two that time out in
  turn send each other back to a dead leader for ever (KAFKA-17641). Nor does a leader that has
  resigned count (KAFKA-20895).
- A leader that no majority fetches from resigns: another may be at work (KAFKA-15489). It answers
  the fetches that wait (KAFKA-10677).
- A vote is kept for as long as the epoch lasts, also when a leader is found (KAFKA-17641).
- A fetch says which high watermark its sender knows, so that a later one is news (KIP-1166). A
  follower believes it up to the end of its own log.
- Bytes that are no batches are asked for again (KAFKA-18723).

Unlike in Kafka, a flush takes its time. A process that starts anew may have lost what it had when
it asked for votes: it does not go on as a candidate, and a vote is confirmed only to a log that is
as good as it was. And a leader's own records count once flushed; in Kafka, once written.

Left out: snapshots (KIP-630), so the log is never trimmed; other voters than at first (KIP-853).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lossless.core.machine import Effects, Reply, Send, Token
from lossless.core.messages import Error
from lossless.core.quorum_messages import (
    NO_EPOCH,
    Answer,
    Asked,
    BeginQuorumEpoch,
    BeginQuorumEpochAnswer,
    Candidate,
    Election,
    EndQuorumEpoch,
    EndQuorumEpochAnswer,
    Follower,
    Leader,
    Nominee,
    ParkedFetch,
    Prospective,
    QuorumBroken,
    QuorumFetch,
    QuorumFetchAnswer,
    Request,
    Resigned,
    State,
    Unattached,
    Vote,
    VoteAnswer,
    goes_forward,
    keeps_committed,
    leader_change,
)
from lossless.log.batch import Batch, CorruptBatch, Record, build, parse_all
from lossless.log.leader_epochs import EpochEnd
from lossless.log.log import Appended, Log
from lossless.log.store import Store

METADATA = "__cluster_metadata"
NODE = "node"  # the store for what belongs to no log
QUORUM_STATE = "quorum-state"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumConfig:
    """Kafka's controller.quorum.*, with its defaults; how long a fetch waits is fixed there."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    retry_backoff_ms: int = 20
    fetch_max_bytes: int = 8 << 20
    fetch_wait_ms: int = 500

    @property
    def check_quorum_ms(self) -> int:
        """A leader is more patient than its followers, whose fetches take a while to arrive."""
        return self.fetch_timeout_ms * 3 // 2


class Quorum:
    """One node. A request that is never answered is forgotten with the state it was sent in, and
    every state that waits for an answer ends."""

    def __init__(
        self,
        node: int,
        voters: tuple[int, ...],
        log: Log,
        store: Store,
        *,
        config: QuorumConfig,
        draw: Callable[[int], int],
    ) -> None:
        self.node = node
        self.voters = voters
        self.config = config
        self.high_watermark = 0  # where the committed ends, as far as is known here
        self._others = tuple(voter for voter in voters if voter != node)
        self._is_voter = node in voters
        self._majority = len(voters) // 2 + 1
        self._log = log
        self._store = store
        self._draw = draw
        self._election = Election.decode(store.read(QUORUM_STATE, 0, store.size(QUORUM_STATE)))
        self._flushed = log.recovery_point
        self._state: State = Unattached(None)
        self._asked: dict[int, Asked] = {}
        self._send: list[Send] = []
        self._reply: list[Reply] = []
        self._must_flush = False

    # What the owner may know

    @property
    def state(self) -> str:
        return type(self._state).__name__.lower()

    @property
    def voted(self) -> int | None:
        """The candidate that this node voted for in this epoch."""
        return self._election.voted

    @property
    def epoch(self) -> int:
        return self._election.epoch

    @property
    def leader(self) -> int | None:
        """Of this epoch, as far as is known. One that has resigned leads no more."""
        leader = self._election.leader
        return None if leader == self.node and not isinstance(self._state, Leader) else leader

    @property
    def is_leader(self) -> bool:
        """Whether it may decide: it leads, and all that was committed before is committed here."""
        state = self._state
        return isinstance(state, Leader) and self.high_watermark > state.first_offset

    @property
    def ends(self) -> dict[int, int]:
        """Where the logs of those who fetch from this leader end, as far as is known."""
        state = self._state
        if not isinstance(state, Leader):
            return {}
        waiting = {replica: parked.request.offset for replica, parked in state.parked.items()}
        return {**state.ends, **waiting, self.node: self._log.log_end_offset}

    def committed_values(self, from_offset: int = 0) -> Iterator[tuple[int, bytes]]:
        """Offsets and values of what is committed; without the records that open epochs."""
        return self._values(from_offset, self.high_watermark)

    def values(self, from_offset: int = 0) -> Iterator[tuple[int, bytes]]:
        """The same of everything that is written, committed or not: what a leader has decided."""
        return self._values(from_offset, self._log.log_end_offset)

    def _values(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        for batch in self._log.batches(start):
            if batch.base_offset >= end:
                return
            if not batch.is_control:
                for record in batch.records():
                    if record.offset >= start and record.value is not None:
                        yield record.offset, record.value

    # What the owner may do

    def append(self, records: tuple[bytes, ...], now_ms: int) -> tuple[int | None, Effects]:
        """One batch, committed as a whole or never. The last record's offset; None: not here."""
        last_offset = None
        if self.is_leader:
            numbered = enumerate(records)
            batch = build(Record(number, now_ms, None, value) for number, value in numbered)
            last_offset = self._append(batch, now_ms)
        return last_offset, self._settle(now_ms)

    def resign(self, now_ms: int) -> Effects:
        """Gives up leading, and says who should be next: whoever has most."""
        if isinstance(self._state, Leader):
            self._resign(self._state, now_ms)
        return self._settle(now_ms)

    # What happens

    def on_start(self, now_ms: int) -> Effects:
        if self._election.epoch < self._last_epoch:
            self._record(Election(self._last_epoch))
        leader = self._election.leader
        if leader is None:
            self._become(Unattached(self._unattached_until_ms(now_ms)))
        elif leader == self.node:
            self._become(Resigned(self._election_deadline_ms(now_ms), successors=()))
        else:
            self._become(Follower(now_ms + self.config.fetch_timeout_ms, leader))
        self._must_flush = self._flushed < self._log.log_end_offset
        return self._settle(now_ms)

    def on_request(self, source: int, token: Token, request: Request, now_ms: int) -> Effects:
        match request:
            case Vote():
                granted = self._on_vote(request, now_ms)
                self._reply.append(Reply(token, VoteAnswer(self.epoch, self.leader, granted)))
            case BeginQuorumEpoch(epoch, leader):
                self._learn(source, epoch, leader, now_ms)
                self._reply.append(Reply(token, BeginQuorumEpochAnswer(self.epoch, self.leader)))
            case EndQuorumEpoch():
                self._on_end_quorum_epoch(source, request, now_ms)
                self._reply.append(Reply(token, EndQuorumEpochAnswer(self.epoch, self.leader)))
            case _:  # a fetch, whose answer may have to wait
                self._on_fetch(token, request, now_ms)
        return self._settle(now_ms)

    def on_answer(
        self, source: int, request: Request, answer: Answer | None, now_ms: int
    ) -> Effects:
        asked = self._asked.get(source)
        if asked is not None and asked.request == request:
            del self._asked[source]
            if answer is None or (isinstance(answer, QuorumFetchAnswer) and answer.error):
                self._back_off(source, request, now_ms)
        if answer is not None:
            self._learn(source, answer.epoch, answer.leader, now_ms)
        match request, answer:
            case Vote(), VoteAnswer():
                self._on_vote_answer(source, request, answer, now_ms)
            case EndQuorumEpoch(epoch=epoch), EndQuorumEpochAnswer():
                if isinstance(self._state, Resigned) and epoch == self.epoch:
                    self._state.told.add(source)
            case QuorumFetch(), QuorumFetchAnswer(error=Error.NONE):
                self._on_fetch_answer(source, request, answer, now_ms)
        return self._settle(now_ms)

    def on_timer(self, now_ms: int) -> Effects:
        return self._settle(now_ms)

    def on_flushed(self, log: str, offset: int, now_ms: int) -> Effects:
        if log == METADATA:
            # Two flushes may be told of in any order, and what was flushed may be cut off since.
            self._flushed = max(self._flushed, min(offset, self._log.recovery_point))
            self._advance_high_watermark()
        return self._settle(now_ms)

    def _settle(self, now_ms: int) -> Effects:
        """Does what is due, and says what there is to do and when to look again."""
        while self._state.deadline_ms is not None and self._state.deadline_ms <= now_ms:
            self._on_deadline(now_ms)
        for node, asked in list(self._asked.items()):
            if asked.retry_ms is not None and asked.retry_ms <= now_ms:
                del self._asked[node]
        match self._state:
            case Nominee() as nominee if not self._has_lost(nominee):
                for voter in self._others:
                    if voter not in nominee.granted | nominee.refused:
                        self._ask(voter, self._vote_of(nominee))
            case Leader() as leader:
                self._tell_of_epoch(leader, now_ms)
                self._answer_fetches(leader, now_ms)
            case Resigned(successors=successors, told=told):
                for voter in self._others:
                    if voter not in told:
                        self._ask(voter, EndQuorumEpoch(self.epoch, self.node, successors))
            case Follower(leader=node):
                self._fetch_from(node)
            case Unattached() if not self._is_voter and not self._asked:
                self._fetch_from(self.voters[self._draw(len(self.voters))])
        effects = Effects(
            tuple(self._send),
            tuple(self._reply),
            (METADATA,) if self._must_flush else (),
            self._wake_ms(),
        )
        self._send, self._reply, self._must_flush = [], [], False
        return effects

    def _wake_ms(self) -> int | None:
        times = [self._state.deadline_ms, *(asked.retry_ms for asked in self._asked.values())]
        if isinstance(self._state, Leader):
            times += [parked.until_ms for parked in self._state.parked.values()]
            times += [self._state.begin_ms] if self._others else []
        return min((time for time in times if time is not None), default=None)

    def _on_deadline(self, now_ms: int) -> None:
        match self._state:
            case Leader() as leader:
                self._resign(leader, now_ms)
            case Resigned():
                self._record(Election(self.epoch + 1))
                self._become(Unattached(self._unattached_until_ms(now_ms)))
            case Prospective():
                self._give_up(now_ms)
            case _ if self._is_voter:
                self._stand(Prospective(self._election_deadline_ms(now_ms), {self.node}), now_ms)
            case _:
                self._become(Unattached(self._unattached_until_ms(now_ms)))

    # Elections

    def _on_vote(self, vote: Vote, now_ms: int) -> bool:
        if vote.epoch < self.epoch or not self._is_voter or vote.candidate not in self.voters:
            return False
        if vote.epoch > self.epoch:
            self._detach(vote.epoch, now_ms)
        log_end = (self._last_epoch, self._log.log_end_offset)
        is_up_to_date = (vote.last_epoch, vote.last_offset) >= log_end
        if vote.pre_vote:
            match self._state:
                case Leader() | Follower(has_fetched=True, is_over=False):
                    return False
            return is_up_to_date
        voted = self._election.voted
        if self._election.leader is not None or voted not in (None, vote.candidate):
            return False
        if is_up_to_date:
            # Who is voted for has as good a log as this node, and is given the time to win.
            self._record(self._election._replace(voted=vote.candidate))
            self._become(Unattached(self._unattached_until_ms(now_ms)))
        return is_up_to_date

    def _on_vote_answer(self, source: int, vote: Vote, answer: VoteAnswer, now_ms: int) -> None:
        nominee = self._state
        if not isinstance(nominee, Nominee) or vote != self._vote_of(nominee):
            return
        if answer.granted:
            nominee.granted.add(source)
            self._count(nominee, now_ms)
            return
        nominee.refused.add(source)
        if self._has_lost(nominee):
            if isinstance(nominee, Prospective):
                self._give_up(now_ms)
            else:
                # Waiting for more is in vain. By chance one of those who lost comes first.
                again_ms = now_ms + 1 + self._draw(self.config.election_backoff_max_ms)
                nominee.deadline_ms = min(nominee.deadline_ms, again_ms)

    def _stand(self, nominee: Nominee, now_ms: int) -> None:
        self._become(nominee)
        self._count(nominee, now_ms)

    def _count(self, nominee: Nominee, now_ms: int) -> None:
        if len(nominee.granted) < self._majority:
            return
        if isinstance(nominee, Candidate):
            self._lead(nominee, now_ms)
        else:
            self._record(Election(self.epoch + 1, voted=self.node))
            self._stand(Candidate(self._election_deadline_ms(now_ms), {self.node}), now_ms)

    def _has_lost(self, nominee: Nominee) -> bool:
        return len(nominee.refused) > len(self.voters) - self._majority

    def _give_up(self, now_ms: int) -> None:
        """A prospective candidate that is not wanted, or not heard, is what it was before."""
        leader = self._election.leader
        if leader is None:
            self._become(Unattached(self._unattached_until_ms(now_ms)))
        else:
            self._follow(self.epoch, leader, now_ms)

    def _lead(self, elected: Candidate, now_ms: int) -> None:
        self._record(self._election._replace(leader=self.node))
        heard_ms = dict.fromkeys(self._others, now_ms)
        first_offset = self._log.log_end_offset
        self._become(
            Leader(self._check_quorum_deadline_ms(heard_ms), first_offset, now_ms, heard_ms)
        )
        self._append(leader_change(self.node, self.voters, sorted(elected.granted), now_ms), now_ms)

    def _resign(self, leader: Leader, now_ms: int) -> None:
        by_end = sorted(self._others, key=lambda voter: -leader.ends.get(voter, 0))
        self._become(Resigned(self._election_deadline_ms(now_ms), tuple(by_end)))

    def _on_end_quorum_epoch(self, source: int, request: EndQuorumEpoch, now_ms: int) -> None:
        self._learn(source, request.epoch, request.leader, now_ms)
        if request.epoch != self.epoch or not isinstance(self._state, Follower):
            return
        backoff_max_ms, successors = self.config.election_backoff_max_ms, request.successors
        if self.node not in successors:
            backoff_ms = self._draw(backoff_max_ms)
        else:
            # The first stands at once, and each further one leaves twice the time to those before.
            place = successors.index(self.node)
            backoff_ms = (backoff_max_ms << place) >> len(successors) if place else 0
        self._state.deadline_ms = now_ms + backoff_ms
        self._state.is_over = True

    # Epochs and who leads them

    def _learn(self, source: int, epoch: int, leader: int | None, now_ms: int) -> None:
        """What any message tells: its sender's epoch, and who leads that."""
        if epoch < self.epoch:
            return
        if leader is None:
            if epoch > self.epoch:
                self._detach(epoch, now_ms)
            return
        if (epoch, leader) == self._election[:2]:
            # News only to an observer that asks around, and to who gave the leader up for dead.
            is_alive = isinstance(self._state, Prospective) and source == leader
            if not (is_alive or isinstance(self._state, Unattached)):
                return
        self._follow(epoch, leader, now_ms)

    def _follow(self, epoch: int, leader: int, now_ms: int) -> None:
        if leader == self.node:
            raise QuorumBroken(f"node {leader} is told that it leads epoch {epoch}, and never did")
        voted = self._election.voted if epoch == self.epoch else None
        self._record(Election(epoch, leader, voted))
        self._become(Follower(now_ms + self.config.fetch_timeout_ms, leader))

    def _detach(self, epoch: int, now_ms: int) -> None:
        """Into a later epoch, whose leader is not known."""
        # Whoever waits for an election goes on waiting: else others could put it off for ever.
        waits = not isinstance(self._state, Leader | Follower)
        until_ms = self._state.deadline_ms if waits else self._unattached_until_ms(now_ms)
        self._record(Election(epoch))
        self._become(Unattached(until_ms))

    def _record(self, election: Election) -> None:
        if election != self._election:
            goes_forward(self._election, election)
            self._store.replace(QUORUM_STATE, election.encode())
            self._election = election

    def _become(self, state: State) -> None:
        left, self._state = self._state, state
        self._asked.clear()
        if isinstance(left, Leader):
            for parked in left.parked.values():
                self._refuse(parked.token, Error.NOT_LEADER_OR_FOLLOWER)

    # Replication: the leader

    def _append(self, batch: Batch, now_ms: int) -> int:
        appended = self._log.append(batch, leader_epoch=self.epoch, now_ms=now_ms)
        assert isinstance(appended, Appended)  # only producers with an id can be refused
        self._must_flush = True
        return appended.last_offset

    def _tell_of_epoch(self, leader: Leader, now_ms: int) -> None:
        """Whoever does not fetch does not know who leads, or cannot be reached."""
        if now_ms < leader.begin_ms:
            return
        interval_ms = self.config.fetch_timeout_ms // 2
        for voter in self._others:
            if voter not in leader.ends or leader.heard_ms[voter] <= now_ms - interval_ms:
                self._send.append(Send(voter, BeginQuorumEpoch(self.epoch, self.node)))
        leader.begin_ms = now_ms + interval_ms

    def _on_fetch(self, token: Token, request: QuorumFetch, now_ms: int) -> None:
        leader = self._state
        if request.epoch < self.epoch:
            self._refuse(token, Error.FENCED_LEADER_EPOCH)
            return
        if request.epoch > self.epoch:
            self._refuse(token, Error.UNKNOWN_LEADER_EPOCH)
            return
        if not isinstance(leader, Leader):
            self._refuse(token, Error.NOT_LEADER_OR_FOLLOWER)
            return
        if request.replica in self._others:
            leader.heard_ms[request.replica] = now_ms
            leader.deadline_ms = self._check_quorum_deadline_ms(leader.heard_ms)
            if self._diverging(request) is None:
                leader.ends[request.replica] = request.offset
                self._advance_high_watermark()
        # Whoever asks again does not wait for the answer to what it asked before.
        replaced = leader.parked.pop(request.replica, None)
        if replaced is not None:
            self._reply.append(Reply(replaced.token, self._fetched(replaced.request)))
        until_ms = now_ms + self.config.fetch_wait_ms
        leader.parked[request.replica] = ParkedFetch(token, request, until_ms)

    def _answer_fetches(self, leader: Leader, now_ms: int) -> None:
        """Those that there is news for, and those that have waited long enough."""
        for replica, (token, request, until_ms) in list(leader.parked.items()):
            answer = self._fetched(request)
            has_moved = answer.high_watermark > request.high_watermark
            if answer.data or answer.diverging or has_moved or until_ms <= now_ms:
                del leader.parked[replica]
                self._reply.append(Reply(token, answer))

    def _fetched(self, request: QuorumFetch) -> QuorumFetchAnswer:
        diverging = self._diverging(request)
        data = b""
        if diverging is None:
            log_end, bytes_max = self._log.log_end_offset, self.config.fetch_max_bytes
            data = self._log.read(request.offset, end_offset=log_end, bytes_max=bytes_max)
        return QuorumFetchAnswer(
            self.epoch, self.leader, Error.NONE, self.high_watermark, diverging, data
        )

    def _diverging(self, request: QuorumFetch) -> EpochEnd | None:
        """Where the histories part, if what the replica has last is not what is here."""
        end = self._end_of(request.last_fetched_epoch)
        is_here = end.epoch == request.last_fetched_epoch and request.offset <= end.end_offset
        return None if is_here or request.offset == 0 else end

    def _advance_high_watermark(self) -> None:
        leader = self._state
        if isinstance(leader, Leader):
            ends = [self._flushed, *(leader.ends.get(voter, 0) for voter in self._others)]
            committed = sorted(ends, reverse=True)[self._majority - 1]
            if committed > leader.first_offset:
                self.high_watermark = max(self.high_watermark, committed)

    def _refuse(self, token: Token, error: Error) -> None:
        self._reply.append(Reply(token, QuorumFetchAnswer(self.epoch, self.leader, error)))

    # Replication: followers and observers

    def _fetch_from(self, node: int) -> None:
        """Asking for what follows says that everything before is on disk, so it waits for that."""
        if self._flushed == self._log.log_end_offset:
            self._ask(node, self._fetch())

    def _fetch(self) -> QuorumFetch:
        log_end = self._log.log_end_offset
        return QuorumFetch(self.epoch, self.node, log_end, self._last_epoch, self.high_watermark)

    def _on_fetch_answer(
        self, source: int, request: QuorumFetch, answer: QuorumFetchAnswer, now_ms: int
    ) -> None:
        follower = self._state
        if not isinstance(follower, Follower) or request != self._fetch():
            return  # the log has gone on since, or the epoch
        if answer.diverging is not None:
            self._truncate(answer.diverging)
        else:
            try:
                batches = parse_all(answer.data)
            except CorruptBatch:
                self._back_off(source, request, now_ms)
                return
            if batches:
                self._log.append_from_leader(batches)
                self._must_flush = True
            committed = min(answer.high_watermark, self._log.log_end_offset)
            self.high_watermark = max(self.high_watermark, committed)
        follower.has_fetched = True
        if not follower.is_over:
            follower.deadline_ms = now_ms + self.config.fetch_timeout_ms

    def _truncate(self, diverging: EpochEnd) -> None:
        end = self._end_of(diverging.epoch)
        is_same = end.epoch == diverging.epoch
        offset = min(end.end_offset, diverging.end_offset) if is_same else end.end_offset
        keeps_committed(self.high_watermark, offset)
        self._log.truncate(offset)
        self._flushed = min(self._flushed, self._log.log_end_offset)

    # Asking

    def _ask(self, node: int, request: Request) -> None:
        if node not in self._asked:
            self._asked[node] = Asked(request)
            self._send.append(Send(node, request))

    def _back_off(self, node: int, request: Request, now_ms: int) -> None:
        self._asked[node] = Asked(request, now_ms + self.config.retry_backoff_ms)

    def _vote_of(self, nominee: Nominee) -> Vote:
        pre_vote = isinstance(nominee, Prospective)
        return Vote(self.epoch, self.node, self._last_epoch, self._log.log_end_offset, pre_vote)

    # Voters, epochs and deadlines

    @property
    def _last_epoch(self) -> int:
        return self._log.latest_epoch or NO_EPOCH

    def _end_of(self, epoch: int) -> EpochEnd:
        """Of an epoch, or of the last one before it; here, everything ends with the log."""
        end = self._log.end_of_epoch(epoch)
        return end or EpochEnd(self._last_epoch, self._log.log_end_offset)

    def _election_deadline_ms(self, now_ms: int) -> int:
        timeout_ms = self.config.election_timeout_ms
        return now_ms + timeout_ms + self._draw(timeout_ms)

    def _unattached_until_ms(self, now_ms: int) -> int:
        if not self._is_voter:
            return now_ms + self.config.fetch_timeout_ms
        return self._election_deadline_ms(now_ms) if self._others else now_ms

    def _check_quorum_deadline_ms(self, heard_ms: dict[int, int]) -> int | None:
        """Until when those who fetched last, with this node, are a majority."""
        latest_ms = sorted(heard_ms.values(), reverse=True)[: self._majority - 1]
        return latest_ms[-1] + self.config.check_quorum_ms if latest_ms else None
