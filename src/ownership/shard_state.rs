//! All facts about one shard that the group gave us, in one value.

use crate::output::mark::Mark;
use crate::ownership::acquired::Acquired;
use crate::ownership::event::ShardFacts;
use crate::ownership::history::{History, SETTLED_MS};
use crate::ownership::log_task::LogTask;
use std::time::{Duration, Instant};

/// Milliseconds within which an engine that follows comes to what the output has covered before it
/// counts as warm: for longer, readers would wait after the fence.
pub(super) const WARM_MS_MAX: u64 = 200;

/// Milliseconds for which nothing was published before another version takes over from an owner
/// that has not said that it has ended: what a living one publishes after the state that is
/// migrated would be lost. A tick a second makes some.
const EDITION_QUIET_MS: u64 = 2_500;

/// Milliseconds for which an engine that follows may have made more updates than are published. The
/// next ones of a living owner show whether the two make the same: a tick a second makes some.
const FOLLOWER_AHEAD_MS_MAX: u64 = 3_000;

/// Where a shard is.
#[derive(Debug)]
pub(super) enum ShardState {
    /// To be acquired.
    Due {
        /// Not before this time.
        at: Instant,
        /// What earlier attempts have shown.
        history: History,
    },
    /// Its logs' bounds and its snapshots are asked for.
    Surveying {
        /// What earlier attempts have shown.
        history: History,
    },
    /// Its output is being read and fenced.
    Acquiring {
        /// The reading and fencing.
        task: Box<LogTask>,
        /// What earlier attempts have shown.
        history: History,
        /// Why it is not known whether another host has a newer state; `None`: it is known.
        why_unknown: Option<String>,
        /// The engine that follows the output meanwhile.
        follower: Option<Box<FollowingShard>>,
    },
    /// Its output is fenced, and the state is being loaded, because no engine has followed.
    Loading {
        /// Where it starts.
        acquired: Box<Acquired>,
        /// What earlier attempts have shown.
        history: History,
    },
    /// On the hot thread.
    Open(OpenShard),
    /// Stopped: only an operator can help.
    Halted,
}

/// A shard that follows what another owner publishes.
#[derive(Debug)]
pub(super) struct FollowingShard {
    /// Where its engine begins.
    pub(super) begun: Acquired,
    /// The ownership for which it follows; `None`: its state is being loaded.
    pub(super) ownership_id: Option<u32>,
    /// The rules that the loaded state is at.
    pub(super) ruleset: u32,
    /// How far the hot thread was told to go, and when.
    pub(super) covered: Mark,
    pub(super) covered_at: Instant,
    /// How far the output was at this time. The shard has to come there.
    pub(super) goal: (Mark, Instant),
    /// Since when it has made more updates than are published.
    pub(super) ahead_since: Option<Instant>,
    /// It cannot go on as the owner: once the output is ours, another engine begins.
    pub(super) cannot_promote: bool,
    /// When it was warm last.
    pub(super) warm_at: Option<Instant>,
    /// The owner epoch of the last owner that has resigned, and since when that is known.
    pub(super) resigned_at: Option<(u64, Instant)>,
}

impl FollowingShard {
    /// Nothing is loaded yet.
    pub(super) fn new(begun: Acquired, now: Instant) -> FollowingShard {
        FollowingShard {
            ownership_id: None,
            ruleset: 0,
            covered: begun.mark,
            covered_at: now,
            goal: (begun.mark, now),
            ahead_since: None,
            cannot_promote: false,
            warm_at: None,
            resigned_at: None,
            begun,
        }
    }

    /// Whether it has made more updates than are published for as long as another owner may take to
    /// publish them. Some program has published that the output covers input whose updates are not
    /// there; only an owner can put them there.
    pub(super) fn stays_ahead(&mut self, next_update: u64, now: Instant) -> bool {
        if next_update <= self.covered.next_update {
            self.ahead_since = None;
            return false;
        }
        let since = *self.ahead_since.get_or_insert(now);
        now.saturating_duration_since(since) >= Duration::from_millis(FOLLOWER_AHEAD_MS_MAX)
    }

