// One zone as its stream tells it: where everybody is, what lies there, and who has found how much.

import { Count } from "/count.js";
import { link } from "/link.js";

// Places that a player's trail keeps, and how far apart they are, in cm.
const TRAIL_MAX = 24;
const TRAIL_STEP_CM = 60;

// Milliseconds before a question that failed is asked again.
const RETRY_MS = 1_000;

// Players of one page of /v1/zones/{zone}/players.
const PAGE_PLAYERS = 1_000;

// Players whose cards are asked for when the zone is opened, so that finds of a hunt under way are counted.
const FIRST_CARDS = 20;

export class Zone {
  // `onUpdate` gets every update, where its player is, and treasures that are gone; `onState` whether there is a
  // stream.
  constructor(number, { onUpdate, onState }) {
    Object.assign(this, { number, onUpdate, onState });
    // Paths whose last answer was an error.
    this.unanswered = new Set();
    this.map = null;
    this.walls = [];
    this.players = new Map();
    this.treasures = new Map();
    this.hunts = { running: [], past: [] };
    // Finds of the running hunts: of each hunt, of each player.
    this.finds = new Map();
    this.count = null;
    this.clock = null;
    // While players and tiles are loaded: the number of the last update of each player, and all updates since.
    this.told = null;
    this.missed = null;
    this.isClosed = false;
    this.run();
  }

  close() {
    this.isClosed = true;
    this.stream?.close();
  }

  // Asks until there is an answer, or until the zone is not shown any more.
  async ask(path) {
    while (!this.isClosed) {
      try {
        const answer = await link.get(path);
        this.unanswered.delete(path);
        if (!this.isClosed) return answer;
      } catch {
        this.unanswered.add(path);
        await new Promise((done) => setTimeout(done, RETRY_MS));
      }
    }
    return null;
  }

  run() {
    this.stream = link.stream({ zone: [this.number] }, (name, data, id) => {
      if (this.isClosed) return;
      if (name === "update") this.take(data, Number(id.split(":")[1]));
      else if (name === "at" || name === "reset") {
        this.count = new Count(data);
        this.load();
      }
    }, (state, error) => { if (!this.isClosed) this.onState(state, error); });
  }

  // Loads the state before the stream.
  async load() {
    this.finds.clear();
    this.loadPlayers(new Map());
    await Promise.all([this.loadTiles(), this.loadHunts()]);
    this.loadFinds();
  }

  // Loads the treasures while the stream goes on. The answer lacks the stream's updates after its position.
  async loadTiles() {
    const missed = this.missed = [];
    const tiles = await this.ask(`/v1/zones/${this.number}/tiles`);
    if (!tiles || missed !== this.missed) return;
    this.missed = null;
    this.map = { side: tiles.tiles_per_side * tiles.tile_cm, tile: tiles.tile_cm, tiles: tiles.tiles_per_side };
    const laidAt = performance.now();
    const lying = tiles.treasures.map(([hunt, number, x, y]) => [`${hunt}:${number}`, { hunt, x, y, laidAt }]);
    this.treasures = new Map(lying);
    this.walls = [];
    tiles.walls.forEach((word, at) => {
      let bits = BigInt(`0x${word}`);
      for (let bit = 0; bits; bit++, bits >>= 1n) if (bits & 1n) this.walls.push(at * 64 + bit);
    });
    for (const { update, number } of missed) if (number >= tiles.at.update) this.changeTreasures(update);
  }

  async loadHunts() {
    const hunts = await this.ask(`/v1/zones/${this.number}/hunts`);
    if (hunts) this.takeHunts(hunts);
  }

  takeHunts(hunts) {
    this.setClock(hunts.now_ms);
    this.hunts = hunts;
  }

