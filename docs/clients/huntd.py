#!/usr/bin/env python3
"""Read huntd's updates and write events, in one file. Copy it, and change what you need.

    python3 huntd.py read  BROKERS TOPIC [PRINTED]  print the updates that are there, once each
    python3 huntd.py write BROKERS TOPIC PARTITION  send a join and some moves of one player
    python3 huntd.py verify                         for docs/vectors: frames in, verdicts out

`read` prints a position after the updates of each frame, and goes on from the last ones in the file
PRINTED, which has what it printed before. It ends at the end of the topic.
`read` and `write` need confluent-kafka (pip install confluent-kafka, or on Debian apt install
python3-confluent-kafka); the rest needs nothing.
docs/PROTOCOL.md has the reader rule, docs/RULES.md the updates, docs/EVENTS.md the events.
"""

import json
import os
import struct
import sys
import time

# ---- updates ------------------------------------------------------------------------------------

# Names by their numbers, and kinds in the order of their numbers, from 1. A field is
# name:place[:form], as docs/RULES.md has it.
# schema: begin, written by `HUNTD_REGENERATE=true cargo test --test host schema`
NAMES = {
    ("refused", "reason"): """not_joined already_joined zone_full tile_full
    off_map wall too_fast downed heading_out_of_range unknown_weapon reloading nothing_in_reach
    unknown_hunt hunts_full treasures_out_of_range duration_out_of_range unknown_item
    item_not_held item_useless same_zone no_player""".split(),
    ("refused", "action"): """join arrive leave move rotate shoot loot use
    tick hunt_start hunt_end rules_change""".split(),
    ("scored", "cause"): """loot downed prize arrival""".split(),
    ("hunt_ended", "cause"): """all_found time_up called_off""".split(),
    ("effect_started", "effect"): """haste shield compass double_loot""".split(),
    ("effect_ended", "effect"): """haste shield compass double_loot""".split(),
    ("path_hint", "hint"): """stale here east north west south""".split(),
}
KINDS = """
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
"""
# schema: end
KINDS = [line.split() for line in KINDS.strip().splitlines()]
NUMBERS = {kind[0]: number for number, kind in enumerate(KINDS, 1)}
# Where a field stands in the third and fourth word: word, shift, bits.
PLACES = {
    "code": (0, 8, 8), "short": (0, 16, 16), "word": (0, 32, 32),
    "low": (1, 0, 32), "high": (1, 32, 32), "long": (1, 0, 64),
}  # fmt: skip


def fields_of(kind):
    for field in KINDS[NUMBERS[kind] - 1][1:]:
        name, place, form = (field + ":number").split(":")[:3]
        yield name, PLACES[place], form


def update_of(words):
    """The update that four words stand for, as docs/RULES.md writes it in JSON."""
    kind = KINDS[(words[2] & 0xFF) - 1][0]
    update = {"kind": kind, "player_id": str(words[0]), "ts_us": exact(signed(words[1], 64))}
    for name, (word, shift, bits), form in fields_of(kind):
        value = words[2 + word] >> shift & (1 << bits) - 1
        if value == 0 and form in ("zone", "player"):
            continue
        if form == "signed":
            value = signed(value, 32)
        elif form == "name":
            value = NAMES[kind, name][value]
        elif form == "flag":
            value = bool(value)
        elif form == "zone":
            value -= 1
        elif form == "player":
            value = str(value)
        elif form == "items":
            slots = value.to_bytes(8, "little")
            value = [[slots[at], slots[at + 1]] for at in range(0, 8, 2)]
        update[name] = exact(value) if form == "number" else value
    return update


def words_of(update):
    """The four words of an update: what the chain is made of."""
    kind = update["kind"]
    words = [int(update["player_id"]), int(update["ts_us"]) & U64, NUMBERS[kind], 0]
    for name, (word, shift, bits), form in fields_of(kind):
        value = update.get(name, 0)
        if form == "name":
            value = NAMES[kind, name].index(value)
        elif form == "zone" and name in update:
            value = int(value) + 1
        elif form == "items":
            value = int.from_bytes(bytes(part for slot in value for part in slot), "little")
        words[2 + word] |= (int(value) & (1 << bits) - 1) << shift
    return words


def exact(value):
    """Numbers beyond 2^53 are text in JSON, because many readers would round them."""
    return value if -(1 << 53) <= value <= 1 << 53 else str(value)


