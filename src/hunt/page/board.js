// The best of the world, and how their ranks have moved in the last minute.

import { make } from "/dom.js";
import { nameOf } from "/names.js";
import { count, isTechnical } from "/words.js";

// How far back ranks are compared, and how long a row moves to its new place, in milliseconds.
const COMPARED_MS = 60_000;
const MOVES_MS = 450;

export class Board {
  constructor(body, follow) {
    Object.assign(this, { body, follow, rows: new Map(), history: [], places: [], shown: [] });
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
  }

  take(board, when) {
    this.places = board.places;
    const last = this.history.at(-1);
    if (!last || when - last.when > 1_000) this.history.push({ when, places: board.places });
    while (this.history.length > 1 && this.history[0].when < when - 360_000) this.history.shift();
  }

  // Shows a moment.
  show(when, isLive, followed) {
    const at = (moment) => this.history.findLast((entry) => entry.when <= moment) ?? this.history[0];
    const places = isLive ? this.places : at(when)?.places ?? [];
    this.shown = places;
    const earlier = new Map(at(when - COMPARED_MS)?.places.map((place) => [place.player_id, place.rank]));
    const key = JSON.stringify([places, [...earlier], followed, isTechnical()]);
    if (key === this.key) return;
    this.key = key;
    const tops = new Map([...this.rows].map(([id, row]) => [id, row.offsetTop]));
    const rows = places.map((place) => this.row(place, earlier, followed));
    const focused = document.activeElement;
    this.body.replaceChildren(...rows);
    if (this.body.contains(focused)) focused.focus();
    this.rows = new Map(places.map((place, at) => [place.player_id, rows[at]]));
    if (!this.calm.matches) for (const [id, row] of this.rows) slide(row, tops.get(id));
  }

  row(place, earlier, followed) {
    const row = this.rows.get(place.player_id) ?? this.newRow(place.player_id);
    const [rank, moved, player, zone, score] = row.cells;
    rank.textContent = place.rank;
    const was = earlier.get(place.player_id), way = was === undefined ? null : was - place.rank;
    moved.className = way > 0 ? "moved up" : way < 0 ? "moved lost" : "moved";
    moved.textContent = way === null ? "new" : way > 0 ? `▲${way}` : way < 0 ? `▼${-way}` : "–";
    moved.title = was === undefined ? "Not among the best a minute ago" : `Rank ${was} a minute ago`;
    player.firstChild.firstChild.textContent = nameOf(place.player_id);
    zone.textContent = place.zone;
    score.textContent = count(place.score);
    row.classList.toggle("followed", place.player_id === followed);
    return row;
  }

  newRow(id) {
    const button = make("button", { type: "button", onclick: () => this.follow(id) }, "",
      make("small", { class: "technical-only", textContent: ` ${id}` }));
    return make("tr", {}, make("td", { class: "number" }), make("td", { class: "moved" }), make("td", {}, button),
      make("td", { class: "number" }), make("td", { class: "number" }));
  }
}

function slide(row, from) {
  const way = from === undefined ? 0 : from - row.offsetTop;
  if (way === 0) return;
  const steps = [{ transform: `translateY(${way}px)` }, { transform: "none" }];
  row.animate(steps, { duration: MOVES_MS, easing: "ease-out" });
}
