// The news in words. A few lines appear at once, the rarest ones, and the rest is summed up.

import { make } from "/dom.js";
import { news } from "/words.js";

// Lines that are kept, lines that are shown, and those that may come with one turn.
const KEPT = 600;
const SHOWN = 40;
const AT_ONCE = 4;

// Limit of the lines that wait for their turn. Beyond it, as while the page is hidden, the older half is dropped.
const WAITING_MAX = 4_000;

// Milliseconds of a turn.
const TURN_MS = 700;

const timeOf = (when) => new Date(performance.timeOrigin + when).toLocaleTimeString("en-GB");

// The plural of news that is summed up.
const MANY = { find: "finds", "player taken down": "players taken down" };

export class Feed {
  constructor(list, follow) {
    Object.assign(this, { list, follow, lines: [], waiting: [], turnAt: 0 });
  }

  clear() {
    Object.assign(this, { lines: [], waiting: [], key: null });
    this.list.replaceChildren();
  }

  take(update, when) {
    const line = news(update);
    if (!line) return;
    this.waiting.push({ when, ...line });
    if (this.waiting.length > WAITING_MAX) this.waiting.splice(0, WAITING_MAX / 2);
  }

  turn(now) {
    if (now - this.turnAt < TURN_MS) return;
    this.turnAt = now;
    const { waiting } = this;
    this.waiting = [];
    if (waiting.length === 0) return;
    const rarest = [...waiting].sort((a, b) => b.rank - a.rank).slice(0, AT_ONCE);
    const rest = waiting.filter((line) => !rarest.includes(line));
    const finds = rest.filter((line) => line.rank === 1).length, downs = rest.filter((line) => line.rank === 2).length;
    const more = [[finds, "find"], [downs, "player taken down"]].filter(([number]) => number > 0)
      .map(([number, one]) => `${number} more ${number === 1 ? one : MANY[one]}`);
    if (more.length) this.lines.push({ when: waiting[0].when, rank: 0, icon: "+", text: more.join(", ") });
    this.lines.push(...rarest.sort((a, b) => a.when - b.when));
    if (this.lines.length > KEPT) this.lines.splice(0, this.lines.length - KEPT);
  }

  show(when) {
    const end = this.lines.findLastIndex((line) => line.when <= when) + 1;
    const shown = this.lines.slice(Math.max(0, end - SHOWN), end).reverse();
    const first = shown[0];
    if (first === this.key) return;
    this.key = first;
    this.list.replaceChildren(...shown.map((line) => this.element(line)));
  }

  element(line) {
    line.element ??= make("li", { class: `news rank${line.rank}` },
      make("span", { class: "icon", "aria-hidden": "true", textContent: line.icon }),
      line.players
        ? make("button", { type: "button", onclick: () => this.follow(line.players[0]), textContent: line.text })
        : make("span", { textContent: line.text }),
      make("time", { textContent: timeOf(line.when) }));
    return line.element;
  }
}
