//! The daemon's state, for systemd and `/readyz`.

use super::standstill::StillShard;
use super::unready::Unready;
use crate::ownership::summary::Summary;
use crate::telemetry::printable::printable;
use atomic_waker::AtomicWaker;
use std::future::poll_fn;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::task::Poll;

/// A phase of the daemon's life, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Threads and rings are being created.
    Starting,
    /// No broker has answered yet.
    Reaching,
    /// The consumer group has not accepted the daemon yet.
    Joining,
    /// It is in the group, but has no connection to the brokers yet.
    Connecting,
    /// Some of its shards have not reached the end that their input had when they were acquired.
    Restoring,
    /// Joined and connected, possibly as a standby without partitions.
    Ready,
    /// It accepts no new work, and finishes the rest.
    Draining,
}

impl Phase {
    const ALL: [Phase; 7] = [
        Phase::Starting,
        Phase::Reaching,
        Phase::Joining,
        Phase::Connecting,
        Phase::Restoring,
        Phase::Ready,
        Phase::Draining,
    ];

    /// The phase of a daemon that has reached the brokers. It is ready once it has joined, is
    /// connected, has acquired what it was given, and has applied what was in the input by then. A
    /// standby knows the topic's leaders, and needs no connection to them.
    pub fn of(summary: &Summary, connections: u64, is_input_known: bool) -> Phase {
        let is_connected = if summary.open > 0 { connections > 0 } else { is_input_known };
        match (summary.is_member, is_connected) {
            (false, _) => Phase::Joining,
            (true, false) => Phase::Connecting,
            (true, true) if summary.acquiring + summary.restoring > 0 => Phase::Restoring,
            (true, true) => Phase::Ready,
        }
    }

    /// The phase in words, to end a sentence that begins with "huntd".
    pub(crate) fn words(self) -> &'static str {
        match self {
            Phase::Starting => "is starting",
            Phase::Reaching => "waits for a broker that answers",
            Phase::Joining => "waits to join the consumer group",
            Phase::Connecting => "waits for connections to the brokers",
            Phase::Restoring => "is restoring",
            Phase::Ready => "is ready",
            Phase::Draining => "is draining",
        }
    }
}

/// Counts of shards, topics and threads in trouble.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Shards that an operator must resume.
    pub halted: u32,
    /// Shards that are stalled although their log has grown.
    pub still: u32,
    /// Required topics that do not exist.
    pub missing_topics: u32,
    /// Threads that are stuck.
    pub stuck_threads: u32,
}

/// Whether a daemon in this phase and with this trouble should get work.
pub fn is_ready(phase: Phase, trouble: Trouble) -> bool {
    phase == Phase::Ready && trouble == Trouble::default()
}

/// Why a lock cannot be poisoned.
const UNPOISONED: &str = "nobody panics while it is held";

/// The state, written by the pipeline and read by the service thread.
#[derive(Default)]
pub struct Status {
    phase: AtomicU8,
    halted_shards: AtomicU32,
    still_shards: Mutex<Vec<StillShard>>,
    missing_topics: Mutex<Vec<String>>,
    set_back: Mutex<Vec<(i32, String)>>,
    group_trouble: Mutex<Option<String>>,
    stuck_threads: Mutex<Vec<&'static str>>,
    changed: AtomicWaker,
}

impl Status {
    /// The status of a daemon that is starting.
    pub fn new() -> Status {
        Status::default()
    }

    /// The current phase.
    pub(crate) fn phase(&self) -> Phase {
        Phase::ALL[usize::from(self.phase.load(Ordering::Acquire))]
    }

    /// Enters a phase. Draining is final: a late "joined" from another thread does not undo it.
    pub fn enter(&self, phase: Phase) {
        let draining = Phase::Draining as u8;
        let _ = self.phase.try_update(Ordering::AcqRel, Ordering::Acquire, |now| {
            (now != draining).then_some(phase as u8)
        });
        self.changed.wake();
    }

    /// The current counts of trouble.
    pub(crate) fn trouble(&self) -> Trouble {
        Trouble {
            halted: self.halted_shards.load(Ordering::Acquire),
            still: self.still_shards.lock().expect(UNPOISONED).len() as u32,
            missing_topics: self.missing_topics().len() as u32,
            stuck_threads: self.stuck_threads().len() as u32,
        }
    }

    /// Sets the number of halted shards.
    pub fn set_halted_shards(&self, count: u32) {
        self.halted_shards.store(count, Ordering::Release);
        self.changed.wake();
    }

    /// Sets the stalled shards, which the service thread detects itself.
    pub(crate) fn set_still_shards(&self, still: Vec<StillShard>) {
        *self.still_shards.lock().expect(UNPOISONED) = still;
    }

    /// Sets the names of stuck threads, which the service thread detects itself.
    pub(crate) fn set_stuck_threads(&self, names: Vec<&'static str>) {
        *self.stuck_threads.lock().expect(UNPOISONED) = names;
    }

