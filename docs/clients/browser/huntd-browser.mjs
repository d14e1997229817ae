// Play a game of huntd from a browser, in one file: cards, boards, players in sight, streams that are
// resumed, and commands that take effect once. Copy it, and change what you need.
//
//     const huntd = new Huntd("https://play.example", { token });
//     const stream = huntd.stream({ around: "42", radius: 5000 }, {
//       sight: ({ entered, changed, left }, inSight) => draw(inSight),
//     });
//     const { outcome } = await stream.command({ type: "move", player_id: "42", x: 2040, y: 70 });
//
// Types are in the comments, so that TypeScript checks this file, and finds them where you import
// it, with `tsc --allowJs --checkJs --noEmit --strict --target es2022 --lib es2022,dom
// --module nodenext huntd-browser.mjs`.
// docs/QUERIES.md has the routes and topics, docs/EVENTS.md the events.

/** Milliseconds before a connection is tried again: at first, and at most. */
const RETRY_MS = { first: 200, most: 5_000 };

/** Commands that may wait for their answers. */
const COMMANDS_WAITING_MAX = 64;

/** Times that a command is sent again because the server could not take it, and milliseconds before
 * each: a server that has just started loads its zones. */
const AGAIN = { most: 20, wait_ms: 500 };

/**
 * A player as those see it who are near: its number, and the fields of the game's cards.
 * @typedef {{ player_id: string, x: number, y: number, [field: string]: string | number }} Player
 */
/**
 * Players in sight: those who came, those who changed, and those who went.
 * @typedef {{ entered: Player[], changed: Player[], left: Player[] }} Sight
 */
/**
 * What became of a command. `repeated` is true if it was sent again because nobody knew whether it
 * had been appended: a connection was lost, or the brokers did not say. Then `no_op` means that it had
 * been, or a later event of the player, as of its other pages.
 * @typedef {{ zone: number, offset: number, repeated: boolean,
 *   outcome: "applied" | "refused" | "no_op" | "decided" | "appended",
 *   updates?: Record<string, any>[] }} Outcome
 */
/**
 * An event of a player, without its `seq` and `ts_us`.
 * @typedef {{ type: string, player_id: string, [field: string]: any }} PlayerEvent
 */
/**
 * What a stream is about. `around` needs a `radius`, in units of the game's positions.
 * @typedef {{ zone?: number[], player?: string[], board?: (number | "world")[], around?: string,
 *   radius?: number, every_ms?: number }} Topics
 */
/**
 * What is called when something comes. `event` gets every event by its name in docs/QUERIES.md, and
 * its position if it has one; `state` whether the stream is open, and why it could not be opened.
 * @typedef {{ event?: (name: string, data: any, id?: string) => void,
 *   sight?: (sight: Sight, inSight: Map<string, Player>) => void,
 *   state?: (state: "open" | "lost", error?: unknown) => void }} Handlers
 */

/**
 * A command without an answer. Its text is empty until it has a `seq`. `isUnsure` says that nobody knows
 * whether it was appended.
 * @typedef {{ event: PlayerEvent, options: object, text: string, isUnsure: boolean,
 *   state: "due" | "sent" | "resting", tries: number, resolve: (outcome: Outcome) => void,
 *   reject: (error: Error) => void }} Command
 */

/** Why something was refused: the status, and the sentence of its problem. */
export class HuntdError extends Error {
  /** @param {number} status @param {string} detail */
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** A server of `huntd serve`. */
export class Huntd {
  /**
   * @param {string} server as in `https://play.example`
   * @param {{ token?: string | (() => string | Promise<string>) }} [options] the token, or what
   *   gets one that is valid now
   */
  constructor(server, options = {}) {
    this.server = server.replace(/\/$/, "");
    this.options = options;
  }

  /** A player's card. @param {string} player_id @returns {Promise<Record<string, any>>} */
  card(player_id) {
    return this.get(`/v1/players/${player_id}`);
  }

  /**
   * Places of a board. @param {number | "world"} board
   * @param {{ from?: number, count?: number, around?: string, each_side?: number }} [query]
   * @returns {Promise<{ players: number, places: { rank: number, player_id: string, score: number,
   *   scored_at_ms: number, zone: number }[] }>}
   */
  board(board, query = {}) {
    return this.get(`/v1/boards/${board}${asQuery(query)}`);
  }

  /** All zones. @returns {Promise<Record<string, any>[]>} */
  async zones() {
    return (await this.get("/v1/zones")).zones;
  }

  /** The answer to a path, in JSON. @param {string} path @returns {Promise<any>} */
  async get(path) {
    return this.ask("GET", path);
  }

