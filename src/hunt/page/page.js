// The page: it chooses what is shown, a world or a zone of it, and tells each part when to show what. What happens
// comes over streams; what has no stream is asked for every second.

import * as address from "/address.js";
import * as alarm from "/alarm.js";
import { Board } from "/board.js";
import { Camera } from "/camera.js";
import { $, write } from "/dom.js";
import { Feed } from "/feed.js";
import { Film } from "/film.js";
import { Hunts } from "/hunts.js";
import { link } from "/link.js";
import { MapView } from "/map.js";
import { nameOf } from "/names.js";
import { Follow } from "/player.js";
import { Pulse } from "/pulse.js";
import { Search } from "/search.js";
import { Timeline } from "/timeline.js";
import { isTechnical, showLabels } from "/words.js";
import { World } from "/world.js";
import { Zone } from "/zone.js";

const SECOND_MS = 1_000;

// Milliseconds after which a question is asked again.
const ANSWER_MS_MAX = 10_000;

// Milliseconds in which a dot goes most of its way to where its player is.
const GLIDE_MS = 90;

// Beyond this many cm, it jumps.
const JUMP_CM = 6_000;

// Panels are brought up to date this often, in milliseconds.
const PANELS_MS = 250;

// The part of a map's side that is seen around a player whom one follows.
const FOLLOW_PARTS = 10;

// Where those find players who do not see the map.
const ELSEWHERE = "Players are also in the search and on the board.";

// The best who have names on the map.
const LEADERS = 3;

class Page {
  constructor() {
    this.zones = [];
    this.zone = null;
    this.film = new Film();
    this.stream = { state: "open", error: null, since: 0 };
    this.hovered = null;
    this.isCentred = false;
    // True if the viewer has just chosen the player; and the player's zone, if the page has yet to go there.
    this.isChosen = false;
    this.movedTo = null;
    this.drawnAt = this.panelsAt = performance.now();
    this.board = new Board($("board"), (id) => this.choose(id));
    this.feed = new Feed($("feed"), (id) => this.choose(id));
    this.hunts = new Hunts((id) => this.choose(id), (zone) => this.open(zone));
    this.pulse = new Pulse();
    this.timeline = new Timeline();
    this.world = new World($("zones"), (zone) => this.open(zone));
    this.player = new Follow((zone) => this.moved(zone));
    this.camera = new Camera($("map"), {
      onClick: (at) => this.click(at),
      onHover: (at) => this.hover(at),
      onMove: () => { this.isCentred = false; },
    });
    this.map = new MapView($("map"), this.camera);
    this.search = new Search({
      known: () => [...(this.zone?.players.keys() ?? []), ...this.board.places.map((place) => place.player_id)],
      zones: () => this.zones,
      choose: (id) => this.choose(id),
    });
    this.listen();
  }

  start() {
    showLabels(localStorage.getItem("technical") === "true");
    $("technical").checked = isTechnical();
    this.followBoard();
    this.goToAddress();
    this.everySecond();
    requestAnimationFrame(() => this.frame());
  }

  listen() {
    $("technical").addEventListener("change", ({ target }) => {
      localStorage.setItem("technical", String(target.checked));
      showLabels(target.checked);
    });
    $("door").addEventListener("submit", (event) => {
      event.preventDefault();
      link.useToken($("token").value.trim());
      this.followBoard();
      this.reopen();
      this.player.start(null);
      this.goToAddress();
    });
    for (const name of ["popstate", "hashchange"]) addEventListener(name, () => this.goToAddress());
    $("to-world").addEventListener("click", () => this.open(null));
    $("nearer").addEventListener("click", () => this.camera.zoomBy(1.6));
    $("farther").addEventListener("click", () => this.camera.zoomBy(1 / 1.6));
    $("whole").addEventListener("click", () => { this.isCentred = false; this.camera.fit(); });
    $("centre").addEventListener("click", () => { this.isCentred = true; });
    $("unfollow").addEventListener("click", () => this.follow(null));
    $("big").addEventListener("click", () => {
      if (document.fullscreenElement) document.exitFullscreen();
      else $("stage").requestFullscreen().catch(() => {});
    });
    addEventListener("keydown", (event) => {
      if (event.target.closest("input, button, select") || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === " ") { event.preventDefault(); this.timeline.toggle(); }
      if (event.key === "/") { event.preventDefault(); $("search").focus(); }
      if (event.key === "l") this.timeline.goLive();
      if (event.key === "Escape") this.follow(null);
    });
  }

