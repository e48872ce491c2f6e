"""The equations, and the names of what breaks them, without Spark and without Kafka."""

from __future__ import annotations

from dataclasses import replace

import pytest
from audited_world import DEAD, FILTERED, SOURCE, STORED, World, bucket_of, tally
from hypothesis import given, settings
from hypothesis import strategies as st

from lossless.pipeline.audit.balance import balance_acknowledged, examine
from lossless.pipeline.audit.model import FindingKind, HiddenRecords
from lossless.pipeline.audit.naming import find_by_hash, find_run_by_hash, name_lost
from lossless.pipeline.audit.summary import AuditedPartition, add_buckets, buckets_of
from lossless.pipeline.ledger import AcceptedLoss, Position
from lossless.tally import Tally


def world(count: int = 40, *, filtering: bool = False, ahead: int = 5) -> World:
    fate = {}
    for offset in range(count):
        if offset % 10 == 9:
            continue  # a transaction marker
        fate[offset] = DEAD if offset % 10 == 4 else STORED
        if filtering and offset % 3 == 0:
            fate[offset] = FILTERED
    return World(
        fate=fate,
        commits=[count // 4, count // 2, count],
        ahead=list(range(count, count + ahead)),
    )


def named(findings: list) -> list[tuple[FindingKind, int | None]]:
    return [(f.kind, f.offset) for f in findings]


@pytest.mark.parametrize("filtering", [False, True])
def test_what_the_ledger_and_the_log_and_the_table_agree_on_is_balanced(filtering: bool) -> None:
    audited = world(filtering=filtering)
    assert audited.examine().balanced
    assert audited.findings() == []


@pytest.mark.parametrize("filtering", [False, True])
def test_a_deleted_row_is_named_with_its_key(filtering: bool) -> None:
    audited = world(filtering=filtering)
    audited.rows.remove(17)
    (finding,) = audited.findings()
    assert (finding.kind, finding.offset, finding.key) == (FindingKind.MISSING, 17, b"key-17")


@pytest.mark.parametrize("filtering", [False, True])
def test_a_duplicated_row_is_named(filtering: bool) -> None:
    audited = world(filtering=filtering)
    audited.rows += [17, 17]
    (finding,) = audited.findings()
    assert (finding.kind, finding.offset, finding.records) == (FindingKind.DUPLICATED, 17, 2)


@pytest.mark.parametrize("filtering", [False, True])
def test_a_deleted_and_a_duplicated_row_in_one_bucket_do_not_cancel_out(filtering: bool) -> None:
    audited = world(filtering=filtering)
    assert bucket_of(16) == bucket_of(17)
    audited.rows.remove(17)
    audited.rows.append(16)
    assert audited.examine().missing_rows.count == 0
    assert named(audited.findings()) == [
        (FindingKind.DUPLICATED, 16),
        (FindingKind.MISSING, 17),
    ]


@pytest.mark.parametrize("filtering", [False, True])
def test_a_ledger_shifted_forwards_names_the_records_it_skipped(filtering: bool) -> None:
    audited = world(filtering=filtering)
    audited.shift(3)
    findings = audited.findings()
    assert named(findings) == [
        (FindingKind.LEDGER, None),
        (FindingKind.MISSING, 40),
        (FindingKind.MISSING, 41),
        (FindingKind.MISSING, 42),
    ]
    assert "never counted" in findings[0].detail


def test_a_ledger_shifted_beyond_the_log_says_so() -> None:
    audited = world(ahead=0)
    audited.shift(3)
    findings = audited.findings()
    assert [f.kind for f in findings] == [FindingKind.LEDGER]
    assert "the log ends at 39" in findings[0].detail


@pytest.mark.parametrize("filtering", [False, True])
def test_a_ledger_shifted_backwards_names_the_rows_beyond_it(filtering: bool) -> None:
    audited = world(filtering=filtering)
    audited.shift(-4)
    findings = audited.findings()
    beyond = [o for o in audited.rows if o >= 36]
    assert beyond
    assert named(findings) == [
        (FindingKind.LEDGER, None),
        *((FindingKind.BEYOND_LEDGER, o) for o in beyond),
    ]


@pytest.mark.parametrize("filtering", [False, True])
def test_a_deleted_dead_letter_is_told_from_a_deleted_row(filtering: bool) -> None:
    audited = world(filtering=filtering)
    audited.letters.remove(14)
    audited.rows.remove(17)
    assert sorted(named(audited.findings())) == [
        (FindingKind.LETTER_MISSING, 14),
        (FindingKind.MISSING, 17),
    ]


def test_a_duplicated_dead_letter_and_a_record_both_stored_and_dead_are_named() -> None:
    audited = world()
    audited.letters += [14, 17]
    assert named(audited.findings()) == [
        (FindingKind.LETTER_DUPLICATED, 14),
        (FindingKind.STORED_AND_DEAD, 17),
    ]


def test_a_row_altered_to_an_offset_that_is_not_in_the_log_is_named_with_the_one_it_had() -> None:
    audited = world()
    audited.rows[audited.rows.index(17)] = 19  # a marker stands there
    assert named(audited.findings()) == [
        (FindingKind.NOT_IN_LOG, 19),
        (FindingKind.MISSING, 17),
    ]


def test_a_row_altered_to_a_filtered_offset_is_named_by_hash_alone() -> None:
    audited = world(filtering=True)
    assert audited.fate[18] == FILTERED
    audited.rows[audited.rows.index(17)] = 18
    assert sorted(named(audited.findings())) == [
        (FindingKind.MISSING, 17),
        (FindingKind.NOT_FILTERED, 18),
    ]


def test_a_row_with_another_timestamp_is_named_though_the_partition_balances() -> None:
    audited = world()
    audited.moved[17] = bucket_of(17) + 10_000
    assert named(audited.findings()) == [(FindingKind.OTHER_TIMESTAMP, 17)]


def test_a_row_in_a_bucket_that_the_log_does_not_have_is_named_even_among_filtered_records() -> (
    None
):
    audited = world(filtering=True)
    audited.moved[17] = bucket_of(17) + 3_600_000
    assert named(audited.findings()) == [(FindingKind.OTHER_TIMESTAMP, 17)]


def test_among_filtered_records_two_missing_are_named_and_three_in_one_commit_are_listed() -> None:
    two = world(filtering=True)
    for offset in (22, 35):
        two.rows.remove(offset)
    assert named(two.findings()) == [(FindingKind.MISSING, 22), (FindingKind.MISSING, 35)]
    three = world(filtering=True)
    for offset in (22, 31, 35):
        three.rows.remove(offset)
    (finding,) = three.findings()
    assert (finding.kind, finding.records) == (FindingKind.MISSING_EITHER, 3)
    assert {22, 31, 35} < set(finding.candidates)
    assert all(20 <= offset < 40 for offset in finding.candidates)  # the commit it was in


def test_records_below_the_log_start_are_witnessed_by_the_ledger() -> None:
    for filtering in (False, True):
        audited = world(filtering=filtering)
        audited.log_start = 15
        examination = audited.examine()
        assert examination.balanced
        assert examination.gap == tally([o for o in audited.fate if o < 15])
        assert "below the log start" in examination.notes[0]


def test_a_row_deleted_below_the_log_start_is_found_by_its_hash() -> None:
    audited = world()
    audited.log_start = 15
    audited.rows.remove(7)
    findings = audited.findings()
    assert (FindingKind.MISSING, 7) in named(findings)
    assert all(f.kind in (FindingKind.MISSING, FindingKind.LEDGER) for f in findings)


def test_records_deleted_before_they_were_read_are_lost_and_named() -> None:
    audited = world(ahead=20)
    audited.log_start = 45
    findings = audited.findings()
    (unread,) = [f for f in findings if f.kind is FindingKind.DELETED_UNREAD]
    assert (unread.offset, unread.last_offset, unread.records) == (40, 44, 5)
    assert not audited.examine().balanced


def test_a_gap_in_the_log_is_explained_by_compaction_only_where_the_topic_compacts() -> None:
    audited = world()
    audited.gone_from_log = {3, 17}
    assert named(audited.findings())[1:] == [
        (FindingKind.NOT_IN_LOG, 3),
        (FindingKind.NOT_IN_LOG, 17),
    ]
    audited.compacted = True
    assert audited.examine().balanced
    audited.rows.remove(22)
    assert named(audited.findings()) == [(FindingKind.MISSING, 22)]


def test_an_accepted_loss_is_a_note_and_no_finding() -> None:
    audited = world()
    audited.position = replace(audited.position, accepted_losses=(AcceptedLoss(9, 21),))
    assert audited.examine().balanced
    assert "--accept-loss" in audited.examine().notes[0]


def test_a_topic_that_is_gone_cannot_be_judged_unless_that_was_accepted() -> None:
    audited = world()
    audited.log_start = audited.position.next_offset  # every row counts as purged
    gone = replace(audited.evidence(), log=None, logged={})
    assert examine(gone).undecided
    assert gone.position is not None
    closed = replace(gone, position=replace(gone.position, closed=True))
    assert examine(closed).balanced
    assert not examine(closed).undecided


def test_a_partition_that_the_ledger_does_not_know_is_in_flight() -> None:
    audited = World(fate={}, commits=[0], ahead=list(range(7)))
    evidence = replace(audited.evidence(), position=None, position_after=None, history=())
    examination = examine(evidence)
    assert examination.balanced
    total = add_buckets(
        buckets_of(AuditedPartition(examination=examination, acknowledged=None)).values()
    )
    assert (total.logged, total.in_flight) == (7, 7)


def test_rows_that_a_live_pipeline_committed_during_the_scan_are_no_finding() -> None:
    audited = world()
    audited.rows += [40, 41]
    assert FindingKind.BEYOND_LEDGER in {f.kind for f in audited.findings()}
    evidence = audited.evidence()
    moved_on = Position(start_offset=0, next_offset=42)
    assert examine(replace(evidence, position_after=moved_on)).balanced


def test_an_expanding_transform_is_counted_by_distinct_offsets_and_its_rows_by_number() -> None:
    audited = world()
    extra = list(audited.rows)
    audited.rows += extra  # every record became two rows
    audited.position = replace(audited.position, rows=2 * len(extra))
    assert audited.examine().balanced
    audited.rows.append(17)
    (finding,) = audited.findings()
    assert finding.kind is FindingKind.LEDGER
    assert "1 rows" in finding.detail


def test_acknowledged_but_not_in_the_log_is_named_when_it_is_a_run_of_offsets() -> None:
    audited = world()
    audited.acknowledged = [*audited.fate, *audited.ahead, 45, 46, 47]
    examination = audited.examine()
    balance = balance_acknowledged(examination)
    assert balance.lost == {bucket_of(45): tally([45, 46, 47])}
    assert named(name_lost(examination, balance)) == [
        (FindingKind.LOST, 45),
        (FindingKind.LOST, 46),
        (FindingKind.LOST, 47),
    ]


def test_an_offset_acknowledged_twice_lost_one_of_two_records() -> None:
    audited = world()
    audited.acknowledged = [*audited.fate, *audited.ahead, 22]
    examination = audited.examine()
    assert named(name_lost(examination, balance_acknowledged(examination))) == [
        (FindingKind.LOST, 22)
    ]


def test_lost_and_unreported_in_one_bucket_do_not_cancel_out() -> None:
    audited = world()
    audited.acknowledged = [o for o in [*audited.fate, *audited.ahead] if o != 22] + [29]
    balance = balance_acknowledged(audited.examine())
    assert [lost.count for lost in balance.lost.values()] == [1]


def test_fewer_reports_than_records_is_unreported_and_never_lost() -> None:
    audited = world()
    audited.acknowledged = [o for o in audited.fate if o >= 10]
    balance = balance_acknowledged(audited.examine())
    assert balance.lost == {}
    assert balance.unreported == 9 + 5


def test_aborted_records_explain_what_was_acknowledged_and_is_not_readable() -> None:
    audited = world()
    audited.acknowledged = [*audited.fate, *audited.ahead, 29]
    evidence = audited.evidence()
    assert balance_acknowledged(examine(evidence)).lost
    hidden = {bucket_of(29): HiddenRecords(aborted=tally([29]))}
    balance = balance_acknowledged(examine(replace(evidence, hidden=hidden)))
    assert balance.lost == {}
    assert balance.aborted == {bucket_of(29): 1}


def test_reports_of_filtered_records_below_the_log_start_are_balanced_by_the_ledger() -> None:
    audited = world(filtering=True)
    audited.acknowledged = [*audited.fate, *audited.ahead]
    audited.log_start = 25
    balance = balance_acknowledged(audited.examine())
    assert (balance.lost, balance.unreported) == ({}, 0)
    audited.acknowledged.append(45)
    assert balance_acknowledged(audited.examine()).lost == {None: tally([45])}


def test_compaction_before_reading_is_neither_lost_nor_explained_without_keys() -> None:
    audited = world()
    audited.compacted = True
    audited.gone_from_log = {3, 41}  # one read before it was compacted away, one never read
    audited.acknowledged = [*audited.fate, *audited.ahead]
    balance = balance_acknowledged(audited.examine())
    assert balance.lost == {}
    assert "1 acknowledged records are not in the log" in balance.undecided[0]


def test_what_was_given_up_is_explained_and_not_lost() -> None:
    audited = world()
    audited.acknowledged = [*audited.fate, *audited.ahead, 9, 19]
    assert len(balance_acknowledged(audited.examine()).lost) == 2
    losses = (AcceptedLoss(9, 10), AcceptedLoss(19, 20))
    audited.position = replace(audited.position, accepted_losses=losses)
    examination = audited.examine()
    balance = balance_acknowledged(examination)
    assert balance.lost == {}
    total = add_buckets(
        buckets_of(AuditedPartition(examination=examination, acknowledged=balance)).values()
    )
    assert (total.acknowledged, total.logged, total.explained) == (43, 43, 2)


def test_find_by_hash_finds_one_or_two_and_nothing_else() -> None:
    def hash_of(offset: int) -> int:
        return tally([offset]).hash

    candidates = list(range(100))
    assert find_by_hash(tally([42]), candidates, hash_of) == [42]
    assert find_by_hash(tally([3, 42]), candidates, hash_of) == [3, 42]
    assert find_by_hash(tally([142]), candidates, hash_of) is None
    assert find_by_hash(tally([1, 2, 3]), candidates, hash_of) is None
    assert find_run_by_hash(tally([7, 8, 9]), range(100), hash_of) == range(7, 10)
    assert find_run_by_hash(tally([7, 9]), range(100), hash_of) is None


fates = st.lists(st.sampled_from([STORED, STORED, STORED, DEAD, FILTERED, None]), max_size=40)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    drawn = draw(fates)
    fate = {offset: f for offset, f in enumerate(drawn) if f is not None}
    cuts = sorted(draw(st.sets(st.integers(0, len(drawn)), max_size=4)) | {len(drawn)})
    made = World(fate=fate, commits=cuts, ahead=list(range(len(drawn), len(drawn) + 3)))
    made.log_start = draw(st.integers(0, len(drawn)))
    return made


@settings(deadline=None, max_examples=200)
@given(worlds())
def test_whatever_became_of_the_records_an_undamaged_world_balances(audited: World) -> None:
    examination = audited.examine()
    assert examination.balanced
    lines = buckets_of(AuditedPartition(examination=examination, acknowledged=None))
    for line in lines.values():
        assert line.balanced
        assert line.logged == (
            line.stored + line.filtered + line.dead + line.in_flight + line.explained
        )
    total = add_buckets(lines.values())
    assert total.logged == len(audited.fate) + 3
    assert total.filtered == sum(f == FILTERED for f in audited.fate.values())


@settings(deadline=None, max_examples=300)
@given(worlds(), st.data())
def test_no_damage_to_rows_goes_unnoticed_and_no_innocent_offset_is_named(
    audited: World, data: st.DataObject
) -> None:
    audited.log_start = 0
    stored = list(audited.rows)
    deleted = data.draw(st.sets(st.sampled_from(stored), max_size=4)) if stored else set()
    left = [o for o in stored if o not in deleted]
    doubled = data.draw(st.lists(st.sampled_from(left), max_size=4)) if left else []
    audited.rows = left + doubled
    findings = audited.findings()
    assert audited.examine().balanced == (not deleted and not doubled)
    assert bool(findings) == bool(deleted or doubled)
    duplicated = {f.offset: f.records for f in findings if f.kind is FindingKind.DUPLICATED}
    assert duplicated == {o: doubled.count(o) for o in doubled}
    missing = {f.offset for f in findings if f.kind is FindingKind.MISSING}
    unsure = [f for f in findings if f.kind is FindingKind.MISSING_EITHER]
    assert missing <= deleted
    assert len(missing) + sum(f.records for f in unsure) == len(deleted)
    assert deleted - missing <= {o for f in unsure for o in f.candidates}
    if audited.position.filtered == Tally():
        assert missing == deleted


def test_the_source_of_a_finding_is_the_partition() -> None:
    audited = world()
    audited.rows.remove(17)
    (finding,) = audited.findings()
    assert (finding.topic, finding.topic_id, finding.partition) == (
        SOURCE.topic,
        SOURCE.topic_id,
        SOURCE.partition,
    )
