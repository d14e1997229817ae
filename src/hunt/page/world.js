// All zones at a glance: a card for each, with its heat, players, hunts, owner and state. Cards are buttons, so that a
// keyboard and a screen reader know them.

import { make, write } from "/dom.js";
import { Heat } from "/heat.js";
import { link } from "/link.js";
import { clock, count, isTechnical } from "/words.js";

// Pixels along the side of a card's heat, and of a treasure on it.
const SIDE_PX = 240;
const TREASURE_PX = 2;

// With at most this many zones, they share the screen.
const FEW = 9;

// Milliseconds between two questions about zones, and zones that are asked about at once.
const EVERY_MS = 2_000;
const AT_ONCE = 8;

export class World {
  constructor(grid, open) {
    Object.assign(this, { grid, open, cards: new Map(), next: 0 });
    // Only what is on the screen is asked about.
    this.seen = new Set();
    this.watcher = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        this.seen[isIntersecting ? "add" : "delete"](Number(target.dataset.zone));
      }
    });
    this.askForever();
  }

  show(zones, opened) {
    const columns = Math.ceil(Math.sqrt(zones.length)), isFew = zones.length <= FEW;
    this.grid.classList.toggle("few", isFew);
    this.grid.style.setProperty("--columns", columns);
    this.grid.style.setProperty("--rows", Math.ceil(zones.length / columns));
    for (const zone of zones) this.card(zone.zone).show(zone, zone.zone === opened);
    for (const [number, card] of this.cards) {
      if (number < zones.length) continue;
      card.element.remove();
      this.cards.delete(number);
    }
  }

  // Nobody says any more how the zones are.
  lose() {
    for (const card of this.cards.values()) card.lose();
  }

  card(number) {
    let card = this.cards.get(number);
    if (!card) {
      card = new ZoneCard(number, () => this.open(number));
      this.cards.set(number, card);
      this.grid.append(make("li", {}, card.element));
      this.watcher.observe(card.element);
    }
    return card;
  }

  hunts() {
    return [...this.cards.values()].filter((card) => card.hunts).map((card) => ({ zone: card.number, ...card.hunts }));
  }

  async askForever() {
    for (;;) {
      const zones = [...this.seen].filter((zone) => this.cards.get(zone)?.isAnswered), chosen = [];
      for (let n = 0; n < Math.min(AT_ONCE, zones.length); n++) chosen.push(zones[this.next++ % zones.length]);
      // While nobody answers, the banner says so.
      if (!document.hidden) await Promise.all(chosen.map((zone) => this.cards.get(zone).ask().catch(() => {})));
      await new Promise((done) => setTimeout(done, zones.length ? EVERY_MS : 200));
    }
  }
}

class ZoneCard {
  constructor(number, open) {
    this.number = number;
    this.tiles = new Map();
    this.since = 0;
    this.hunts = null;
    this.heat = make("canvas", { width: SIDE_PX, height: SIDE_PX, "aria-hidden": "true" });
    this.title = make("strong", { textContent: `Zone ${number}` });
    this.state = make("span", { class: "state" });
    this.players = make("span", { class: "players" });
    this.hunt = make("span", { class: "hunt" });
    this.owner = make("span", { class: "owner" });
    const words = make("span", { class: "words" }, make("span", { class: "head" }, this.title, this.state),
      this.players, this.hunt, this.owner);
    this.element = make("button", { type: "button", class: "zone", onclick: open }, this.heat, words);
    this.element.dataset.zone = number;
  }

  show(zone, isOpened) {
    this.isAnswered = zone.at !== undefined;
    this.element.dataset.state = zone.state;
    this.element.classList.toggle("opened", isOpened);
    if (isOpened) this.element.setAttribute("aria-current", "true");
    else this.element.removeAttribute("aria-current");
    const silent = zone.at?.stale_ms;
    write(this.state, silent ? `stale for ${clock(silent)}` : zone.state);
    this.element.title = zone.sentence ?? "";
    const players = `${count(zone.players ?? 0)} player${zone.players === 1 ? "" : "s"}`;
    write(this.players, zone.players === undefined ? "nothing to show" : players);
    const owner = isTechnical() ? "owner epoch" : "owner no.";
    write(this.owner, zone.owner_epoch === undefined ? "no owner known" : `${owner} ${zone.owner_epoch}`);
    const { running = [] } = this.hunts ?? {};
    const left = Math.min(...running.map((hunt) => Number(hunt.ends_at_ms) - zone.now_ms));
    const hunts = running.length > 1 ? `${running.length} hunts` : `hunt ${running[0]?.hunt}`;
    write(this.hunt, running.length ? `${hunts}, ${clock(left)} left` : "no hunt");
  }

  lose() {
    this.element.dataset.state = "unknown";
    write(this.state, "unknown");
  }

  async ask() {
    const [tiles, hunts] = await Promise.all([
      link.get(`/v1/zones/${this.number}/tiles?since=${this.since}`), link.get(`/v1/zones/${this.number}/hunts`),
    ]);
    this.hunts = hunts;
    for (const [tile, players] of tiles.players) {
      if (players) this.tiles.set(tile, players);
      else this.tiles.delete(tile);
    }
    this.since = tiles.at.update;
    this.paint(tiles);
  }

  paint({ tiles_per_side: side, tile_cm, treasures }) {
    const heat = new Heat([...this.tiles.values()].reduce((sum, players) => sum + players, 0), side);
    for (const [tile, players] of this.tiles) heat.add(tile % side, Math.floor(tile / side), players);
    const style = getComputedStyle(document.documentElement), pen = this.heat.getContext("2d");
    heat.paint(pen, style.getPropertyValue("--crowd").trim());
    pen.fillStyle = style.getPropertyValue("--treasure").trim();
    const at = (cm) => cm / (side * tile_cm) * SIDE_PX;
    for (const [, , x, y] of treasures) pen.fillRect(at(x) - 1, SIDE_PX - at(y) - 1, TREASURE_PX, TREASURE_PX);
  }
}
