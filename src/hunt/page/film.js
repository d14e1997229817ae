// The last five minutes of a zone, so that one can look back: a picture of all players every second, and between two
// pictures everybody walks straight. What flashes on the map is kept beside them, with its time.

export const FILM_MS = 300_000;

// Milliseconds between two pictures, and bytes that all pictures may take: with many players they are rarer.
const EVERY_MS = 1_000;
const BYTES_MAX = 64 * 1024 * 1024;
const PLAYER_BYTES = 24;

// Flashes and vanished treasures that are kept; beyond that the oldest half is forgotten.
const FLASHES_MAX = 60_000;
const GONE_MAX = 60_000;

// Milliseconds for which each kind of flash is seen.
export const FLASH_MS = { shot: 400, downed: 1_500, looted: 1_200 };
const FLASH_MS_MAX = 1_500;

export class Film {
  constructor() {
    this.pictures = [];
    this.flashes = [];
    this.gone = [];
    // Happenings of each second, for the timeline.
    this.seconds = [];
    // Where players are in the picture to which they walk.
    this.places = { picture: null, of: new Map() };
  }

  // Takes a picture if it is time for one. `beside` is what panels show at that moment.
  picture(players, when, beside) {
    const stretch = Math.ceil(FILM_MS / EVERY_MS * players.size * PLAYER_BYTES / BYTES_MAX);
    const last = this.pictures.at(-1);
    if (last && when - last.when < EVERY_MS * Math.max(1, stretch) - 20) return;
    const size = players.size;
    const picture = {
      when, ids: new Array(size), x: new Int32Array(size), y: new Int32Array(size),
      heading: new Uint16Array(size), health: new Uint16Array(size), ...beside,
    };
    let at = 0;
    for (const player of players.values()) {
      picture.ids[at] = player.id;
      picture.x[at] = player.x;
      picture.y[at] = player.y;
      picture.heading[at] = player.heading;
      picture.health[at++] = player.health;
    }
    this.pictures.push(picture);
    while (this.pictures[0].when < when - FILM_MS) this.pictures.shift();
    while (this.seconds.length && this.seconds[0].when < when - FILM_MS) this.seconds.shift();
  }

  flash(flash) {
    this.flashes.push(flash);
    if (this.flashes.length > FLASHES_MAX) this.flashes.splice(0, FLASHES_MAX / 2);
  }

  vanish(treasures, goneAt) {
    for (const treasure of treasures) this.gone.push({ ...treasure, goneAt });
    if (this.gone.length > GONE_MAX) this.gone.splice(0, this.gone.length - GONE_MAX / 2);
  }

  // Counts something of a second: a find, a player taken down, or a hunt that begins or ends.
  tally(kind, when, text) {
    let second = this.seconds.at(-1);
    if (!second || when - second.when >= 1_000) {
      second = { when: Math.floor(when / 1_000) * 1_000, looted: 0, downed: 0, marks: [] };
      this.seconds.push(second);
    }
    if (text) second.marks.push(text);
    else second[kind]++;
  }

  // How far back one can look from a moment, in milliseconds.
  reach(now) { return this.pictures.length ? Math.min(FILM_MS, now - this.pictures[0].when) : 0; }

  // The last picture at or before a moment, or the first one.
  pictureAt(when) {
    return this.pictures[Math.max(0, before(this.pictures, when + 0.001) - 1)] ?? null;
  }

  flashesAt(when) {
    const { flashes } = this;
    return flashes.slice(before(flashes, when - FLASH_MS_MAX), before(flashes, when + 0.001));
  }

  treasuresAt(when, lying) {
    const isThere = ({ laidAt, goneAt = Infinity }) => laidAt <= when && when < goneAt;
    return [...[...lying].filter(isThere), ...this.gone.filter(isThere)];
  }

  // All players at a moment.
  playersAt(when) {
    const picture = this.pictureAt(when);
    if (!picture) return [];
    const next = this.pictures[this.pictures.indexOf(picture) + 1];
    const part = next ? Math.max(0, Math.min(1, (when - picture.when) / (next.when - picture.when))) : 0;
    if (next && this.places.picture !== next) {
      this.places = { picture: next, of: new Map(next.ids.map((id, at) => [id, at])) };
    }
    return picture.ids.map((id, at) => {
      const [x, y] = [picture.x[at], picture.y[at]], then = next && this.places.of.get(id);
      const [toX, toY] = then === undefined ? [x, y] : [next.x[then], next.y[then]];
      // Who was carried far away did not walk there.
      const walked = Math.abs(toX - x) + Math.abs(toY - y) < 8_000 ? part : 0;
      return {
        id, shownX: x + (toX - x) * walked, shownY: y + (toY - y) * walked,
        heading: picture.heading[at], health: picture.health[at], trail: [],
      };
    });
  }
}

// How many of a list that is ordered by time are before a moment.
function before(list, when) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle].when < when) low = middle + 1;
    else high = middle;
  }
  return low;
}