  goToAddress() {
    const { zone, player } = address.read();
    this.isChosen = false;
    this.open(zone);
    this.follow(player);
  }

  // The board is of the world, and stays when one goes to another zone.
  followBoard() {
    this.boardStream?.close();
    this.boardStream = link.stream({ board: ["world"] }, (name, data) => {
      if (name === "board" && data.places) this.board.take(data, performance.now());
    }, (_, error) => {
      $("board-trouble").hidden = error === null;
      write($("board-trouble"), error ? `Not kept up to date: ${error.message}` : "");
    });
  }

  // Shows a zone, or the world.
  open(number, mayStep = true) {
    this.movedTo = null;
    if (number === (this.zone?.number ?? null) && this.hasOpened) return;
    this.hasOpened = true;
    this.number = number;
    this.reopen();
    address.write({ zone: number, player: this.player.id }, mayStep);
  }

  reopen() {
    const { number } = this;
    this.zone?.close();
    this.film = new Film();
    this.feed.clear();
    this.pulse.clear();
    this.timeline.goLive();
    this.hover(null);
    this.isFitted = false;
    this.lastZones = null;
    this.stream = { state: "waiting", error: null, since: performance.now() };
    document.body.classList.toggle("in-world", number === null);
    write($("place"), number === null ? "World" : `Zone ${number}`);
    document.title = `${number === null ? "World" : `Zone ${number}`} – huntd`;
    $("to-world").hidden = number === null;
    this.world.show(this.zones, number);
    this.zone = number === null ? null : new Zone(number, {
      onUpdate: (update, place, gone) => this.take(update, place, gone),
      onState: (state, error) => {
        const since = state === this.stream.state ? this.stream.since : performance.now();
        this.stream = { state, error, since };
      },
    });
  }

  // Somebody chooses a player, be it again: one goes to where the player is.
  choose(id) {
    this.isChosen = id !== this.player.id;
    if (!this.isChosen && this.player.zone !== null) this.open(this.player.zone);
    this.follow(id);
  }

  follow(id) {
    if (id !== this.player.id) this.movedTo = null;
    this.player.start(id);
    this.isCentred = id !== null;
    this.hasZoomed = false;
    address.write({ zone: this.number, player: id });
  }

  // The player whom one follows is in this zone now. Who looks back stays until it is live again. One can go back to
  // where one has chosen the player, but not through all the zones that the player has crossed.
  moved(zone) {
    this.movedTo = zone;
    if (!this.timeline.isLive) return;
    this.open(zone, this.isChosen);
    this.isChosen = this.hasZoomed = false;
  }

  take(update, place, gone) {
    const when = performance.now(), { film } = this;
    film.vanish(gone, when);
    this.feed.take(update, when);
    this.player.take(update);
    if (update.kind === "hunt_started") film.tally("mark", when, `⚑${update.hunt}`);
    if (update.kind === "hunt_ended") film.tally("mark", when, `⚐${update.hunt}`);
    if (update.kind === "looted" || update.kind === "downed") film.tally(update.kind, when);
    if (!place || !["shot", "looted", "downed"].includes(update.kind)) return;
    const { kind, heading, distance_cm: way, target } = update;
    film.flash({ kind, when, x: place.x, y: place.y, heading, way, isHit: Boolean(target) });
  }

