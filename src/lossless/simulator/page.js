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
