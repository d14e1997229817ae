//! How the bounds of several modules depend on each other, proved at compile time.
//!
//! A bound stands in the module that it bounds, with its unit and its reason.

use crate::control::{COMMIT_MS_MAX, LEAVE_MS_MAX};
use crate::fetch::block::BLOCK_REJECTS_MAX;
use crate::fetch::cursor::{ALL_BLOCKS_MAX, SHARD_BLOCKS_MIN};
use crate::fetch::{RECEIVE_BUFFER_BYTES_MIN, RECEIVE_BUFFER_STEP_BYTES};
use crate::kafka::record_batch::BROKER_BATCH_BYTES;
use crate::kit::engine::COUNTS_MAX;
use crate::kit::rulebook::RULES_FILES_MAX;
use crate::output::frame::FRAME_BYTES_MAX;
use crate::ownership::release::{PLAY_ON_MS_MAX, RELEASE_MS_MAX};
use crate::publisher::OUTBOX_ITEMS_MAX;
use crate::publisher::producer::PUBLISHER_FLUSH_MS_MAX;
use crate::runtime::ring_loop::PARK_MS_MAX;
use crate::service::notify::SAMPLE_MS_MAX;
use crate::service::thread_watch::STUCK_MS;
use crate::shards::FRAMES_MAX;
use crate::snapshot::format::SNAPSHOT_BLOCK_BYTES;
use crate::snapshot::replicas::REPLICA_BLOCKS_PER_RECORD;
use crate::snapshot::replicator::REPLICATOR_END_MS_MAX;
use crate::snapshot::writer::WRITER_END_MS_MAX;
use crate::telemetry::progress::{RULESETS_SHOWN, SHARDS_MAX, ZONE_COUNTS_MAX};

const _: () = assert!(RECEIVE_BUFFER_BYTES_MIN >= BROKER_BATCH_BYTES + RECEIVE_BUFFER_STEP_BYTES);
const _: () = assert!(FRAMES_MAX + BLOCK_REJECTS_MAX <= OUTBOX_ITEMS_MAX);
const _: () = assert!(SHARDS_MAX * SHARD_BLOCKS_MIN <= ALL_BLOCKS_MAX);
const _: () = assert!(SAMPLE_MS_MAX >= 2 * PARK_MS_MAX);
const _: () = assert!(RULESETS_SHOWN >= RULES_FILES_MAX);
const _: () = assert!(ZONE_COUNTS_MAX == COUNTS_MAX);
const _: () = assert!(STUCK_MS > 10 * PARK_MS_MAX);
const _: () = assert!(REPLICA_BLOCKS_PER_RECORD * SNAPSHOT_BLOCK_BYTES <= FRAME_BYTES_MAX);
/// A stop is over within 18 seconds, ten of them for others to take its shards over: the writer and
/// the replicator of snapshots are waited for one after the other, and half a second is left for
/// what has no bound of its own.
const _: () = assert!(
    PLAY_ON_MS_MAX
        + RELEASE_MS_MAX
        + COMMIT_MS_MAX
        + LEAVE_MS_MAX
        + PUBLISHER_FLUSH_MS_MAX
        + WRITER_END_MS_MAX
        + REPLICATOR_END_MS_MAX
        <= 17_500
);
