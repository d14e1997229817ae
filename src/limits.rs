//! Every bound of the daemon, with its unit and its reason.
//!
//! A limit that an operator may want to move is a configuration key that is checked against the
//! constant here; the others are constants only. Relations between limits are proved at compile
//! time, beside the limit that depends on the others.

use crate::engine::event::{EFFECT_SLOTS, Event, INVENTORY_SLOTS};

/// Bytes of one event's JSON. A longer record is a reject: game events are some hundred bytes, and
/// the bound keeps the worst case of the decoder small.
pub const RECORD_BYTES_MAX: usize = 16 * 1024;

/// Nesting depth of an event's JSON. Events are flat; eight levels leave room for unknown fields.
pub const JSON_DEPTH_MAX: usize = 8;

/// Counts up whenever the decoder would make other events from the same records, or refuse others.
pub const DECODER_VERSION: u64 = 2;

/// Layouts that a decoder remembers: the types of event, and room for a few producers that
/// write them differently.
pub const LAYOUTS_MAX: usize = 16;

/// Segments of one layout: a value each, and one more for every 16 bytes between two values. The
/// longest type of event takes 10; the rest is for unknown fields.
pub const LAYOUT_SEGMENTS_MAX: usize = 32;

/// Bytes of a block of events, the unit that the queue carries: two pages stay in the L1 cache
/// between the decoder, which fills it, and the engine, which empties it.
pub const BLOCK_BYTES_MAX: usize = 8 * 1024;

/// Events in one block.
pub const BLOCK_EVENTS_MAX: usize = (BLOCK_BYTES_MAX - BLOCK_HEADER_BYTES_MAX) / size_of::<Event>();

/// Bytes that a block's own fields may take beside its events.
pub const BLOCK_HEADER_BYTES_MAX: usize = 88;
const _: () = assert!(BLOCK_EVENTS_MAX >= 64);

/// Rejects in one block: they hold copies of their records, so a block of them is short.
pub const BLOCK_REJECTS_MAX: usize = 32;

/// Blocks that may wait in the queue between decoder and engine.
pub const QUEUE_BLOCKS_MAX: usize = 64 * 1024;

/// Updates that one event may cause. Longer consequences wait in a work list for later events.
pub const EVENT_UPDATES_MAX: usize = 64;

/// Updates in one frame: at the longest JSON form this stays below [`FRAME_BYTES_MAX`].
pub const FRAME_UPDATES_MAX: usize = 4096;
const _: () = assert!(EVENT_UPDATES_MAX <= FRAME_UPDATES_MAX);
const _: () =
    assert!(FRAME_UPDATES_MAX * UPDATE_JSON_BYTES_MAX + RECORD_HEAD_BYTES_MAX <= FRAME_BYTES_MAX);

/// Bytes of one update in its JSON form; a test encodes the longest of each kind.
pub const UPDATE_JSON_BYTES_MAX: usize = 220;

/// Bytes of a record on its way beside its updates, or its key and value: headers, a departure.
pub const RECORD_HEAD_BYTES_MAX: usize = 1024;

/// Bytes of one encoded frame. Kafka's default limit for a batch is 1,048,588 bytes; the rest is
/// left for the batch header, the key and the record headers.
pub const FRAME_BYTES_MAX: usize = 900 * 1024;

/// Partitions that one daemon may own. A zone a partition, some hundred zones a core at most; the
/// bound sizes the tables that must not grow while events flow.
pub const SHARDS_MAX: usize = 1024;

/// Milliseconds that the hot thread may sleep in `io_uring_enter`, so that the watchdog sees it
/// turn even when no event comes.
pub const PARK_MS_MAX: u64 = 100;

/// Blocks that one shard may have between the decoder and the end of the engine: 1 MiB of events,
/// two or three Fetch responses' worth. Beyond it the shard is left out of the next Fetch.
pub const SHARD_BLOCKS_MAX: usize = 128;

/// Blocks that are made before they are needed: 8 MiB, enough for eight shards that have fallen
/// behind. What is never used is hardly in memory.
pub const POOL_BLOCKS_MIN: usize = 8 * SHARD_BLOCKS_MAX;

