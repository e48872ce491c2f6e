"""A run as one HTML file: a sequence diagram to step through, and every log at each moment.

Nothing is fetched from anywhere. What is in the page reads as a list without its script, which adds
stepping and the logs of the selected moment; it builds them from JSON, as text and never as markup.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from string import Template

from lossless.simulator.run import Plan, Result
from lossless.simulator.settings import Settings
from lossless.simulator.trace import Moment, ReplicaView, Trace, start_ms
from lossless.simulator.world import Label, build
from lossless.verifier.verdict import Verdict, conclude

Marker = Callable[[str], str]  # from text to markup

WIDTH_MAX = 16  # characters of a value in a log: the rest is cut off
LATE_SHOWN_MAX = 12  # more late messages than these are folded away

# Not every step of a plan breaks something: some undo others, some are what people ask for.
_MILD = {
    **dict.fromkeys(("start", "resume", "heal"), "mend"),
    **dict.fromkeys(("send", "prefer", "delete"), "asked"),
}
_SIGNS = {"mend": "✓", "asked": "▸"}

# The columns from left to right, by what names begin with: records flow this way.
_KINDS = {"p": "producer", "broker ": "", "controller ": "", "c": "consumer"}

_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>$style</style></head>
<body style="--lanes:$lanes;--widest:$widest">
<header>
<h1>$title</h1>
$verdict
$fates
<div class="facts">
<section><h2>Settings</h2><dl>$settings</dl></section>
<section><h2>The plan</h2>$plan</section>
</div>
<p class="help">Thick line: believes it leads. Broken line: is down. Dashed arrow: an answer.
Step with ← and → (or k and j, Home and End), or choose a row.</p>
</header>
<main>
<div class="row head"><span class="time">Time</span><div class="lanes">$columns</div>
<span class="notes">What is different after it</span></div>
<ol class="moments">
$moments
</ol>
</main>
<aside aria-label="Logs at the selected moment">
<div class="controls" hidden>
<button data-to="first" title="Home">⇤ First</button>
<button data-to="back" title="← or k">← Back</button>
<button data-to="next" title="→ or j">Next →</button>
<button data-to="last" title="End">Last ⇥</button>
<span class="legend"><span class="cell committed">committed</span>
<span class="cell">not yet</span> <span class="cell gone">just lost</span>
<span class="cell about">in question</span>
&ensp;<span class="mark"></span> high watermark</span>
</div>
<p id="now" aria-live="polite">At the end</p>
<div id="logs"><pre>$last</pre></div>
</aside>
<script type="application/json" id="data">$data</script>
<script>$script</script>
</body></html>
""")

_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2024; --dim: #60686f; --line: #b9c0c7;
  --soft: #f1f3f5; --chosen: #dceafd; --accent: #0b5cad; --bad: #b3261e; --bad-soft: #fbe3e1;
  --good: #1b6e3c; --good-soft: #dff3e6; --about: #ffd75e; --about-ink: #3d2f00; }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #15181b; --ink: #e6e9ec; --dim: #9aa3ab; --line: #4a525a; --soft: #22272c;
    --chosen: #1d3a5c; --accent: #7db7f5; --bad: #ff8f85; --bad-soft: #4a1f1c; --good: #7ad39b;
    --good-soft: #17391f; --about: #e0b53a; --about-ink: #1f1800; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: .94rem/1.4 system-ui, sans-serif; min-width: calc(var(--lanes) * 6.5rem + 21.5rem); }
ol, ul, dl, dd, p, h1, h2, pre { margin: 0; padding: 0; }
ol, ul { list-style: none; }
h1 { font-size: 1.4rem; }
h2 { font-size: .95rem; margin-bottom: .3rem; }
mark { background: var(--about); color: var(--about-ink); border-radius: 3px; padding: 0 .2em;
  display: inline-block; max-width: 100%; }
header { padding: 1rem 1.2rem; max-width: 80rem; }
.verdict { margin: .5rem 0; padding: .5rem .8rem; border-left: 5px solid var(--bad);
  background: var(--bad-soft); }
.verdict.clean { border-color: var(--good); background: var(--good-soft); }
.fate { margin: .5rem 0; }
.fate ol, .fate li { display: inline; }
.fate li + li::before { content: " → "; color: var(--dim); }
.facts { display: flex; flex-wrap: wrap; gap: 1rem 3rem; margin: .8rem 0; }
.facts ul { padding-left: 1rem; list-style: disc; }
dl { display: grid; grid-template-columns: repeat(2, auto auto); gap: .1rem 1rem; }
dt, .fate b, summary, .help { color: var(--dim); font-weight: normal; }
dd { font-weight: 600; }

