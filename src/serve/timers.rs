//! When sessions are due, without I/O and clock.
//!
//! Each session has one time at most. A session whose time moved on keeps its place in the queue
//! until its old time comes: a busy session's time moves with every request.

use std::collections::BTreeSet;

/// The times of all sessions.
#[derive(Default)]
pub(crate) struct Timers {
    /// By session.
    times: Vec<SessionTime>,
    /// Each queued session, by the millisecond at which it is looked at.
    queue: BTreeSet<(u64, u32)>,
}

#[derive(Clone, Copy, Default)]
struct SessionTime {
    /// `None`: it has no time.
    due_ms: Option<u64>,
    /// Its place in the queue, at `due_ms` or before. `None`: it is not queued.
    queued_ms: Option<u64>,
}

impl Timers {
    /// The session is due at this time, in place of any other. A time that is over is due at once.
    pub(crate) fn set(&mut self, session: u32, due_ms: u64) {
        let at = session as usize;
        if at >= self.times.len() {
            self.times.resize(at + 1, SessionTime::default());
        }
        self.times[at].due_ms = Some(due_ms);
        if let Some(queued_ms) = self.times[at].queued_ms {
            if queued_ms <= due_ms {
                return;
            }
            self.queue.remove(&(queued_ms, session));
        }
        self.enqueue(session, due_ms);
    }

    /// The session has no time.
    pub(crate) fn clear(&mut self, session: u32) {
        if let Some(time) = self.times.get_mut(session as usize) {
            time.due_ms = None;
        }
    }

    /// Takes a session that is due. `None`: no other is.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Option<u32> {
        while self.next_ms().is_some_and(|next_ms| next_ms <= now_ms) {
            let (_, session) = self.queue.pop_first()?;
            let time = &mut self.times[session as usize];
            time.queued_ms = None;
            match time.due_ms {
                Some(due_ms) if due_ms <= now_ms => {
                    time.due_ms = None;
                    return Some(session);
                }
                Some(due_ms) => self.enqueue(session, due_ms),
                None => {}
            }
        }
        None
    }

    /// Returns when the next session may be due. `None` if none has a time.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.queue.first().map(|(at_ms, _)| *at_ms)
    }

    fn enqueue(&mut self, session: u32, at_ms: u64) {
        self.times[session as usize].queued_ms = Some(at_ms);
        self.queue.insert((at_ms, session));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random::Random;
    use std::collections::BTreeMap;

    #[test]
    fn sessions_are_due_at_their_last_time_and_never_before() {
        for seed in 1..=20 {
            let (mut timers, mut random) = (Timers::default(), Random::new(seed));
            let (mut expected, mut now_ms) = (BTreeMap::new(), 0);
            for _ in 0..3_000 {
                let session = random.below(40) as u32;
                match random.below(8) {
                    0 => {
                        timers.clear(session);
                        expected.remove(&session);
                    }
                    1..=4 => {
                        let far = [1, 10, 300, 5_000, 75_000][random.below(5) as usize];
                        let due_ms = (now_ms + random.below(far)).saturating_sub(2);
                        timers.set(session, due_ms);
                        expected.insert(session, due_ms);
                    }
                    _ => now_ms += [0, 1, 20, 400, 40_000][random.below(5) as usize],
                }
                let first = expected.values().min().copied();
                let next_ms = timers.next_ms();
                assert!(
                    first.is_none_or(|first| next_ms.is_some_and(|at| at <= first.max(now_ms))),
                    "seed {seed}: {next_ms:?} is after {first:?}"
                );
                let mut due = Vec::new();
                while let Some(session) = timers.take_due(now_ms) {
                    due.push(session);
                }
                due.sort_unstable();
                let is_due = |_: &u32, due_ms: &mut u64| *due_ms <= now_ms;
                let wanted: Vec<u32> = expected.extract_if(.., is_due).map(|(at, _)| at).collect();
                assert_eq!(due, wanted, "seed {seed} at {now_ms} ms");
            }
        }
    }
}