/// Blocks that one connection decodes before the other stages have their turn, so that the engine
/// works on blocks that are still in the cache.
pub const TURN_BLOCKS_MAX: usize = 8;

/// Frames that exist at once: each shard may hold one that it fills, and some are being encoded.
/// They are recycled, and one that was never used takes no memory.
pub const FRAMES_MAX: usize = SHARDS_MAX + 64;

// Service: what the configuration is checked against, and what serves the operator.

/// Smallest page-aligned step of a receive buffer, on any page size in use.
pub const RECEIVE_BUFFER_STEP_BYTES: usize = 64 * 1024;

/// The largest batch that a broker with default settings stores (`message.max.bytes`).
pub const BROKER_BATCH_BYTES: usize = 1_048_588;

/// Bytes of a receive buffer: room for the largest default batch and what is around it.
pub const RECEIVE_BUFFER_BYTES_MIN: usize = 18 * RECEIVE_BUFFER_STEP_BYTES;
const _: () = assert!(RECEIVE_BUFFER_BYTES_MIN >= BROKER_BATCH_BYTES + RECEIVE_BUFFER_STEP_BYTES);

/// Bytes of a receive buffer: beyond this it has long left every cache.
pub const RECEIVE_BUFFER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes that a Fetch may ask for at least, so that a configuration with tiny limits still moves.
pub const FETCH_BYTES_MIN: usize = 1024;

/// Bytes of a batch, or of what it decompresses to.
pub const BATCH_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Connections to one broker: more only add system calls.
pub const CONNECTIONS_PER_BROKER_MAX: usize = 8;

/// Milliseconds that a broker may hold back a Fetch.
pub const FETCH_WAIT_MS_MAX: u32 = 10_000;

/// The same while a partition is left out of it that may be asked for again within a moment.
pub const FETCH_WAIT_MS_LEFT_OUT: u32 = 10;

/// Milliseconds of a group session that brokers accept by default, from and to.
pub const SESSION_TIMEOUT_MS_MIN: u32 = 6_000;
/// See [`SESSION_TIMEOUT_MS_MIN`].
pub const SESSION_TIMEOUT_MS_MAX: u32 = 1_800_000;

/// Microseconds that a frame may wait for its batch; longer than this is no real time.
pub const LINGER_US_MAX: u32 = 900_000;

/// Frames of one shard that may be unacknowledged, the upper bound of `publish.frames_per_shard`.
pub const SHARD_FRAMES_MAX: usize = 1024;

/// What may wait for the publisher: every frame, and dead letters.
pub const OUTBOX_ITEMS_MAX: usize = 2048;
const _: () = assert!(FRAMES_MAX + BLOCK_REJECTS_MAX <= OUTBOX_ITEMS_MAX);

/// Milliseconds between two ticks of a zone: beyond this, its time would stand still.
pub const TICK_EVERY_MS_MAX: u32 = 60_000;

/// Milliseconds after which a shard whose input moved says so in a frame, even without updates.
pub const FRAME_SILENCE_MS_MAX: u64 = 100;

/// Milliseconds between two fences of one owner: a reader that joins waits at most so long.
pub const FENCE_EVERY_MS: u64 = 10_000;

/// Blocks of all shards together: 32 MiB of events, shared out evenly.
pub const ALL_BLOCKS_MAX: usize = 4096;

/// Blocks that a shard may have in any case: one that is filled, one that is applied.
pub const SHARD_BLOCKS_MIN: usize = 2;
const _: () = assert!(SHARDS_MAX * SHARD_BLOCKS_MIN <= ALL_BLOCKS_MAX);

/// Milliseconds between two looks at a shard that waits for the publisher.
pub const STALL_LOOK_MS: u64 = 1;

/// Milliseconds that connecting to a broker may take.
pub const CONNECT_MS_MAX: u64 = 5_000;

/// Milliseconds that a broker may take to answer, beyond the time that a Fetch asked it to wait.
pub const RESPONSE_MS_MAX: u64 = 30_000;

