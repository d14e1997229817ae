// Read huntd's updates and write events, in one file. Copy it, and change what you need.
//
//     node huntd.mjs read  BROKERS TOPIC [PRINTED]  print the updates that are there, once each
//     node huntd.mjs write BROKERS TOPIC PARTITION  send a join and some moves of one player
//     node huntd.mjs verify                         for docs/vectors: frames in, verdicts out
//
// `read` prints a position after the updates of each frame, and goes on from the last ones in the
// file PRINTED, which has what it printed before. It ends where the topic ended when it began.
//
// `read` and `write` need @platformatic/kafka (npm install @platformatic/kafka@1). Types are in the
// comments, so that TypeScript checks this file, with @types/node beside it, with
// `tsc --allowJs --checkJs --noEmit --strict --skipLibCheck --target es2022 --module nodenext
// --types node huntd.mjs`.
// docs/PROTOCOL.md has the reader rule, docs/RULES.md the updates, docs/EVENTS.md the events.

import { readFileSync } from "node:fs";
import { argv, exit, stderr, stdin, stdout } from "node:process";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

// ---- updates -----------------------------------------------------------------------------------

// Names by their numbers, and kinds in the order of their numbers, from 1. A field is
// name:place[:form], as docs/RULES.md has it.
// schema: begin, written by `HUNTD_REGENERATE=true cargo test --test host schema`
/** @type {Record<string, string>} */
const NAME_LISTS = {
  "refused.reason": `not_joined already_joined zone_full tile_full
    off_map wall too_fast downed heading_out_of_range unknown_weapon reloading nothing_in_reach
    unknown_hunt hunts_full treasures_out_of_range duration_out_of_range unknown_item
    item_not_held item_useless same_zone no_player`,
  "refused.action": `join arrive leave move rotate shoot loot use
    tick hunt_start hunt_end rules_change`,
  "scored.cause": `loot downed prize arrival`,
  "hunt_ended.cause": `all_found time_up called_off`,
  "effect_started.effect": `haste shield compass double_loot`,
  "effect_ended.effect": `haste shield compass double_loot`,
  "path_hint.hint": `stale here east north west south`,
};
const KIND_LINES = `
refused reason:code:name action:short:name seq:long
joined health:short x:low:signed y:high:signed
arrived from_zone:short crossing:word x:low:signed y:high:signed
left to_zone:word:zone seq:long
moved tile:word x:low:signed y:high:signed
rotated heading:short
shot weapon:code heading:short distance_cm:word target:long:player
damaged weapon:code damage:short health:word by:long:player
downed weapon:code respawn_ms:word by:long:player
respawned health:short tile:word x:low:signed y:high:signed
healed gained:short health:word
scored cause:code:name points:word score:long
hunt_started treasures:short hunt:word duration_ms:low
treasure_laid treasure:short hunt:word x:low:signed y:high:signed
looted doubled:code:flag treasure:short hunt:word points:low elapsed_ms:high
finished found:short hunt:word rank:low elapsed_ms:high
hunt_ended cause:code:name opened:short hunt:word finishers:low elapsed_ms:high
item_gained item:code gained:short held:word
item_lost item:code lost:short
item_used item:code held:word
effect_started effect:code:name lasts_ms:word
effect_ended effect:code:name
path_hint hint:code:name hunt:word distance_tiles:low
handoff to_zone:short crossing:word last_seq:long
handoff_place x:low:signed y:high:signed
handoff_score score:long
handoff_items first_slot:code items:long:items
handoff_effect slot:code effect:short left_ms:word
rules_changed ruleset:word
clock unix_ms:long
`;
// schema: end
const NAMES = Object.fromEntries(
  Object.entries(NAME_LISTS).map(([field, names]) => [field, names.split(/\s+/)]));
const KINDS = KIND_LINES.trim().split("\n").map((line) => {
  const [kind, ...fields] = line.split(" ");
  return { kind, fields: fields.map((field) => field.split(":")) };
});
// Where a field stands in the third and fourth word: word, shift, bits.
/** @type {Record<string, [number, bigint, number]>} */
const PLACES = {
  code: [2, 8n, 8], short: [2, 16n, 16], word: [2, 32n, 32],
  low: [3, 0n, 32], high: [3, 32n, 32], long: [3, 0n, 64],
};

