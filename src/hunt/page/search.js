// Search for a player by nickname or number: among those of the zone that is shown, the best, and in a small world all
// others. A whole number is asked for anywhere.

import { $, make } from "/dom.js";
import { link } from "/link.js";
import { nameOf } from "/names.js";

const SHOWN = 8;

// Last digits of a number from which on players are found by them.
const DIGITS_MIN = 4;

// Players of the world up to whom all are loaded, and of one answer.
const WORLD_MAX = 20_000;
const PAGE_PLAYERS = 1_000;

export class Search {
  // `known` returns the numbers of players on the page, `zones` what is known of the zones.
  constructor({ known, zones, choose }) {
    Object.assign(this, { known, zones, choose, others: new Set(), found: [], at: -1 });
    this.input = $("search");
    this.list = $("found");
    this.input.addEventListener("focus", () => this.loadOthers());
    this.input.addEventListener("input", () => this.look());
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.input.addEventListener("blur", () => this.close());
  }

  async loadOthers() {
    const zones = this.zones().filter((zone) => zone.players);
    if (this.others.size || zones.reduce((sum, zone) => sum + zone.players, 0) > WORLD_MAX) return;
    for (const { zone } of zones) {
      for (let from = "0"; from;) {
        const page = await link.get(`/v1/zones/${zone}/players?count=${PAGE_PLAYERS}&from=${from}`).catch(() => null);
        for (const { player_id: id } of page?.players ?? []) this.others.add(id);
        from = page?.next;
      }
    }
    if (this.input.value) this.look();
  }

  look() {
    const asked = this.input.value.trim().toLowerCase();
    this.found = [];
    if (asked) {
      for (const id of new Set([...this.known(), ...this.others])) {
        const name = nameOf(id).toLowerCase();
        const isNamed = name.startsWith(asked) || name.includes(` ${asked}`);
        const isNumber = id === asked || (asked.length >= DIGITS_MIN && id.endsWith(asked));
        if ((isNamed || isNumber) && this.found.push(id) === SHOWN) break;
      }
      if (this.found.length === 0 && /^[0-9]{1,20}$/.test(asked)) this.found = [asked];
    }
    this.at = this.found.length ? 0 : -1;
    this.show(asked);
  }

  show(asked) {
    this.list.hidden = !asked;
    this.input.setAttribute("aria-expanded", String(Boolean(asked)));
    this.list.replaceChildren(...this.found.map((id, at) => make("li", {
      id: `found-${at}`, role: "option", "aria-selected": String(at === this.at),
      // Before the input loses the focus, which closes the list.
      onmousedown: (event) => { event.preventDefault(); this.take(id); },
    }, nameOf(id), make("small", { textContent: ` ${id}` }))));
    const nobody = make("li", { class: "faint", textContent: "Nobody of that name" });
    if (asked && this.found.length === 0) this.list.append(nobody);
    this.input.setAttribute("aria-activedescendant", this.at < 0 ? "" : `found-${this.at}`);
  }

  key(event) {
    const last = this.found.length - 1;
    if (event.key === "Escape") { this.input.value = ""; this.close(); }
    else if (event.key === "Enter" && this.at >= 0) this.take(this.found[this.at]);
    else if (event.key === "ArrowDown" && last >= 0) this.at = this.at >= last ? 0 : this.at + 1;
    else if (event.key === "ArrowUp" && last >= 0) this.at = this.at <= 0 ? last : this.at - 1;
    else return;
    event.preventDefault();
    if (event.key.startsWith("Arrow")) this.show(this.input.value.trim());
  }

  take(id) {
    this.input.value = "";
    this.close();
    this.choose(id);
  }

  close() {
    this.found = [];
    this.at = -1;
    this.show("");
  }
}