    /// The names of stuck threads.
    pub(crate) fn stuck_threads(&self) -> Vec<&'static str> {
        self.stuck_threads.lock().expect(UNPOISONED).clone()
    }

    /// Sets the names of required topics that do not exist.
    pub(crate) fn set_missing_topics(&self, names: Vec<String>) {
        *self.missing_topics.lock().expect(UNPOISONED) = names;
        self.changed.wake();
    }

    fn missing_topics(&self) -> Vec<String> {
        self.missing_topics.lock().expect(UNPOISONED).clone()
    }

    /// Sets the shards whose last acquisition failed, with the reason. The daemon is not ready in
    /// any phase in which there are such shards.
    pub(crate) fn set_setbacks<'s>(&self, setbacks: impl Iterator<Item = (i32, &'s str)>) {
        let mut set_back = self.set_back.lock().expect(UNPOISONED);
        set_back.clear();
        // Parts of the sentences come from brokers.
        set_back.extend(setbacks.map(|(partition, why)| (partition, printable(why).into_owned())));
    }

    /// Sets the trouble that keeps the daemon out of the group; `None`: it is not known.
    pub(crate) fn set_group_trouble(&self, sentence: Option<&str>) {
        let sentence = sentence.map(|sentence| printable(sentence).into_owned());
        *self.group_trouble.lock().expect(UNPOISONED) = sentence;
    }

    /// Returns why the daemon should get no work: its phase, then the most important reasons. Empty
    /// if it is ready.
    pub(crate) fn unready(&self) -> Vec<Unready> {
        let (phase, halted) = (self.phase(), self.halted_shards.load(Ordering::Acquire));
        let (stuck, missing) = (self.stuck_threads(), self.missing_topics());
        let still = self.still_shards.lock().expect(UNPOISONED).clone();
        let set_back = self.set_back.lock().expect(UNPOISONED).clone();
        let group_trouble = self.group_trouble.lock().expect(UNPOISONED).clone();
        let group_trouble = group_trouble.filter(|_| phase == Phase::Joining);
        let reasons = [
            (phase != Phase::Ready).then_some(Unready::Phase(phase)),
            group_trouble.map(Unready::Group),
            (!stuck.is_empty()).then_some(Unready::Stuck(stuck)),
            (!missing.is_empty()).then_some(Unready::MissingTopics(missing)),
            (halted > 0).then_some(Unready::Halted(halted)),
            (!still.is_empty()).then_some(Unready::Still(still)),
            (!set_back.is_empty()).then_some(Unready::SetBack(set_back)),
        ];
        reasons.into_iter().flatten().collect()
    }

    /// Waits until the state differs from `seen`. Only one task may wait.
    pub(crate) async fn changed_from(&self, seen: (Phase, Trouble)) {
        poll_fn(|context| {
            self.changed.register(context.waker());
            match (self.phase(), self.trouble()) == seen {
                true => Poll::Pending,
                false => Poll::Ready(()),
            }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(status: &Status) -> Option<String> {
        let reasons: Vec<_> = status.unready().iter().map(Unready::words).collect();
        (!reasons.is_empty()).then(|| reasons.join("\n"))
    }

    #[test]
    fn readiness_names_the_shards_that_stand_still_and_what_they_wait_for() {
        let status = Status::new();
        status.enter(Phase::Ready);
        let waiting = |waits_for| move |partition| StillShard { partition, waits_for };
        let still = [3, 9].map(waiting("nobody fetches")).into_iter();
        status.set_still_shards(still.chain([4].map(waiting("no ack"))).collect());
        let wanted = "shards that stand still: 3; read the log\n\
                      partition 4: no ack\n\
                      partitions 3, 9: nobody fetches";
        assert_eq!(said(&status).as_deref(), Some(wanted));
        status.set_still_shards((0..12).map(waiting("no ack")).collect());
        let named = said(&status).expect("it is not ready");
        assert!(
            named.ends_with("partitions 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more: no ack"),
            "{named}"
        );
        status.set_still_shards(Vec::new());
        assert_eq!(said(&status), None);
    }

    #[test]
    fn readiness_says_why_shards_that_are_restored_were_not_acquired() {
        let status = Status::new();
        status.enter(Phase::Restoring);
        assert_eq!(said(&status).as_deref(), Some("huntd is restoring"));
        status.set_setbacks([(2, "no leader: wait"), (7, "no leader: wait")].into_iter());
        let wanted = "huntd is restoring\n\
                      shards that are acquired again: 2; read the log\n\
                      partitions 2, 7: no leader: wait";
        assert_eq!(said(&status).as_deref(), Some(wanted));
        status.set_setbacks([].into_iter());
        status.enter(Phase::Ready);
        assert_eq!(said(&status), None);
    }
}
