// Hunts: those that run, with time left and who has found most, and the last ones with their winners.

import { $, make, write } from "/dom.js";
import { nameOf } from "/names.js";
import { CAUSES, clock, count } from "/words.js";

// Finders of a running hunt, running hunts of a world, and hunts of the past, that are shown.
const FINDERS = 5;
const RUNNING = 8;
const PAST = 3;

// Milliseconds before the end from which on the time left stands out.
const LAST_MS = 30_000;

export class Hunts {
  constructor(follow, open) {
    Object.assign(this, { follow, open, entries: new Map() });
  }

  // One zone: its hunts at a moment of its own time, and the finds of each.
  showZone({ running, past }, now_ms, finds) {
    this.fill(running.map((hunt) => this.running(hunt, now_ms, best(finds.get(hunt.hunt)))),
      past.slice(0, PAST).map((hunt) => this.past(hunt)));
  }

  // The world: what runs anywhere, what ends first first.
  showWorld(zones) {
    const all = zones.flatMap(({ zone, now_ms, running }) => running.map((hunt) => ({ zone, now_ms, ...hunt })));
    all.sort((a, b) => (a.ends_at_ms - a.now_ms) - (b.ends_at_ms - b.now_ms));
    const past = zones.flatMap(({ zone, past: [hunt] }) => (hunt ? [{ zone, ...hunt }] : []));
    this.fill(all.slice(0, RUNNING).map((hunt) => this.running(hunt, hunt.now_ms, [])),
      past.slice(0, PAST).map((hunt) => this.past(hunt)));
  }

  // Elements are kept while they are shown, so that the focus and a screen reader stay where they are.
  fill(running, past) {
    place($("hunts"), running);
    place($("past"), past);
    $("no-hunts").hidden = running.length > 0;
    $("past-title").hidden = past.length === 0;
    const shown = new Set([...running, ...past]);
    for (const [key, { element }] of this.entries) if (!shown.has(element)) this.entries.delete(key);
  }

  entry(key, create) {
    if (!this.entries.has(key)) this.entries.set(key, create());
    return this.entries.get(key);
  }

  title({ zone, hunt }) {
    if (zone === undefined) return make("strong", { textContent: `Hunt ${hunt}` });
    const textContent = `Zone ${zone}, hunt ${hunt}`;
    return make("button", { type: "button", onclick: () => this.open(zone), textContent });
  }

  standing(id, text) {
    return make("li", {}, make("button", { type: "button", onclick: () => this.follow(id), textContent: nameOf(id) }),
      make("span", { class: "number", textContent: text }));
  }

  running(hunt, now_ms, finders) {
    const entry = this.entry(`running ${hunt.zone} ${hunt.hunt}`, () => {
      const left = make("span", { class: "left" }), bar = make("progress"), opened = make("p", { class: "faint" });
      const standings = make("ol", { class: "standings", "aria-label": "Most finds" });
      const head = make("p", { class: "head" }, this.title(hunt), left);
      return { left, bar, opened, standings, finders: "", element: make("li", {}, head, bar, opened, standings) };
    });
    const left_ms = Number(hunt.ends_at_ms) - now_ms;
    write(entry.left, `${clock(left_ms)} left`);
    entry.left.classList.toggle("last", left_ms < LAST_MS);
    Object.assign(entry.bar, { max: Math.max(1, hunt.treasures), value: hunt.opened });
    const opened = `${count(hunt.opened)} of ${count(hunt.treasures)} found`;
    entry.bar.setAttribute("aria-label", opened);
    write(entry.opened, hunt.laid < hunt.treasures ? `${opened}, ${count(hunt.laid)} laid` : opened);
    const key = finders.join(" ");
    if (key !== entry.finders) {
      entry.finders = key;
      entry.standings.replaceChildren(...finders.map(([id, found]) => this.standing(id, count(found))));
    }
    return entry.element;
  }

  past(hunt) {
    return this.entry(`past ${hunt.zone} ${hunt.hunt} ${hunt.first.length}`, () => {
      const cause = make("span", { class: "faint", textContent: CAUSES[hunt.cause] ?? hunt.cause });
      const winners = hunt.first.slice(0, 3).map((winner) =>
        this.standing(winner.player_id, `${count(winner.found)} in ${clock(winner.elapsed_ms)}`));
      const nobody = `Nobody finished; ${count(hunt.opened)} were found.`;
      const result = winners.length
        ? make("ol", { class: "standings winners", "aria-label": "Winners" }, ...winners)
        : make("p", { class: "faint", textContent: nobody });
      return { element: make("li", {}, make("p", { class: "head" }, this.title(hunt), cause), result) };
    }).element;
  }
}

function place(list, elements) {
  const isThere = (element, at) => element === list.children[at];
  if (elements.length !== list.children.length || !elements.every(isThere)) list.replaceChildren(...elements);
}

function best(finds = new Map()) {
  return [...finds].sort(([, a], [, b]) => b - a).slice(0, FINDERS);
}
