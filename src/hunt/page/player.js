// The player whom one follows: its card, kept up to date by a stream of its own, and what happens to it.

import { $, make, write } from "/dom.js";
import { link } from "/link.js";
import { nameOf } from "/names.js";
import { count, isTechnical, story, technicalStory } from "/words.js";

const LINES = 60;

export class Follow {
  // `moved` is called with the zone that the player is in.
  constructor(moved) {
    Object.assign(this, { moved, id: null, zone: null, stream: null });
  }

  start(id) {
    if (id === this.id) return;
    this.stream?.close();
    Object.assign(this, { id, zone: null, stream: null });
    $("player-panel").hidden = id === null;
    $("player-feed").replaceChildren();
    $("card").replaceChildren();
    if (id === null) return;
    write($("player-name"), nameOf(id));
    write($("player-number"), `No. ${id}`);
    write($("player-state"), "Looking for the player");
    this.stream = link.stream({ player: [id] }, (name, card) => { if (id === this.id) this.show(card); },
      (_, error) => { if (error && id === this.id) write($("player-state"), error.message); });
  }

  show(card) {
    if (card.detail) {
      write($("player-state"), card.detail);
      $("card").replaceChildren();
      return;
    }
    if (card.zone !== this.zone) {
      this.zone = card.zone;
      this.moved(card.zone);
    }
    write($("player-state"), card.health === 0 ? "Down" : card.health < 100 ? "Hurt" : "Well");
    const found = card.hunts.map((hunt) => `${hunt.found} in hunt ${hunt.hunt}`).join(", ");
    const facts = [
      ["score", count(card.score)], ["rank in the world", card.world_rank], [`rank in zone ${card.zone}`, card.rank],
      ["health", card.health], ["finds", found || "none yet"],
      ["effects", card.effects.map((one) => one.effect.replaceAll("_", " ")).join(", ") || "none"],
      ["items", card.items.map(([item, number]) => `${number} of item ${item}`).join(", ") || "none"],
    ];
    if (isTechnical()) facts.push(["x, y in cm", `${card.x}, ${card.y}`], ["tile", card.tile ?? "–"]);
    $("card").replaceChildren(...facts.map(([name, value]) =>
      make("div", {}, make("dt", { textContent: name }), make("dd", { textContent: value }))));
  }

  // An update of the zone that is shown.
  take(update) {
    if (this.id === null || (update.player_id !== this.id && update.by !== this.id)) return;
    const text = isTechnical() ? technicalStory(update) : story(update, this.id);
    if (!text) return;
    const line = make("li", { textContent: text });
    if (update.kind === "refused") line.className = "refused";
    $("player-feed").prepend(line);
    while ($("player-feed").childElementCount > LINES) $("player-feed").lastChild.remove();
  }
}
