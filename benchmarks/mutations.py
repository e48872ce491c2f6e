"""`python -m benchmarks.mutations`: faults planted in the machines and the log, and how they show.

Each is a line or two, changed in a copy of the package. A process of its own (mutation_search.py)
explores schedules of sound settings, for 60 s of CPU at most, until something is found that should
not be there. First the package is searched as it is, for as long: nothing may be found. The table
goes to docs/mutations.md.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src"
TABLE = ROOT / "docs" / "mutations.md"
CPU_S_MAX = 60
FOUND_MIN = 0.85  # of all


class Mutation(NamedTuple):
    what: str
    file: str
    line: str
    planted: str
    explanation: str = ""  # why it is not found


MUTATIONS = (
    Mutation(
        "acknowledges one offset early",
        "core/replica.py",
        "if self.high_watermark < end_offset:",
        "if self.high_watermark < end_offset - 1:",
    ),
    Mutation(
        "commits what the fastest has, not what all have",
        "core/replica.py",
        "if has < lowest:",
        "if has > lowest:",
    ),
    Mutation(
        "commits without asking who is in sync",
        "core/replica.py",
        "if broker in maximal or self._is_waited_for(broker, progress, end_offset, now_ms):",
        "if broker in maximal and broker == self.broker:",
    ),
    Mutation(
        "truncates one record too few",
        "core/replica.py",
        "            self._truncate(target)\n",
        "            self._truncate(target + 1)\n",
    ),
    Mutation(
        "sees no divergence in another epoch",
        "core/replica.py",
        "return end if is_named or end.end_offset < asked.offset else None",
        "return None",
    ),
    Mutation(
        "serves consumers what is not committed",
        "core/replica.py",
        "        return self.high_watermark\n\n    def on_list_offsets",
        "        return self.log.log_end_offset\n\n    def on_list_offsets",
    ),
    Mutation(
        "lets anybody join the in-sync set",
        "core/replica.py",
        "needed = max(self.high_watermark, self.epoch_start_offset)",
        "needed = 0",
    ),
    Mutation(
        "believes a high watermark beyond its own log",
        "core/replica.py",
        "        self.high_watermark = self._bounded(fetched.high_watermark)\n        start",
        "        self.high_watermark = fetched.high_watermark\n        start",
    ),
    Mutation(
        "takes records though it does not lead",
        "core/replica.py",
        "_refused(Error.INVALID_REQUIRED_ACKS)\n        if self.role is not LEADER:",
        "_refused(Error.INVALID_REQUIRED_ACKS)\n        if self.role is Role.OFFLINE:",
    ),
    Mutation(
        "acknowledges in an epoch that is over",
        "core/replica.py",
        "if self.role is not LEADER or leader_epoch != self.leader_epoch:\n"
        "            return Error.NOT_LEADER_OR_FOLLOWER",
        "if self.role is not LEADER or leader_epoch != self.leader_epoch:\n"
        "            return NO_ERROR",
    ),
    Mutation(
        "acts on a shrunk set before it is confirmed",
        "core/in_sync.py",
        "if self.phase is Phase.SHRINKING and not self._rules.shrink_when_confirmed:",
        "if self.phase is Phase.SHRINKING:",
    ),
    Mutation(
        "a new leader, and the old epoch",
        "core/election.py",
        "leader_epoch=state.leader_epoch + is_new_epoch",
        "leader_epoch=state.leader_epoch",
    ),
    Mutation(
        "elects whoever is there",
        "core/election.py",
        "if (broker in wanted_isr or broker in elr) and is_active(broker)",
        "if is_active(broker)",
    ),
    Mutation(
        "elects who is not alive",
        "core/election.py",
        "if (broker in wanted_isr or broker in elr) and is_active(broker)",
        "if (broker in wanted_isr or broker in elr)",
    ),
    Mutation(
        "accepts a change made from an older state",
        "core/controller.py",
        "if request.partition_epoch != state.partition_epoch:",
        "if request.partition_epoch > state.partition_epoch:",
    ),
    Mutation(
        "fences a broker and leaves it in sync",
        "core/controller.py",
        "return (BrokerChanged(broker, True, False), *self._without(broker))",
        "return (BrokerChanged(broker, True, False),)",
    ),
    Mutation(
        "a restarted broker acts on old metadata",
        "core/broker.py",
        "return known is not None and known.epoch == self.broker_epoch",
        "return known is not None",
    ),
    Mutation(
        "acknowledges before anybody else has it",
        "core/serving.py",
        "if acks == ALL and produced.error is NO_ERROR:",
        "if acks == 2 and produced.error is NO_ERROR:",
    ),
    Mutation(
        "never fetches again after a lost connection",
        "core/broker.py",
        "        self._fetching.discard(leader)\n        if answer is None:",
        "        if answer is not None:\n            self._fetching.discard(leader)\n"
        "        if answer is None:",
    ),
    Mutation(
        "the log truncates one record too few",
        "log/log.py",
        "        self._segments[-1].truncate(offset)\n        end",
        "        self._segments[-1].truncate(offset + 1)\n        end",
    ),
    Mutation(
        "says that it has flushed, and has not",
        "log/log.py",
        "(self.recovery_point):\n            segment.flush()",
        "(self.recovery_point):\n            segment.size",
    ),
    Mutation(
        "does not know a batch that comes again",
        "log/producers.py",
        "        for sent in known.batches:\n            if (sent.first",
        "        for sent in ():\n            if (sent.first",
    ),
    Mutation(
        "remembers one batch of a producer instead of five",
        "log/producers.py",
        "batches: deque[SentBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_MAX))",
        "batches: deque[SentBatch] = field(default_factory=lambda: deque(maxlen=1))",
    ),
    Mutation(
        "takes sequences with a gap",
        "log/producers.py",
        "if batch.base_sequence == (known.last_sequence + 1) & SEQUENCE_MAX:",
        "if batch.base_sequence > known.last_sequence:",
        explanation="rare: one schedule of several hundred in the settings for replication",
    ),
    Mutation(
        "an epoch ends one offset late",
        "log/leader_epochs.py",
        "end_offset = self._entries[after].start_offset",
        "end_offset = self._entries[after].start_offset + 1",
    ),
    Mutation(
        "reads one batch beyond the end it was given",
        "log/segment.py",
        "if place.last_offset >= end_offset:",
        "if place.last_offset > end_offset:",
        explanation="rare: one schedule of about a hundred in the settings for replication",
    ),
    Mutation(
        "batches do not carry their leader's epoch",
        "log/batch.py",
        "place = _PLACE.pack(base_offset, self.length, leader_epoch)",
        "place = _PLACE.pack(base_offset, self.length, self.leader_epoch)",
    ),
    Mutation(
        "metadata counts as committed on one voter of three",
        "core/quorum.py",
        "self._majority = len(voters) // 2 + 1",
        "self._majority = 1",
    ),
    Mutation(
        "takes batches of a producer's earlier epoch",
        "log/producers.py",
        "if batch.producer_epoch < (NO_PRODUCER_EPOCH if known is None else known.epoch):",
        "if batch.producer_epoch < NO_PRODUCER_EPOCH:",
    ),
    Mutation(
        "takes a stale coordinator's marker",
        "log/producers.py",
        "        if marker.coordinator_epoch < known.coordinator_epoch:\n",
        "        if marker.coordinator_epoch < -1:\n",
    ),
    Mutation(
        "takes a marker of a producer's earlier epoch",
        "log/producers.py",
        "        if producer_epoch < known.epoch:\n",
        "        if producer_epoch < -1:\n",
        explanation="a coordinator must die within a marker's delay, and the producer go on",
    ),
    Mutation(
        "a transaction stays open in the log when it ends",
        "log/producers.py",
        "first_offset = self._open.pop(batch.producer_id, None)",
        "first_offset = self._open.get(batch.producer_id, None)",
    ),
    Mutation(
        "takes every marker for a commit",
        "log/producers.py",
        "marker.kind is MarkerKind.ABORT\n",
        "False\n",
    ),
    Mutation(
        "serves open transactions to readers of committed records",
        "core/replica.py",
        "        if read_committed:\n            return self.last_stable_offset\n",
        "        if read_committed:\n            return self.high_watermark\n",
    ),
    Mutation(
        "does not say which transactions were aborted",
        "core/replica.py",
        "aborted = self.log.aborted_between(asked.offset, end) if read_committed else []",
        "aborted: list[AbortedTransaction] = []",
    ),
    Mutation(
        "keeps who stopped uncleanly eligible",
        "core/election.py",
        "left = {*state.elr, *state.isr} - {*isr, uncleanly_stopped}",
        "left = {*state.elr, *state.isr} - {*isr}",
    ),
    Mutation(
        "takes every stop for a clean one",
        "core/controller.py",
        "is_clean = request.previous_broker_epoch == known.epoch",
        "is_clean = True",
    ),
    Mutation(
        "a quorum acknowledges before its flush",
        "core/quorum.py",
        "        self._must_flush = True\n        return appended.last_offset",
        "        self._must_flush = True\n"
        "        self._flushed = self._log.log_end_offset\n"
        "        self._advance_high_watermark()\n"
        "        return appended.last_offset",
    ),
    Mutation(
        "a controller fetches on before it has flushed",
        "core/quorum.py",
        "        if self._flushed == self._log.log_end_offset:\n            self._ask(node",
        "        if self._flushed <= self._log.log_end_offset:\n            self._ask(node",
        explanation="power must fail in the 3 ms of a flush, on the one copy that counts",
    ),
    Mutation(
        "votes for who has less",
        "core/quorum.py",
        "is_up_to_date = (vote.last_epoch, vote.last_offset) >= log_end",
        "is_up_to_date = vote.last_epoch >= 0 <= log_end[1]",
    ),
    Mutation(
        "votes for everybody who asks",
        "core/quorum.py",
        "if self._election.leader is not None or voted not in (None, vote.candidate):",
        "if self._election.leader is not None:",
    ),
    Mutation(
        "forgets its vote when it starts again",
        "core/quorum.py",
        "            self._store.replace(QUORUM_STATE, election.encode())\n",
        "            self._store.replace(QUORUM_STATE, election._replace(voted=None).encode())\n",
    ),
    Mutation(
        "is elected by a minority",
        "core/quorum.py",
        "if len(nominee.granted) < self._majority:",
        "if len(nominee.granted) < self._majority - 1:",
    ),
    Mutation(
        "the metadata of an earlier epoch stays where histories part",
        "core/quorum.py",
        "return None if is_here or request.offset == 0 else end",
        "return None",
    ),
    Mutation(
        "a coordinator forgets what it coordinated at failover",
        "core/coordinator.py",
        "for batch in replica.log.batches(replica.log.log_start_offset):",
        "for batch in replica.log.batches(replica.log.log_end_offset):",
    ),
    Mutation(
        "a coordinator answers before its records are committed",
        "core/coordinator.py",
        "while loaded.pending and loaded.pending[0][0] <= high_watermark:",
        "while loaded.pending and loaded.pending[0][0] >= 0 <= high_watermark:",
    ),
    Mutation(
        "commits offsets of an earlier generation",
        "core/groups/offsets.py",
        "        if generation_id != group.generation_id:\n"
        "            return Error.ILLEGAL_GENERATION\n"
        "    elif",
        "    elif",
    ),
    Mutation(
        "gives every member what the first was given",
        "core/groups/classic.py",
        "step.answer(one.sync_token, _synced(group, assignments[one.member_id]))",
        "step.answer(one.sync_token, _synced(group, next(iter(assignments.values()))))",
    ),
    Mutation(
        "does not say that the group rebalances",
        "core/groups/classic.py",
        "return Error.REBALANCE_IN_PROGRESS if is_preparing else Error.NONE\n\n    def keep_alive",
        "return Error.NONE\n\n    def keep_alive",
    ),
    Mutation(
        "writes no generation down",
        "core/groups/classic.py",
        "            step.write(GroupMetadataKey(group.group_id), group.to_store(assignments))",
        "            group.move_to(ClassicState.STABLE, step.now_ms)",
    ),
    Mutation(
        "the earlier of two offsets counts",
        "core/groups/offset_store.py",
        "offsets.setdefault(key.group, {})[partition] = Committed(value, at_offset)",
        "offsets.setdefault(key.group, {}).setdefault(partition, Committed(value, at_offset))",
    ),
    Mutation(
        "commits offsets in a transaction for a member that was replaced",
        "core/groups/offsets.py",
        "            return Error.INVALID_PRODUCER_EPOCH\n"
        "        group = self._store.get(request.group_id)\n",
        "            return Error.INVALID_PRODUCER_EPOCH\n"
        "        group = None\n"
        "        request = request._replace(generation_id=-1)\n",
    ),
    Mutation(
        "an aborted transaction moves its group",
        "core/groups/offset_store.py",
        "        if not committed:\n            return\n",
        "",
    ),
    Mutation(
        "offsets of an open transaction count after a failover",
        "core/coordinator.py",
        "shard.apply(record, producer if batch.is_transactional else None)",
        "shard.apply(record, None)",
        explanation="a coordinator must die with offsets of a transaction that is then aborted",
    ),
    Mutation(
        "the end of a transaction leaves its offsets pending",
        "core/coordination.py",
        "        if request.partition.topic == OFFSETS_TOPIC:\n"
        "            self.groups.on_marker(request)\n",
        "",
    ),
    Mutation(
        "ends a transaction for a producer of an earlier epoch",
        "core/transactions/decisions.py",
        "    if known.producer_epoch != epoch or epoch == EPOCH_MAX:\n"
        "        return Decided(error=Error.PRODUCER_FENCED)\n"
        "    if request.committed and",
        "    if epoch == EPOCH_MAX:\n"
        "        return Decided(error=Error.PRODUCER_FENCED)\n"
        "    if request.committed and",
    ),
    Mutation(
        "adds partitions for a producer of an earlier epoch",
        "core/transactions/decisions.py",
        "    if known.producer_epoch != epoch or epoch == EPOCH_MAX:\n"
        "        return Decided(error=Error.PRODUCER_FENCED)\n"
        "    is_ongoing",
        "    if epoch == EPOCH_MAX:\n"
        "        return Decided(error=Error.PRODUCER_FENCED)\n"
        "    is_ongoing",
        explanation="the log refuses what comes late where the later epoch has written",
    ),
    Mutation(
        "a producer's successor leaves its transaction open",
        "core/transactions/decisions.py",
        "    if known.state is TransactionState.ONGOING:\n"
        "        return fenced(known, transaction_version, now_ms)\n"
        "    return _next_epoch",
        "    return _next_epoch",
    ),
    Mutation(
        "a producer's successor has the same epoch",
        "core/transactions/decisions.py",
        "initialised(known, known.producer_id, epoch + 1, timeout_ms, now_ms)",
        "initialised(known, known.producer_id, epoch, timeout_ms, now_ms)",
    ),
    Mutation(
        "a new epoch while the transaction is still ending",
        "core/transactions/decisions.py",
        "    if known.state in PREPARED:\n"
        "        return Decided(error=Error.CONCURRENT_TRANSACTIONS)\n"
        "    if expected is not None",
        "    if expected is not None",
    ),
    Mutation(
        "a transaction is complete before every partition has its marker",
        "core/transactions/shard.py",
        "            del ending.waiting[request.partition]\n",
        "            ending.waiting.clear()\n",
    ),
    Mutation(
        "a new coordinator leaves decided transactions as they are",
        "core/transactions/shard.py",
        "            if known.state in PREPARED:\n                outcome = _joined(",
        "            if known.state in IDLE:\n                outcome = _joined(",
    ),
    Mutation(
        "no marker is sent again",
        "core/transactions/shard.py",
        "            ending.waiting[request.partition] = None\n"
        "            self._ask_later(now_ms)\n",
        "            ending.waiting[request.partition] = None\n",
    ),
    Mutation(
        "writes for a transaction without asking its coordinator",
        "core/transactions/verification.py",
        "            if not self._unknown(held):\n"
        "                return Verdict((*fenced, Release(token)))",
        "            if held:\n                return Verdict((*fenced, Release(token)))",
    ),
    Mutation(
        "compaction keeps the first record of a key",
        "log/compaction.py",
        "for r in records if r.key is not None)",
        "for r in records if r.key is not None and r.key not in latest)",
    ),
    Mutation(
        "compaction counts records that are not committed",
        "log/log.py",
        "        end = min(self.last_stable_offset(high_watermark), self.recovery_point)\n"
        "        closed",
        "        end = self.log_end_offset\n        closed",
        explanation="what is cut off later must be in a closed segment",
    ),
    Mutation(
        "compaction removes whole segments",
        "log/log.py",
        "            if not left:\n                self._segments.remove(segment)",
        "            if left != batches:\n                self._segments.remove(segment)",
    ),
)


class Finding(NamedTuple):
    settings: str
    seed: int
    kinds: str


def search(mutation: Mutation | None, cpu_s_max: float = CPU_S_MAX) -> Finding | None:
    """The first finding with a fault planted, or with the package as it is."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "lossless"
        shutil.copytree(PACKAGE / "lossless", package)
        if mutation is not None:
            file = package / mutation.file
            text = file.read_text()
            if text.count(mutation.line) != 1:
                raise SystemExit(f"{mutation.file}: {mutation.line!r} is not there once")
            file.write_text(text.replace(mutation.line, mutation.planted))
        printed = subprocess.run(
            [sys.executable, "-m", "benchmarks.mutation_search", str(cpu_s_max)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": folder},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    if not printed:
        return None
    settings, seed, kinds = printed.split("|")
    return Finding(settings, int(seed), kinds)


def main() -> None:
    unplanted = search(None)
    if unplanted is not None:
        where = f"seed {unplanted.seed}, settings for {unplanted.settings}"
        sys.exit(f"{unplanted.kinds} without a planted fault: {where}")
    findings: dict[str, Finding | None] = {}
    for mutation in MUTATIONS:
        finding = findings[mutation.what] = search(mutation)
        print(_row(mutation, finding), flush=True)
    TABLE.write_text(render(findings))
    found = sum(finding is not None for finding in findings.values())
    print(f"{found} of {len(MUTATIONS)} found")
    missed = [one.what for one in MUTATIONS if not (findings[one.what] or one.explanation)]
    if missed or found < FOUND_MIN * len(MUTATIONS):
        sys.exit(f"not found, and not explained: {', '.join(missed) or 'none'}")


def render(findings: Mapping[str, Finding | None]) -> str:
    found = sum(finding is not None for finding in findings.values())
    rows = [_row(mutation, findings[mutation.what]) for mutation in MUTATIONS]
    return (
        "# Planted faults, and what finds them\n\n"
        "Each is a change of a line or two in a copy of the package. Exploration then runs\n"
        f"schedules of sound settings for at most {CPU_S_MAX} s of CPU, until it finds something\n"
        "that should not be there: an anomaly, a broken invariant, or an error. Without a planted\n"
        f"fault it finds nothing. Of {len(MUTATIONS)} faults {found} are found.\n"
        "`python -m benchmarks.mutations`, a part of `make soak`, writes this table.\n\n"
        "| what was planted | where | found as | settings for | seed |\n"
        "|---|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def _row(mutation: Mutation, finding: Finding | None) -> str:
    where = f"| {mutation.what} | `{mutation.file}` |"
    if finding is None:
        return f"{where} not found: {mutation.explanation or '**unexplained**'} | | |"
    return f"{where} {finding.kinds} | {finding.settings} | {finding.seed} |"


if __name__ == "__main__":
    main()
