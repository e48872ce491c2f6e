"""What the two assignors promise."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lossless.core.groups.assignors import ASSIGNORS, Subscriber, assign_range, assign_uniform
from lossless.core.groups.records import Partitions

T1, T2, T3 = 1, 2, 3


def parts(topic: int, *numbers: int) -> Partitions:
    return frozenset((topic, number) for number in numbers)


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[Subscriber], dict[int, int]]:
    """Members that had what they had, and topics that may have changed since."""
    counts = draw(st.dictionaries(st.sampled_from([T1, T2, T3]), st.integers(0, 7)))
    members = draw(st.lists(st.sampled_from("abcdef"), unique=True))
    had = {
        (topic, number): draw(st.sampled_from([*members, None]))
        for topic in (T1, T2, T3)
        for number in range(7)
    }
    return [
        Subscriber(
            member,
            draw(st.frozensets(st.sampled_from([T1, T2, T3]))) & counts.keys(),
            frozenset(part for part, owner in had.items() if owner == member),
        )
        for member in members
    ], counts


@given(groups(), st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_that_somebody_wants_goes_to_one_who_wants_it(
    group: tuple[list[Subscriber], dict[int, int]], assignor: str
) -> None:
    members, counts = group
    assigned = ASSIGNORS[assignor](members, counts)
    assert assigned.keys() == {member.member_id for member in members}
    for member in members:
        assert {topic for topic, _ in assigned[member.member_id]} <= member.topic_ids
    wanted = {topic for member in members for topic in member.topic_ids}
    everything = [part for partitions in assigned.values() for part in partitions]
    assert sorted(everything) == sorted(
        (topic, number) for topic in wanted for number in range(counts[topic])
    )


@given(groups(), st.sampled_from(sorted(ASSIGNORS)))
def test_the_order_of_the_members_does_not_matter(
    group: tuple[list[Subscriber], dict[int, int]], assignor: str
) -> None:
    members, counts = group
    backwards = dict(reversed(counts.items()))
    assert ASSIGNORS[assignor](members[::-1], backwards) == ASSIGNORS[assignor](members, counts)


@given(groups())
def test_uniform_gives_nobody_two_more_than_another_that_would_take_them(
    group: tuple[list[Subscriber], dict[int, int]],
) -> None:
    members, counts = group
    assigned = assign_uniform(members, counts)
    for giver in members:
        topics = {topic for topic, _ in assigned[giver.member_id]}
        for taker in members:
            if topics & taker.topic_ids:
                assert len(assigned[giver.member_id]) - len(assigned[taker.member_id]) <= 1


@given(groups())
def test_uniform_changes_nothing_when_nothing_has_changed(
    group: tuple[list[Subscriber], dict[int, int]],
) -> None:
    members, counts = group
    once = assign_uniform(members, counts)
    again = [member._replace(target=once[member.member_id]) for member in members]
    assert assign_uniform(again, counts) == once


def test_uniform_moves_no_more_than_it_must() -> None:
    everything = frozenset({T1})
    members = [
        Subscriber("a", everything, parts(T1, 0, 1, 2)),
        Subscriber("b", everything, parts(T1, 3, 4, 5)),
        Subscriber("c", everything),
    ]
    assert assign_uniform(members, {T1: 6}) == {
        "a": parts(T1, 0, 1),
        "b": parts(T1, 3, 4),
        "c": parts(T1, 2, 5),
    }


def test_a_partition_that_two_had_stays_with_one() -> None:
    both = [Subscriber(member, frozenset({T1}), parts(T1, 0)) for member in "ab"]
    assert assign_uniform(both, {T1: 1}) == {"a": parts(T1, 0), "b": frozenset()}


def test_range_gives_neighbours_and_the_same_numbers_of_each_topic() -> None:
    members = [Subscriber(member, frozenset({T1, T2})) for member in "ba"]
    assert assign_range(members, {T1: 3, T2: 3}) == {
        "a": parts(T1, 0, 1) | parts(T2, 0, 1),
        "b": parts(T1, 2) | parts(T2, 2),
    }


def test_range_looks_at_each_topic_and_its_subscribers_alone() -> None:
    members = [Subscriber("a", frozenset({T1})), Subscriber("b", frozenset({T1, T2}))]
    assert assign_range(members, {T1: 2, T2: 2}) == {
        "a": parts(T1, 0),
        "b": parts(T1, 1) | parts(T2, 0, 1),
    }


def test_range_puts_static_members_first_in_the_order_of_their_instances() -> None:
    members = [
        Subscriber("a", frozenset({T1})),
        Subscriber("b", frozenset({T1}), instance_id="2"),
        Subscriber("c", frozenset({T1}), instance_id="1"),
    ]
    assert assign_range(members, {T1: 3}) == {
        "c": parts(T1, 0),
        "b": parts(T1, 1),
        "a": parts(T1, 2),
    }
