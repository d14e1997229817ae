//! The progress of each shard through the stages.
//!
//! Each number has one writer at a time, the thread named in its comment; the control thread resets
//! some of them before it opens the shard. So readers on other threads need no lock. Offsets are
//! exclusive: the next offset that is not fetched, decoded, applied and so on.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Partitions that one daemon may own. Each partition holds one zone, and one core can run a few
/// hundred zones. The limit sizes the tables that must not grow while events flow.
pub const SHARDS_MAX: usize = 1024;

/// Id of a topic, which changes when the topic is recreated (KIP-516). It is written once, when a
/// broker has answered; zeros if brokers report none.
pub type TopicId = Arc<OnceLock<[u8; 16]>>;

/// Number of rulesets that are exported: as many as a daemon can have.
pub(crate) const RULESETS_SHOWN: usize = 16;

/// The progress of all shards, by partition number.
pub struct Progress {
    shards: Box<[ShardProgress]>,
    /// The rulesets that an event may switch to, each plus one; 0 = none. Hot thread.
    rulesets: [Count; RULESETS_SHOWN],
    /// Id of the topic that the input offsets belong to. Hot thread, before any shard is acquired.
    pub input_topic_id: TopicId,
    /// Number of partitions, from 0 on, that have a `group_lag`.
    pub group_lag_partitions: Count,
    /// Partitions that this instance does not own, that have records, and that nobody reads.
    pub unread_partitions: Count,
}

impl Progress {
    /// Creates the progress at start-up.
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

    /// Creates the progress at start-up; all shards know these rulesets.
    pub(crate) fn with_rulesets(rulesets: impl IntoIterator<Item = u32>) -> Progress {
        let progress = Progress::new();
        progress.set_rulesets(rulesets);
        progress
    }

    /// The progress of one partition's shard. Partitions are checked against [`SHARDS_MAX`] when
    /// they are assigned.
    pub fn shard(&self, partition: i32) -> &ShardProgress {
        &self.shards[usize::try_from(partition).expect("partition numbers are not negative")]
    }

    /// The rulesets that an event may switch to, in the order of their files.
    pub fn rulesets(&self) -> impl Iterator<Item = u32> {
        let known = self.rulesets.iter().map_while(|known| known.get().checked_sub(1));
        known.map(|ruleset| ruleset as u32)
    }

    /// Stores the rulesets that all shards know. Hot thread.
    pub(crate) fn set_rulesets(&self, rulesets: impl IntoIterator<Item = u32>) {
        for (known, ruleset) in self.rulesets.iter().zip(rulesets) {
            known.set(u64::from(ruleset) + 1);
        }
    }

    /// How many shards are played now.
    pub(crate) fn played(&self) -> u64 {
        self.owned().filter(|(_, shard)| shard.is_played()).count() as u64
    }

    /// Stores for which zones this instance waits while another version plays them. Control thread.
    pub(crate) fn set_awaited(&self, awaited: &BTreeSet<i32>) {
        for (partition, shard) in self.all() {
            shard.awaited.set(awaited.contains(&partition).into());
        }
    }

    /// All shards that there is room for, with their partitions.
    pub(crate) fn all(&self) -> impl Iterator<Item = (i32, &ShardProgress)> {
        (0..).zip(self.shards.iter())
    }

    /// All shards that are owned now, with their partitions, and those that follow another owner.
    pub(crate) fn owned(&self) -> impl Iterator<Item = (i32, &ShardProgress)> {
        self.all().filter(|(_, shard)| shard.is_owned())
    }
}

impl Default for Progress {
    fn default() -> Progress {
        Progress::new()
    }
}

/// Limit of the numbers that a game counts in a zone.
pub(crate) const ZONE_COUNTS_MAX: usize = 4;