// Numbers beyond 2^53 are text, as in huntd's own JSON.
const number = (/** @type {bigint} */ value) =>
  value >= -(2n ** 53n) && value <= 2n ** 53n ? Number(value) : String(value);

/** The update that four words stand for, as docs/RULES.md writes it in JSON.
 * @param {bigint[]} words */
export function updateOf(words) {
  const { kind, fields } = KINDS[Number(words[2] & 0xffn) - 1];
  /** @type {Record<string, any>} */
  const update = { kind, player_id: String(words[0]), ts_us: number(BigInt.asIntN(64, words[1])) };
  for (const [name, place, form] of fields) {
    const [word, shift, bits] = PLACES[place];
    const value = BigInt.asUintN(bits, words[word] >> shift);
    if (value === 0n && (form === "zone" || form === "player")) continue;
    if (form === "signed") update[name] = Number(BigInt.asIntN(32, value));
    else if (form === "name") update[name] = NAMES[`${kind}.${name}`][Number(value)];
    else if (form === "flag") update[name] = value !== 0n;
    else if (form === "zone") update[name] = Number(value) - 1;
    else if (form === "player") update[name] = String(value);
    else if (form === "items") {
      const byte = (/** @type {number} */ at) => Number((value >> BigInt(8 * at)) & 0xffn);
      update[name] = [0, 2, 4, 6].map((at) => [byte(at), byte(at + 1)]);
    } else update[name] = number(value);
  }
  return update;
}

/** The four words of an update: what the chain is made of.
 * @param {Record<string, any>} update */
export function wordsOf(update) {
  const index = KINDS.findIndex((entry) => entry.kind === update.kind);
  if (index < 0) throw new Error(`an update of an unknown kind: ${update.kind}`);
  const { kind, fields } = KINDS[index];
  const time = BigInt.asUintN(64, BigInt(update.ts_us));
  const words = [BigInt(update.player_id), time, BigInt(index + 1), 0n];
  for (const [name, place, form] of fields) {
    const [word, shift, bits] = PLACES[place];
    let value = update[name] ?? 0;
    if (form === "name") {
      value = NAMES[`${kind}.${name}`].indexOf(value);
      if (value < 0) throw new Error(`an unknown ${name}: ${update[name]}`);
    }
    if (form === "zone" && name in update) value = value + 1;
    if (form === "items") {
      value = value.flat().reduceRight((/** @type {bigint} */ all, /** @type {number} */ part) =>
        (all << 8n) | BigInt(part), 0n);
    }
    words[word] |= BigInt.asUintN(bits, BigInt(value)) << shift;
  }
  return words;
}

/** Whether the kind, and each number that stands for a name, has one.
 * @param {bigint[]} words */
function isKnown(words) {
  const known = KINDS[Number(words[2] & 0xffn) - 1];
  return known !== undefined && known.fields.every(([name, place, form]) => {
    const [word, shift, bits] = PLACES[place];
    const value = BigInt.asUintN(bits, words[word] >> shift);
    return form !== "name" || value < BigInt(NAMES[`${known.kind}.${name}`].length);
  });
}

// ---- frames ------------------------------------------------------------------------------------

// Owners raise the epoch by 1 each: if two epochs are further apart, one is no owner's.
const EPOCH_STEP_MAX = 1n << 32n;
const VERSION = 2;
const FRAME_KINDS = ["", "updates", "fence", "skip", "genesis"];
const [FRAME_BYTES_MAX, FRAME_UPDATES_MAX] = [921_600, 4096];
// How a frame of any version begins. Version 1 had no `version`.
const HEADS = ["HNTF", '{"version":', '{"kind":"'];
const OURS = [`HNTF${String.fromCharCode(VERSION)}`, `{"version":${VERSION},`];

// JSON.parse rounds numbers of 64 bits: those of the frame's head are read as text first.
const exact = (/** @type {string} */ text) =>
  text.replace(/"(epoch|first_update|next_offset|ts_us)":(-?(?:0|[1-9]\d*))(?=[,}])/g, '"$1":"$2"');

/** A frame of either form; null: the record is no frame, so pass it over. It throws at a frame that
 * it cannot read. That may be a fence, or hold updates without which nothing after it counts: stop.
 * @param {Buffer | null} record */
