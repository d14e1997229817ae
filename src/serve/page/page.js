"use strict";
// The page asks this server alone: the state once, then a stream of updates from there on.

const $ = (id) => document.getElementById(id);
const canvas = $("map"), pen = canvas.getContext("2d");
const FEED_MAX = 100, SHOT_MS = 400;

let zone = 0, map = null, stream = null, cardStream = null, followed = "";
let players = new Map(), treasures = new Map(), walls = [], crowd = new Map(), shots = [];
let clock = { zone: 0, here: 0 }, running = [];
let counts = { all: 0, refused: 0 };

const get = async (path) => {
  const answer = await fetch(path, { cache: "no-store" });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.detail);
  return body;
};

const row = (cells) => {
  const line = document.createElement("tr");
  for (const cell of cells) line.appendChild(document.createElement("td")).textContent = cell;
  return line;
};

const say = (sentence) => { $("link").textContent = sentence; };

// State of the zone, and the stream of what follows.
async function open(wanted) {
  zone = wanted;
  if (stream) stream.close();
  players = new Map(); treasures = new Map(); shots = [];
  try {
    await loadTiles();
    await loadHunts();
  } catch (error) {
    say(error.message);
    setTimeout(() => { if (zone === wanted) open(wanted); }, 1000);
    return;
  }
  stream = new EventSource(`/v1/stream?zone=${zone}&board=world`);
  stream.onopen = () => say("live");
  stream.onerror = () => {
    say("reconnecting");
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => open(zone), 1000);
  };
  stream.addEventListener("update", (event) => take(JSON.parse(event.data)));
  stream.addEventListener("board", (event) => showBoard(JSON.parse(event.data)));
  stream.addEventListener("reset", () => loadTiles());
}

async function loadTiles() {
  const tiles = await get(`/v1/zones/${zone}/tiles`);
  map = { side: tiles.tiles_per_side * tiles.tile_cm, tile: tiles.tile_cm, tiles: tiles.tiles_per_side };
  crowd = new Map(tiles.players);
  treasures = new Map(tiles.treasures.map(([hunt, number, x, y]) => [`${hunt}:${number}`, [x, y]]));
  walls = [];
  tiles.walls.forEach((word, at) => {
    let bits = BigInt(`0x${word}`);
    for (let bit = 0; bits; bit++, bits >>= 1n) if (bits & 1n) walls.push(at * 64 + bit);
  });
}

async function loadHunts() {
  const hunts = await get(`/v1/zones/${zone}/hunts`);
  clock = { zone: Number(hunts.now_ms), here: performance.now() };
  running = hunts.running;
  showHunts();
}

const now = () => clock.zone + performance.now() - clock.here;