def is_known(words):
    """Whether the kind, and each number that stands for a name, has one."""
    number = words[2] & 0xFF
    if not 1 <= number <= len(KINDS):
        return False
    kind = KINDS[number - 1][0]
    return all(
        words[2 + word] >> shift & (1 << bits) - 1 < len(NAMES[kind, name])
        for name, (word, shift, bits), form in fields_of(kind) if form == "name"
    )  # fmt: skip


def signed(value, bits):
    return value - (1 << bits) if value >> bits - 1 else value


# ---- frames -------------------------------------------------------------------------------------

U64 = (1 << 64) - 1
# Owners raise the epoch by 1 each: if two epochs are further apart, one is no owner's.
EPOCH_STEP_MAX = 1 << 32
VERSION = 2
FRAME_KINDS = {1: "updates", 2: "fence", 3: "skip", 4: "genesis"}
FRAME_BYTES_MAX, FRAME_UPDATES_MAX = 921_600, 4096
# How a frame of any version begins. Version 1 had no `version`.
HEADS = b"HNTF", b'{"version":', b'{"kind":"'
OURS = b"HNTF%c" % VERSION, b'{"version":%d,' % VERSION


class Unreadable(Exception):
    """A frame that this reader cannot read. It may be a fence, or hold updates without which
    nothing after it counts: stop."""


