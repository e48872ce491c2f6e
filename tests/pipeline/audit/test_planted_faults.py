"""The audit's mutation suite: every planted fault is named, and no sound history raises an alarm.

Each case is a small pipeline on paper (audited_world.py) with one thing done to it. Offsets 0 to 39
are settled in three commits (at 10, 20 and 40), 40 to 44 are in flight; every tenth offset from 9
on is a transaction marker, every tenth from 4 on a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from audited_world import DEAD, FILTERED, STORED, World, bucket_of, timestamp_ms

from lossless.pipeline.audit.model import FindingKind as Kind
from lossless.pipeline.ledger import AcceptedLoss, Position

Named = tuple[Kind, int | None]
LEDGER: Named = (Kind.LEDGER, None)


def plain(*, filtering: bool = False, **more: object) -> World:
    fate = {}
    for offset in range(40):
        if offset % 10 == 9:
            continue
        fate[offset] = DEAD if offset % 10 == 4 else STORED
        if filtering and offset % 3 == 0:
            fate[offset] = FILTERED
    return World(fate=fate, commits=[10, 20, 40], ahead=list(range(40, 45)), **more)  # type: ignore[arg-type]


def filtering() -> World:
    return plain(filtering=True)


def filtering_early() -> World:
    """Nothing is filtered after offset 9."""
    made = plain()
    return World(fate={**made.fate, 3: FILTERED, 6: FILTERED}, commits=[10, 20, 40], ahead=[40])


def expanding() -> World:
    return plain(rows_each=3)


def compacted() -> World:
    made = plain(compacted=True)
    made.gone_from_log = {3, 17}
    return made


def compacted_filtering() -> World:
    made = plain(filtering=True, compacted=True)
    made.gone_from_log = {3, 12, 17}
    return made


def purged() -> World:
    return plain(log_start=15)


def purged_filtering() -> World:
    return plain(filtering=True, log_start=15)


def acknowledged() -> World:
    made = plain()
    made.acknowledged = [*made.fate, *made.ahead]
    return made


def given_up() -> World:
    """Offsets 9 and 19 were acknowledged, deleted unread, and accepted as lost."""
    made = acknowledged()
    losses = (AcceptedLoss(9, 10), AcceptedLoss(19, 20))
    made.position = replace(made.position, accepted_losses=losses)
    made.acknowledged = [*made.fate, *made.ahead, 9, 19]
    return made


def never_read() -> World:
    """A partition that appeared when there was a ledger already."""
    made = World(fate={}, commits=[0], ahead=list(range(7)))
    made.position = Position(start_offset=0, next_offset=0)
    return made


def late_start() -> World:
    return World(
        fate=dict.fromkeys(range(20, 40), STORED), commits=[30, 40], ahead=[40], start_offset=20
    )


def drop(*offsets: int) -> Callable[[World], None]:
    def act(world: World) -> None:
        for offset in offsets:
            world.rows.remove(offset)

    return act


def drop_all(*offsets: int) -> Callable[[World], None]:
    def act(world: World) -> None:
        world.rows = [o for o in world.rows if o not in offsets]

    return act


def add(*offsets: int) -> Callable[[World], None]:
    return lambda world: world.rows.extend(offsets)


def drop_letter(*offsets: int) -> Callable[[World], None]:
    def act(world: World) -> None:
        for offset in offsets:
            world.letters.remove(offset)

    return act


def add_letter(*offsets: int) -> Callable[[World], None]:
    return lambda world: world.letters.extend(offsets)


def move(old: int, new: int) -> Callable[[World], None]:
    def act(world: World) -> None:
        world.rows[world.rows.index(old)] = new

    return act


def at_time_of(*moves: tuple[int, int]) -> Callable[[World], None]:
    """Rows that carry the bucket of another offset's timestamp."""
    return lambda world: world.moved.update((row, bucket_of(other)) for row, other in moves)


def replaced(offset: int, *, by_ms: int) -> Callable[[World], None]:
    """Another record stands in the log at this offset, with a timestamp so much later."""
    return lambda world: world.relogged.update({offset: timestamp_ms(offset) + by_ms})


def shift(by: int) -> Callable[[World], None]:
    return lambda world: world.shift(by)


def acknowledge(*offsets: int) -> Callable[[World], None]:
    def act(world: World) -> None:
        assert world.acknowledged is not None
        world.acknowledged.extend(offsets)

    return act


def forget(*offsets: int) -> Callable[[World], None]:
    def act(world: World) -> None:
        assert world.acknowledged is not None
        world.acknowledged = [o for o in world.acknowledged if o not in offsets]

    return act


def set_(**values: object) -> Callable[[World], None]:
    def act(world: World) -> None:
        for name, value in values.items():
            setattr(world, name, value)

    return act


