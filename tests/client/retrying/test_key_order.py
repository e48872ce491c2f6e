"""Keys that wait in a retry topic: no later record of theirs is processed before them."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lossless.client.retrying import KeyOrder


def scanned(committed: int = 0) -> KeyOrder:
    order = KeyOrder(committed=committed)
    order.on_scan_ended()
    return order


def test_a_key_waits_until_the_group_has_committed_past_its_last_record() -> None:
    order = scanned()
    order.on_forwarded(b"a", 0)
    order.on_forwarded(b"b", 1)
    order.on_forwarded(b"a", 2)
    assert order.waits(b"a")
    assert order.on_committed(1) == []
    assert order.on_committed(2) == [b"b"]
    assert not order.waits(b"b")
    assert order.waits(b"a")
    assert order.on_committed(3) == [b"a"]
    assert len(order) == 0


def test_nothing_is_known_of_any_key_before_the_scan_has_ended() -> None:
    order = KeyOrder(committed=5)
    assert order.waits(b"a")
    assert not order.waits(None)
    order.on_scanned(b"b", 6)
    order.on_scan_ended()
    assert not order.waits(b"a")
    assert order.waits(b"b")


def test_a_scan_that_meets_what_was_forwarded_meanwhile_changes_nothing() -> None:
    order = KeyOrder(committed=5)
    order.on_forwarded(b"a", 9)
    for key, offset in ((b"b", 5), (b"a", 6), (b"a", 9)):
        order.on_scanned(key, offset)
    order.on_scan_ended()
    assert order.on_committed(9) == [b"b"]
    assert order.waits(b"a")
    assert order.on_committed(10) == [b"a"]


def test_what_was_committed_before_does_not_wait_and_commits_never_go_back() -> None:
    order = scanned(committed=5)
    order.on_scanned(b"a", 4)
    assert not order.waits(b"a")
    order.on_forwarded(b"a", 7)
    order.on_committed(3)
    assert order.committed == 5
    assert order.waits(b"a")


def test_records_without_a_key_have_no_order_to_keep() -> None:
    order = scanned()
    order.on_forwarded(None, 0)
    assert not order.waits(None)
    assert len(order) == 0


class TwoPartitions(RuleBasedStateMachine):
    """A partition and its retry partition, two readers that crash, and commits told late."""

    @initialize(keys=st.lists(st.sampled_from([b"a", b"b"]), min_size=3, max_size=12))
    def start(self, keys: list[bytes]) -> None:
        self.main = keys
        self.retry: list[int] = []  # offsets in main
        self.position = self.committed = 0
        self.retry_position = self.retry_committed = 0
        self.processed: set[int] = set()
        self.order = scanned()

    def process(self, offset: int) -> None:
        earlier = {before for before in range(offset) if self.main[before] == self.main[offset]}
        assert earlier <= self.processed, f"{offset} overtook one of {earlier - self.processed}"
        self.processed.add(offset)

    @precondition(lambda self: self.position < len(self.main))
    @rule(fails=st.booleans())
    def read_main(self, fails: bool) -> None:
        key = self.main[self.position]
        if self.order.waits(key) or fails:
            self.retry.append(self.position)
            self.order.on_forwarded(key, len(self.retry) - 1)
        else:
            self.process(self.position)
        self.position += 1

    @precondition(lambda self: self.retry_position < len(self.retry))
    @rule()
    def read_retry(self) -> None:
        self.process(self.retry[self.retry_position])
        self.retry_position += 1

    @precondition(lambda self: self.committed < self.position)
    @rule()
    def commit_main(self) -> None:
        self.committed = self.position

    @precondition(lambda self: self.retry_committed < self.retry_position)
    @rule()
    def commit_retry(self) -> None:
        self.retry_committed = self.retry_position

    @rule()
    def hear_of_the_commit(self) -> None:
        self.order.on_committed(self.retry_committed)

    @precondition(lambda self: self.position > 0)
    @rule()
    def crash_main(self) -> None:
        self.position = self.committed
        self.order = KeyOrder(committed=self.retry_committed)

    @precondition(lambda self: not self.order.is_scanned)
    @rule()
    def scan(self) -> None:
        for offset in range(self.order.committed, len(self.retry)):
            self.order.on_scanned(self.main[self.retry[offset]], offset)
        self.order.on_scan_ended()

    @precondition(lambda self: self.retry_committed < self.retry_position)
    @rule()
    def crash_retry(self) -> None:
        self.retry_position = self.retry_committed

    @invariant()
    def only_keys_that_lie_there_wait(self) -> None:
        there = {self.main[offset] for offset in self.retry[self.order.committed :]}
        waiting = {key for key in (b"a", b"b") if self.order.waits(key)}
        assert not self.order.is_scanned or waiting == there


TestTwoPartitions = TwoPartitions.TestCase
TestTwoPartitions.settings = settings(max_examples=400, stateful_step_count=30, deadline=None)
