"""The page of a counterexample: all of it is there, once, and nothing in it comes alive."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest

from lossless.core.messages import TopicPartition
from lossless.simulator.faults import EVERY_BROKER, Action, Timed
from lossless.simulator.page import page
from lossless.simulator.run import Plan, Result
from lossless.simulator.schedule import Kind
from lossless.simulator.settings import UNLIMITED, Settings
from lossless.simulator.trace import Moment, ReplicaView, Trace, start_ms, trace
from lossless.simulator.world import Connection, Label
from lossless.verifier.anomaly import Anomaly
from lossless.verifier.anomaly import Kind as AnomalyKind
from lossless.verifier.history import Acknowledged, History, Sent

PARTITION = TopicPartition("orders", 0)
EVIL = "</script><script>alert('1')</script>&amp;"
VOID = {"meta"}


class Read(HTMLParser):
    """The elements of a page; fails where one is closed that is not open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]][-1] += data

    def of(self, kind: str) -> list[dict[str, str | None]]:
        """What has a class."""
        return [at for _, at in self.elements if kind in (at.get("class") or "").split()]


def view(
    broker: int, values: tuple[str, ...] = (), role: str = "follower", high_watermark: int = 0
) -> ReplicaView:
    in_sync = (1, 2, 3) if role == "leader" else ()
    log = tuple(enumerate(values))
    return ReplicaView(broker, PARTITION, role, 0, log, high_watermark, in_sync)


def lost(value: str = "p1-1") -> Trace:
    """Sent, stored, acknowledged; then the leader dies, and another knows nothing of it."""
    before = (view(1, role="leader"), view(2), view(3))
    stored = (view(1, (value,), "leader", 1), view(2), view(3))
    after = (view(1, (value,), "down", 1), view(2, role="leader"), view(3))
    return Trace(
        settings := Settings().without("truncate_by_epoch"),
        plan := Plan(
            Kind.WALK,
            faults=(
                Timed(230, Action("crash", 1)),
                Timed(250, Action("start", 1)),
                Timed(265, Action("prefer", 1)),
            ),
            delays=(((Label("answer", Connection(2, 1, "Fetch", 1)), 3), 370),),
            records=((201, 1), (202, 0)),
            absent=frozenset({202, 301, 302}),
            end_ms=260,
        ),
        Result(
            settings,
            77,
            plan,
            (),
            History(
                (
                    Sent(201, "p1", PARTITION, value),
                    Acknowledged(205, "p1", PARTITION, value, 0),
                ),
                settled=True,
            ),
            (Anomaly(AnomalyKind.LOST, PARTITION, value, 0, f"{value} is nowhere"),),
            ("StrongIsr: broker 2 has less",),
        ),
        (
            Moment(90, "admin", "controller 1", "CreateTopic", None, ("too early",), before),
            Moment(201, "p1", None, "timer", None, (f"p1 sends {value}",), before),
            Moment(203, "p1", "broker 1", "Produce", None, (f"{value} is at 0",), stored),
            Moment(205, "broker 1", "p1", "answer to Produce", None, ("p1-10 too",), stored),
            Moment(230, "broker 1", None, "broker 1 dies (kill -9)", Action("crash", 1), (), after),
            Moment(250, "broker 1", None, "broker 1 starts", Action("start", 1), (), after),
            Moment(
                265,
                "",
                None,
                "an administrator asks for the preferred leader",
                Action("prefer", 1),
                (),
                after,
            ),
            Moment(270, "controller 1", "c2", "made up", None, ("it ends",), after),
        ),
        260,
        (f"{value}: p1 sends it (201 ms); broker 1 has it (203 ms)",),
    )