/// Milliseconds before a broker is tried again after the first failure; doubled with each further.
pub const RECONNECT_MS_MIN: u64 = 50;

/// Milliseconds before a broker is tried again, at most.
pub const RECONNECT_MS_MAX: u64 = 1_000;

/// Milliseconds after which librdkafka asks for a topic again. It sends nothing more to a topic
/// that it was refused once, until it has asked.
pub const METADATA_REFRESH_MS: u64 = 5_000;

/// Connections to brokers in all; each is a sender of the queue.
pub const CONNECTIONS_MAX: usize = 60;

/// Milliseconds between two tries of what a broker refused for the moment.
pub const RETRY_MS: u64 = 50;

/// What may wait for the control thread to log or resolve. What does not fit is left out and comes
/// again: a broker that stays away is reported with every try.
pub const REPORTS_MAX: usize = 256;

/// Bytes of a response other than Fetch: a cluster of thousands of brokers and partitions fits.
pub const METADATA_BYTES_MAX: usize = 4 * 1024 * 1024;
/// KiB that librdkafka accepts as the bound of its producer queue.
pub const PUBLISH_QUEUE_KBYTES_MAX: usize = 2_097_151;

/// Entries of the hot thread's submission queue: a few per connection, flushed once a turn.
pub const RING_ENTRIES: u32 = 256;

/// Characters of a topic name, by Kafka's own rule.
pub const TOPIC_NAME_CHARS_MAX: usize = 249;

/// Characters of a group, instance or client name: more than any host name needs.
pub const NAME_CHARS_MAX: usize = 255;

/// Brokers in the list to ask first.
pub const BOOTSTRAP_BROKERS_MAX: usize = 64;

/// Cores that the kernel's affinity calls know, as the C library sizes its sets.
pub const CORES_MAX: usize = 1024;

/// HTTP connections served at once; further ones wait in the listen backlog.
pub const HTTP_CONNECTIONS_MAX: usize = 16;

/// Bytes of a request line and its headers.
pub const HTTP_HEAD_BYTES_MAX: usize = 4096;

/// Headers of one request.
pub const HTTP_HEADERS_MAX: usize = 64;

/// Milliseconds that one HTTP exchange may take, a slow client included.
pub const HTTP_EXCHANGE_MS_MAX: u64 = 5_000;

/// Bytes of a request's body that are read, and thrown away, so that the client sees the answer
/// before the close.
pub const HTTP_DRAIN_BYTES_MAX: usize = 64 * 1024;

/// Distinct reasons for a refusal, or for a reject.
pub const REASONS_MAX: usize = 64;

/// Milliseconds between two looks of the service thread at the daemon.
pub const LOOK_MS_MAX: u64 = 1_000;
const _: () = assert!(LOOK_MS_MAX >= 2 * PARK_MS_MAX);

/// Milliseconds between two status lines for systemd.
pub const STATUS_MS: u64 = 2_000;

/// Milliseconds without a turn of the hot thread after which the daemon counts as stuck.
pub const STUCK_MS: u64 = 5_000;
const _: () = assert!(STUCK_MS > 10 * PARK_MS_MAX);

/// Milliseconds of patience that the daemon asks of systemd at a time while it starts or drains.
pub const PATIENCE_MS: u64 = 10_000;

/// Milliseconds over which the daemon asks for more patience while it drains.
pub const DRAIN_MS_MAX: u64 = 60_000;

/// Seconds between two log lines about the same repeated trouble.
pub const REPEATED_NOTICE_S: u64 = 10;

// Publisher.

/// Frames and dead letters that the publisher takes from its inbox between two looks at what the
/// broker has acknowledged: acknowledgements free the shards' quotas, so they must not wait long.
pub const PUBLISHER_BATCH_MAX: usize = 256;

/// Milliseconds between two looks at acknowledgements while some are due.
pub const PUBLISHER_BUSY_MS_MAX: u64 = 1;

/// Milliseconds that the publisher may sleep while nothing is due.
pub const PUBLISHER_IDLE_MS_MAX: u64 = 100;