  /** Follows topics until it is closed. @param {Topics} topics @param {Handlers} [handlers] */
  stream(topics, handlers = {}) {
    return new HuntdStream(this, topics, handlers);
  }

  /** @param {"GET" | "POST"} method @param {string} path @returns {Promise<any>} */
  async ask(method, path) {
    const token = await this.token();
    /** @type {Record<string, string>} */
    const headers = token === "" ? {} : { Authorization: `Bearer ${token}` };
    if (method === "POST") headers["Content-Type"] = "application/json";
    const answer = await fetch(this.server + path, { method, headers, cache: "no-store" });
    const body = await answer.json();
    if (!answer.ok) throw new HuntdError(answer.status, body.detail);
    return body;
  }

  /** Throws why a stream is refused: a browser does not say it of a WebSocket. @param {string} path */
  async assertOpens(path) {
    const stream = new AbortController();
    const answer = await fetch(this.server + path, { signal: stream.signal, cache: "no-store" });
    if (!answer.ok) throw new HuntdError(answer.status, (await answer.json()).detail);
    stream.abort();
  }

  async token() {
    const { token = "" } = this.options;
    return typeof token === "function" ? token() : token;
  }
}

/** A stream and its commands, over as many connections as it takes. */
class HuntdStream {
  /** @param {Huntd} huntd @param {Topics} topics @param {Handlers} handlers */
  constructor(huntd, topics, handlers) {
    this.huntd = huntd;
    this.topics = topics;
    this.handlers = handlers;
    /** Players in sight, by number. @type {Map<string, Player>} */
    this.inSight = new Map();
    /** The position after the last update. */
    this.last = "";
    /** Commands without an answer, by number. @type {Map<number, Command>} */
    this.waiting = new Map();
    this.request = 0;
    /** Milliseconds by which the server's clock is ahead of this one, as far as that is known. */
    this.ahead_ms = 0;
    this.knowsTime = false;
    /** @type {WebSocket | null} */
    this.socket = null;
    this.isClosed = false;
    /** Fulfilled when it is closed; rejected if the server refuses it. */
    this.closed = this.run();
    // Who does not look at it need not catch it.
    this.closed.catch(() => {});
  }

  /**
   * Sends an event. It takes effect at most once, however often it is sent again. Commands are
   * appended in their order, except that one which the server could not take comes after those that
   * were under way.
   * @param {PlayerEvent} event
   * @param {{ zone?: number, wait_ms?: number }} [options] the zone where the player enters
   * @returns {Promise<Outcome>}
   */
  command(event, options = {}) {
    if (this.isClosed) return Promise.reject(new HuntdError(0, "the stream is closed"));
    if (this.waiting.size === COMMANDS_WAITING_MAX) {
      return Promise.reject(new HuntdError(429, "too many commands wait for their answers"));
    }
    const request = ++this.request;
    return new Promise((resolve, reject) => {
      const [tries, text, isUnsure] = [AGAIN.most, "", false];
      this.waiting.set(request, { event, options, text, isUnsure, state: "due", tries, resolve, reject });
      this.send();
    });
  }

  /** Sends the commands that are due, if there is a connection. One that is unsure holds those of its
   * player that come after it: its `seq` is too old once a later one has counted. */
  send() {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    const held = new Set();
    for (const [request, command] of this.waiting) {
      const { player_id } = command.event;
      if (command.state === "due" && !held.has(player_id)) {
        if (command.text === "") {
          const post = { ...command.event, seq: this.nextSeq(player_id) };
          command.text = JSON.stringify({ request, ...command.options, post });
        }
        command.state = "sent";
        this.socket.send(command.text);
      }
      if (command.isUnsure) held.add(player_id);
    }
  }

  /** Ends it. */
  close() {
    this.isClosed = true;
    this.socket?.close();
  }

  /**
   * A number above all that this browser has used for the player, by the server's time: a reload of
   * the page does not make it fall, and what the game's server sends is not behind it for long.
   * @param {string} player_id
   */
  nextSeq(player_id) {
    const key = `huntd-seq ${this.huntd.server} ${player_id}`;
    const now_us = Math.floor((Date.now() + this.ahead_ms) * 1000);
    const seq = Math.max(Number(localStorage.getItem(key)) + 1, now_us);
    localStorage.setItem(key, String(seq));
    return seq;
  }

  async run() {
    for (let wait_ms = RETRY_MS.first; !this.isClosed; ) {
      /** @type {unknown} */
      let reason;
      try {
        if (await this.connect()) wait_ms = RETRY_MS.first;
      } catch (error) {
        reason = error;
        const isRefused = error instanceof HuntdError && error.status < 500 && error.status !== 429;
        if (isRefused) {
          this.end(error);
          throw error;
        }
      }
      if (this.isClosed) break;
      this.handlers.state?.("lost", reason);
      await new Promise((done) => setTimeout(done, wait_ms * (0.5 + Math.random() / 2)));
      wait_ms = Math.min(2 * wait_ms, RETRY_MS.most);
    }
    this.end(new HuntdError(0, "the stream is closed"));
  }