  hover(at) {
    this.pointer = at;
    const player = at && this.map.playerAt(at), tip = $("tip");
    this.hovered = player?.id ?? null;
    tip.hidden = !player;
    $("map").classList.toggle("pointing", Boolean(player));
    if (!player) return;
    const rank = this.board.shown.find((place) => place.player_id === player.id);
    const parts = [nameOf(player.id), player.health === 0 ? "down" : `health ${player.health}`];
    if (rank) parts.push(`number ${rank.rank} of the world`);
    if (isTechnical()) parts.push(player.id);
    write(tip, parts.join(" · "));
    const [left, top] = at.map(Math.round), aside = left > this.camera.width / 2 ? "-100%" : "0";
    tip.style.transform = `translate(${left}px, ${top}px) translate(${aside}, -140%)`;
  }

  click(at) {
    const player = this.map.playerAt(at);
    if (player) this.choose(player.id);
  }

  frame() {
    requestAnimationFrame(() => this.frame());
    const now = performance.now(), since = now - this.drawnAt;
    this.drawnAt = now;
    const when = this.timeline.moment(now, this.film);
    if (this.zone) this.drawZone(now, when, since);
    if (now - this.panelsAt >= PANELS_MS) {
      this.panelsAt = now;
      this.showPanels(now, when);
    }
  }

  drawZone(now, when, since) {
    const { zone, timeline, film, camera } = this, { isLive } = timeline;
    if (zone.map && !this.isFitted) {
      this.isFitted = true;
      this.map.resize();
      camera.fit(zone.map.side);
    }
    if (isLive) glide(zone.players.values(), since);
    const scene = {
      players: isLive ? [...zone.players.values()] : film.playersAt(when),
      treasures: isLive ? zone.treasures.values() : film.treasuresAt(when, zone.treasures.values()),
      flashes: film.flashesAt(when),
    };
    this.centre(scene);
    const leaders = this.board.shown.slice(0, LEADERS).map((place) => place.player_id);
    this.map.draw(zone, scene, { followed: this.player.id, hovered: this.hovered, leaders, when, now });
  }

  centre({ players }) {
    const { camera, zone } = this;
    if (!this.isCentred || !zone.map) return;
    const player = players.find((one) => one.id === this.player.id);
    if (!player) return;
    const near = Math.min(camera.width, camera.height) / (zone.map.side / FOLLOW_PARTS);
    camera.look(player.shownX, player.shownY, this.hasZoomed ? camera.zoom : Math.max(camera.zoom, near));
    this.hasZoomed = true;
  }

  showPanels(now, when) {
    if (this.timeline.isLive && this.movedTo !== null) this.moved(this.movedTo);
    const { timeline, film, zone } = this, { isLive } = timeline;
    this.feed.turn(now);
    this.feed.show(when);
    this.board.show(when, isLive, this.player.id);
    this.pulse.show(when);
    timeline.show(now, film, this.trouble?.isOld);
    // Players go away under a pointer that rests.
    if (this.pointer) this.hover(this.pointer);
    $("centre").hidden = this.player.id === null || this.isCentred || !zone;
    if (!zone) return this.hunts.showWorld(this.world.hunts());
    $("nobody").hidden = !zone.map || zone.players.size > 0 || zone.told !== null;
    const picture = isLive ? null : film.pictureAt(when);
    if (picture) this.hunts.showZone(picture.hunts, picture.now_ms + when - picture.when, picture.finds);
    else this.hunts.showZone(zone.hunts, zone.now(), zone.finds);
  }

  async everySecond() {
    setInterval(() => {
      this.judge();
      if (this.zone?.map) this.takePicture(performance.now());
    }, SECOND_MS / 2);
    for (;;) {
      const begun = performance.now();
      // While nobody answers, the banner says so.
      await this.ask().catch(() => {});
      await new Promise((done) => setTimeout(done, Math.max(0, begun + SECOND_MS - performance.now())));
    }
  }

  async ask() {
    const ask = Promise.all([link.get("/v1/zones"), this.zone?.map && this.loadHunts(this.zone)]);
    const [{ zones }] = await Promise.race([ask, new Promise((_, late) => setTimeout(late, ANSWER_MS_MAX))]);
    const before = this.lastZones;
    this.zones = zones;
    this.lastZones = { zones, when: performance.now() };
    $("no-zones").hidden = zones.length > 0;
    this.showMoment();
    this.world.show(zones, this.number);
    this.sample(before);
  }