def data_of(text: str) -> Any:
    (inside,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    return json.loads(inside)


@pytest.fixture(scope="module")
def real() -> Trace:
    settings = replace(Settings(faults=UNLIMITED, unclean=True), producers=1, consumers=1)
    return trace(settings, 12, None)


def test_every_moment_since_the_clients_started_is_there_once() -> None:
    text = page(lost(), "a title")
    rows = Read(text).of("moment")
    assert [row["id"] for row in rows] == ["m1", "m2", "m3", "m4", "m5", "m6", "m7"]
    assert "too early" not in text
    assert text.count("made up") == text.count("it ends") == 1
    assert len(data_of(text)["moments"]) == 7


def test_every_process_that_takes_part_is_a_column_and_nobody_else() -> None:
    (head,) = re.findall(r'class="row head">.*?</div>', page(lost(), "a title"), re.DOTALL)
    names = re.findall(r"<span>(.*?)<small>(.*?)</small>", head)
    assert names == [
        ("p1", "producer"),
        ("broker 1", ""),
        ("broker 2", ""),
        ("broker 3", ""),
        ("controller 1", ""),
        ("c2", "consumer"),
    ]


def test_an_arrow_goes_from_its_source_to_its_target() -> None:
    read = Read(page(lost(), "a title"))
    there, back, last = read.of("arrow")
    assert (there["class"], there["style"]) == ("told arrow right", "grid-column:1/3;--span:2")
    assert (back["class"], back["style"]) == ("told arrow left answer", "grid-column:1/3;--span:2")
    assert last["style"] == "grid-column:5/7;--span:2"
    (dot,) = read.of("dot")
    assert dot["style"] == "grid-column:1"


def test_faults_and_what_undoes_them_look_different_and_the_mending_is_told_once() -> None:
    text = page(lost(), "a title")
    faults = Read(text).of("fault")
    assert [fault["class"] for fault in faults] == [
        "row moment fault",
        "row moment fault mend",
        "row moment fault asked",
    ]
    assert text.count("everything is mended") == 1
    assert text.index("broker 1 starts</p>") < text.index("everything is mended")
    assert text.index("everything is mended") < text.index("made up")


def test_the_header_names_anomalies_settings_and_the_plan() -> None:
    header = page(lost(), "a title").split("</header>")[0]
    said = unescape(re.sub(r"<[^>]+>", "", header))
    assert "INVALID: lost, StrongIsr" in said
    assert "p1-1 is nowhere" in said
    assert "What became of p1-1: p1 sends it (201 ms)broker 1 has it (203 ms)" in said
    for setting in ("rules offtruncate_by_epoch", "acksall", "min.insync.replicas2", "seed77"):
        assert setting in said
    assert "Records: p1 sends 1" in said
    assert "p2" not in said
    assert "230 ms: broker 1 dies (kill -9)" in said
    assert "answer 3 to Fetch from broker 1 to broker 2 takes 370 ms" in said


def test_the_record_in_question_is_marked_and_no_other() -> None:
    text = page(lost(), "a title")
    assert '<ul class="notes"><li>p1 sends <mark>p1-1</mark></li></ul>' in text
    assert "<li>p1-10 too</li>" in text
    assert [row["id"] for row in Read(text).of("moment") if "about" in str(row["class"])] == [
        "m1",
        "m2",
    ]
    assert data_of(text)["about"] == ["p1-1"]


def test_the_logs_of_every_moment_are_in_the_data_each_view_once() -> None:
    told = data_of(page(lost(), "a title"))
    assert len(told["views"]) == 6
    leader = told["views"][told["moments"][2][0]]
    assert leader == {
        "broker": 1,
        "partition": "orders-0",
        "role": "leader",
        "leader_epoch": 0,
        "values": [[0, "p1-1"]],
        "high_watermark": 1,
        "in_sync": [1, 2, 3],
    }


def test_who_leads_and_who_is_down_shows_on_the_lifelines() -> None:
    read = Read(page(lost(), "a title"))
    assert [line["style"] for line in read.of("leads")] == [
        "grid-column:2",
        "grid-column:2",
        "grid-column:2",
        "grid-column:3",
    ]
    assert [line["style"] for line in read.of("down")] == ["grid-column:2"]


def test_without_its_script_the_page_still_has_the_logs_at_the_end() -> None:
    (last,) = re.findall(r"<pre>(.*?)</pre>", page(lost(), "a title"), re.DOTALL)
    assert last.splitlines() == [
        "broker 1 orders-0: down, epoch 0: <mark>p1-1</mark> │",
        "broker 2 orders-0: leader, epoch 0, in sync 1, 2, 3: │",
        "broker 3 orders-0: follower, epoch 0: │",
    ]


def test_no_value_and_no_title_comes_alive() -> None:
    plain, evil = Read(page(lost(), "a title")), page(lost(EVIL), EVIL)
    read = Read(evil)
    assert Counter(tag for tag, _ in read.elements) == Counter(tag for tag, _ in plain.elements)
    assert EVIL not in evil
    assert "alert('1')" not in evil.split('id="data"')[0]
    assert data_of(evil)["about"] == [EVIL]
    assert read.texts["title"] == [EVIL]
    assert EVIL in read.texts["mark"]


@pytest.mark.parametrize("value", ["$title", "${data}", "<!--", "\u2028", "a; b: c", "\\", ""])
def test_any_value_is_kept_as_it_is(value: str) -> None:
    text = page(lost(value), value)
    Read(text)
    assert value in [pair[1] for one in data_of(text)["views"] for pair in one["values"]]


def test_the_same_trace_is_the_same_page(real: Trace) -> None:
    assert page(lost(), "a title") == page(lost(), "a title")
    again = trace(real.settings, real.result.seed, None)
    assert page(real, "a title") == page(again, "a title")


def test_nothing_is_fetched_from_elsewhere(real: Trace) -> None:
    for text in (page(lost(), "a title"), page(real, "a title")):
        assert not re.search(r"https?:|//[a-z]|url\(|@import|\bsrc\s*=", text, re.IGNORECASE)
        for tag, attributes in Read(text).elements:
            assert tag not in {"link", "img", "iframe", "object"}
            assert "src" not in attributes
            assert (attributes.get("href") or "#").startswith("#")


def test_every_row_can_be_reached_and_linked_to(real: Trace) -> None:
    read = Read(page(real, "a title"))
    links = [at["href"] for tag, at in read.elements if tag == "a"]
    assert links == [f"#{row['id']}" for row in read.of("moment")]
    assert any(at.get("aria-live") == "polite" for _, at in read.elements)


def test_a_real_run_has_all_that_its_text_has(real: Trace) -> None:
    text = page(real, "a title")
    said = unescape(re.sub(r"</?mark>", "", text))
    shown = [moment for moment in real.moments if moment.at_ms >= start_ms(real)]
    assert 0 < len(Read(text).of("moment")) == len(shown) < len(real.moments)
    for moment in shown:
        assert moment.message in said
        for note in moment.notes:
            assert f"<li>{note}</li>" in said


def test_a_run_in_which_nothing_happened_is_a_page_too() -> None:
    traced = lost()
    nothing = traced._replace(
        moments=(),
        fates=(),
        plan=Plan(Kind.CALM, faults=(Timed(300, Action("lose power", EVERY_BROKER)),)),
        result=traced.result._replace(anomalies=(), broken=(), history=History((), settled=True)),
    )
    text = page(nothing, "a title")
    assert Read(text).of("moment") == []
    assert "UNREFUTED: nothing was found" in text
    assert "300 ms: every broker loses power" in text
