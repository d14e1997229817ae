// The words of the page: sentences about what happens, and labels, each in plain words and in technical ones.

import { nameOf } from "/names.js";

export const count = (number) => Number(number).toLocaleString("en");

const plural = (number, one) => `${count(number)} ${one}${Number(number) === 1 ? "" : "s"}`;

export const clock = (ms) => {
  const seconds = Math.max(0, Math.round(ms / 1000));
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
};

const spoken = (name) => name.replaceAll("_", " ");

// Why a hunt is over.
export const CAUSES = { all_found: "everything was found", time_up: "time is up", called_off: "it was called off" };

// Returns the news in an update, with a rank: the higher, the rarer. Other updates are no news.
export function news(update) {
  const player = update.player_id && nameOf(update.player_id);
  switch (update.kind) {
    case "hunt_started":
      return { rank: 5, icon: "⚑", text: `Hunt ${update.hunt} begins: ${plural(update.treasures, "treasure")}` };
    case "hunt_ended": {
      const text = `Hunt ${update.hunt} is over: ${CAUSES[update.cause] ?? spoken(update.cause)}`;
      return { rank: 6, icon: "⚐", text };
    }
    case "finished":
      if (update.rank > 3) return null;
      return {
        rank: 7 - update.rank, icon: "★", players: [update.player_id],
        text: update.rank === 1
          ? `${player} wins hunt ${update.hunt} with ${plural(update.found, "find")}`
          : `${player} is number ${update.rank} of hunt ${update.hunt}`,
      };
    case "downed": {
      const text = `${nameOf(update.by)} takes ${player} down`;
      return { rank: 2, icon: "✕", players: [update.by, update.player_id], text };
    }
    case "looted": {
      const doubled = update.doubled ? ", doubled" : "";
      return {
        rank: 1, icon: "◆", players: [update.player_id],
        text: `${player} finds a treasure: ${plural(update.points, "point")}${doubled}`,
      };
    }
    default:
      return null;
  }
}

// Returns the line about a player whom the viewer follows.
export function story(update, id) {
  const known = news(update);
  if (known) return known.text;
  switch (update.kind) {
    case "refused": return `Tries to ${spoken(update.action)}, but the rules say no: ${spoken(update.reason)}`;
    case "joined": return "Enters the game";
    case "arrived": return `Arrives from zone ${update.from_zone}`;
    case "left": return update.to_zone === undefined ? "Leaves the game" : `Goes to zone ${update.to_zone}`;
    case "shot": return update.target ? `Shoots at ${nameOf(update.target)} and hits` : "Shoots and misses";
    case "damaged": {
      const whom = update.by === id ? `Hits ${nameOf(update.player_id)}` : `Is hit by ${nameOf(update.by)}`;
      return `${whom}: ${update.damage} damage, health ${update.health}`;
    }
    case "respawned": return "Is back on its feet";
    case "healed": return `Heals to ${update.health}`;
    case "scored": return `Scores ${count(update.points)} for ${spoken(update.cause)}: ${count(update.score)} in all`;
    case "item_gained": return `Gets item ${update.item}, has ${update.held}`;
    case "item_lost": return `Has no room for item ${update.item}`;
    case "item_used": return `Uses item ${update.item}, has ${update.held} left`;
    case "effect_started": return `Begins: ${spoken(update.effect)}, for ${clock(update.lasts_ms)}`;
    case "effect_ended": return `Ends: ${spoken(update.effect)}`;
    default: return "";
  }
}

// Moves and turns are on the map already; everything else is told as it was published.
export function technicalStory({ kind, player_id, ts_us, ...fields }) {
  const words = Object.entries(fields).map(([name, value]) => `${name} ${value}`).join(", ");
  return words ? `${kind}: ${words}` : kind;
}

// Labels: in plain words, and in those of the metrics and documents.
const LABELS = {
  applied: ["Actions per second", "applied events/s"],
  refused: ["Against the rules, per second", "refused events/s"],
  "no-op": ["Repeated or without effect, per second", "no-op events/s"],
  lag: ["Delay, ms", "lag, ms"],
  offset: ["Events read so far", "input offset"],
  owner: ["Takeovers by other hosts", "owner epoch"],
};

export const isTechnical = () => document.body.classList.contains("technical");

export function label(name) {
  return LABELS[name][isTechnical() ? 1 : 0];
}

// Fills all labels of the page, and switches what only technical people see.
export function showLabels(technical) {
  document.body.classList.toggle("technical", technical);
  for (const element of document.querySelectorAll("[data-label]")) element.textContent = label(element.dataset.label);
}