/// Milliseconds that the publisher waits at its end for the last acknowledgements. A stop must be
/// over within five seconds.
pub const PUBLISHER_FLUSH_MS_MAX: u64 = 1_000;

// Recovery.

/// Milliseconds that reading an output partition may go on without a single record.
pub const TAIL_STALL_MS_MAX: u64 = 30_000;

/// Milliseconds that one fence may take to be acknowledged.
pub const FENCE_MS_MAX: u64 = 10_000;

/// Fences written for one acquisition. Each loss means that another instance raised the epoch in
/// between; so many losses in a row mean that two instances fight over the shard.
pub const FENCE_ATTEMPTS_MAX: usize = 8;

// Snapshots.

/// Milliseconds from one snapshot of a shard to its next: below this, taking snapshots is all that
/// the disk does.
pub const SNAPSHOT_EVERY_MS_MIN: u64 = 100;
/// See [`SNAPSHOT_EVERY_MS_MIN`]: beyond this a restart replays hours.
pub const SNAPSHOT_EVERY_MS_MAX: u64 = 3_600_000;

/// Snapshots of a shard that are kept at least: the newest may be ahead of what is acknowledged,
/// and another one may be damaged.
pub const SNAPSHOTS_KEPT_MIN: usize = 3;
/// Snapshots of a shard that are kept at most: a start looks at all of them.
pub const SNAPSHOTS_KEPT_MAX: usize = 64;

/// Bytes of a block of a snapshot, with its head: small enough that filling one is a short pause.
pub const SNAPSHOT_BLOCK_BYTES: usize = 64 * 1024;

/// Bytes of one shard's encoded state: all actors, tombstones and hunts that the limits allow.
pub const SNAPSHOT_STATE_BYTES_MAX: usize = 64 * 1024 * 1024;
const _: () = assert!(
    ACTORS_MAX * 24 * 8
        + TOMBSTONES_MAX * 5 * 8
        + HUNTS_MAX * TREASURES_MAX * 3 * 8
        + HUNTS_MAX * 2 * TREASURES_MAX / 8
        + 64 * 1024
        <= SNAPSHOT_STATE_BYTES_MAX
);

/// Input offsets that a replay of one snapshot passes over: each took the engine down thrice.
pub const SKIPS_MAX: usize = 1024;

/// Messages to the keeper that may wait: every buffer, and a beginning and an end for each shard.
pub const CAPTURE_MESSAGES_MAX: usize = CAPTURE_BUFFERS + 2 * SHARDS_MAX;

/// Messages that the keeper takes between two looks at what is gated.
pub const KEEPER_MESSAGES_PER_LOOK: usize = 64;

/// Milliseconds that the keeper may sleep when nobody wakes it.
pub const KEEPER_IDLE_MS_MAX: u64 = 100;

/// Milliseconds that the end of the daemon waits for the keeper, and for the copier: shards that
/// were released have their snapshots by then, or a disk does not answer.
pub const KEEPER_END_MS_MAX: u64 = 500;

/// Buffers of state from the hot thread to the keeper, 2 MiB: behind a slow disk captures wait.
pub const CAPTURE_BUFFERS: usize = 32;

/// Blocks of a snapshot in one record of a copy: below [`FRAME_BYTES_MAX`], as frames are.
pub const COPY_BLOCKS_PER_RECORD: usize = 13;
const _: () = assert!(COPY_BLOCKS_PER_RECORD * SNAPSHOT_BLOCK_BYTES <= FRAME_BYTES_MAX);

/// Records from the end of a partition of copies in which the newest manifest is looked for first:
/// the records that the last copy has let go follow it.
pub const COPY_LOOK_BACK_RECORDS: i64 = 128;

/// Milliseconds that one record of a copy may take to be acknowledged.
pub const COPY_MS_MAX: u64 = 30_000;

/// KiB of copies that may wait for the brokers.
pub const COPY_QUEUE_KBYTES: usize = 16 * 1024;

