"use strict";
// The page asks this server alone: the state once, then a stream of updates from there on.

const $ = (id) => document.getElementById(id);
const canvas = $("map"), pen = canvas.getContext("2d");
const FEED_MAX = 100, SHOT_MS = 400, RETRY_MS = 1000;

let zone = 0, map = null, walls = [];
let players = new Map(), told = null, treasures = new Map(), shots = [], running = [];
let clock = { zone: 0, here: 0 }, followed = "", followedZone = null;
let count = null;
let zoneStream = null, cardStream = null;
let colors = {}, shown = { x: 0, y: 0, side: 1 };

// Asking, with a token where the server wants one.

const headers = () => {
  const token = sessionStorage.getItem("token");
  return token ? { Authorization: `Bearer ${token}` } : {};
};

const say = (sentence, isLive = false) => {
  $("link").textContent = sentence;
  $("link").classList.toggle("live", isLive);
};

async function ask(path, more = {}) {
  const answer = await fetch(path, { cache: "no-store", ...more, headers: { ...headers(), ...more.headers } });
  $("door").hidden = answer.status !== 401;
  if (!answer.ok) throw new Error((await answer.json()).detail);
  return answer;
}

const get = async (path) => (await ask(path)).json();

// A stream of events that goes on where it was cut. EventSource cannot send a token.
class Stream {
  constructor(path, take, tell) {
    Object.assign(this, { path, take, tell, last: null, cut: new AbortController() });
    this.run();
  }

  close() { this.cut.abort(); }

  async run() {
    while (!this.cut.signal.aborted) {
      try {
        const last = this.last ? { "Last-Event-ID": this.last } : {};
        const answer = await ask(this.path, { headers: last, signal: this.cut.signal });
        this.tell("live", true);
        await this.read(answer.body.pipeThrough(new TextDecoderStream()).getReader());
        this.tell("reconnecting");
      } catch (error) {
        if (this.cut.signal.aborted) return;
        this.tell(error instanceof TypeError ? "reconnecting" : error.message);
      }
      await new Promise((done) => setTimeout(done, RETRY_MS));
    }
  }

  async read(reader) {
    for (let text = ""; ;) {
      const { value, done } = await reader.read();
      if (done) return;
      const events = (text + value).split("\n\n");
      text = events.pop();
      for (const event of events) this.event(event);
    }
  }

  event(text) {
    let name = "", data = "", id = "";
    for (const line of text.split("\n")) {
      if (line.startsWith("id: ")) this.last = id = line.slice(4);
      else if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("data: ")) data = line.slice(6);
    }
    if (name) this.take(name, JSON.parse(data), id);
  }
}

// What became of a zone's events. They are counted between two positions that the zone has come to: how many records
// there were the offsets say, and those without any update changed nothing or were no events.
class Count {
  // An event makes one of these updates at most. All of its updates have its time.
  static OWN = new Set(["refused", "joined", "arrived", "left", "moved", "rotated", "shot", "looted", "item_used",
    "hunt_started", "rules_changed"]);

  constructor({ update, offset }) {
    Object.assign(this, { from: { update, offset, when: performance.now() }, to: null, next: update, events: [] });
    this.total = { applied: 0, refused: 0, noOp: 0 };
  }

  take(update, number) {
    const isOwn = Count.OWN.has(update.kind);
    let event = this.events.at(-1);
    if (event?.time !== update.ts_us || (isOwn && event.isDecided)) {
      event = { time: update.ts_us, number, isDecided: false, isRefused: false };
      this.events.push(event);
    }
    event.isDecided ||= isOwn;
    event.isRefused ||= update.kind === "refused";
    this.next = number + 1;
  }

  // The zone has come to this position. Gives how many events per second there were up to the one before, once all
  // updates up to there have come.
  reach({ update, offset }) {
    const { from, to } = this;
    const here = { update, offset, when: performance.now() };
    // Another process at this address may not have come so far.
    if (offset < (to ?? from).offset) return null;
    if (to === null) { this.to = here; return null; }
    if (this.next < to.update) return null;
    const end = this.events.findIndex((event) => event.number >= to.update);
    const events = this.events.splice(0, end < 0 ? this.events.length : end);
    const refused = events.filter((event) => event.isRefused).length, applied = events.length - refused;
    const counted = { applied, refused, noOp: to.offset - from.offset - events.length };
    for (const name in counted) this.total[name] += counted[name];
    Object.assign(this, { from: to, to: here });
    const perSecond = (number) => Math.round(number * 1000 / (to.when - from.when));
    return { applied: perSecond(applied), refused: perSecond(refused), noOp: perSecond(counted.noOp) };
  }
}

