"""`python -m benchmarks.mutations`: faults planted in the machines and the log, and who finds them.

Each is one line, planted in a copy of the package. A process of its own explores schedules of safe
settings until something is found that should not be there. The table goes to docs/mutations.md.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parent.parent / "src"
TABLE = Path("docs/mutations.md")
SCHEDULES_MAX = 1_000
NOT_FOUND = "**not found**"


class Mutation(NamedTuple):
    what: str
    file: str
    line: str
    planted: str
    masked: str = ""  # why nothing can come of it with safe settings


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
        "keeps its high watermark when it truncates",
        "core/replica.py",
        "        self.log.truncate(offset)\n        self.high_watermark = self._bounded(",
        "        self.log.truncate(offset)\n        self.high_watermark = max(0, ",
        "with safe settings nobody cuts below its high watermark",
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
        "does not wait for who is about to join",
        "core/in_sync.py",
        "        if self.phase is Phase.EXPANDING:\n            return self.pending",
        "        if self.phase is Phase.EXPANDING:\n            return self.isr",
        "the leader waits for whoever has caught up, about to join or not",
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
)

SEARCH = """
import sys
from dataclasses import replace
from lossless.simulator.run import Run
from lossless.simulator.settings import FAULTS, ProducerSettings, Settings

# Records far apart and close together, fetched all at once and a few at a time.
far = Settings(faults=FAULTS, flush_before_ack=True, controllers=3)
close = replace(far, fetch_bytes=200, producer=ProducerSettings(interval_ms=20))
for seed in range(1, int(sys.argv[1]) + 1):
    try:
        found = Run(close if seed % 4 > 1 else far, seed).run().kinds
    except Exception as error:
        found = (type(error).__name__,)
    if found:
        print(seed, ", ".join(found), sep="|")
        break
"""


def main() -> None:
    lines = []
    for mutation in MUTATIONS:
        found = _search(mutation)
        schedule, _, kinds = found.partition("|")
        told = f"{kinds} | {schedule}" if found else f"{mutation.masked or NOT_FOUND} | none"
        lines.append(f"| {mutation.what} | `{mutation.file}` | {told} |")
        print(lines[-1], flush=True)
    if any(NOT_FOUND in line for line in lines):
        print("some were not found", file=sys.stderr)
    TABLE.write_text(
        "# Planted faults, and who found them\n\n"
        "Each is one line, changed in a copy of the package; exploration then looks through\n"
        "schedules of safe settings (three brokers, three controllers, every fault) until it\n"
        "finds what should not be there: an anomaly, a broken invariant, or an error.\n"
        "`python -m benchmarks.mutations` writes this table.\n\n"
        "| what was planted | where | found as | in schedule |\n|---|---|---|---|\n"
        + "\n".join(lines)
        + "\n"
    )


def _search(mutation: Mutation) -> str:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(PACKAGE, folder, dirs_exist_ok=True)
        file = Path(folder) / "lossless" / mutation.file
        text = file.read_text()
        if text.count(mutation.line) != 1:
            raise SystemExit(f"{mutation.file}: {mutation.line!r} is not there once")
        file.write_text(text.replace(mutation.line, mutation.planted))
        return subprocess.run(
            [sys.executable, "-c", SEARCH, str(SCHEDULES_MAX)],
            env={**os.environ, "PYTHONPATH": folder},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()


if __name__ == "__main__":
    main()