def position(**values: object) -> Callable[[World], None]:
    def act(world: World) -> None:
        world.position = replace(world.position, **values)  # type: ignore[arg-type]

    return act


def all_of(*acts: Callable[[World], None]) -> Callable[[World], None]:
    def act(world: World) -> None:
        for one in acts:
            one(world)

    return act


def missing(*offsets: int) -> list[Named]:
    return [(Kind.MISSING, offset) for offset in offsets]


def doubled(*offsets: int) -> list[Named]:
    return [(Kind.DUPLICATED, offset) for offset in offsets]


def lost(*offsets: int) -> list[Named]:
    return [(Kind.LOST, offset) for offset in offsets]


STORED_OFFSETS = [o for o in range(40) if o % 10 not in (4, 9)]
COMMIT_OF_10_TO_19 = [o for o in STORED_OFFSETS if 10 <= o < 20]


@dataclass(frozen=True)
class Fault:
    name: str
    world: Callable[[], World]
    plant: Callable[[World], None]
    named: list[Named]


FAULTS = [
    # Lost
    Fault("a row is lost", plain, drop(17), missing(17)),
    Fault("a row is lost among filtered records", filtering, drop(17), missing(17)),
    Fault("the first row is lost", plain, drop(0), missing(0)),
    Fault("the last row is lost", plain, drop(38), missing(38)),
    Fault("two rows are lost", plain, drop(3, 31), missing(3, 31)),
    Fault(
        "two rows of one commit are lost among filtered records",
        filtering,
        drop(22, 35),
        missing(22, 35),
    ),
    Fault(
        "a whole commit is lost",
        plain,
        drop(*COMMIT_OF_10_TO_19),
        missing(*COMMIT_OF_10_TO_19),
    ),
    Fault("every row is lost", plain, drop(*STORED_OFFSETS), missing(*STORED_OFFSETS)),
    Fault("a dead letter is lost", plain, drop_letter(14), [(Kind.LETTER_MISSING, 14)]),
    Fault(
        "a row and a dead letter are lost",
        filtering,
        all_of(drop(17), drop_letter(14)),
        [(Kind.LETTER_MISSING, 14), *missing(17)],
    ),
    # Doubled
    Fault("a row is doubled", plain, add(17), doubled(17)),
    Fault("a row is doubled among filtered records", filtering, add(17), doubled(17)),
    Fault("a row is tripled", plain, add(17, 17), doubled(17)),
    Fault(
        "a whole commit is doubled", plain, add(*COMMIT_OF_10_TO_19), doubled(*COMMIT_OF_10_TO_19)
    ),
    Fault("a dead letter is doubled", plain, add_letter(14), [(Kind.LETTER_DUPLICATED, 14)]),
    Fault("a row is also a dead letter", plain, add_letter(17), [(Kind.STORED_AND_DEAD, 17)]),
    # Cancelling in pairs
    Fault(
        "one row lost and its neighbour doubled",
        plain,
        all_of(drop(17), add(16)),
        [*doubled(16), *missing(17)],
    ),
    Fault(
        "one row lost and one doubled in another bucket",
        filtering,
        all_of(drop(17), add(31)),
        [*doubled(31), *missing(17)],
    ),
    Fault(
        "two rows lost and two doubled",
        plain,
        all_of(drop(17, 22), add(16, 23)),
        [*doubled(16, 23), *missing(17, 22)],
    ),
    Fault(
        "one dead letter lost and another doubled",
        plain,
        all_of(drop_letter(14), add_letter(24)),
        [(Kind.LETTER_DUPLICATED, 24), (Kind.LETTER_MISSING, 14)],
    ),
    Fault(
        "as many acknowledged records lost as unreported",
        acknowledged,
        all_of(forget(22), acknowledge(29)),
        [(Kind.LOST, 20)],  # one of the offsets from 20 to 29
    ),
    # Altered
    Fault(
        "a row moved to the offset of a marker",
        plain,
        move(17, 19),
        [(Kind.NOT_IN_LOG, 19), *missing(17)],
    ),
    Fault("a row moved to another row's offset", plain, move(17, 16), [*doubled(16), *missing(17)]),
    Fault(
        "a row moved to a filtered offset",
        filtering,
        move(17, 18),
        [*missing(17), (Kind.NOT_FILTERED, 18)],
    ),
    Fault("a filtered record stored", filtering, add(18), [(Kind.NOT_FILTERED, 18)]),
    Fault("a row in another bucket", plain, at_time_of((17, 25)), [(Kind.OTHER_TIMESTAMP, 17)]),
    Fault(
        "another record of the same second",
        plain,
        lambda world: world.moved.update({17: timestamp_ms(17) + 1}),
        [(Kind.OTHER_TIMESTAMP, 17)],
    ),
    Fault(
        "other records at the offsets of a log that has regrown, without a leader epoch",
        plain,
        lambda world: world.moved.update({o: timestamp_ms(o) + 1 for o in (35, 36, 37)}),
        [(Kind.OTHER_TIMESTAMP, offset) for offset in (35, 36, 37)],
    ),
    Fault(
        "a record replaced in the log, at the same offset and leader epoch",
        plain,
        replaced(17, by_ms=1),
        [(Kind.OTHER_TIMESTAMP, 17)],
    ),
    Fault(
        "a record that became a dead letter replaced in the log",
        plain,
        replaced(14, by_ms=1),
        [(Kind.OTHER_TIMESTAMP, 14)],
    ),
    Fault(
        "a record replaced in a bucket without filtered records",
        filtering_early,
        replaced(17, by_ms=1),
        [(Kind.OTHER_TIMESTAMP, 17)],
    ),
    Fault(
        "a record replaced in the log of a topic that compacts",
        lambda: plain(compacted=True),
        replaced(17, by_ms=1),
        [(Kind.OTHER_TIMESTAMP, 17)],
    ),
    Fault(
        "a record replaced beside one that was compacted away",
        compacted,
        replaced(18, by_ms=1),
        [(Kind.OTHER_TIMESTAMP, 18)],
    ),
    Fault(
        "a record of which a transform made several rows replaced in the log",
        expanding,
        replaced(17, by_ms=1),
        [(Kind.OTHER_TIMESTAMP, 17)],
    ),
    Fault(
        "an acknowledged record replaced in the log by one of another minute",
        acknowledged,
        replaced(17, by_ms=60_000),
        [(Kind.LOST, 17), (Kind.OTHER_TIMESTAMP, 17)],
    ),
    Fault(
        "two rows in each other's bucket",
        plain,
        at_time_of((17, 25), (25, 17)),
        [(Kind.OTHER_TIMESTAMP, 17), (Kind.OTHER_TIMESTAMP, 25)],
    ),
    # Shifted
    Fault("the ledger one ahead", plain, shift(1), [LEDGER, *missing(40)]),
    Fault("the ledger three ahead", filtering, shift(3), [LEDGER, *missing(40, 41, 42)]),
    Fault("the ledger beyond the log", plain, shift(8), [LEDGER, LEDGER, *missing(*range(40, 45))]),
    Fault(
        "the ledger three behind",
        plain,
        shift(-3),
        [LEDGER, (Kind.BEYOND_LEDGER, 37), (Kind.BEYOND_LEDGER, 38)],
    ),
    Fault("a row beyond the ledger", plain, add(41), [(Kind.BEYOND_LEDGER, 41)]),
    Fault("a row from before the start", late_start, add(3), [(Kind.BEFORE_START, 3)]),
    Fault(
        "a ledger whose counts are of other records",
        plain,
        lambda world: position(dead=world.position.dead + world.position.dead)(world),
        [LEDGER],
    ),
    # Swapped between partitions: each of the two partitions shows its half.
    Fault("a row that went to another partition", plain, drop(23), missing(23)),
    Fault("a row that came from another partition", plain, add(29), [(Kind.NOT_IN_LOG, 29)]),
    # Regrown
    Fault(
        "a log cut back below the ledger and grown again",
        plain,
        set_(cut_back_to=35),
        [LEDGER, (Kind.REPLACED, 35)],
    ),
    Fault("a log cut back and still short", plain, all_of(set_(ahead=[]), shift(2)), [LEDGER]),
    # Hidden by retention
    Fault("records deleted unread", plain, set_(log_start=43), [(Kind.DELETED_UNREAD, 40)]),
    Fault(
        "records of a new partition deleted unread",
        never_read,
        set_(log_start=3),
        [(Kind.DELETED_UNREAD, 0)],
    ),
    Fault(
        "records deleted that a live pipeline had not read either",
        lambda: plain(moved_on_to=42),
        set_(log_start=44),
        [(Kind.DELETED_UNREAD, 42)],
    ),
    Fault("a row lost below the log start", purged, drop(7), [LEDGER, *missing(7)]),
    Fault("a row doubled below the log start", purged, add(7), [LEDGER, *doubled(7)]),
    Fault(
        "a row lost below the log start among filtered records",
        purged_filtering,
        drop(7),
        missing(7),
    ),
    # Hidden by compaction
    Fault("a row lost from a compacted topic", compacted, drop(22), missing(22)),
    Fault(
        "a record never read beside one that was compacted away",
        compacted,
        lambda world: world.fate.update({29: STORED}),
        missing(29),
    ),
    Fault(
        "two records never read and two compacted away",
        compacted,
        lambda world: world.fate.update({29: STORED, 9: STORED}),
        [LEDGER, *missing(9, 29)],
    ),
    # Rows of a transform that makes several of one record
    Fault("a record lost with all its rows", expanding, drop_all(17), missing(17)),
    Fault("a row too few of a record", expanding, drop(17), [(Kind.ROWS_MISSING, 17)]),
    Fault("a row too many of a record", expanding, add(17), [(Kind.ROWS_DUPLICATED, 17)]),
    Fault(
        "a row too few of one record and a row too many of another",
        expanding,
        all_of(drop(17), add(22)),
        [(Kind.ROWS_MISSING, 17), (Kind.ROWS_DUPLICATED, 22)],
    ),
    Fault(
        "two rows too few of one record and two too many of others",
        expanding,
        all_of(drop(17, 17), add(22, 23)),
        [LEDGER],
    ),
    # Lost before the log
    Fault("acknowledged, not in the log", acknowledged, acknowledge(29), lost(29)),
    Fault("a run of acknowledged records", acknowledged, acknowledge(45, 46, 47), lost(45, 46, 47)),
    Fault("two records acknowledged at one offset", acknowledged, acknowledge(22), lost(22)),
    Fault(
        "a loss in March, beside one that was accepted in January",
        given_up,
        acknowledge(29, 39),
        lost(29, 39),
    ),
    Fault(
        "a record lost in place of one that was accepted",
        given_up,
        all_of(forget(19), acknowledge(12)),
        lost(12),
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_named(fault: Fault) -> None:
    world = fault.world()
    fault.plant(world)
    findings = [*world.findings(), *world.findings_about_acknowledged()]
    assert sorted((f.kind, f.offset or 0) for f in findings) == sorted(
        (kind, offset or 0) for kind, offset in fault.named
    )


def test_there_are_at_least_forty_faults() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 40


@dataclass(frozen=True)
class Sound:
    name: str
    world: Callable[[], World]
    happened: Callable[[World], None] = lambda _: None


SOUND = [
    Sound("rows and dead letters", plain),
    Sound("some records filtered", filtering),
    Sound(
        "every record filtered", lambda: World(fate=dict.fromkeys(range(9), FILTERED), commits=[9])
    ),
    Sound("every record dead", lambda: World(fate=dict.fromkeys(range(9), DEAD), commits=[5, 9])),
    Sound("nothing sent yet", lambda: World(fate={}, commits=[0])),
    Sound("nothing but transaction markers", lambda: World(fate={}, commits=[5], log_end=5)),
    Sound("a partition that is not read yet", never_read),
    Sound("a pipeline that started late", late_start),
    Sound("retention behind the pipeline", purged),
    Sound("retention behind the pipeline, some filtered", purged_filtering),
    Sound("retention up to the ledger", plain, set_(log_start=40)),
    Sound("retention took everything that was filtered", filtering, set_(log_start=40)),
    Sound(
        "retention behind a pipeline that read on during the audit",
        lambda: plain(moved_on_to=44),
        all_of(add(40, 41, 42, 43), set_(log_start=43)),
    ),
    Sound("a live pipeline committed during the scan", lambda: plain(moved_on_to=42), add(40, 41)),
    Sound("compaction after the records were read", compacted),
    Sound("compaction of filtered records", compacted_filtering),
    Sound("compaction and retention", compacted, set_(log_start=12)),
    Sound("compaction of everything that was read", compacted, set_(gone_from_log=set(range(40)))),
    Sound("three rows of each record", expanding),
    Sound("three rows of each record, below the log start", expanding, set_(log_start=25)),
    Sound("everything acknowledged", acknowledged),
    Sound("half of it acknowledged", acknowledged, forget(*range(20))),
    Sound("acknowledged and filtered, below the log start", filtering, set_(log_start=25)),
    Sound("a loss that was accepted", given_up),
    Sound("a loss that was accepted and held fewer records than offsets", given_up, forget(9)),
    Sound("a new leader that kept every record", plain, position(leader_epoch=2)),
    Sound("a topic that was deselected", plain, position(closed=True)),
    Sound(
        "a topic that was deleted, and that was accepted",
        lambda: plain(gone=True, log_start=40),
        position(closed=True),
    ),
]


@pytest.mark.parametrize("sound", SOUND, ids=lambda sound: sound.name)
def test_a_sound_history_raises_no_alarm(sound: Sound) -> None:
    world = sound.world()
    sound.happened(world)
    assert world.findings() == []
    assert world.findings_about_acknowledged() == []
    assert world.undecided() == []
    assert world.examine().balanced


def test_there_are_at_least_twenty_sound_histories() -> None:
    assert len({sound.name for sound in SOUND}) == len(SOUND) >= 20


def test_losses_whose_offsets_an_earlier_release_did_not_keep_forbid_a_verdict() -> None:
    world = acknowledged()
    acknowledge(29)(world)
    position(unplaced_losses=5)(world)
    assert world.findings_about_acknowledged() == []
    (why,) = world.undecided()
    assert "accepted the loss of 5 offsets without keeping which" in why