  // A server that shows a zone at a moment says at which.
  showMoment() {
    const shown = this.zones.find((zone) => zone.as_of);
    $("as-of").hidden = !shown;
    if (!shown) return;
    const time = new Date(shown.as_of.time_ms).toISOString().replace("T", " ").replace("Z", " UTC");
    write($("as-of"), `as of ${shown.zone}:${shown.as_of.offset}, ${time}`);
  }

  async loadHunts(zone) {
    const hunts = await link.get(`/v1/zones/${zone.number}/hunts`);
    if (zone === this.zone) zone.takeHunts(hunts);
  }

  sample(before) {
    const now = performance.now(), here = this.zone && this.zones[this.zone.number];
    const shown = here ? [here] : this.zones;
    write($("players"), shown.reduce((sum, zone) => sum + (zone.players ?? 0), 0).toLocaleString("en"));
    write($("offset"), here?.at ? here.at.offset : "–");
    write($("owner"), here?.owner_epoch ?? "–");
    if (this.zone?.map) {
      const { players, treasures } = this.zone;
      const seen = `Zone ${this.number}: ${players.size} players, ${treasures.size} treasures.`;
      $("map").setAttribute("aria-label", `${seen} Arrow keys move the map, plus and minus zoom. ${ELSEWHERE}`);
    }
    const lag = Math.max(0, ...shown.map((zone) => zone.lag_ms ?? 0));
    if (this.zone) {
      const rates = here?.at && this.zone.count?.reach(here.at);
      if (rates) this.pulse.take(now, { ...rates, "no-op": rates.noOp, lag });
      return;
    }
    if (!before) return;
    // The world's events are those that its zones have read.
    const offsets = (zones) => zones.reduce((sum, zone) => sum + (zone.at?.offset ?? 0), 0);
    const events = Math.max(0, offsets(this.zones) - offsets(before.zones));
    this.pulse.take(now, { applied: Math.round(events * 1000 / (now - before.when)), lag });
  }

  judge() {
    const { state, error, since } = this.stream, silence = link.silence();
    const trouble = this.trouble = alarm.judge({
      refusal: link.refusal, hasToken: link.hasToken(), silence, hasBeenHeard: link.hasBeenHeard,
      zone: this.number === null ? null : this.zones[this.number], zones: this.zones,
      stream: this.number === null ? "open" : state, streamError: error, streamLostFor: performance.now() - since,
    });
    alarm.show(trouble);
    if (["gone", "refused"].includes(trouble?.grade)) this.world.lose();
    const words = {
      refused: "no entry", gone: "not connected", halted: "halted", stale: "stale", loading: "loading",
      none: "nothing to show",
    };
    const isMissing = this.zone !== null && (state !== "open" || this.zone.unanswered.size > 0);
    const isConnecting = this.zones.length === 0 || isMissing;
    write($("link"), trouble ? words[trouble.grade] : isConnecting ? "connecting" : "live");
    $("link").classList.toggle("live", !trouble && !isConnecting);
  }

  takePicture(now) {
    const { zone, film } = this;
    const finds = new Map([...zone.finds].map(([hunt, found]) => [hunt, new Map(found)]));
    film.picture(zone.players, now, { hunts: zone.hunts, now_ms: zone.now(), finds });
  }
}

// Dots glide to where their players are.
function glide(players, since) {
  const part = 1 - Math.exp(-since / GLIDE_MS);
  for (const player of players) {
    const [x, y] = [player.x - player.shownX, player.y - player.shownY];
    const isFar = Math.abs(x) + Math.abs(y) > JUMP_CM;
    player.shownX += isFar ? x : x * part;
    player.shownY += isFar ? y : y * part;
  }
}

// Tests look into it; nothing else does.
export const page = new Page();
page.start();
