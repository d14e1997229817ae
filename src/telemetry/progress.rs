//! Per shard, how far each stage is.
//!
//! Each number has one writer at a time, the thread that its comment names; the control thread sets
//! some of them again before it opens the shard. So readers on other threads need no lock. Offsets
//! are exclusive: the next one that is not fetched, decoded, applied and so on.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Partitions that one daemon may own. Each partition holds one zone, and one core plays some
/// hundred zones at most. The bound sizes the tables that must not grow while events flow.
pub const SHARDS_MAX: usize = 1024;

/// Id of a topic, which changes when the topic is created again (KIP-516). It is written once, when
/// a broker has answered; zeros: brokers give none.
pub type TopicId = Arc<OnceLock<[u8; 16]>>;

/// Rulesets that are shown: as many as a daemon can have.
pub(crate) const RULESETS_SHOWN: usize = 16;

/// The progress of all shards, by partition number.
pub struct Progress {
    shards: Box<[ShardProgress]>,
    /// The rulesets that an event may change to, each with one added to it; 0 = none. Hot thread.
    rulesets: [Count; RULESETS_SHOWN],
    /// Which topic the input offsets are about. Hot thread, before any shard is acquired.
    pub input_topic_id: TopicId,
    /// Partitions, from 0 on, that `group_lag` is about now.
    pub group_lag_partitions: Count,
    /// Partitions of other instances, or of none, that have records and that nobody reads.
    pub unread_partitions: Count,
}

impl Progress {
    /// Nothing has happened yet.
    pub fn new() -> Progress {
        let shards = (0..SHARDS_MAX).map(|_| ShardProgress::default()).collect();
        Progress {
            shards,
            rulesets: Default::default(),
            input_topic_id: TopicId::default(),
            group_lag_partitions: Count::default(),
            unread_partitions: Count::default(),
        }
    }

    /// Nothing has happened yet, and all shards know these rulesets.
    pub(crate) fn with_rulesets(rulesets: impl Iterator<Item = u32>) -> Progress {
        let progress = Progress::new();
        progress.set_rulesets(rulesets);
        progress
    }

    /// The progress of one partition's shard. Partitions are checked against [`SHARDS_MAX`] when
    /// they are assigned.
    pub fn shard(&self, partition: i32) -> &ShardProgress {
        &self.shards[usize::try_from(partition).expect("partition numbers are not negative")]
    }

    /// The rulesets that an event may change to, in the order of their files.
    pub fn rulesets(&self) -> impl Iterator<Item = u32> {
        let known = self.rulesets.iter().map_while(|known| known.get().checked_sub(1));
        known.map(|ruleset| ruleset as u32)
    }

    /// All shards know these rulesets. Hot thread.
    pub(crate) fn set_rulesets(&self, rulesets: impl Iterator<Item = u32>) {
        for (known, ruleset) in self.rulesets.iter().zip(rulesets) {
            known.set(u64::from(ruleset) + 1);
        }
    }

    /// All shards that are owned now, with their partitions.
    pub(crate) fn owned(&self) -> impl Iterator<Item = (i32, &ShardProgress)> {
        (0..).zip(self.shards.iter()).filter(|(_, shard)| shard.is_owned())
    }
}

impl Default for Progress {
    fn default() -> Progress {
        Progress::new()
    }
}