export function parseFrame(record) {
  const begins = record?.subarray(0, 16).toString("latin1") ?? "";
  if (!record || !HEADS.some((head) => begins.startsWith(head))) return null;
  if (!OURS.some((head) => begins.startsWith(head))) throw new Error("a frame of another version");
  if (record.length > FRAME_BYTES_MAX) throw new Error("a frame that is too long");
  const frame = parseFields(record);
  const isFence = frame.kind === "fence";
  const isU64 = (/** @type {bigint} */ value) => value >= 0n && value < 2n ** 64n;
  if (frame.words.length > (frame.kind === "updates" ? FRAME_UPDATES_MAX : 0) ||
      (frame.fenceId !== 0n && !isFence) || frame.nextOffset < (isFence ? -1n : 0n) ||
      !isU64(frame.epoch) || !isU64(frame.firstUpdate) ||
      !isU64(frame.firstUpdate + BigInt(frame.words.length))) {
    throw new Error("a frame with a field out of range");
  }
  return frame;
}

/** @typedef {NonNullable<ReturnType<typeof parseFrame>>} Frame */

/** @param {Buffer} record */
function parseFields(record) {
  if (record.subarray(0, 4).toString("latin1") === "HNTF") {
    const count = record.readUInt32LE(24);
    if (record.readUInt16LE(6) !== 0 || record.length !== 64 + 32 * count || !FRAME_KINDS[record[5]]) {
      throw new Error("a frame of an unknown kind, with unknown flags, or of another length");
    }
    const words = Array.from({ length: count }, (_, update) =>
      [0, 8, 16, 24].map((at) => record.readBigUInt64LE(64 + 32 * update + at)));
    if (!words.every(isKnown)) {
      throw new Error("an update of an unknown kind, or with an unknown name");
    }
    return {
      kind: FRAME_KINDS[record[5]], epoch: record.readBigUInt64LE(8),
      firstUpdate: record.readBigUInt64LE(16), ruleset: record.readUInt32LE(28),
      nextOffset: record.readBigInt64LE(32), chain: record.readBigUInt64LE(40),
      fenceId: record.readBigUInt64LE(48) | (record.readBigUInt64LE(56) << 64n), words,
    };
  }
  const raw = JSON.parse(exact(record.toString("utf8")));
  if (raw.updates.length !== raw.count || FRAME_KINDS.indexOf(raw.kind) < 1) {
    throw new Error("a frame with another count, or of an unknown kind");
  }
  return {
    kind: raw.kind, epoch: BigInt(raw.epoch), firstUpdate: BigInt(raw.first_update),
    ruleset: raw.ruleset, nextOffset: BigInt(raw.next_offset), chain: BigInt(`0x${raw.chain}`),
    fenceId: BigInt(`0x${raw.fence_id ?? "0"}`), words: raw.updates.map(wordsOf),
  };
}

/** The chain after one more update.
 * @param {bigint} chain @param {bigint[]} words */
export function chained(chain, words) {
  const whoWhen = folded(words[0] ^ 0x6a09e667f3bcc909n, words[1] ^ 0xbb67ae8584caa73bn);
  const what = folded(words[2] ^ 0x3c6ef372fe94f82cn, words[3] ^ 0xa54ff53a5f1d36f1n);
  chain = BigInt.asUintN(64, chain + whoWhen + what);
  return folded(chain ^ 0x6a09e667f3bcc909n, 0xa54ff53a5f1d36f1n);
}

/** The two halves of a 128-bit product in one word.
 * @param {bigint} a @param {bigint} b */
function folded(a, b) {
  const product = a * b;
  return BigInt.asUintN(64, product) ^ (product >> 64n);
}

// ---- the reader rule ---------------------------------------------------------------------------

const max = (/** @type {bigint} */ a, /** @type {bigint} */ b) => (a > b ? a : b);

/** Folds the frames of one output partition, in the order of the log. It begins at the log's start,
 * at a position that was stored, or anywhere with `joining`. */
export class Reader {
  constructor({ joining = false, position = { epoch: 0n, nextUpdate: 0n, nextOffset: 0n, chain: 0n } } = {}) {
    /** Store it with the offset of the next record, in one step with what you make of the updates. */
    this.position = { ...position };
    this.fenceId = 0n;
    this.gaps = 0;
    this.halted = false;
    /** "sure"; null before it has joined; or the number of the first update after a fence.
     * @type {"sure" | null | bigint} */
    this.footing = joining ? null : "sure";
  }