// One zone: its state, and what follows.

async function open(wanted) {
  zone = wanted;
  zoneStream?.close();
  players = new Map(); treasures = new Map(); shots = []; map = null;
  count = null;
  try {
    await loadTiles();
    await loadHunts();
  } catch (error) {
    say(error.message);
    setTimeout(() => { if (zone === wanted) open(wanted); }, RETRY_MS);
    return;
  }
  if (zone !== wanted) return;
  zoneStream = new Stream(`/v1/stream?zone=${zone}&board=world`, (name, data, id) => {
    if (name === "update") take(data, Number(id.split(":")[1]));
    else if (name === "board") showBoard(data);
    else if (name === "at" || name === "reset") {
      count = new Count(data);
      if (name === "reset") loadTiles().catch(() => {});
      loadPlayers(new Map());
    }
  }, say);
}

async function loadTiles() {
  const tiles = await get(`/v1/zones/${zone}/tiles`);
  map = { side: tiles.tiles_per_side * tiles.tile_cm, tile: tiles.tile_cm, tiles: tiles.tiles_per_side };
  chooseWindow();
  treasures = new Map(tiles.treasures.map(([hunt, number, x, y]) => [`${hunt}:${number}`, [x, y]]));
  walls = [];
  tiles.walls.forEach((word, at) => {
    let bits = BigInt(`0x${word}`);
    for (let bit = 0; bits; bit++, bits >>= 1n) if (bits & 1n) walls.push(at * 64 + bit);
  });
}

// Where the players are, while the stream goes on. What it tells of a player is newer than the player's page if the
// page does not include that update.
async function loadPlayers(all) {
  players = all;
  told = new Map();
  const wanted = zone;
  try {
    for (let from = "0"; from;) {
      const page = await get(`/v1/zones/${wanted}/players?count=1000&from=${from}`);
      if (players !== all) return;
      for (const { player_id: id, x, y } of page.players) {
        if (!(told.get(id) >= page.at.update)) place(id, x, y);
      }
      from = page.next;
    }
    told = null;
  } catch (error) {
    if (!(error instanceof TypeError)) say(error.message);
    setTimeout(() => { if (players === all) loadPlayers(all); }, RETRY_MS);
  }
}

async function loadHunts() {
  const wanted = zone;
  const hunts = await get(`/v1/zones/${wanted}/hunts`);
  if (zone !== wanted) return;
  setClock(hunts.now_ms);
  running = hunts.running;
  showHunts();
}

const setClock = (zoneMs) => { clock = { zone: Number(zoneMs), here: performance.now() }; };
const now = () => clock.zone + performance.now() - clock.here;

function take(update, number) {
  const id = update.player_id;
  count.take(update, number);
  told?.set(id, number);
  switch (update.kind) {
    case "clock": setClock(update.unix_ms); break;
    case "joined": case "arrived": case "moved": case "respawned": place(id, update.x, update.y); break;
    case "left": players.delete(id); break;
    case "shot": {
      const from = players.get(id);
      if (from) shots.push({ from, heading: update.heading, way: update.distance_cm, at: performance.now() });
      break;
    }
    case "treasure_laid": treasures.set(`${update.hunt}:${update.treasure}`, [update.x, update.y]); break;
    case "looted": treasures.delete(`${update.hunt}:${update.treasure}`); break;
    case "hunt_ended":
      for (const key of treasures.keys()) if (key.startsWith(`${update.hunt}:`)) treasures.delete(key);
      break;
  }
  if (id === followed) tell(update);
}

function place(id, x, y) {
  players.set(id, [x, y]);
}

// What is shown beside the map.

