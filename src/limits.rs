//! Every bound of the daemon, with its unit and its reason.
//!
//! A limit that an operator may want to move is a configuration key that is checked against the
//! constant here; the others are constants only. Relations between limits are proved at compile
//! time, beside the limit that depends on the others.

/// Bytes of one event's JSON. A longer record is a reject: game events are some hundred bytes, and
/// the bound keeps the worst case of the decoder small.
pub const RECORD_BYTES_MAX: usize = 16 * 1024;

/// Nesting depth of an event's JSON. Events are flat; eight levels leave room for unknown fields.
pub const JSON_DEPTH_MAX: usize = 8;

/// Bytes of a block of events, the unit that the queue carries: two pages stay in the L1 cache
/// between the decoder, which fills it, and the engine, which empties it.
pub const BLOCK_BYTES_MAX: usize = 8 * 1024;

/// Events in one block.
pub const BLOCK_EVENTS_MAX: usize =
    (BLOCK_BYTES_MAX - BLOCK_HEADER_BYTES_MAX) / size_of::<crate::engine::event::Event>();

/// Bytes that a block's own fields may take beside its events.
pub const BLOCK_HEADER_BYTES_MAX: usize = 64;
const _: () = assert!(BLOCK_EVENTS_MAX >= 64);

/// Blocks that may wait in the queue between decoder and engine.
pub const QUEUE_BLOCKS_MAX: usize = 64 * 1024;

/// Updates that one event may cause. Longer consequences wait in a work list for later events.
pub const EVENT_UPDATES_MAX: usize = 64;

/// Updates in one frame: at the longest JSON form this stays below [`FRAME_BYTES_MAX`].
pub const FRAME_UPDATES_MAX: usize = 4096;
const _: () = assert!(EVENT_UPDATES_MAX <= FRAME_UPDATES_MAX);
const _: () = assert!(FRAME_UPDATES_MAX * UPDATE_JSON_BYTES_MAX + 1024 <= FRAME_BYTES_MAX);

/// Bytes of one update in its JSON form; a test encodes the longest of each kind.
pub const UPDATE_JSON_BYTES_MAX: usize = 220;

/// Bytes of one encoded frame. Kafka's default limit for a batch is 1,048,588 bytes; the rest is
/// left for the batch header, the key and the record headers.
pub const FRAME_BYTES_MAX: usize = 900 * 1024;

/// Partitions that one daemon may own. A zone a partition, some hundred zones a core at most; the
/// bound sizes the tables that must not grow while events flow.
pub const SHARDS_MAX: usize = 1024;

/// Milliseconds that the hot thread may sleep in `io_uring_enter`, so that the watchdog sees it
/// turn even when no event comes.
pub const PARK_MS_MAX: u64 = 100;