  /** The verdict on the next frame, and its new updates as words.
   * @param {Frame} frame @returns {{verdict: string, words: bigint[][]}} */
  fold(frame) {
    const at = this.position;
    const said = (/** @type {string} */ verdict) => ({ verdict, words: [] });
    if (this.halted) return said("halt");
    const above = frame.epoch - at.epoch;
    const isFar = above > EPOCH_STEP_MAX || above < -EPOCH_STEP_MAX;
    // A note, of epoch 0, says nothing about the reader's.
    if (isFar && frame.epoch !== 0n) {
      if (this.footing === null || this.#acceptedNothing()) {
        // Either epoch may be no owner's: the owner's next frame will tell.
        [this.footing, at.epoch, this.fenceId] = [null, frame.epoch, frame.fenceId];
      } else if (above > 0n) {
        return said("stale");
      }
    }
    if (typeof this.footing === "bigint" && (this.#overtaken(frame) || this.#elsewhere(frame))) {
      this.footing = null;
    }
    if (this.footing === null) return said(this.#join(frame));
    if (frame.kind === "fence") {
      this.#raise(frame.epoch, frame.fenceId);
      return said("fence");
    }
    if (frame.epoch < at.epoch) return said("stale");
    this.#raise(frame.epoch, 0n);
    if (frame.kind === "skip") return said(`skip ${frame.nextOffset - 1n}`);
    if (frame.kind === "genesis") return said(this.#genesis(frame));
    if (frame.words.length === 0) {
      if (frame.firstUpdate === at.nextUpdate) at.nextOffset = max(at.nextOffset, frame.nextOffset);
      return said("progress");
    }
    const end = frame.firstUpdate + BigInt(frame.words.length);
    if (end <= at.nextUpdate) return said("duplicate");
    if (frame.firstUpdate > at.nextUpdate) {
      this.gaps += 1;
      return said(`gap of ${frame.firstUpdate - at.nextUpdate}`);
    }
    const from = Number(at.nextUpdate - frame.firstUpdate);
    const words = frame.words.slice(from);
    const chain = words.reduce(chained, at.chain);
    if (chain !== frame.chain) return said(this.#differ());
    [at.chain, at.nextUpdate] = [chain, end];
    at.nextOffset = max(at.nextOffset, frame.nextOffset);
    return { verdict: `accepted from ${from}`, words };
  }

  #genesis(/** @type {Frame} */ frame) {
    if (frame.firstUpdate !== this.position.nextUpdate) return "duplicate";
    if (frame.chain !== this.position.chain) return this.#differ();
    this.position.nextOffset = frame.nextOffset;
    return "genesis";
  }

  #differ() {
    if (this.#acceptedNothing()) {
      this.footing = null;
      return "waiting";
    }
    this.halted = true;
    return "halt";
  }

  #join(/** @type {Frame} */ frame) {
    this.#raise(frame.epoch, frame.fenceId);
    if (!placed(frame) || frame.epoch < this.position.epoch) return "waiting";
    const { epoch, firstUpdate, nextOffset, chain } = frame;
    this.position = { epoch, nextUpdate: firstUpdate, nextOffset, chain };
    [this.fenceId, this.footing] = [frame.fenceId, firstUpdate];
    return "joined";
  }

  #raise(/** @type {bigint} */ epoch, /** @type {bigint} */ fenceId) {
    if (epoch > this.position.epoch) [this.position.epoch, this.fenceId] = [epoch, fenceId];
  }

  #overtaken(/** @type {Frame} */ frame) {
    const { epoch } = this.position;
    const takesOver = frame.kind === "fence" && frame.nextOffset < 0n;
    const another = placed(frame) && frame.epoch === epoch && frame.fenceId !== this.fenceId;
    return another || (frame.epoch > epoch && !(takesOver && frame.epoch === epoch + 1n));
  }

  #elsewhere(/** @type {Frame} */ frame) {
    const { epoch, nextUpdate, nextOffset } = this.position;
    return this.#acceptedNothing() && placed(frame) && frame.epoch === epoch &&
      (frame.firstUpdate !== nextUpdate || frame.nextOffset < nextOffset);
  }

  #acceptedNothing() {
    return this.footing === this.position.nextUpdate;
  }
}