  /** Follows one connection to its end. @returns {Promise<boolean>} whether it was opened */
  async connect() {
    await this.learnTime();
    const query = new URLSearchParams(asQuery(this.topics));
    if (this.last !== "") query.set("last_event_id", this.last);
    if ((await this.huntd.token()) !== "") {
      query.set("ticket", (await this.huntd.ask("POST", "/v1/ticket")).ticket);
    }
    if (this.isClosed) return false;
    const path = `/v1/stream?${query}`;
    const socket = new WebSocket(this.huntd.server.replace(/^http/, "ws") + path);
    this.socket = socket;
    let isOpen = false;
    socket.onopen = () => {
      isOpen = true;
      this.handlers.state?.("open");
      this.send();
    };
    // A message has the events that came together.
    socket.onmessage = (message) => {
      for (const event of JSON.parse(message.data)) this.take(event);
    };
    await new Promise((done) => (socket.onclose = done));
    for (const command of this.waiting.values()) {
      if (command.state === "sent") Object.assign(command, { state: "due", isUnsure: true });
    }
    if (!isOpen && !this.isClosed) await this.huntd.assertOpens(path);
    return isOpen;
  }

  /** Learns the server's time from the zones that are live: the clocks of others are old, or not known. */
  async learnTime() {
    const live = (await this.huntd.zones()).filter(({ state, now_ms }) => state === "live" && now_ms > 0);
    this.knowsTime = live.length > 0;
    // A zone's clock is a little behind the server's time, so no `seq` is ahead of that.
    if (this.knowsTime) this.ahead_ms = Math.max(...live.map(({ now_ms }) => now_ms)) - Date.now();
  }

  /** @param {any} event */
  take({ event, id, data, request, status }) {
    if (event === "answer") return this.answer(request, status, data);
    this.last = id ?? this.last;
    this.handlers.event?.(event, data, id);
    if (event === "live" && !this.knowsTime) this.learnTime().catch(() => {});
    if (event === "around") this.seeAll(data.players ?? []);
    if (event === "sight") this.see(data);
  }

  /** @param {number} request @param {number} status @param {any} data */
  answer(request, status, data) {
    const command = this.waiting.get(request);
    if (command === undefined) return;
    if ([429, 503, 504].includes(status) && command.tries-- > 0) {
      this.rest(command, status === 504);
      return;
    }
    this.waiting.delete(request);
    if (status < 300) command.resolve({ ...data, repeated: command.isUnsure });
    else command.reject(new HuntdError(status, data.detail));
    // It may have held later commands of its player.
    this.send();
  }

  /** Sends a command again after a while. @param {Command} command @param {boolean} isUnsure */
  async rest(command, isUnsure) {
    command.state = "resting";
    command.isUnsure ||= isUnsure;
    // Nothing was appended, so a later `seq` is as good, and later events may have counted.
    if (!command.isUnsure) command.text = "";
    await new Promise((done) => setTimeout(done, AGAIN.wait_ms));
    // Its zone may have been loaded meanwhile.
    if (!this.knowsTime) await this.learnTime().catch(() => {});
    command.state = "due";
    this.send();
  }

  /** What is in sight replaces what was. @param {Player[]} players */
  seeAll(players) {
    const now = new Set(players.map((player) => player.player_id));
    this.see({
      entered: players.filter((player) => !this.inSight.has(player.player_id)),
      changed: players.filter((player) => this.inSight.has(player.player_id)),
      left: [...this.inSight.values()].filter((player) => !now.has(player.player_id)),
    });
  }

  /** @param {Sight} sight */
  see({ entered, changed, left }) {
    for (const player of [...entered, ...changed]) this.inSight.set(player.player_id, player);
    for (const { player_id } of left) this.inSight.delete(player_id);
    this.handlers.sight?.({ entered, changed, left }, this.inSight);
  }

  /** @param {unknown} error */
  end(error) {
    this.isClosed = true;
    for (const command of this.waiting.values()) {
      command.reject(error instanceof Error ? error : new Error(String(error)));
    }
    this.waiting.clear();
  }
}

/** @param {Record<string, any>} values */
function asQuery(values) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    for (const one of [value].flat()) if (one !== undefined) query.append(key, String(one));
  }
  const text = String(query);
  return text === "" ? "" : `?${text}`;
}