.row { display: grid; align-items: center; border-bottom: 1px solid var(--soft);
  grid-template-columns: 5.5rem minmax(calc(var(--lanes) * 6.5rem), 3fr) minmax(16rem, 2fr); }
.head { position: sticky; top: 0; z-index: 2; background: var(--paper); font-weight: 600;
  border-bottom: 2px solid var(--line); padding: .3rem 0; }
.head .lanes { background: none; padding: 0; text-align: center; }
.head small { display: block; color: var(--dim); font-weight: normal; }
.time { text-align: right; padding-right: .8rem; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.notes { font-size: .9rem; padding: .3rem .8rem .3rem .4rem; overflow-wrap: anywhere; }
.lanes { display: grid; grid-template-columns: repeat(var(--lanes), 1fr); align-items: center;
  align-self: stretch; padding: .35rem 0; background: linear-gradient(to right,
  transparent calc(50% - .5px), var(--line) 0 calc(50% + .5px), transparent 0)
  0 0 / calc(100% / var(--lanes)) 100%; }
.lanes > * { grid-row: 1; }
.lanes i { justify-self: center; align-self: stretch; margin: -.35rem 0; width: 7px; }
.leads { background: var(--accent); opacity: .45; }
.down { background: repeating-linear-gradient(var(--bad) 0 4px, var(--paper) 4px 8px); }
.lanes .who { position: absolute; width: 1px; overflow: hidden; clip-path: inset(50%); }
.lanes .what { background: var(--paper); border-radius: 3px; padding: 0 .2em; }
.arrow, .dot { position: relative; font-size: .8rem; line-height: 1.25; text-align: center; }
.arrow { margin-inline: calc(50% / var(--span)); padding: 0 .4rem .15rem;
  border-bottom: 2px solid var(--accent); color: var(--accent); }
.arrow.answer { border-bottom-style: dashed; }
.arrow::after { content: ""; position: absolute; bottom: -6px; border: 5px solid transparent; }
.arrow.right::after { right: 0; border-left: 8px solid var(--accent); border-right: 0; }
.arrow.left::after { left: 0; border-right: 8px solid var(--accent); border-left: 0; }
.dot::before { content: ""; display: block; width: .7rem; height: .7rem; margin: 0 auto .1rem;
  border-radius: 50%; background: var(--dim); }
.moments { padding-bottom: 2rem; }
.moment { cursor: pointer; scroll-margin: 4rem 0 19rem; }
.moment:hover { background: var(--soft); }
.moment.about { box-shadow: inset 5px 0 var(--about); }
.moment a { color: inherit; text-decoration: none; outline: none; }
.moment:focus-within { outline: 2px solid var(--accent); outline-offset: -2px; }
.fault, .mended { background: var(--bad-soft); color: var(--bad); font-weight: 600;
  border-block: 2px solid var(--bad); }
.mend, .mended { background: var(--good-soft); color: var(--good); border-color: var(--good); }
.asked { background: var(--soft); color: var(--ink); border-color: var(--line); }
.mended { padding: .4rem; text-align: center; }
.fault .lanes { background: none; }
.fault .told { grid-column: 1 / -1; padding-left: .5rem; }
.moment:target, .moment[aria-current] { background: var(--chosen); }

aside { position: sticky; bottom: 0; left: 0; z-index: 3; max-width: 100vw; max-height: 45vh;
  overflow: auto; padding: .5rem 1.2rem .7rem; background: var(--soft);
  border-top: 2px solid var(--line); }
.controls { display: flex; flex-wrap: wrap; gap: .4rem; align-items: center; }
.controls[hidden] { display: none; }
button { font: inherit; padding: .15rem .7rem; border: 1px solid var(--line); border-radius: 5px;
  background: var(--paper); color: var(--ink); cursor: pointer; }
.legend { margin-left: auto; font-size: .8rem; }
#now { margin: .4rem 0; min-height: 2.8em; }
.replica { display: flex; align-items: center; padding: .15rem 0 .15rem .5rem; }
.replica .name { flex: 0 0 21rem; line-height: 1.2; }
.replica small { display: block; color: var(--dim); }
.replica.changed { box-shadow: inset 4px 0 var(--accent); }
.replica.leader b { color: var(--accent); }
.replica.is-down { opacity: .65; }
.log { display: flex; }
.cell { display: inline-block; border: 1px dashed var(--dim); border-radius: 3px;
  padding: 0 .35rem; margin-right: 5px; background: var(--paper); white-space: nowrap; }
.log .cell { flex: none; width: calc(var(--widest) * 1ch + 4rem); overflow: hidden;
  text-overflow: ellipsis; }
.log .cell::before { content: attr(data-offset) " "; font-size: .7rem; color: var(--dim); }
.cell.committed { border: 1px solid var(--good); background: var(--good-soft); }
.cell.about { outline: 2px solid var(--about); font-weight: 700; }
.cell.about::after { content: " ★"; }
.cell.gone { text-decoration: line-through; color: var(--bad); border-color: var(--bad); }
.is-down .cell, .is-down .mark { background: var(--line); border-color: var(--dim); }
.cell.void { visibility: hidden; }
.mark { display: inline-block; width: 5px; min-height: 1.5rem; margin: 0 0 0 -5px;
  position: relative; background: var(--accent); vertical-align: middle; }

@media print {
  :root { font-size: 11px; }
  body { min-width: 0; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .head, aside { position: static; max-height: none; }
  .row, .replica { break-inside: avoid; }
  .row { grid-template-columns: 5.5rem 3fr 2fr; }
  button, .help { display: none; } }
"""

_SCRIPT = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const rows = Array.from(document.querySelectorAll(".moment"));
const about = new Set(data.about);
let now = 0;

function make(tag, kind, ...inside) {
  const made = document.createElement(tag);
  made.className = kind;
  made.append(...inside);
  return made;
}

function cell(view, offset, has, had) {
  const isGone = has === undefined && had !== undefined;
  const value = isGone ? had : has;
  const kinds = ["cell"];
  if (value === undefined) kinds.push("void");
  if (isGone) kinds.push("gone");
  else if (offset < view.high_watermark) kinds.push("committed");
  if (about.has(value)) kinds.push("about");
  const made = make("li", kinds.join(" "), value === undefined ? "" : value);
  made.dataset.offset = offset;
  made.title = "offset " + offset + ": " + kinds.slice(1).join(", ");
  return made;
}

function replica(view, before, offsets) {
  const has = new Map(view.values);
  const had = new Map(before.values);
  const cells = offsets.map((offset) => cell(view, offset, has.get(offset), had.get(offset)));
  const below = offsets.filter((offset) => offset < view.high_watermark).length;
  cells.splice(below, 0, make("li", "mark"));
  const facts = [has.size ? "" : "empty", "high watermark " + view.high_watermark,
    view.in_sync.length ? "in sync " + view.in_sync.join(", ") : "",
    view.role === "down" ? "as last seen" : ""].filter(Boolean).join(" · ");
  const role = " " + view.partition + " · " + view.role + " in epoch " + view.leader_epoch;
  const name = [make("b", "", "broker " + view.broker), role, make("small", "", facts)];
  const kinds = ["replica", view.role === "down" ? "is-down" : view.role];
  if (view !== before) kinds.push("changed");
  return make("div", kinds.join(" "), make("span", "name", ...name), make("ol", "log", ...cells));
}

function logs(at) {
  const views = data.moments[at].map((view) => data.views[view]);
  const earlier = data.moments[Math.max(at - 1, 0)].map((view) => data.views[view]);
  return views.map((view) => {
    const isSame = (other) => other.partition === view.partition;
    const before = earlier.find((one) => isSame(one) && one.broker === view.broker) || view;
    const seen = [...views, ...earlier].filter(isSame).flatMap((one) => one.values);
    const offsets = Array.from(new Set(seen.map((pair) => pair[0]))).sort((a, b) => a - b);
    return replica(view, before, offsets);
  });
}

function show(at) {
  now = Math.min(Math.max(at, 0), rows.length - 1);
  const row = rows[now];
  rows.forEach((one) => one.removeAttribute("aria-current"));
  row.setAttribute("aria-current", "step");
  const told = [...row.querySelectorAll(".time, .told, .notes li")]
    .flatMap((part) => [" · ", ...part.cloneNode(true).childNodes]);
  const place = make("b", "", "Moment " + (now + 1) + " of " + rows.length);
  document.getElementById("now").replaceChildren(place, ...told);
  document.getElementById("logs").replaceChildren(...logs(now));
}

function go(at) {
  show(at);
  history.replaceState(null, "", "#" + rows[now].id);
  rows[now].scrollIntoView({ block: "nearest" });
  if (document.activeElement.localName !== "button")
    rows[now].querySelector("a").focus({ preventScroll: true });
}

const steps = { first: () => 0, back: () => now - 1, next: () => now + 1,
  last: () => rows.length - 1 };
const keys = { ArrowLeft: "back", k: "back", ArrowRight: "next", j: "next", Home: "first",
  End: "last" };
const byHash = () => rows.findIndex((row) => "#" + row.id === location.hash);

if (rows.length) {
  document.querySelector(".controls").hidden = false;
  document.querySelectorAll("button").forEach((button) => {
    button.onclick = () => go(steps[button.dataset.to]());
  });
  rows.forEach((row, at) => { row.onclick = (e) => { e.preventDefault(); go(at); }; });
  addEventListener("hashchange", () => go(byHash()));
  addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.altKey || e.metaKey || !Object.hasOwn(keys, e.key)) return;
    e.preventDefault();
    go(steps[keys[e.key]]());
  });
  if (byHash() < 0) show(0);
  else go(byHash());
}
"""


def page(traced: Trace, title: str) -> str:
    """The whole document. The same trace gives the same bytes."""
    begin_ms = start_ms(traced)
    moments = [moment for moment in traced.moments if moment.at_ms >= begin_ms]
    about = tuple(dict.fromkeys(found.value for found in traced.result.anomalies if found.value))
    mark = _marker(about)
    world = build(traced.settings, traced.result.seed)  # never run: it knows the names
    faults = [(timed, timed.action.told(world)) for timed in traced.plan.faults]
    columns = _columns(moments)
    return _PAGE.substitute(
        title=escape(title),
        style=_STYLE,
        script=_SCRIPT,
        lanes=max(len(columns), 1),
        widest=min(_widest(moments), WIDTH_MAX),
        verdict=_verdict(traced.result, mark),
        fates="".join(_fate(fate, mark) for fate in traced.fates),
        settings=_settings(traced.settings, traced.result.seed),
        plan=_plan(
            traced.plan, [f"{timed.at_ms} ms: {told}" for timed, told in faults], world.name
        ),
        columns="".join(map(_column, columns)),
        moments=_moments(
            moments,
            traced.mended_ms,
            columns,
            mark,
            {told: _MILD.get(timed.action.verb, "") for timed, told in faults},
        ),
        last="\n".join(mark(_line(view)) for view in moments[-1].replicas) if moments else "",
        data=_data(moments, about),
    )


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


def _plan(plan: Plan, faults: Sequence[str], name: Callable[[int], str]) -> str:
    sent = [f"{name(who)} sends {count}" for who, count in plan.records if count]
    late = [_late(label, nth, takes_ms, name) for (label, nth), takes_ms in plan.delays]
    fold = "" if len(late) > LATE_SHOWN_MAX else " open"
    return (
        f"<p>Records: {escape(', '.join(sent) or 'as told below')}</p>"
        f"<p>Faults and other steps: {len(faults) or 'none'}</p>"
        f"<ul>{_items(map(escape, faults))}</ul>"
        f"<details{fold}><summary>Late messages: {len(late) or 'none'}; any other takes 1 ms"
        f"</summary><ul>{_items(map(escape, late))}</ul></details>"
    )


def _late(label: Label, nth: int, takes_ms: int, name: Callable[[int], str]) -> str:
    kind, at = label
    if kind == "flush":
        what = f"flush {nth} of {name(at)}"
    elif kind == "answer":
        what = f"answer {nth} to {at.channel} from {name(at.target)} to {name(at.source)}"
    else:
        what = f"{at.channel} {nth} from {name(at.source)} to {name(at.target)}"
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
    moments: Sequence[Moment],
    mended_ms: int,
    columns: Sequence[str],
    mark: Marker,
    looks: Mapping[str, str],
) -> str:
    rows = []
    is_mended = False
    for number, moment in enumerate(moments, 1):
        if moment.at_ms > mended_ms and not is_mended:
            is_mended = True
            rows.append('<li class="mended">✓ everything is mended</li>')
        notes = _items(map(mark, moment.notes))
        kinds = ["row", "moment"]
        if moment.is_fault:
            look = looks.get(moment.message, "")
            kinds += ["fault", look] if look else ["fault"]
            sign = _SIGNS.get(look, "✗")
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
