//! All facts about one shard that the group gave us, in one value.

use crate::ownership::acquired::Acquired;
use crate::ownership::history::{History, SETTLED_MS};
use crate::ownership::log_task::LogTask;
use std::time::{Duration, Instant};

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
    },
    /// Its output is fenced, and the state is being loaded.
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

/// A shard on the hot thread.
#[derive(Debug)]
pub(super) struct OpenShard {
    /// Number of this ownership within the process.
    pub(super) ownership_id: u32,
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