/// Milliseconds that copying may go on when the daemon has to end.
pub const COPIER_END_MS_MAX: u64 = 3_000;

/// Snapshots that may wait for the copier; what does not fit is copied the next time.
pub const COPIES_WAITING_MAX: usize = SHARDS_MAX;

// Membership.

/// Milliseconds that a question about topics and partitions may take.
pub const METADATA_MS_MAX: u64 = 2_000;

/// Milliseconds that the last commit of a shard may take before the shard is let go without it.
pub const COMMIT_MS_MAX: u64 = 500;

// Control.

/// Milliseconds between two looks of the control thread at what the others report.
pub const CONTROL_LOOK_MS: u64 = 10;

/// Milliseconds between two commits of input offsets: lag tools look every few seconds.
pub const COMMIT_EVERY_MS: u64 = 1_000;

/// Milliseconds that shards may take to end in order, when they are revoked or the daemon stops.
pub const RELEASE_MS_MAX: u64 = 2_500;

/// Milliseconds that leaving the group may take.
pub const LEAVE_MS_MAX: u64 = 300;
/// A stop is over within five seconds, and half a second is left for what is not waited for.
const _: () =
    assert!(RELEASE_MS_MAX + COMMIT_MS_MAX + LEAVE_MS_MAX + PUBLISHER_FLUSH_MS_MAX <= 4_500);

/// Milliseconds over which a topic has to be missing before it counts as missing: a broker that has
/// just started does not know its topics.
pub const TOPIC_MISSING_MS_MAX: u64 = 5_000;

/// Milliseconds between two looks at how many partitions the input has.
pub const COUNT_EVERY_MS: u64 = 30_000;

/// Milliseconds that the group may take to say whether we are in it.
pub const ANSWER_MS_MAX: u64 = 10_000;

/// Milliseconds before a shard that another instance has fenced is taken back, if the group still
/// gives it to us: it may not know yet.
pub const YIELD_MS: u64 = 2_000;

/// How often within [`FENCED_S`] a member joins again under its instance id after the group has
/// given that to another one, and no broker was away before: two instances that share an id do so
/// without end.
pub const FENCED_MAX: u32 = 3;

/// Seconds after which such an event is forgotten.
pub const FENCED_S: u64 = 300;

/// Milliseconds over which a shard has to be refused, where a change of leaders may be the cause,
/// before it halts.
pub const REFUSAL_MS_MAX: u64 = 5_000;

/// Times that one record may take the engine down before it is passed over.
pub const PANICS_MAX: u32 = 3;

/// Milliseconds before a shard is acquired again whose delivery failed or whose brokers were away.
pub const REACQUIRE_MS: u64 = 500;

/// Commands, notices, failures that may wait for their thread: several for every shard.
pub const MESSAGES_MAX: usize = 4 * SHARDS_MAX;
// The engine.

/// Actors of one shard: a full zone is a refusal, never a resize.
pub const ACTORS_MAX: usize = 128 * 1024;

/// Files of rules that a daemon knows: what it was begun with, and what the input changed to since
/// the oldest snapshot.
pub const RULES_FILES_MAX: usize = 16;

/// Health that rules may give an actor.
pub const HEALTH_MAX: u16 = 10_000;

/// Rows of a chunk, the step in which tables grow: small enough that the first touch of a chunk's
/// memory stays some microseconds.
pub const CHUNK_ROWS: usize = 128;
const _: () = assert!(ACTORS_MAX.is_multiple_of(CHUNK_ROWS) && CHUNK_ROWS.is_power_of_two());

/// Rows of a chunk that are a word or less: as much memory at a time.
pub const CHUNK_WORDS: usize = 1024;

/// Tiles along a zone's side: the longest way on a map without walls is one that the path cache
/// tells.
pub const TILES_PER_SIDE_MAX: u32 = 512;

/// Centimetres along a zone's side: products of two positions, and of a direction and a range, fit
/// an i64 with room to spare.
pub const ZONE_CM_MAX: u32 = 1 << 24;

/// Hunts of one zone that run, or are being closed, at once.
pub const HUNTS_MAX: usize = 4;