function take(update) {
  counts.all++;
  const id = update.player_id;
  switch (update.kind) {
    case "refused": counts.refused++; break;
    case "clock": clock = { zone: Number(update.unix_ms), here: performance.now() }; break;
    case "joined": case "arrived": case "moved": case "respawned":
      players.set(id, [update.x, update.y]);
      break;
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
  if (update.kind.startsWith("hunt_")) loadHunts().catch(() => {});
  if (id === followed) tell(update);
}

function tell(update) {
  const { kind, player_id, ts_us, ...fields } = update;
  const words = Object.entries(fields).map(([key, value]) => `${key} ${value}`).join(", ");
  const line = document.createElement("li");
  line.textContent = `${kind}: ${words}`;
  $("feed").prepend(line);
  while ($("feed").childElementCount > FEED_MAX) $("feed").lastChild.remove();
}

function showBoard(board) {
  if (!board.places) return;
  $("board").replaceChildren(...board.places.map((p) => row([p.rank, p.player_id, p.zone, p.score])));
}

function showHunts() {
  const left = (hunt) => `${Math.max(0, Math.round((Number(hunt.ends_at_ms) - now()) / 1000))} s`;
  $("hunts").replaceChildren(...running.map((h) => row([h.hunt, `${h.opened} of ${h.laid}`, left(h)])));
}

async function showZones() {
  try {
    const { zones } = await get("/v1/zones");
    if ($("zone").childElementCount !== zones.length) {
      $("zone").replaceChildren(...zones.map((z) => new Option(z.zone, z.zone)));
      $("zone").value = zone;
    }
    const state = (z) => (z.sentence ? `${z.state}: ${z.sentence}` : z.state);
    $("zones").replaceChildren(...zones.map((z) => row([z.zone, state(z), z.owner_epoch ?? "", z.players ?? ""])));
    const here = zones[zone];
    if (here && here.at) {
      $("players").textContent = here.players;
      $("offset").textContent = here.at.offset;
    }
  } catch (error) {
    say(error.message);
  }
}

function follow(player) {
  followed = player;
  $("feed").replaceChildren();
  $("card").textContent = "";
  if (cardStream) cardStream.close();
  if (!/^[0-9]+$/.test(player)) return;
  cardStream = new EventSource(`/v1/stream?player=${player}`);
  cardStream.addEventListener("card", (event) => {
    const card = JSON.parse(event.data);
    $("card").textContent = card.detail ??
      `zone ${card.zone}, rank ${card.rank} (world ${card.world_rank}), score ${card.score}, health ${card.health}, at ${card.x}, ${card.y}`;
  });
}

function draw() {
  requestAnimationFrame(draw);
  if (!map) return;
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name);
  const scale = canvas.width / map.side, side = map.tile * scale;
  const place = (tile) => [(tile % map.tiles) * side, canvas.height - (Math.floor(tile / map.tiles) + 1) * side];
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.fillStyle = color("--wall");
  for (const wall of walls) { const [x, y] = place(wall); pen.fillRect(x, y, side, side); }
  if (players.size === 0) {
    // Until players move, their tiles are all that is known of them.
    pen.fillStyle = color("--player");
    for (const [tile, count] of crowd) {
      const [x, y] = place(tile);
      pen.globalAlpha = Math.min(1, .3 + count / 10);
      pen.fillRect(x, y, side, side);
    }
    pen.globalAlpha = 1;
  }
  pen.strokeStyle = color("--treasure");
  pen.lineWidth = 3;
  pen.beginPath();
  for (const [x, y] of treasures.values()) {
    const [h, v] = [x * scale, canvas.height - y * scale];
    pen.moveTo(h - 6, v); pen.lineTo(h + 6, v);
    pen.moveTo(h, v - 6); pen.lineTo(h, v + 6);
  }
  pen.stroke();
  pen.fillStyle = color("--player");
  pen.beginPath();
  for (const [x, y] of players.values()) {
    const [h, v] = [x * scale, canvas.height - y * scale];
    pen.moveTo(h + 4, v);
    pen.arc(h, v, 4, 0, 7);
  }
  pen.fill();
  const shown = performance.now();
  shots = shots.filter((shot) => shown - shot.at < SHOT_MS);
  pen.strokeStyle = color("--shot");
  pen.lineWidth = 2;
  pen.beginPath();
  for (const { from: [x, y], heading, way } of shots) {
    const turn = heading / 18000 * Math.PI;
    pen.moveTo(x * scale, canvas.height - y * scale);
    pen.lineTo((x + way * Math.cos(turn)) * scale, canvas.height - (y + way * Math.sin(turn)) * scale);
  }
  pen.stroke();
}

setInterval(() => {
  $("rate-all").textContent = counts.all;
  $("rate-refused").textContent = counts.refused;
  counts = { all: 0, refused: 0 };
  showHunts();
  showZones();
}, 1000);
$("zone").addEventListener("change", (event) => open(Number(event.target.value)));
$("player").addEventListener("change", (event) => follow(event.target.value.trim()));
showZones();
open(0);
draw();
