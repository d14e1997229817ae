// The last five minutes under the map: bars for finds and players taken down, flags for hunts, and a slider to look
// back. Everything that is shown follows the slider, and at its right end it is live.

import { $, write } from "/dom.js";
import { FILM_MS } from "/film.js";
import { clock } from "/words.js";

// Within this many milliseconds of now, it is live.
const LIVE_MS = 600;

// Milliseconds between two pictures of the bars.
const DRAW_MS = 500;

export class Timeline {
  constructor() {
    Object.assign(this, { back: 0, isPlaying: true, isHeld: false, last: performance.now(), drawnAt: 0 });
    this.slider = $("slider");
    this.slider.addEventListener("input", () => {
      this.back = -Number(this.slider.value) * 1000;
      this.isPlaying = false;
      if (this.back < LIVE_MS) this.goLive();
    });
    this.slider.addEventListener("pointerdown", () => { this.isHeld = true; });
    for (const name of ["pointerup", "pointercancel"]) {
      this.slider.addEventListener(name, () => { this.isHeld = false; });
    }
    $("to-live").addEventListener("click", () => this.goLive());
    $("play").addEventListener("click", () => this.toggle());
  }

  get isLive() { return this.back === 0 && this.isPlaying; }

  goLive() { Object.assign(this, { back: 0, isPlaying: true }); }

  toggle() { this.isPlaying = !this.isPlaying; }

  // The moment that is shown. While it is paused, now runs away from it.
  moment(now, film) {
    if (!this.isPlaying) this.back += now - this.last;
    this.last = now;
    const most = film.reach(now);
    this.back = Math.min(this.back, most);
    if (this.isPlaying && this.back < LIVE_MS) this.back = 0;
    return now - this.back;
  }

  show(now, film, isOld) {
    const { isLive, isPlaying, back } = this;
    document.body.classList.toggle("past", !isLive);
    $("to-live").disabled = isLive;
    write($("play"), isPlaying ? "Pause" : "Play");
    const ago = isLive ? "live" : `${clock(back)} ago`;
    const live = isOld ? "Not live" : "Live";
    write($("moment"), isLive ? live : ago);
    if (!this.isHeld) this.slider.value = -back / 1000;
    this.slider.setAttribute("aria-valuetext", ago);
    if (now - this.drawnAt < DRAW_MS) return;
    this.drawnAt = now;
    this.draw(now, film);
  }

  draw(now, film) {
    const bars = $("bars"), ratio = Math.min(devicePixelRatio, 2);
    const width = Math.round(bars.clientWidth * ratio), height = Math.round(bars.clientHeight * ratio);
    if (bars.width !== width || bars.height !== height) Object.assign(bars, { width, height });
    const pen = bars.getContext("2d"), style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    pen.clearRect(0, 0, width, height);
    const left = (when) => width * (1 - (now - when) / FILM_MS);
    // Moments that the film does not have are hatched.
    pen.fillStyle = color("rule");
    pen.fillRect(0, height - 1, width, 1);
    const most = Math.max(1, ...film.seconds.map((second) => second.looted + second.downed));
    const wide = Math.max(1, width / (FILM_MS / 1000) - 0.5);
    for (const second of film.seconds) {
      const at = left(second.when), tall = (number) => number / most * (height - 12 * ratio);
      pen.fillStyle = color("treasure");
      pen.fillRect(at, height - tall(second.looted), wide, tall(second.looted));
      pen.fillStyle = color("down");
      pen.fillRect(at, height - tall(second.looted + second.downed), wide, tall(second.downed));
      pen.fillStyle = color("ink");
      pen.font = `${10 * ratio}px system-ui, sans-serif`;
      if (second.marks.length) pen.fillText(second.marks.at(-1), at, 10 * ratio);
    }
    const begin = left(now - film.reach(now));
    pen.fillStyle = color("wall");
    pen.globalAlpha = 0.25;
    pen.fillRect(0, 0, Math.max(0, begin), height);
    pen.globalAlpha = 1;
  }
}