class Frame:
    """One record of the output topic. `words` has four numbers for each update."""

    def __init__(self, kind, epoch, first_update, next_offset, ruleset, chain, fence_id, words):
        self.kind, self.epoch, self.first_update = kind, epoch, first_update
        self.next_offset, self.ruleset, self.chain = next_offset, ruleset, chain
        self.fence_id, self.words = fence_id, words

    @staticmethod
    def parse(record):
        """A frame of either form; None: the record is no frame, so pass it over."""
        record = record or b""
        if not record.startswith(HEADS):
            return None
        if not record.startswith(OURS):
            raise Unreadable("a frame of another version")
        if len(record) > FRAME_BYTES_MAX:
            raise Unreadable("a frame that is too long")
        try:
            frame = Frame._binary(record) if record[:4] == b"HNTF" else Frame._json(record)
        except (ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
            raise Unreadable(f"a frame with {error!r}") from error
        is_fence, count = frame.kind == "fence", len(frame.words)
        if (
            count > (FRAME_UPDATES_MAX if frame.kind == "updates" else 0)
            or (frame.fence_id and not is_fence)
            or frame.next_offset < (-1 if is_fence else 0)
            or not 0 <= frame.epoch <= U64
            or not 0 <= frame.first_update <= U64 - count
        ):
            raise Unreadable("a frame with a field out of range")
        return frame

    @staticmethod
    def _binary(record):
        kind, flags, epoch, first, count, ruleset, next_offset, chain, low, high = (
            struct.unpack_from("<BHQQIIqQQQ", record, 5)
        )
        if flags or len(record) != 64 + 32 * count:
            raise ValueError("unknown flags, or another length")
        numbers = struct.unpack_from(f"<{4 * count}Q", record, 64)
        words = [numbers[at : at + 4] for at in range(0, len(numbers), 4)]
        if not all(map(is_known, words)):
            raise ValueError("an update of an unknown kind, or with an unknown name")
        fence_id = high << 64 | low
        return Frame(FRAME_KINDS[kind], epoch, first, next_offset, ruleset, chain, fence_id, words)

    @staticmethod
    def _json(record):
        raw = json.loads(record)
        words = [words_of(update) for update in raw["updates"]]
        if len(words) != raw["count"] or raw["kind"] not in FRAME_KINDS.values():
            raise ValueError("another count, or an unknown kind")
        return Frame(
            raw["kind"], int(raw["epoch"]), int(raw["first_update"]), int(raw["next_offset"]),
            raw["ruleset"], int(raw["chain"], 16), int(raw.get("fence_id", "0"), 16), words,
        )  # fmt: skip


def chained(chain, words):
    """The chain after one more update."""
    who_when = folded(words[0] ^ 0x6A09E667F3BCC909, words[1] ^ 0xBB67AE8584CAA73B)
    what = folded(words[2] ^ 0x3C6EF372FE94F82C, words[3] ^ 0xA54FF53A5F1D36F1)
    chain = chain + who_when + what & U64
    return folded(chain ^ 0x6A09E667F3BCC909, 0xA54FF53A5F1D36F1)


def folded(a, b):
    """The two halves of a 128-bit product in one word."""
    product = a * b
    return product & U64 ^ product >> 64


# ---- the reader rule ----------------------------------------------------------------------------


class Reader:
    """Folds the frames of one output partition, in the order of the log.

    Begin at the log's start, from a stored `position`, or anywhere with `joining=True`.
    """

    def __init__(self, joining=False, position=None):
        self.epoch, self.next_update, self.next_offset, self.chain = position or (0, 0, 0, 0)
        self.fence_id, self.gaps, self.halted = 0, 0, False
        # "sure", None before it has joined, or the number of the first update after a fence.
        self.footing = None if joining else "sure"

    @property
    def position(self):
        """Store it, with the offset of the next record, in one step with what you make of the
        updates."""
        return self.epoch, self.next_update, self.next_offset, self.chain

    def fold(self, frame):
        """The verdict on the next frame, and its new updates as words."""
        if self.halted:
            return "halt", []
        # A note, of epoch 0, says nothing about the reader's.
        if frame.epoch and abs(frame.epoch - self.epoch) > EPOCH_STEP_MAX:
            if self.footing is None or self._accepted_nothing():
                # Either epoch may be no owner's: the owner's next frame will tell.
                self.footing, self.epoch, self.fence_id = None, frame.epoch, frame.fence_id
            elif frame.epoch > self.epoch:
                return "stale", []
        if isinstance(self.footing, int) and (self._overtaken(frame) or self._elsewhere(frame)):
            self.footing = None
        if self.footing is None:
            return self._join(frame), []
        if frame.kind == "fence":
            self._raise(frame.epoch, frame.fence_id)
            return "fence", []
        if frame.epoch < self.epoch:
            return "stale", []
        self._raise(frame.epoch, 0)
        if frame.kind == "skip":
            return f"skip {frame.next_offset - 1}", []
        if frame.kind == "genesis":
            return self._genesis(frame), []
        if not frame.words:
            if frame.first_update == self.next_update:
                self.next_offset = max(self.next_offset, frame.next_offset)
            return "progress", []
        return self._accept(frame)

    def _accept(self, frame):
        end = frame.first_update + len(frame.words)
        if end <= self.next_update:
            return "duplicate", []
        if frame.first_update > self.next_update:
            self.gaps += 1
            return f"gap of {frame.first_update - self.next_update}", []
        start = self.next_update - frame.first_update
        chain = self.chain
        for words in frame.words[start:]:
            chain = chained(chain, words)
        if chain != frame.chain:
            return self._differ(), []
        self.chain, self.next_update = chain, end
        self.next_offset = max(self.next_offset, frame.next_offset)
        return f"accepted from {start}", frame.words[start:]

    def _genesis(self, frame):
        if frame.first_update != self.next_update:
            return "duplicate"
        if frame.chain != self.chain:
            return self._differ()
        self.next_offset = frame.next_offset
        return "genesis"

    def _differ(self):
        if self._accepted_nothing():
            self.footing = None
            return "waiting"
        self.halted = True
        return "halt"

    def _join(self, frame):
        self._raise(frame.epoch, frame.fence_id)
        if not placed(frame) or frame.epoch < self.epoch:
            return "waiting"
        self.epoch, self.next_update = frame.epoch, frame.first_update
        self.next_offset, self.chain = frame.next_offset, frame.chain
        self.fence_id, self.footing = frame.fence_id, frame.first_update
        return "joined"

    def _raise(self, epoch, fence_id):
        if epoch > self.epoch:
            self.epoch, self.fence_id = epoch, fence_id

    def _overtaken(self, frame):
        takes_over = frame.kind == "fence" and frame.next_offset < 0
        another = placed(frame) and frame.epoch == self.epoch and frame.fence_id != self.fence_id
        newer = frame.epoch > self.epoch
        return another or (newer and not (takes_over and frame.epoch == self.epoch + 1))

    def _elsewhere(self, frame):
        differs = frame.first_update != self.next_update or frame.next_offset < self.next_offset
        same_owner = placed(frame) and frame.epoch == self.epoch
        return self._accepted_nothing() and same_owner and differs

    def _accepted_nothing(self):
        return self.footing == self.next_update


def placed(frame):
    return frame.kind == "fence" and frame.next_offset >= 0


# ---- events -------------------------------------------------------------------------------------


class Seqs:
    """A `seq` for each event of a player that survives restarts: the time, or one more."""

    def __init__(self):
        self.last = {}

    def next(self, player_id, now_us=None):
        now_us = time.time_ns() // 1000 if now_us is None else now_us
        self.last[player_id] = max(self.last.get(player_id, 0) + 1, now_us)
        return self.last[player_id]


def event(seqs, kind, player_id, **fields):
    """One event as a record's value."""
    head = {"type": kind, "player_id": player_id, "seq": seqs.next(player_id)}
    return json.dumps({**head, "ts_us": time.time_ns() // 1000, **fields}).encode()


# ---- Kafka --------------------------------------------------------------------------------------


def read(brokers, topic, printed=os.devnull):
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer({
        "bootstrap.servers": brokers, "group.id": "huntd-example", "enable.auto.commit": False,
        "enable.partition.eof": True, "check.crcs": True, "isolation.level": "read_uncommitted",
        "auto.offset.reset": "error",  # Join if the record at a position was deleted.
    })  # fmt: skip
    about = consumer.list_topics(topic, 10).topics[topic]
    if about.error:
        raise RuntimeError(about.error)
    partitions = about.partitions
    next_records = dict.fromkeys(partitions, OFFSET_BEGINNING)
    readers = {number: Reader() for number in partitions}
    for at in positions_in(printed):
        position = at["epoch"], at["next_update"], at["next_offset"], int(at["chain"], 16)
        readers[at["partition"]] = Reader(position=map(int, position))
        next_records[at["partition"]] = int(at["next_record"])
    consumer.assign([TopicPartition(topic, *begin) for begin in next_records.items()])
    reading = set(partitions)
    while reading:
        message = consumer.poll(10)
        if message is None:
            raise TimeoutError("the brokers do not answer")
        if message.error():
            if message.error().code() != KafkaError._PARTITION_EOF:
                raise RuntimeError(message.error())
            reading.discard(message.partition())
            continue
        reader = readers[message.partition()]
        frame = Frame.parse(message.value())
        if frame is None:
            continue
        verdict, new = reader.fold(frame)
        if verdict.startswith("gap"):
            print(f"partition {message.partition()}: {verdict}", file=sys.stderr)
        if verdict == "halt":
            raise RuntimeError(f"partition {message.partition()}: the chain does not match")
        if new:
            print_accepted(message, reader, new)


def positions_in(printed):
    """The positions in a file that `read` has printed, and goes on printing. A line that was cut off,
    as by a kill, counts as not printed."""
    line = "\n"
    with open(printed) as lines:
        for line in lines:
            try:
                at = json.loads(line)
            except ValueError:
                continue
            if "next_record" in at:
                yield at
    if not line.endswith("\n"):
        print()


def print_accepted(message, reader, new):
    """The new updates and the position after them. Your program stores both in one step."""
    partition = message.partition()
    lines = [
        {"partition": partition, "number": number, **update_of(words)}
        for number, words in enumerate(new, reader.next_update - len(new))
    ]
    epoch, next_update, next_offset, chain = reader.position
    at = {"epoch": epoch, "next_update": next_update, "next_offset": next_offset}
    at = {"partition": partition, "next_record": message.offset() + 1, **at}
    lines.append({**at, "chain": f"{chain:016x}"})
    print(*map(json.dumps, lines), sep="\n", flush=True)


def write(brokers, topic, partition):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": brokers, "acks": "all", "enable.idempotence": True})
    failures, seqs, player = [], Seqs(), 76561199000000001  # none of `huntd load`

    def send(kind, **fields):
        # The partition is the zone: always name it, and never let a partitioner choose.
        producer.produce(topic, event(seqs, kind, player, **fields), partition=partition,
                         on_delivery=lambda error, _: error and failures.append(error))  # fmt: skip

    send("join", x=1000, y=2000)
    for step in range(1, 5):
        send("move", x=1000 + 10 * step, y=2000)
    producer.flush(30)
    if failures or len(producer):
        raise RuntimeError(failures or "the brokers do not answer")


def verify():
    """`start` or `join` begins a reader, `position` tells where it is; else a frame in hex."""
    reader = Reader()
    for line in map(str.strip, sys.stdin):
        if line in ("start", "join"):
            reader = Reader(joining=line == "join")
        elif line == "position":
            print(*reader.position[:3], f"{reader.chain:016x}", reader.gaps)
        elif line.startswith("updates "):
            for words in Frame.parse(bytes.fromhex(line[8:])).words:
                print(json.dumps(update_of(words)))
        elif line == "seqs":
            seqs = Seqs()
            print(*(seqs.next(1, now) for now in (5, 5, 4, 9)))
        else:
            try:
                frame = Frame.parse(bytes.fromhex(line))
                print("ignores" if frame is None else reader.fold(frame)[0])
            except Unreadable:
                print("stops")


if __name__ == "__main__":
    if sys.argv[1:2] == ["read"]:
        read(*sys.argv[2:])
    elif sys.argv[1:2] == ["write"]:
        write(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    elif sys.argv[1:] == ["verify"]:
        verify()
    else:
        sys.exit(__doc__)
