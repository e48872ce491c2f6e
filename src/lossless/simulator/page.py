"""A run as one HTML file: a sequence diagram to step through, and every log at each moment.

Nothing is fetched from anywhere. What is in the page reads as a list without its script, which adds
stepping and the logs of the selected moment; it builds them from JSON, as text and never as markup.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template

from lossless.simulator.run import Plan, Result
from lossless.simulator.settings import Settings
from lossless.simulator.trace import Moment, ReplicaView, Trace, start_ms
from lossless.simulator.world import Label, name_of
from lossless.verifier.verdict import Verdict, conclude

Marker = Callable[[str], str]  # from text to markup

WIDTH_MAX = 16  # characters of a value in a log: the rest is cut off
LATE_SHOWN_MAX = 12  # more late messages than these are folded away

_LOOKS = {"✗": "", "✓": "mend", "▸": "asked"}  # of what is done, by its sign

# The columns from left to right, by what names begin with: records flow this way.
_KINDS = {"p": "producer", "broker ": "", "controller ": "", "c": "consumer"}


def page(traced: Trace, title: str) -> str:
    """The whole document. The same trace gives the same bytes."""
    begin_ms = start_ms(traced)
    moments = [moment for moment in traced.moments if moment.at_ms >= begin_ms]
    about = tuple(dict.fromkeys(found.value for found in traced.result.anomalies if found.value))
    mark = _marker(about)
    columns = _columns(moments)
    return Template(_read("page.html")).substitute(
        title=escape(title),
        style=_read("page.css"),
        script=_read("page.js"),
        lanes=max(len(columns), 1),
        widest=min(_widest(moments), WIDTH_MAX),
        verdict=_verdict(traced.result, mark),
        fates="".join(_fate(fate, mark) for fate in traced.fates),
        settings=_settings(traced.settings, traced.result.seed),
        plan=_plan(traced.plan),
        columns="".join(map(_column, columns)),
        moments=_moments(moments, traced.mended_ms, columns, mark),
        last="\n".join(mark(_line(view)) for view in moments[-1].replicas) if moments else "",
        data=_data(moments, about),
    )


def _read(name: str) -> str:
    return files("lossless.simulator").joinpath(name).read_text()


def _marker(about: Sequence[str]) -> Marker:
    """Escapes a text, and marks the records in question wherever it names them."""
    if not about:
        return escape
    longest_first = sorted(about, key=len, reverse=True)
    named = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, longest_first))})(?![\w-])")

    def mark(text: str) -> str:
        parts = enumerate(map(escape, named.split(text)))  # every second one is a name
        return "".join(f"<mark>{part}</mark>" if at % 2 else part for at, part in parts)

    return mark


# The header


def _verdict(result: Result, mark: Marker) -> str:
    verdict = Verdict.INVALID if result.broken else conclude(result.anomalies)
    kinds = ", ".join(result.kinds) or "nothing was found"
    found = [f"<b>{escape(found.kind)}</b>: {mark(found.what)}" for found in result.anomalies]
    found += [f"<b>broken</b>: {mark(broken)}" for broken in result.broken]
    clean = "" if verdict is Verdict.INVALID else " clean"
    return (
        f'<div class="verdict{clean}"><b>{verdict}: {escape(kinds)}</b>'
        f"<ul>{_items(found)}</ul></div>"
    )


def _fate(fate: str, mark: Marker) -> str:
    value, _, story = fate.partition(": ")
    steps = _items(map(mark, story.split("; ")))
    return f'<div class="fate"><b>What became of</b> {mark(value)}: <ol>{steps}</ol></div>'


def _settings(settings: Settings, seed: int) -> str:
    producer = settings.producer
    said = {
        "rules off": ", ".join(settings.rules_off) or "none",
        "acks": "all" if producer.acks == -1 else producer.acks,
        "enable.idempotence": _yes(producer.is_idempotent),
        "min.insync.replicas": settings.min_isr,
        "replication factor": f"{settings.replication_factor}, on {settings.brokers} brokers",
        "unclean leader election": _yes(settings.unclean),
        "on disk before acknowledged": _yes(settings.flush_before_ack),
        "consumers commit": settings.consumer.commit,
        "seed": seed,
    }
    return "".join(f"<dt>{name}</dt><dd>{escape(str(value))}</dd>" for name, value in said.items())


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


def _plan(plan: Plan) -> str:
    actions = [f"{timed.at_ms} ms: {timed.action.told()}" for timed in plan.faults]
    sent = [f"{name_of(who)} sends {count}" for who, count in plan.records if count]
    late = [_late(label, nth, takes_ms) for (label, nth), takes_ms in plan.delays]
    fold = "" if len(late) > LATE_SHOWN_MAX else " open"
    return (
        f"<p>Records: {escape(', '.join(sent) or 'as told below')}</p>"
        f"<p>Faults and other steps: {len(actions) or 'none'}</p>"
        f"<ul>{_items(map(escape, actions))}</ul>"
        f"<details{fold}><summary>Late messages: {len(late) or 'none'}; any other takes 1 ms"
        f"</summary><ul>{_items(map(escape, late))}</ul></details>"
    )


def _late(label: Label, nth: int, takes_ms: int) -> str:
    kind, at = label
    if kind == "flush":
        what = f"flush {nth} of {name_of(at)}"
    elif kind == "answer":
        what = f"answer {nth} to {at.channel} from {name_of(at.target)} to {name_of(at.source)}"
    else:
        what = f"{at.channel} {nth} from {name_of(at.source)} to {name_of(at.target)}"
    return f"{what} takes {takes_ms} ms"


def _items(texts: Iterable[str]) -> str:
    return "".join(f"<li>{text}</li>" for text in texts)


# The diagram


def _columns(moments: Sequence[Moment]) -> list[str]:
    """Everybody who takes part, from left to right."""
    names = {name for moment in moments for name in (moment.source, moment.target) if name}
    names |= {_broker(view) for moment in moments for view in moment.replicas}
    order = list(_KINDS)

    def place(name: str) -> tuple[int, int, str]:
        kind = name.rstrip("0123456789")
        number = int(name[len(kind) :] or 0)
        return order.index(kind) if kind in order else len(order), number, name

    return sorted(names, key=place)


def _broker(view: ReplicaView) -> str:
    return f"broker {view.broker}"


def _column(name: str) -> str:
    kind = _KINDS.get(name.rstrip("0123456789"), "")
    return f"<span>{escape(name)}<small>{kind}</small></span>"


def _moments(
    moments: Sequence[Moment], mended_ms: int, columns: Sequence[str], mark: Marker
) -> str:
    rows = []
    is_mended = False
    for number, moment in enumerate(moments, 1):
        if moment.at_ms > mended_ms and not is_mended:
            is_mended = True
            rows.append('<li class="mended">✓ everything is mended</li>')
        notes = _items(map(mark, moment.notes))
        kinds = ["row", "moment"]
        if moment.action is not None:
            sign = moment.action.sign
            kinds += ["fault", _LOOKS[sign]] if _LOOKS[sign] else ["fault"]
            drawn = f'<p class="told">{sign} {escape(moment.message)}</p>'
        else:
            drawn = _lifelines(moment, columns) + _drawn(moment, columns)
        if "<mark>" in notes:
            kinds.append("about")
        rows.append(
            f'<li class="{" ".join(kinds)}" id="m{number}">'
            f'<a class="time" href="#m{number}">{moment.at_ms} ms</a>'
            f'<div class="lanes">{drawn}</div><ul class="notes">{notes}</ul></li>'
        )
    return "\n".join(rows)


def _lifelines(moment: Moment, columns: Sequence[str]) -> str:
    """Who believes to lead, which may be two at once, and who is down."""
    roles = {(_broker(view), view.role) for view in moment.replicas}
    return "".join(
        f'<i class="{kind}" style="grid-column:{at}"></i>'
        for at, name in enumerate(columns, 1)
        for role, kind in (("leader", "leads"), ("down", "down"))
        if (name, role) in roles
    )


def _drawn(moment: Moment, columns: Sequence[str]) -> str:
    """An arrow, or a dot where something happens within a process."""
    begin = columns.index(moment.source) + 1
    end = begin if moment.target is None else columns.index(moment.target) + 1
    who = moment.source if moment.target is None else f"{moment.source} → {moment.target}"
    text = f'<span class="who">{escape(who)}: </span>'
    text += f'<span class="what">{escape(moment.message)}</span>'
    if begin == end:
        return f'<p class="told dot" style="grid-column:{begin}">{text}</p>'
    left, right = sorted((begin, end))
    kinds = "right" if begin < end else "left"
    kinds += " answer" if moment.message.startswith("answer to ") else ""
    place = f"grid-column:{left}/{right + 1};--span:{right - left + 1}"
    return f'<p class="told arrow {kinds}" style="{place}">{text}</p>'


# The logs


def _widest(moments: Sequence[Moment]) -> int:
    views = (view for moment in moments for view in moment.replicas)
    return max((len(value) for view in views for _, value in view.values), default=0)


def _line(view: ReplicaView) -> str:
    in_sync = f", in sync {', '.join(map(str, view.in_sync))}" if view.in_sync else ""
    where = f"{_broker(view)} {view.partition}"
    return f"{where}: {view.role}, epoch {view.leader_epoch}{in_sync}: {view.drawn()}"


def _data(moments: Sequence[Moment], about: Sequence[str]) -> str:
    """Each view once; a moment names its views by their place. Safe within a script element."""
    views = list(dict.fromkeys(view for moment in moments for view in moment.replicas))
    places = {view: place for place, view in enumerate(views)}
    told = {
        "about": about,
        "views": [{**view._asdict(), "partition": str(view.partition)} for view in views],
        "moments": [
            [places[view] for view in sorted(moment.replicas, key=lambda view: view.partition)]
            for moment in moments
        ],
    }
    text = json.dumps(told, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")