    /// Returns whether the shard has applied the input that the output covered a moment ago, and
    /// has made as many updates. If an owner of another version may still publish, it has to be
    /// quiet.
    pub(super) fn is_warm(
        &mut self,
        facts: &ShardFacts,
        is_read_to_end: bool,
        awaits_quiet: bool,
        now: Instant,
    ) -> bool {
        let (goal, since) = self.goal;
        // The shard compares its updates at the end of the newest cover alone, so one that has
        // applied this input may have made fewer.
        let is_at_goal = goal.next_offset <= facts.applied && goal.next_update <= facts.next_update;
        if !is_at_goal || !is_read_to_end || self.ahead_since.is_some() {
            return false;
        }
        let is_quiet = now.saturating_duration_since(self.covered_at)
            >= Duration::from_millis(EDITION_QUIET_MS);
        if awaits_quiet && !is_quiet {
            return false;
        }
        let is_warm = now.saturating_duration_since(since) <= Duration::from_millis(WARM_MS_MAX);
        self.goal = (self.covered, now);
        is_warm
    }
}

/// A shard on the hot thread.
#[derive(Debug)]
pub(super) struct OpenShard {
    /// Number of this ownership within the process.
    pub(super) ownership_id: u32,
    /// The owner epoch of its frames.
    pub(super) owner_epoch: u64,
    /// The group gives it to us. If not, it is played until another instance has fenced it.
    pub(super) is_assigned: bool,
    /// When it went to the hot thread, and after how many fences in a row.
    pub(super) opened_at: Instant,
    pub(super) fences: u32,
    /// Input offset from which on the input has other records than an earlier attempt applied.
    pub(super) changed_from: Option<i64>,
    /// Its phase.
    pub(super) phase: OpenPhase,
    /// The first input offset whose dead letters and handoffs may not be acknowledged: what the
    /// group is told.
    pub(super) settled_offset: i64,
    /// The check of a foreign span between its frames. It goes on while the shard closes, because
    /// it decides what was acknowledged.
    pub(super) span: Option<Box<LogTask>>,
}

/// The phase of a shard on the hot thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenPhase {
    /// Behind the end that its input had when it was opened; `None` while that is unknown.
    Restoring(Option<i64>),
    /// It has applied everything that was in its input when it was opened.
    Live,
    /// About to end on the hot thread.
    Closing,
    /// It has ended on the hot thread. Its last records may still be on their way, and a foreign
    /// span may have to be checked for them.
    Closed,
}

impl OpenShard {
    /// What the next attempt has to know if this one ends now.
    pub(super) fn history(&self, why: String, now: Instant) -> History {
        let stayed = now.saturating_duration_since(self.opened_at);
        let is_settled = stayed >= Duration::from_millis(SETTLED_MS);
        let before = History::begin(why);
        match is_settled {
            true => before,
            false => History { fences: self.fences, changed_from: self.changed_from, ..before },
        }
    }
}

impl ShardState {
    /// The task that reads the shard's output now.
    pub(super) fn task(&mut self) -> Option<&mut LogTask> {
        match self {
            ShardState::Acquiring { task, .. } => Some(task),
            ShardState::Open(open) => open.span.as_deref_mut(),
            _ => None,
        }
    }

    /// What earlier attempts to acquire it have shown, if it is not on the hot thread yet.
    pub(super) fn history(&self) -> Option<&History> {
        match self {
            ShardState::Due { history, .. }
            | ShardState::Surveying { history }
            | ShardState::Acquiring { history, .. }
            | ShardState::Loading { history, .. } => Some(history),
            ShardState::Open(_) | ShardState::Halted => None,
        }
    }

    /// The shard that follows another owner.
    pub(super) fn follower_mut(&mut self) -> Option<&mut FollowingShard> {
        match self {
            ShardState::Acquiring { follower, .. } => follower.as_deref_mut(),
            _ => None,
        }
    }

    /// The ownership for which the hot thread has an engine that follows.
    pub(super) fn followed_for(&self) -> Option<u32> {
        match self {
            ShardState::Acquiring { follower: Some(follower), .. } => follower.ownership_id,
            _ => None,
        }
    }

    /// Whether it is on its way to the hot thread.
    pub(super) fn is_being_acquired(&self) -> bool {
        matches!(
            self,
            ShardState::Surveying { .. }
                | ShardState::Acquiring { .. }
                | ShardState::Loading { .. }
        )
    }

    /// The shard on the hot thread, if it is there.
    pub(super) fn open(&self) -> Option<&OpenShard> {
        match self {
            ShardState::Open(open) => Some(open),
            _ => None,
        }
    }
}
