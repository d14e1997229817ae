//! What the daemon is doing, for systemd and for `/readyz`.

use super::standstill::StillShard;
use atomic_waker::AtomicWaker;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::task::Poll;

/// A part of the daemon's life, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Threads and rings are being made.
    Starting,
    /// No broker has answered yet.
    Reaching,
    /// The consumer group has not let the daemon in yet.
    Joining,
    /// It is in the group, and has no connection to the brokers yet.
    Connecting,
    /// It has shards, and some are behind the end that their input had when they were acquired.
    Restoring,
    /// Joined and connected, be it as a standby with no partition.
    Ready,
    /// It takes nothing new, and finishes what it has.
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

/// Shards and topics that are in trouble.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Shards that cannot go on without an operator.
    pub halted: u32,
    /// Shards that stand still although their log has grown.
    pub still: u32,
    /// Topics that are needed and do not exist.
    pub missing_topics: u32,
}

/// Whether a daemon in this phase and with this trouble should get work.
pub fn is_ready(phase: Phase, trouble: Trouble) -> bool {
    phase == Phase::Ready && trouble == Trouble::default()
}

/// Why a lock is not poisoned.
const UNPOISONED: &str = "nobody panics while it is held";

/// Partitions that are named at most, of those that wait for the same thing.
const NAMED_MAX: usize = 10;

/// A line for each thing that shards wait for, with their partitions.
fn still_lines(still: &[StillShard]) -> String {
    let mut waiting: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for StillShard { partition, waits_for } in still {
        waiting.entry(waits_for).or_default().push(*partition);
    }
    let line = |(waits_for, partitions): (&str, Vec<i32>)| {
        let named = partitions.iter().take(NAMED_MAX).map(i32::to_string);
        let named = named.collect::<Vec<_>>().join(", ");
        let plural = if partitions.len() == 1 { "" } else { "s" };
        match partitions.len().saturating_sub(NAMED_MAX) {
            0 => format!("\npartition{plural} {named}: {waits_for}"),
            more => format!("\npartition{plural} {named} and {more} more: {waits_for}"),
        }
    };
    waiting.into_iter().map(line).collect()
}

/// The phase, written by the pipeline and read by the service thread.
#[derive(Default)]
pub struct Status {
    phase: AtomicU8,
    halted_shards: AtomicU32,
    still_shards: Mutex<Vec<StillShard>>,
    missing_topics: Mutex<Vec<String>>,
    changed: AtomicWaker,
}

impl Status {
    /// A daemon that is starting.
    pub fn new() -> Status {
        Status::default()
    }

    /// The phase now.
    pub(crate) fn phase(&self) -> Phase {
        Phase::ALL[usize::from(self.phase.load(Ordering::Acquire))]
    }

    /// A new phase. Draining is final: a late "joined" from another thread does not undo it.
    pub fn enter(&self, phase: Phase) {
        let draining = Phase::Draining as u8;
        let _ = self.phase.try_update(Ordering::AcqRel, Ordering::Acquire, |now| {
            (now != draining).then_some(phase as u8)
        });
        self.changed.wake();
    }

    /// Shards and topics that are in trouble.
    pub(crate) fn trouble(&self) -> Trouble {
        Trouble {
            halted: self.halted_shards.load(Ordering::Acquire),
            still: self.still_shards.lock().expect(UNPOISONED).len() as u32,
            missing_topics: self.missing_topics().len() as u32,
        }
    }

    /// A new number of halted shards.
    pub fn set_halted_shards(&self, count: u32) {
        self.halted_shards.store(count, Ordering::Release);
        self.changed.wake();
    }

    /// The shards that stand still now. The service thread finds them itself.
    pub(crate) fn set_still_shards(&self, still: Vec<StillShard>) {
        *self.still_shards.lock().expect(UNPOISONED) = still;
    }

    /// The first shard that stands still.
    pub(crate) fn first_still_shard(&self) -> Option<StillShard> {
        self.still_shards.lock().expect(UNPOISONED).first().copied()
    }

    /// The names of topics that are needed and do not exist.
    pub(crate) fn set_missing_topics(&self, names: Vec<String>) {
        *self.missing_topics.lock().expect(UNPOISONED) = names;
        self.changed.wake();
    }

    fn missing_topics(&self) -> Vec<String> {
        self.missing_topics.lock().expect(UNPOISONED).clone()
    }

    /// Why the daemon should get no work, or nothing if it should.
    pub(crate) fn unready(&self) -> Option<String> {
        let phase = self.phase();
        let mut reasons = Vec::new();
        if phase != Phase::Ready {
            reasons.push(format!("huntd {}", phase.words()));
        }
        let missing = self.missing_topics().join(", ");
        if !missing.is_empty() {
            reasons
                .push(format!("topics do not exist: {missing}; create them with `huntd topics`"));
        }
        match self.trouble() {
            Trouble { halted: 0, still: 0, .. } => {}
            Trouble { halted, still: 0, .. } => {
                reasons.push(format!("halted shards: {halted}; read the log"));
            }
            Trouble { halted, still, .. } => {
                let waiting = still_lines(&self.still_shards.lock().expect(UNPOISONED));
                let counts = format!("shards that stand still: {still}, halted: {halted}");
                reasons.push(format!("{counts}; read the log{waiting}"));
            }
        }
        (!reasons.is_empty()).then(|| reasons.join("\n"))
    }

    /// Waits until something is different from `seen`. One task may wait.
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

    #[test]
    fn readiness_names_the_shards_that_stand_still_and_what_they_wait_for() {
        let status = Status::new();
        status.enter(Phase::Ready);
        let waiting = |waits_for| move |partition| StillShard { partition, waits_for };
        status.set_still_shards(
            [3, 9]
                .map(waiting("nobody fetches"))
                .into_iter()
                .chain([4].map(waiting("no ack")))
                .collect(),
        );
        let said = "shards that stand still: 3, halted: 0; read the log\n\
                    partition 4: no ack\n\
                    partitions 3, 9: nobody fetches";
        assert_eq!(status.unready().as_deref(), Some(said));
        status.set_still_shards((0..12).map(waiting("no ack")).collect());
        let said = status.unready().expect("it is not ready");
        assert!(
            said.ends_with("partitions 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more: no ack"),
            "{said}"
        );
        status.set_still_shards(Vec::new());
        assert_eq!(status.unready(), None);
    }
}