/// How far one shard is.
#[derive(Default)]
pub struct ShardProgress {
    /// Which ownership within this process the numbers belong to; 0 = not owned. Control thread.
    pub ownership_id: OwnershipId,
    /// End of the input log, as the last Fetch response said; -1 while unknown. Hot
    /// thread; the control thread when it begins an ownership.
    pub high_watermark: Offset,
    /// Where the input ended when the ownership began; -1 while unknown. The shard is live once it
    /// has applied all before that. Control thread.
    pub goal: Offset,
    /// Received from the broker. Hot thread.
    pub fetched: Offset,
    /// Decoded and sent to the queue. Hot thread.
    pub decoded: Offset,
    /// Applied by the engine. Hot thread; the control thread when it begins an ownership.
    pub applied: Offset,
    /// In a frame that was handed to the publisher. Hot thread.
    pub published: Offset,
    /// In a frame that the broker has acknowledged, with all dead letters before it. Publisher; the
    /// control thread when it begins an ownership, for lag tools.
    pub acked: Offset,
    /// Frames and dead letters handed to the publisher since the process began. Hot thread.
    pub sent: Count,
    /// Of these, how many are acknowledged, failed or dropped with a failed ownership. The
    /// difference is on its way, whatever the ownership. Publisher.
    pub settled: Count,
    /// Bytes of all these frames and dead letters, each counted at its longest. Hot thread.
    pub sent_bytes: Count,
    /// How many of these bytes are settled. Publisher.
    pub settled_bytes: Count,
    /// Checkpoints that were begun since the process began. Hot thread.
    pub checkpoints: Count,
    /// Of these, how many are stored, failed or dropped. The difference is the writer's remaining
    /// work, whatever the ownership. Snapshot writer.
    pub checkpoints_settled: Count,
    /// When that was, in milliseconds since the Unix epoch; 0 before the first. Snapshot writer.
    pub snapshot_at_ms: Offset,
    /// Records of the input that the group has not committed, no matter who owns the shard; -1
    /// while unknown. Group lag thread.
    pub group_lag: Offset,
    /// Where the log ends as another client was last told; 0 before that. The broker that is
    /// fetched from may be cut off, and not know of what came later. Group lag thread.
    pub end_elsewhere: Offset,
    /// Milliseconds for which brokers have asked not to be sent a Fetch for the shard, because of a
    /// quota. Hot thread.
    pub fetch_throttled_ms: Count,
    /// The same for its frames. Publisher.
    pub frames_throttled_ms: Count,
    /// 1 while the shard stands still although its log has grown, or may have. Service thread.
    pub still: Count,
    /// Timestamp of the newest record that was applied or rejected, in milliseconds since the Unix
    /// epoch; 0 before the first. Hot thread.
    pub applied_time_ms: Offset,
    /// Players in the zone. Hot thread.
    pub players: Count,
    /// Hunts that run in the zone. Hot thread.
    pub hunts: Count,
    /// Treasures of these that nobody has opened. Hot thread.
    pub treasures: Count,
    /// Number of the next update. Hot thread.
    pub next_update: Count,
    /// The rules that the last update was made by. Hot thread.
    pub ruleset: Count,
    /// The engine's digest at `published`. Hot thread.
    pub digest: Count,
}

impl ShardProgress {
    /// Whether this process owns the shard now.
    pub(crate) fn is_owned(&self) -> bool {
        self.ownership_id.get() != 0
    }

    /// Records that are in the input log and in no acknowledged frame yet; `None` while the end of
    /// the log is unknown.
    pub(crate) fn lag(&self) -> Option<i64> {
        let (end, elsewhere) = (self.high_watermark.get(), self.end_elsewhere.get());
        (end >= 0).then(|| (end.max(elsewhere) - self.acked.get()).max(0))
    }
}

/// An input offset that one thread writes and all may read.
#[derive(Default)]
pub struct Offset(AtomicI64);

impl Offset {
    /// The latest value.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Acquire)
    }

    /// A new value, by the one writer.
    pub fn set(&self, offset: i64) {
        self.0.store(offset, Ordering::Release);
    }
}

/// A 64-bit number that one thread writes and all may read.
#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    /// The latest value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// A new value, by the one writer.
    pub fn set(&self, count: u64) {
        self.0.store(count, Ordering::Release);
    }

    /// Counts further, by the one writer.
    pub(crate) fn add(&self, more: u64) {
        self.set(self.get() + more);
    }
}

/// An ownership's number within this process.
#[derive(Default)]
pub struct OwnershipId(AtomicU32);

impl OwnershipId {
    /// The latest value.
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// A new value, by the one writer.
    pub fn set(&self, ownership_id: u32) {
        self.0.store(ownership_id, Ordering::Release);
    }
}