  // Where the players are, while the stream goes on. What it tells of a player is newer than the player's page if the
  // page does not include that update.
  async loadPlayers(all) {
    this.players = all;
    const told = this.told = new Map();
    for (let from = "0"; from;) {
      const page = await this.ask(`/v1/zones/${this.number}/players?count=${PAGE_PLAYERS}&from=${from}`);
      if (!page || this.players !== all) return;
      for (const { player_id: id, x, y, heading, health } of page.players) {
        if (told.get(id) >= page.at.update) continue;
        Object.assign(this.place(id, x, y), { heading, health });
      }
      from = page.next;
    }
    this.told = null;
  }

  // Loads the finds of the best players in hunts that began before the page was opened.
  async loadFinds() {
    if (this.isClosed || this.hunts.running.length === 0) return;
    const board = await this.ask(`/v1/boards/${this.number}?count=${FIRST_CARDS}`);
    for (const { player_id: id } of board?.places ?? []) {
      const card = await link.get(`/v1/players/${id}`).catch(() => null);
      if (this.isClosed) return;
      for (const { hunt, found } of card?.hunts ?? []) this.findsOf(hunt).set(id, found);
    }
  }

  findsOf(hunt) {
    if (!this.finds.has(hunt)) this.finds.set(hunt, new Map());
    return this.finds.get(hunt);
  }

  // The time of the zone, which goes on while nobody tells it.
  setClock(zone_ms) { this.clock = { zone: Number(zone_ms), here: performance.now() }; }

  now() { return this.clock ? this.clock.zone + performance.now() - this.clock.here : 0; }

  place(id, x, y) {
    let player = this.players.get(id);
    if (!player) {
      player = { id, x, y, shownX: x, shownY: y, heading: 0, health: 100, trail: [] };
      this.players.set(id, player);
    }
    const { trail } = player, last = trail.at(-1);
    if (!last || Math.abs(last.x - x) + Math.abs(last.y - y) > TRAIL_STEP_CM) {
      trail.push({ x, y });
      if (trail.length > TRAIL_MAX) trail.shift();
    }
    player.x = x;
    player.y = y;
    return player;
  }

  take(update, number) {
    const id = update.player_id;
    this.count.take(update, number);
    this.told?.set(id, number);
    const player = this.players.get(id), before = player && { x: player.x, y: player.y };
    this.change(update, id, player);
    this.missed?.push({ update, number });
    const gone = this.changeTreasures(update);
    this.onUpdate(update, this.players.get(id) ?? before, gone);
    // Where it leaves, it is shown until everybody knows.
    if (update.kind === "left") this.players.delete(id);
  }

  change(update, id, player) {
    switch (update.kind) {
      case "clock": this.setClock(update.unix_ms); break;
      case "moved": this.place(id, update.x, update.y); break;
      case "joined": case "arrived": case "respawned": {
        const came = this.place(id, update.x, update.y);
        came.trail = [];
        came.health = update.health ?? 100;
        break;
      }
      case "rotated": case "shot": if (player) player.heading = update.heading; break;
      case "damaged": case "healed": if (player) player.health = update.health; break;
      case "downed": if (player) player.health = 0; break;
      case "looted": {
        const finds = this.findsOf(update.hunt);
        finds.set(id, (finds.get(id) ?? 0) + 1);
        break;
      }
      case "hunt_started": this.loadHunts(); break;
      case "hunt_ended":
        this.finds.delete(update.hunt);
        this.loadHunts();
        break;
    }
  }

  // Lays treasures or removes them, and returns those that are gone.
  changeTreasures(update) {
    if (update.kind === "treasure_laid") {
      const { hunt, treasure, x, y } = update;
      this.treasures.set(`${hunt}:${treasure}`, { hunt, x, y, laidAt: performance.now() });
    }
    if (update.kind === "looted") return this.remove([`${update.hunt}:${update.treasure}`]);
    if (update.kind !== "hunt_ended") return [];
    return this.remove([...this.treasures.keys()].filter((key) => key.startsWith(`${update.hunt}:`)));
  }

  remove(keys) {
    const gone = keys.map((key) => this.treasures.get(key)).filter(Boolean);
    keys.forEach((key) => this.treasures.delete(key));
    return gone;
  }
}
