// Draws a zone on a canvas. Everything that a colour says, a shape says, too: players are darts or dots, those who are
// down are crosses in a ring, treasures are diamonds, walls are blocks.

import { FLASH_MS } from "/film.js";
import { Heat } from "/heat.js";
import { nameOf } from "/names.js";

// With more players on the screen than this, nobody has a trail, and with more than that, nobody has a name.
const TRAILS_MAX = 400;
const NAMES_MAX = 24;

// Steps in which a flash fades, and flashes beyond which shots that miss are left out.
const FADE_STEPS = 4;
const FLASHES_MAX = 400;

// Milliseconds between two pictures of the heat under the players.
const HEAT_MS = 500;

const COLORS = ["player", "treasure", "shot", "wall", "ink", "ground", "grid", "heat", "lead", "down"];

export class MapView {
  constructor(canvas, camera) {
    Object.assign(this, { canvas, camera, colors: {}, heatAt: 0, zone: null });
    this.pen = canvas.getContext("2d", { alpha: false });
    this.walls = document.createElement("canvas");
    this.heat = document.createElement("canvas");
    this.visible = [];
    this.readColors();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.readColors());
  }

  readColors() {
    const style = getComputedStyle(document.documentElement);
    for (const name of COLORS) this.colors[name] = style.getPropertyValue(`--${name}`).trim();
    this.zone = null;
  }

  resize() {
    const ratio = Math.min(devicePixelRatio, 2), { clientWidth, clientHeight } = this.canvas;
    const [width, height] = [Math.round(clientWidth * ratio), Math.round(clientHeight * ratio)];
    if (this.canvas.width === width && this.canvas.height === height && this.ratio === ratio) return;
    Object.assign(this.canvas, { width, height });
    this.ratio = ratio;
    this.camera.resize(clientWidth, clientHeight);
  }

  // Walls as a picture with a pixel for each tile.
  paintWalls(zone) {
    this.zone = zone.walls;
    const { tiles } = zone.map, { walls } = this;
    walls.width = walls.height = tiles;
    const pen = walls.getContext("2d");
    pen.fillStyle = this.colors.wall;
    for (const wall of zone.walls) pen.fillRect(wall % tiles, tiles - 1 - Math.floor(wall / tiles), 1, 1);
  }

  paintHeat(players, side, now) {
    if (now - this.heatAt < HEAT_MS) return;
    this.heatAt = now;
    const heat = new Heat(players.length, side);
    for (const { shownX, shownY } of players) heat.add(shownX, shownY, 1);
    this.heat.width = this.heat.height = heat.cells;
    heat.paint(this.heat.getContext("2d"), this.colors.heat);
  }

  // Draws a scene: players, treasures, flashes; who is followed, and who leads.
  draw(zone, scene, { followed, hovered, leaders, when, now }) {
    this.resize();
    const { pen, camera, canvas, ratio } = this;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.fillStyle = this.colors.ground;
    pen.fillRect(0, 0, canvas.width, canvas.height);
    if (!zone?.map) { this.visible = []; return; }
    if (this.zone !== zone.walls) this.paintWalls(zone);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.drawGround(zone.map, scene.players, now);
    const [left, top] = camera.toMap(0, 0), [right, bottom] = camera.toMap(camera.width, camera.height);
    const isSeen = (x, y) => x >= left && x <= right && y >= bottom && y <= top;
    this.visible = scene.players.filter((player) => isSeen(player.shownX, player.shownY));
    const size = Math.max(2.4, Math.min(8, camera.zoom * 260));
    if (this.visible.length <= TRAILS_MAX) this.drawTrails(this.visible);
    this.drawTreasures(scene.treasures, isSeen, size);
    this.drawPlayers(size);
    this.drawFlashes(scene.flashes, when, size);
    this.drawNames(followed, hovered, leaders, size);
  }

  drawGround({ side, tiles }, players, now) {
    const { pen, camera, colors } = this;
    const [left, top] = camera.toScreen(0, side), length = side * camera.zoom;
    this.paintHeat(players, side, now);
    pen.imageSmoothingEnabled = true;
    pen.drawImage(this.heat, left, top, length, length);
    pen.imageSmoothingEnabled = false;
    if (this.zone.length > 0) pen.drawImage(this.walls, left, top, length, length);
    // Lines that stay readable at every distance: of 1, 8 or 64 tiles.
    const step = [1, 4, 16, 64].find((every) => length / tiles * every >= 42) ?? 64;
    pen.strokeStyle = colors.grid;
    pen.lineWidth = 1;
    pen.beginPath();
    for (let tile = 0; tile <= tiles; tile += step) {
      const way = Math.round(tile / tiles * length) + 0.5;
      pen.moveTo(left + way, top); pen.lineTo(left + way, top + length);
      pen.moveTo(left, top + way); pen.lineTo(left + length, top + way);
    }
    pen.stroke();
  }

  drawTrails(players) {
    const { pen, camera, colors } = this;
    pen.strokeStyle = colors.player;
    pen.lineWidth = 1.5;
    pen.globalAlpha = 0.35;
    pen.beginPath();
    for (const { trail, shownX, shownY } of players) {
      if (trail.length < 2) continue;
      pen.moveTo(...camera.toScreen(trail[0].x, trail[0].y));
      for (let at = 1; at < trail.length - 1; at++) pen.lineTo(...camera.toScreen(trail[at].x, trail[at].y));
      pen.lineTo(...camera.toScreen(shownX, shownY));
    }
    pen.stroke();
    pen.globalAlpha = 1;
  }

  drawTreasures(treasures, isSeen, size) {
    const { pen, camera, colors } = this;
    const seen = [];
    for (const treasure of treasures) if (isSeen(treasure.x, treasure.y)) seen.push(treasure);
    // Many are drawn smaller.
    const arm = Math.max(2, Math.min(size * 1.5, seen.length > 300 ? size * 0.9 : 8));
    pen.fillStyle = colors.treasure;
    pen.beginPath();
    for (const { x, y } of seen) {
      const [h, v] = camera.toScreen(x, y);
      pen.moveTo(h, v - arm); pen.lineTo(h + arm, v); pen.lineTo(h, v + arm); pen.lineTo(h - arm, v);
      pen.closePath();
    }
    pen.fill();
  }

  drawPlayers(size) {
    const { pen, camera, colors } = this, hasHeading = size > 4, side = Math.round(size);
    pen.fillStyle = colors.player;
    pen.beginPath();
    for (const player of this.visible) {
      if (player.health === 0) continue;
      const [h, v] = camera.toScreen(player.shownX, player.shownY);
      // Squares on whole pixels are filled much faster than others, and than a path of many.
      if (hasHeading) dart(pen, h, v, size * 1.25, player.heading);
      else pen.fillRect(Math.round(h - side / 2), Math.round(v - side / 2), side, side);
    }
    pen.fill();
    pen.strokeStyle = colors.down;
    pen.lineWidth = Math.max(1.2, size / 4);
    pen.beginPath();
    for (const player of this.visible) {
      if (player.health !== 0) continue;
      const [h, v] = camera.toScreen(player.shownX, player.shownY), arm = size * 0.7;
      pen.moveTo(h - arm, v - arm); pen.lineTo(h + arm, v + arm);
      pen.moveTo(h - arm, v + arm); pen.lineTo(h + arm, v - arm);
      if (hasHeading) { pen.moveTo(h + size * 1.4, v); pen.arc(h, v, size * 1.4, 0, 2 * Math.PI); }
    }
    pen.stroke();
  }

  // Flashes fade in steps, so that all of one kind and step are one path.
  drawFlashes(flashes, when, size) {
    const { pen, camera, colors } = this, paths = new Map();
    const isBusy = flashes.length > FLASHES_MAX;
    for (const flash of flashes) {
      if (isBusy && flash.kind === "shot" && !flash.isHit) continue;
      const age = (when - flash.when) / FLASH_MS[flash.kind];
      if (age < 0 || age >= 1) continue;
      const step = Math.floor(age * FADE_STEPS), key = `${flash.kind} ${flash.isHit} ${step}`;
      if (!paths.has(key)) paths.set(key, { flash, step, path: new Path2D() });
      const { path } = paths.get(key), [h, v] = camera.toScreen(flash.x, flash.y);
      if (flash.kind === "shot") {
        const turn = flash.heading / 18000 * Math.PI, way = flash.way * camera.zoom;
        path.moveTo(h, v);
        path.lineTo(h + way * Math.cos(turn), v - way * Math.sin(turn));
      } else {
        // A ring that grows.
        const radius = size * (1.5 + 4 * age);
        path.moveTo(h + radius, v);
        path.arc(h, v, radius, 0, 2 * Math.PI);
      }
    }
    for (const { flash: { kind, isHit }, step, path } of paths.values()) {
      pen.globalAlpha = 1 - step / FADE_STEPS;
      pen.strokeStyle = { shot: colors.shot, downed: colors.down, looted: colors.treasure }[kind];
      pen.lineWidth = kind === "shot" && !isHit ? 1 : 2.2;
      pen.stroke(path);
    }
    pen.globalAlpha = 1;
  }

  drawNames(followed, hovered, leaders, size) {
    const { pen, camera, colors } = this;
    pen.font = '600 12px system-ui, "DejaVu Sans", sans-serif';
    pen.textBaseline = "middle";
    pen.lineJoin = "round";
    const hasAll = this.visible.length <= NAMES_MAX;
    for (const player of this.visible) {
      const place = leaders.indexOf(player.id), isChosen = player.id === followed || player.id === hovered;
      if (place < 0 && !isChosen && !hasAll) continue;
      const [h, v] = camera.toScreen(player.shownX, player.shownY);
      if (isChosen) {
        pen.strokeStyle = colors.ink;
        pen.lineWidth = 2;
        pen.beginPath();
        pen.arc(h, v, Math.max(9, size * 2.2), 0, 2 * Math.PI);
        pen.stroke();
      }
      const text = place < 0 ? nameOf(player.id) : `${place + 1} ${nameOf(player.id)}`;
      const width = pen.measureText(text).width, gap = Math.max(10, size * 2.4);
      const left = h + gap + width > camera.width ? h - gap - width : h + gap;
      pen.strokeStyle = colors.ground;
      pen.lineWidth = 4;
      pen.strokeText(text, left, v);
      pen.fillStyle = place < 0 ? colors.ink : colors.lead;
      pen.fillText(text, left, v);
    }
  }

  // Who is at a place of the screen, or next to it.
  playerAt([left, top]) {
    let nearest = null, least = 16;
    for (const player of this.visible) {
      const [h, v] = this.camera.toScreen(player.shownX, player.shownY), way = Math.hypot(h - left, v - top);
      if (way < least) [nearest, least] = [player, way];
    }
    return nearest;
  }
}

// A dart that points where somebody looks, in centidegrees from east, counterclockwise.
function dart(pen, h, v, size, heading) {
  const turn = heading / 18000 * Math.PI, [x, y] = [Math.cos(turn) * size, -Math.sin(turn) * size];
  pen.moveTo(h + x * 1.2, v + y * 1.2);
  pen.lineTo(h - x * 0.8 - y * 0.75, v - y * 0.8 + x * 0.75);
  pen.lineTo(h - x * 0.35, v - y * 0.35);
  pen.lineTo(h - x * 0.8 + y * 0.75, v - y * 0.8 - x * 0.75);
  pen.closePath();
}