function row(cells) {
  const line = document.createElement("tr");
  for (const [content, kind] of cells) {
    const cell = line.appendChild(document.createElement("td"));
    if (content instanceof Node) cell.append(content);
    else cell.textContent = content;
    if (kind) cell.className = kind;
  }
  return line;
}

function link(player) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = player;
  button.addEventListener("click", () => { $("player").value = player; follow(player); });
  return button;
}

function showBoard(board) {
  if (!board.places) return;
  $("board").replaceChildren(...board.places.map((p) =>
    row([[p.rank, "number"], [link(p.player_id)], [p.zone, "number"], [p.score, "number"]])));
}

function showHunts() {
  const left = (hunt) => {
    const seconds = Math.max(0, Math.round((Number(hunt.ends_at_ms) - now()) / 1000));
    return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
  };
  $("hunts").replaceChildren(...running.map((h) => row([[h.hunt], [`${h.opened} of ${h.laid}`], [left(h), "number"]])));
  $("no-hunts").hidden = running.length > 0;
}

async function showZones() {
  const { zones } = await get("/v1/zones");
  if ($("zone").childElementCount !== zones.length) {
    $("zone").replaceChildren(...zones.map((z) => new Option(z.zone, z.zone)));
    $("zone").value = zone;
  }
  const state = (z) => [z.sentence ? `${z.state}: ${z.sentence}` : z.state, z.state];
  $("zones").replaceChildren(...zones.map((z) =>
    row([[z.zone, "number"], state(z), [z.owner_epoch ?? "–", "number"], [z.players ?? "–", "number"]])));
  const here = zones[zone];
  const silent = here?.at?.stale_ms;
  $("stale").hidden = !silent;
  $("stale").textContent = silent
    ? `Nobody plays zone ${zone}: its owner has published nothing for ${Math.round(silent / 1000)} s. All below is old.`
    : "";
  if (!here?.at) return;
  $("players").textContent = here.players;
  $("offset").textContent = here.at.offset;
  $("lag").textContent = here.lag_ms;
  const rates = count?.reach(here.at);
  if (!rates) return;
  $("applied").textContent = rates.applied;
  $("refused").textContent = rates.refused;
  $("no-op").textContent = rates.noOp;
}

// One player.

function follow(player) {
  followed = player;
  followedZone = null;
  $("feed").replaceChildren();
  $("card").replaceChildren();
  cardStream?.close();
  if (!/^[0-9]+$/.test(player)) return;
  cardStream = new Stream(`/v1/stream?player=${player}`, (name, card) => showCard(card), () => {});
}

function showCard(card) {
  const facts = card.detail ? [["", card.detail]] : [
    ["zone", card.zone], ["rank", card.rank], ["in the world", card.world_rank], ["score", card.score],
    ["health", card.health], ["place, m", `${(card.x / 100).toFixed(1)}, ${(card.y / 100).toFixed(1)}`],
  ];
  // The map goes where the player goes; the feed is made of that zone's updates.
  if (!card.detail && card.zone !== followedZone) {
    followedZone = card.zone;
    if (card.zone !== zone) {
      $("zone").value = card.zone;
      open(card.zone);
    }
  }
  if (!card.detail && card.zone === zone) place(card.player_id, card.x, card.y);
  $("card").replaceChildren(...facts.map(([name, value]) => {
    const fact = document.createElement("div");
    fact.appendChild(document.createElement("dt")).textContent = name;
    fact.appendChild(document.createElement("dd")).textContent = value;
    return fact;
  }));
}

function tell(update) {
  const { kind, player_id, ts_us, ...fields } = update;
  const line = document.createElement("li");
  if (kind === "refused") line.className = "refused";
  const words = Object.entries(fields).map(([name, value]) => `${name} ${value}`).join(", ");
  line.textContent = words ? `${kind}: ${words}` : kind;
  $("feed").prepend(line);
  while ($("feed").childElementCount > FEED_MAX) $("feed").lastChild.remove();
}

// The map. South is below, as y grows upwards.

function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["player", "treasure", "shot", "wall", "ink"]) colors[name] = style.getPropertyValue(`--${name}`);
}

function fit() {
  const side = Math.round(Math.min(canvas.clientWidth, canvas.clientHeight) * devicePixelRatio);
  if (side > 0 && canvas.width !== side) canvas.width = canvas.height = side;
}