const placed = (/** @type {Frame} */ frame) =>
  frame.kind === "fence" && frame.nextOffset >= 0n;

// ---- events ------------------------------------------------------------------------------------

/** A `seq` for each event of a player that survives restarts: the time, or one more. */
export class Seqs {
  #last = new Map();

  next(/** @type {string} */ player, nowUs = Date.now() * 1000) {
    const seq = Math.max((this.#last.get(player) ?? 0) + 1, nowUs);
    this.#last.set(player, seq);
    return seq;
  }
}

/** One event as a record's value. A player's id is text: numbers of 64 bits would be rounded.
 * @param {Seqs} seqs @param {string} type @param {string} player @param {object} fields */
export function event(seqs, type, player, fields = {}) {
  const head = { type, player_id: player, seq: seqs.next(player), ts_us: Date.now() * 1000 };
  return JSON.stringify({ ...head, ...fields });
}

// ---- Kafka -------------------------------------------------------------------------------------

/** @param {string} brokers @param {string} topic @param {string | undefined} printed */
async function read(brokers, topic, printed) {
  const { Consumer, FetchIsolationLevels } = await import("@platformatic/kafka");
  // It reads as a member of a group. Nothing is committed: your program stores positions.
  const consumer = new Consumer({
    clientId: "huntd-example", groupId: `huntd-example-${Date.now()}`,
    bootstrapBrokers: brokers.split(","),
    // Frames are part of no transaction; somebody else's must not hide them.
    isolationLevel: FetchIsolationLevels.READ_UNCOMMITTED,
  });
  const stored = positionsIn(printed);
  /** @type {Map<number, Reader>} */
  const readers = new Map();
  for (const [partition, { position }] of stored) readers.set(partition, new Reader({ position }));
  const { offsets, ends } = await partitionsToRead(consumer, topic, stored);
  if (ends.size > 0) {
    const stream = await consumer.consume({ topics: [topic], mode: "manual", offsets, autocommit: false });
    // The last offset may be a transaction marker, for which no record comes.
    stream.on("fetch", () => {
      const isPast = [...ends].every(([at, end]) => (stream.offsetsToFetch.get(`${topic}:${at}`) ?? 0n) >= end);
      if (isPast && stream.readableLength === 0) stream.close();
    });
    // A frame that cannot be read, or a codec that is missing, ends the program.
    for await (const { partition, offset, value } of stream) {
      if (!readers.has(partition)) readers.set(partition, new Reader());
      printAccepted(partition, { value, offset }, /** @type {Reader} */ (readers.get(partition)));
      if (offset + 1n >= (ends.get(partition) ?? 0n)) ends.delete(partition);
      if (ends.size === 0) break;
    }
  }
  await consumer.close(true);
}

/** Where each partition is read from, and the ends of those that have records to be read. Leave the
 * ends out to read for ever.
 * @param {import("@platformatic/kafka").Consumer} consumer @param {string} topic
 * @param {ReturnType<typeof positionsIn>} stored */
async function partitionsToRead(consumer, topic, stored) {
  const { ListOffsetTimestamps } = await import("@platformatic/kafka");
  const list = async (/** @type {bigint} */ timestamp) =>
    (await consumer.listOffsets({ topics: [topic], timestamp })).get(topic) ?? [];
  const [begins, highs] = [await list(ListOffsetTimestamps.EARLIEST), await list(ListOffsetTimestamps.LATEST)];
  const offsets = begins.map((begin, partition) =>
    ({ topic, partition, offset: stored.get(partition)?.nextRecord ?? begin }));
  const left = offsets.filter(({ partition, offset }) => offset < highs[partition]);
  return { offsets, ends: new Map(left.map(({ partition }) => [partition, highs[partition]])) };
}

/** Prints the new updates of a record and the position after them. Your program stores both in one
 * step.
 * @param {number} partition @param {{value: Buffer | null, offset: bigint}} message
 * @param {Reader} reader */
function printAccepted(partition, message, reader) {
  const frame = parseFrame(message.value);
  if (frame === null) return;
  const { verdict, words } = reader.fold(frame);
  if (verdict.startsWith("gap")) stderr.write(`partition ${partition}: ${verdict}\n`);
  if (verdict === "halt") throw new Error(`partition ${partition}: the chain does not match`);
  if (words.length === 0) return;
  const { epoch, nextUpdate, nextOffset, chain } = reader.position;
  const first = nextUpdate - BigInt(words.length);
  /** @type {object[]} */
  const lines = words.map((update, at) =>
    ({ partition, number: number(first + BigInt(at)), ...updateOf(update) }));
  lines.push({
    partition, next_record: number(message.offset + 1n), epoch: number(epoch),
    next_update: number(nextUpdate), next_offset: number(nextOffset),
    chain: chain.toString(16).padStart(16, "0"),
  });
  stdout.write(lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
}

/** The last position of each partition in a file that `read` has printed, and goes on printing. A line
 * that was cut off, as by a kill, counts as not printed.
 * @param {string | undefined} printed */
function positionsIn(printed) {
  const lines = printed ? readFileSync(printed, "utf8").split("\n") : [];
  if (lines.length > 0 && lines.at(-1) !== "") stdout.write("\n");
  const positions = lines.filter((line) => line.includes('"next_record"')).flatMap((line) => {
    try {
      return [JSON.parse(line)];
    } catch {
      return [];
    }
  });
  return new Map(positions.map((at) => [at.partition, {
    nextRecord: BigInt(at.next_record),
    position: {
      epoch: BigInt(at.epoch), nextUpdate: BigInt(at.next_update),
      nextOffset: BigInt(at.next_offset), chain: BigInt(`0x${at.chain}`),
    },
  }]));
}

async function write(/** @type {string} */ brokers, /** @type {string} */ topic, /** @type {number} */ partition) {
  const { Producer, ProduceAcks, stringSerializer } = await import("@platformatic/kafka");
  const producer = new Producer({
    clientId: "huntd-example", bootstrapBrokers: brokers.split(","), idempotent: true,
    serializers: { value: stringSerializer },
  });
  // It would send to another partition if the topic did not have this one.
  const { topics } = await producer.metadata({ topics: [topic] });
  if (partition >= (topics.get(topic)?.partitionsCount ?? 0)) {
    throw new Error(`${topic} has no partition ${partition}`);
  }
  const [seqs, player] = [new Seqs(), "76561199000000001"]; // none of `huntd load`
  // In the order in which they count: each has a higher seq than the one before it.
  const values = [event(seqs, "join", player, { x: 1000, y: 2000 })];
  for (const step of [1, 2, 3, 4]) {
    values.push(event(seqs, "move", player, { x: 1000 + 10 * step, y: 2000 }));
  }
  // The partition is the zone: always name it, and never let a partitioner choose.
  const messages = values.map((value) => ({ topic, value, partition }));
  await producer.send({ acks: ProduceAcks.ALL, messages });
  await producer.close();
}

/** `start` or `join` begins a reader, `position` tells where it is; else a frame in hex. */
async function verify() {
  let reader = new Reader();
  for await (const line of createInterface({ input: stdin })) {
    const { epoch, nextUpdate, nextOffset, chain } = reader.position;
    let answer = "";
    if (line === "start" || line === "join") {
      reader = new Reader({ joining: line === "join" });
      continue;
    } else if (line === "position") {
      const hex = chain.toString(16).padStart(16, "0");
      answer = `${epoch} ${nextUpdate} ${nextOffset} ${hex} ${reader.gaps}`;
    } else if (line === "seqs") {
      const seqs = new Seqs();
      answer = [5, 5, 4, 9].map((now) => seqs.next("1", now)).join(" ");
    } else if (line.startsWith("updates ")) {
      const frame = parseFrame(Buffer.from(line.slice(8), "hex"));
      for (const words of frame?.words ?? []) stdout.write(`${JSON.stringify(updateOf(words))}\n`);
      continue;
    } else {
      try {
        const frame = parseFrame(Buffer.from(line, "hex"));
        answer = frame === null ? "ignores" : reader.fold(frame).verdict;
      } catch {
        answer = "stops";
      }
    }
    stdout.write(`${answer}\n`);
  }
}

if (argv[1] && import.meta.url === pathToFileURL(argv[1]).href) {
  const [verb, brokers, topic, last] = argv.slice(2);
  if (verb === "read") await read(brokers, topic, last);
  else if (verb === "write") await write(brokers, topic, Number(last));
  else if (verb === "verify") await verify();
  else exit(2);
}