/// Treasures of one hunt.
pub const TREASURES_MAX: usize = 4096;

/// Tiles that laying a treasure tries before the hunt goes without it.
pub const LAYING_TRIES: u64 = 32;

/// Updates of one event that tell what hunts have still to tell: treasures laid, finishers.
pub const HUNT_UPDATES_PER_EVENT: usize = 12;

/// Strips of 64 tiles that one piece of the search for paths works on: some 300 ns.
pub const PATH_STRIPS_PER_PIECE: u32 = 16;

/// Milliseconds of event time between two pieces of that search. On a map of 65,536 tiles the ways
/// to two thousand treasures are found in some 4 s, those to a single one in up to 40 s.
pub const PATH_PIECE_MS: u64 = 4;

/// Pieces that one event works on at most, when much time passed since the one before. A tick works
/// on more, some 20 us: it comes once a second, and the paths of a quiet zone are found by it.
pub const PATH_PIECES_PER_EVENT: u64 = 4;
/// See [`PATH_PIECES_PER_EVENT`].
pub const PATH_PIECES_PER_TICK: u64 = 64;

/// Steps to a treasure that the path cache can tell: on a map without walls, all there are.
pub const PATH_DISTANCE_MAX: u32 = 1023;
const _: () = assert!(2 * (TILES_PER_SIDE_MAX - 1) <= PATH_DISTANCE_MAX);

/// Updates that an arrival makes at most: itself, each stack kept and lost, the effects, the way,
/// the score. A player's own event, which settles the player too, makes fewer.
pub const ARRIVAL_UPDATES_MAX: usize = 3 + 2 * INVENTORY_SLOTS + EFFECT_SLOTS;

/// Updates that one actor's settling makes at most: the end of each effect, the respawn, the way.
pub const SETTLE_UPDATES_MAX: usize = EFFECT_SLOTS + 2;
const _: () = assert!(
    DUE_ACTORS_PER_EVENT * SETTLE_UPDATES_MAX
        + HUNTS_MAX
        + ARRIVAL_UPDATES_MAX
        + HUNT_UPDATES_PER_EVENT
        <= EVENT_UPDATES_MAX
);

/// Tiles on a side of the square in which an arrival looks for a place before it is sent back.
pub const ARRIVAL_TILES_PER_SIDE: u32 = 8;

/// Rows that one piece of a capture looks at, empty ones included: some ten microseconds.
pub const CAPTURE_ROWS_PER_PIECE: u32 = 8192;

/// Players that left a zone and are still known there: as many as it holds, as all may leave.
pub const TOMBSTONES_MAX: usize = ACTORS_MAX;

/// Record times that the shard's clock looks back on: it follows the smallest of them.
pub const CLOCK_RECORDS: usize = 8;

/// Actors for which something ends, such as an effect, at one event; the others wait for the next.
pub const DUE_ACTORS_PER_EVENT: usize = 4;

/// Tiles that a respawn tries before the actor stands up where it lies.
pub const RESPAWN_TRIES: u64 = 16;

/// Everything here that decides what becomes of an event: part of the ruleset hash, so that two
/// versions with other bounds are told apart. A limit that only says how fast something goes, or
/// what is refused at the start, is left out.
pub const DECIDING: [u64; 17] = [
    DECODER_VERSION,
    RECORD_BYTES_MAX as u64,
    JSON_DEPTH_MAX as u64,
    HUNTS_MAX as u64,
    TREASURES_MAX as u64,
    LAYING_TRIES,
    HUNT_UPDATES_PER_EVENT as u64,
    PATH_STRIPS_PER_PIECE as u64,
    PATH_PIECE_MS,
    PATH_PIECES_PER_EVENT,
    PATH_PIECES_PER_TICK,
    PATH_DISTANCE_MAX as u64,
    TOMBSTONES_MAX as u64,
    CLOCK_RECORDS as u64,
    DUE_ACTORS_PER_EVENT as u64,
    RESPAWN_TRIES,
    ARRIVAL_TILES_PER_SIDE as u64,
];