// An eighth of the map around the player whom one follows, else the smallest part that has all
// players: a half, a quarter or an eighth of it.
function chooseWindow() {
  shown = { x: 0, y: 0, side: map.side };
  if (!$("near").checked || players.size === 0) return;
  const me = players.get(followed);
  if (me) {
    const side = map.side / 8;
    const [x, y] = me.map((place) => Math.max(0, Math.min(place - side / 2, map.side - side)));
    shown = { x, y, side };
    return;
  }
  const all = [...players.values()], xs = all.map(([x]) => x), ys = all.map(([, y]) => y);
  const least = [Math.min(...xs), Math.min(...ys)], most = [Math.max(...xs), Math.max(...ys)];
  for (const parts of [8, 4, 2]) {
    const side = map.side / parts, step = side / 2;
    const [x, y] = least.map((place) => Math.min(Math.floor(place / step) * step, map.side - side));
    if (most[0] < x + side && most[1] < y + side) { shown = { x, y, side }; return; }
  }
}

function draw() {
  requestAnimationFrame(draw);
  fit();
  pen.clearRect(0, 0, canvas.width, canvas.height);
  if (!map) return;
  const me = players.get(followed);
  if (me) chooseWindow();
  const scale = canvas.width / shown.side, side = map.tile * scale, dot = Math.max(2, canvas.width / 260);
  const at = (x, y) => [(x - shown.x) * scale, canvas.height - (y - shown.y) * scale];
  const corner = (tile) => at((tile % map.tiles) * map.tile, (Math.floor(tile / map.tiles) + 1) * map.tile);
  pen.fillStyle = colors.wall;
  for (const wall of walls) { const [h, v] = corner(wall); pen.fillRect(h, v, side + .5, side + .5); }
  drawTreasures(at, dot);
  pen.fillStyle = colors.player;
  pen.beginPath();
  for (const [x, y] of players.values()) {
    const [h, v] = at(x, y);
    pen.moveTo(h + dot, v);
    pen.arc(h, v, dot, 0, 2 * Math.PI);
  }
  pen.fill();
  drawShots(at, dot);
  if (me) {
    const [h, v] = at(...me);
    pen.strokeStyle = colors.ink;
    pen.lineWidth = dot / 1.5;
    pen.beginPath();
    pen.arc(h, v, dot * 4, 0, 2 * Math.PI);
    pen.stroke();
  }
}

function drawTreasures(at, dot) {
  pen.strokeStyle = colors.treasure;
  // Many are drawn smaller.
  const arm = treasures.size > 300 ? dot : 2 * dot;
  pen.lineWidth = arm / 2;
  pen.beginPath();
  for (const [x, y] of treasures.values()) {
    const [h, v] = at(x, y);
    pen.moveTo(h - arm, v); pen.lineTo(h + arm, v);
    pen.moveTo(h, v - arm); pen.lineTo(h, v + arm);
  }
  pen.stroke();
}

function drawShots(at, dot) {
  const drawn = performance.now();
  shots = shots.filter((shot) => drawn - shot.at < SHOT_MS);
  pen.strokeStyle = colors.shot;
  pen.lineWidth = dot / 1.5;
  pen.beginPath();
  for (const { from: [x, y], heading, way } of shots) {
    const turn = heading / 18000 * Math.PI;
    pen.moveTo(...at(x, y));
    pen.lineTo(...at(x + way * Math.cos(turn), y + way * Math.sin(turn)));
  }
  pen.stroke();
}

async function everySecond() {
  showHunts();
  if (map) chooseWindow();
  try {
    await showZones();
    await loadHunts();
  } catch (error) {
    if (!(error instanceof TypeError)) say(error.message);
  }
}

$("near").addEventListener("change", () => { if (map) chooseWindow(); });
$("zone").addEventListener("change", (event) => open(Number(event.target.value)));
$("player").addEventListener("change", (event) => follow(event.target.value.trim()));
$("door").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", $("token").value.trim());
  $("door").hidden = true;
  open(zone);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", readColors);
readColors();
setInterval(everySecond, 1000);
everySecond();
open(0);
draw();
