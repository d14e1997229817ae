// Tests of the browser client: they play the server. `node --test` runs them.

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { Huntd } from "../../docs/clients/browser/huntd-browser.mjs";

// Answers to GET by the beginning of the path, addresses that were asked, and sockets that were opened.
let answers = {}, asked = [], sockets = [];

class Socket {
  static OPEN = 1;

  constructor(url) {
    Object.assign(this, { url, readyState: 0, sent: [] });
    sockets.push(this);
  }

  open() {
    this.readyState = Socket.OPEN;
    this.onopen();
  }

  send(text) { this.sent.push(JSON.parse(text)); }

  close() {
    this.readyState = 3;
    this.onclose();
  }

  take(event) { this.onmessage({ data: JSON.stringify([event]) }); }

  answer({ request }, status, data = {}) { this.take({ event: "answer", request, status, data }); }
}

globalThis.WebSocket = Socket;
globalThis.localStorage = {
  items: new Map(),
  getItem(key) { return this.items.get(key) ?? null; },
  setItem(key, value) { this.items.set(key, value); },
};
globalThis.fetch = async (url) => {
  const [, [status, body]] = Object.entries(answers).find(([path]) => url.startsWith(`http://server${path}`));
  asked.push(url);
  return { ok: status < 300, status, json: async () => body };
};

const live = (now_ms) => [200, { zones: [{ zone: 0, state: "live", now_ms }] }];

beforeEach(() => {
  localStorage.items.clear();
  [asked, sockets] = [[], []];
  answers = { "/v1/zones": live(Date.now()) };
});

async function until(isSo) {
  for (const end = Date.now() + 10_000; !isSo(); await new Promise((done) => setTimeout(done, 5))) {
    assert(Date.now() < end, `never: ${isSo}`);
  }
}

// A stream without topics, and its socket once it is open.
async function opened() {
  const stream = new Huntd("http://server").stream({});
  return { stream, socket: await reopened(1) };
}

// The socket with this number, once the client has opened it.
async function reopened(number) {
  await until(() => sockets.length === number);
  sockets.at(-1).open();
  return sockets.at(-1);
}

const move = { type: "move", player_id: "42", x: 1, y: 2 };
const seqs = (socket) => socket.sent.map(({ post }) => post.seq);

for (const status of [429, 503]) {
  test(`after ${status} a command has a later seq than those that were accepted meanwhile`, async () => {
    const { stream, socket } = await opened();
    const first = stream.command(move), second = stream.command(move);
    socket.answer(socket.sent[0], status);
    socket.answer(socket.sent[1], 200, { outcome: "applied" });
    assert.equal((await second).outcome, "applied");
    await until(() => socket.sent.length === 3);
    const [, accepted, again] = seqs(socket);
    assert(again > accepted, `${again} after ${accepted}`);
    socket.answer(socket.sent[2], 200, { outcome: "applied" });
    assert.deepEqual(await first, { outcome: "applied", repeated: false });
    stream.close();
  });
}

test("after 504 a command has its seq, and later ones of its player alone wait for it", async () => {
  const { stream, socket } = await opened();
  const first = stream.command(move);
  socket.answer(socket.sent[0], 504);
  stream.command({ ...move, player_id: "43" }).catch(() => {});
  assert.equal(socket.sent[1].post.player_id, "43");
  const second = stream.command(move);
  assert.equal(socket.sent.length, 2);
  await until(() => socket.sent.length === 3);
  assert.deepEqual(socket.sent[2], socket.sent[0]);
  // It may have been appended at first, whatever is answered now.
  socket.answer(socket.sent[2], 429);
  await until(() => socket.sent.length === 4);
  assert.deepEqual(socket.sent[3], socket.sent[0]);
  socket.answer(socket.sent[3], 200, { outcome: "no_op" });
  assert.deepEqual(await first, { outcome: "no_op", repeated: true });
  assert(socket.sent[4].post.seq > socket.sent[0].post.seq);
  socket.answer(socket.sent[4], 200, { outcome: "applied" });
  assert.deepEqual(await second, { outcome: "applied", repeated: false });
  stream.close();
});

test("after a lost connection commands go out again one by one, with what they had", async () => {
  const { stream, socket } = await opened();
  const commands = [stream.command(move), stream.command(move)];
  socket.close();
  commands.push(stream.command(move));
  const next = await reopened(2);
  for (const sent of [1, 2, 3]) {
    assert.equal(next.sent.length, sent);
    next.answer(next.sent[sent - 1], 200, { outcome: "applied" });
  }
  assert.deepEqual(next.sent.slice(0, 2), socket.sent);
  const outcomes = await Promise.all(commands);
  assert.deepEqual(outcomes.map(({ repeated }) => repeated), [true, true, false]);
  stream.close();
});

test("a command that rests while the connection is lost is sent once", async () => {
  const { stream, socket } = await opened();
  stream.command(move).catch(() => {});
  socket.answer(socket.sent[0], 503);
  socket.close();
  const next = await reopened(2);
  await until(() => next.sent.length === 1);
  await new Promise((done) => setTimeout(done, 600));
  assert.equal(next.sent.length, 1);
  stream.close();
});

test("a seq is of the clock of a zone that is live, as soon as one is", async () => {
  const [here, there] = [Date.now(), Date.now() + 3_600_000];
  const dead = [{ zone: 0, state: "loading" }, { zone: 1, state: "stale", now_ms: 1_000 }];
  answers["/v1/zones"] = [200, { zones: dead }];
  const { stream, socket } = await opened();
  stream.command(move).catch(() => {});
  assert(seqs(socket)[0] >= here * 1000, "this clock is better than none");
  answers["/v1/zones"] = live(there);
  socket.answer(socket.sent[0], 503);
  await until(() => socket.sent.length === 2);
  assert(seqs(socket)[1] >= there * 1000);
  stream.close();
});

test("the clock is asked for again when a stale zone is live", async () => {
  const there = Date.now() + 3_600_000;
  answers["/v1/zones"] = [200, { zones: [{ zone: 0, state: "stale", now_ms: 1_000 }] }];
  const { stream, socket } = await opened();
  answers["/v1/zones"] = live(there);
  socket.take({ event: "live", data: { zone: 0 } });
  await until(() => stream.knowsTime);
  stream.command(move).catch(() => {});
  assert(seqs(socket)[0] >= there * 1000);
  stream.close();
});

// A stream of a zone whose socket the server refuses. Returns its states, too.
async function refused(status, detail) {
  answers["/v1/stream?zone=9"] = [status, { detail }];
  const states = [];
  const state = (name, error) => states.push(`${name} ${error?.status} ${error?.message}`);
  const stream = new Huntd("http://server").stream({ zone: [9] }, { state });
  await until(() => sockets.length === 1);
  sockets[0].close();
  return { stream, states };
}

test("a stream that is refused ends with the reason, which is asked for once", async () => {
  const { stream } = await refused(404, "zone 9 is none of the world's");
  await assert.rejects(stream.closed, { status: 404, message: "zone 9 is none of the world's" });
  assert.equal(asked.filter((url) => url.includes("/v1/stream")).length, 1);
  assert.equal(sockets.length, 1);
});

test("a stream that the server cannot open now is opened later, and the reason is told", async () => {
  const { stream, states } = await refused(503, "zone 9 is halted");
  await reopened(2);
  assert.deepEqual(states, ["lost 503 zone 9 is halted", "open undefined undefined"]);
  stream.close();
});
