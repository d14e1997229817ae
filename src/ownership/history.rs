//! What the attempts to acquire a shard have shown so far, and how long the next one waits.

use std::time::{Duration, Instant};

/// Milliseconds before a shard is acquired again whose delivery failed or whose brokers were away.
pub const REACQUIRE_MS: u64 = 500;

/// The same if its last fences were in vain: each of them doubles the wait up to this. A cause that
/// stays, such as a dead-letter topic that was deleted, must not fill the output with fences.
pub(crate) const REACQUIRE_MS_MAX: u64 = 5_000;

/// Milliseconds on the hot thread after which a fence was not in vain, and the wait is the shortest
/// again. An idle shard shows no progress, so time alone counts.
pub(crate) const SETTLED_MS: u64 = 10_000;

/// What the attempts to acquire a shard have shown so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    /// Since when the shard cannot be started.
    pub(super) failing_since: Option<Instant>,
    /// It starts over, because no state can be used and the operator asked for that.
    pub(super) starts_over: bool,
    /// Its replay did not make what is published.
    pub(super) has_diverged: bool,
    /// Input offset from which on the input has other records than those that were applied.
    pub(super) changed_from: Option<i64>,
    /// Fences that we wrote in a row, none of which kept the shard on the hot thread for
    /// [`SETTLED_MS`].
    pub(super) fences: u32,
    /// Another instance has just taken it over: it is not taken back before this time.
    pub(super) not_before: Option<Instant>,
    /// The position, as updates and input offset, at which this attempt takes it over from a silent
    /// owner.
    pub(super) silent_at: Option<(u64, i64)>,
    /// What ended the last attempt.
    pub(super) why: Option<String>,
}

impl History {
    /// Why a shard that was being acquired, or was open, has to be acquired again. It begins with
    /// the shortest wait and without earlier failures.
    pub(super) fn begin(why: String) -> History {
        History { why: Some(why), ..History::default() }
    }

    /// How long the next attempt waits.
    pub(super) fn wait(&self) -> Duration {
        let doublings = self.fences.saturating_sub(1).min(u64::BITS / 2);
        Duration::from_millis((REACQUIRE_MS << doublings).min(REACQUIRE_MS_MAX))
    }
}