/// The progress of one shard.
#[derive(Default)]
pub struct ShardProgress {
    /// The ownership that the numbers belong to; 0 = not owned. Control thread.
    pub ownership_id: OwnershipId,
    /// 1 while the shard follows another owner. Control thread.
    pub following: Count,
    /// 1 while another version of the game plays the zone, and this instance waits for its end.
    /// Control thread.
    pub awaited: Count,
    /// End of the input log, as the last Fetch response said; -1 while unknown. Hot
    /// thread; the control thread when it begins an ownership.
    pub high_watermark: Offset,
    /// End of the input log when the ownership began; -1 while unknown. The shard is live once it
    /// has applied everything before that. Control thread.
    pub goal: Offset,
    /// Received from the broker. Hot thread.
    pub fetched: Offset,
    /// Decoded and sent to the queue. Hot thread.
    pub decoded: Offset,
    /// Applied by the engine. Hot thread; the control thread when it begins an ownership.
    pub applied: Offset,
    /// In a frame that was handed to the publisher. Hot thread.
    pub published: Offset,
    /// In a frame that the broker has acknowledged, with all dead letters before it that this
    /// ownership has made. Publisher; the control thread when it begins an ownership, and while the
    /// shard follows another owner.
    pub acked: Offset,
    /// In such a frame of this ownership, so that every dead letter and handoff from before it is
    /// acknowledged. It begins at the state from which the ownership replays: the output may cover
    /// more, but what stands beside it is sent again. Publisher; the control thread when it begins
    /// an ownership.
    pub settled_offset: Offset,
    /// Frames and dead letters handed to the publisher since the process began. Hot thread.
    pub sent: Count,
    /// How many of these are acknowledged, failed or dropped with a failed ownership. The others
    /// are in flight, in whatever ownership. Publisher.
    pub settled: Count,
    /// Bytes of all these frames and dead letters, each counted at its maximum size. Hot thread.
    pub sent_bytes: Count,
    /// How many of these bytes are settled. Publisher.
    pub settled_bytes: Count,
    /// Checkpoints begun since the process began. Hot thread.
    pub checkpoints: Count,
    /// How many of these are stored, failed or dropped. The others are still with the writer, in
    /// whatever ownership. Snapshot writer.
    pub checkpoints_settled: Count,
    /// Stored snapshots handed to the replicator since the process began. Snapshot writer.
    pub replicas: Count,
    /// How many of these are in the topic, failed or replaced by a newer one. Replicator.
    pub replicas_settled: Count,
    /// Time of this ownership's last stored snapshot, in milliseconds since the Unix epoch; 0
    /// before the first. Snapshot writer; the control thread when it begins an ownership.
    pub snapshot_at_ms: Offset,
    /// Records of the input that the group has not committed, no matter which instance owns the
    /// shard; -1 while unknown. Group lag thread.
    pub group_lag: Offset,
    /// End of the log as another client last saw it; 0 before that. The broker that is fetched from
    /// may be cut off, and lack later records. Group lag thread.
    pub end_elsewhere: Offset,
    /// Milliseconds for which brokers have throttled Fetches for the shard because of a quota. Hot
    /// thread.
    pub fetch_throttled_ms: Count,
    /// Milliseconds for which brokers have throttled the shard's frames. Publisher.
    pub frames_throttled_ms: Count,
    /// 1 while the shard is stalled although its log has grown, or may have. Service thread.
    pub still: Count,
    /// Timestamp of the newest record that was applied or rejected, in milliseconds since the Unix
    /// epoch; 0 before the first. Hot thread.
    pub applied_time_ms: Offset,
    /// What the game counts in the zone. Hot thread.
    pub counts: [Count; ZONE_COUNTS_MAX],
    /// Number of the next update. Hot thread.
    pub next_update: Count,
    /// The ruleset that the last update was made by. Hot thread.
    pub ruleset: Count,
    /// The engine's digest at `published`. Hot thread.
    pub digest: Count,
}

impl ShardProgress {
    /// Whether this process has the shard on its hot thread now.
    pub(crate) fn is_owned(&self) -> bool {
        self.ownership_id.get() != 0
    }

    /// Whether this process plays the shard now: it owns the output, too.
    pub(crate) fn is_played(&self) -> bool {
        self.is_owned() && self.following.get() == 0
    }

    /// Returns whether this instance plays the shard, or waits for another version that does.
    pub(crate) fn is_known_to_be_played(&self) -> bool {
        self.is_played() || self.awaited.get() == 1
    }

    /// Records that are in the input log and in no acknowledged frame yet; `None` while the end of
    /// the log is unknown.
    pub(crate) fn lag(&self) -> Option<i64> {
        let (end, elsewhere) = (self.high_watermark.get(), self.end_elsewhere.get());
        (end >= 0).then(|| (end.max(elsewhere) - self.acked.get()).max(0))
    }
}

/// An input offset that one thread writes and any thread may read.
#[derive(Default)]
pub struct Offset(AtomicI64);

impl Offset {
    /// The latest value.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Acquire)
    }

    /// Stores a value; single writer only.
    pub fn set(&self, offset: i64) {
        self.0.store(offset, Ordering::Release);
    }
}

/// A 64-bit number that one thread writes and any thread may read.
#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    /// The latest value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Stores a value; single writer only.
    pub fn set(&self, count: u64) {
        self.0.store(count, Ordering::Release);
    }

    /// Adds to the value; single writer only.
    pub(crate) fn add(&self, more: u64) {
        self.set(self.get() + more);
    }
}

/// The number of an ownership within this process.
#[derive(Default)]
pub struct OwnershipId(AtomicU32);

impl OwnershipId {
    /// The latest value.
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Stores a value; single writer only.
    pub fn set(&self, ownership_id: u32) {
        self.0.store(ownership_id, Ordering::Release);
    }
}
