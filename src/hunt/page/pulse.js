// The pulse of what is shown: what happens per second, what the rules refuse, and the delay, over five minutes.

import { $, write } from "/dom.js";
import { count } from "/words.js";

const SECONDS = 300;
// The drawing's size, in the SVG's units, and samples for which it has room at least.
const WIDTH = 300;
const HEIGHT = 36;
const ROOM_MIN = 60;
const NAMES = ["applied", "refused", "no-op", "lag"];

export class Pulse {
  constructor() { this.clear(); }

  clear() {
    this.samples = [];
    for (const name of NAMES) write($(name), "–");
  }

  // A second's numbers; what is unknown is absent.
  take(when, numbers) {
    this.samples.push({ when, ...numbers });
    if (this.samples.length > SECONDS) this.samples.shift();
  }

  show(when) {
    const shown = this.samples.filter((sample) => sample.when <= when);
    const last = shown.at(-1);
    for (const name of NAMES) {
      const svg = $(`${name}-line`), known = this.samples.map((sample) => sample[name] ?? 0);
      if (last?.[name] !== undefined) write($(name), count(last[name]));
      const most = Math.max(1, ...known);
      const step = WIDTH / (Math.max(ROOM_MIN, known.length) - 1);
      const points = known.map((value, at) =>
        [WIDTH - (known.length - 1 - at) * step, HEIGHT - 1 - value / most * (HEIGHT - 4)].join());
      svg?.firstElementChild.setAttribute("points", points.join(" "));
    }
  }
}
