//! When sessions are due: a timer wheel of milliseconds, without I/O and clock.
//!
//! Each session has one time at most. To set, to move and to find one takes a constant time and no
//! allocation. A session whose time moved on stays where it is on the wheel until its old time
//! comes: a busy session's time moves with every request.

/// Milliseconds of one round of the wheel. A power of two.
const ROUND_MS: u64 = 16_384;

/// Slots whose bits one word of the map holds.
const WORD_SLOTS: u64 = 64;

/// No session.
const NONE: u32 = u32::MAX;

/// The times of all sessions.
pub(crate) struct Timers {
    /// The first session of each millisecond.
    slots: Vec<u32>,
    /// Which slots have a session.
    map: Vec<u64>,
    /// By session.
    links: Vec<WheelLink>,
    /// All times before this one were given out.
    reached_ms: u64,
}

/// The place of a session on the wheel.
#[derive(Clone, Copy)]
struct WheelLink {
    before: u32,
    after: u32,
    /// The millisecond of its slot; `None`: it is in no slot.
    linked_ms: Option<u64>,
    /// `None`: it has no time.
    due_ms: Option<u64>,
}

impl Timers {
    /// No session has a time.
    pub(crate) fn new() -> Timers {
        let map = vec![0; (ROUND_MS / WORD_SLOTS) as usize];
        Timers { slots: vec![NONE; ROUND_MS as usize], map, links: Vec::new(), reached_ms: 0 }
    }

    /// The session is due at this time, in place of any other. A time that is over is due at once.
    pub(crate) fn set(&mut self, session: u32, due_ms: u64) {
        let at = session as usize;
        if at >= self.links.len() {
            let link = WheelLink { before: NONE, after: NONE, linked_ms: None, due_ms: None };
            self.links.resize(at + 1, link);
        }
        self.links[at].due_ms = Some(due_ms);
        let due_ms = due_ms.max(self.reached_ms);
        match self.links[at].linked_ms {
            Some(linked_ms) if linked_ms <= due_ms => {}
            Some(_) => {
                self.unlink(session);
                self.link(session, due_ms);
            }
            None => self.link(session, due_ms),
        }
    }

    /// The session has no time.
    pub(crate) fn clear(&mut self, session: u32) {
        if let Some(link) = self.links.get_mut(session as usize) {
            link.due_ms = None;
        }
    }

    /// Takes a session that is due. `None`: no other is.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Option<u32> {
        loop {
            let session = self.slots[(self.reached_ms % ROUND_MS) as usize];
            if session == NONE {
                match self.next_ms() {
                    Some(next_ms) if next_ms <= now_ms => self.reached_ms = next_ms,
                    _ => {
                        self.reached_ms = self.reached_ms.max(now_ms);
                        return None;
                    }
                }
                continue;
            }
            self.unlink(session);
            match self.links[session as usize].due_ms {
                Some(due_ms) if due_ms <= now_ms => {
                    self.links[session as usize].due_ms = None;
                    return Some(session);
                }
                Some(due_ms) => self.link(session, due_ms),
                None => {}
            }
        }
    }

    /// Returns when the next session may be due. `None` if none has a time.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let (words, first) = (ROUND_MS / WORD_SLOTS, self.reached_ms / WORD_SLOTS);
        // The first word is looked at twice: its earlier slots are the last of this round.
        for word in first..=first + words {
            let mut bits = self.map[(word % words) as usize];
            if word == first {
                bits &= u64::MAX << (self.reached_ms % WORD_SLOTS);
            }
            if bits != 0 {
                return Some(word * WORD_SLOTS + u64::from(bits.trailing_zeros()));
            }
        }
        None
    }

    /// Puts a session into the slot of a time, or into the last one before the wheel has turned.
    fn link(&mut self, session: u32, due_ms: u64) {
        let linked_ms = due_ms.min(self.reached_ms + ROUND_MS - 1);
        let slot = (linked_ms % ROUND_MS) as usize;
        let after = std::mem::replace(&mut self.slots[slot], session);
        if after != NONE {
            self.links[after as usize].before = session;
        }
        let link = &mut self.links[session as usize];
        (link.before, link.after, link.linked_ms) = (NONE, after, Some(linked_ms));
        self.map[slot / WORD_SLOTS as usize] |= 1 << (slot as u64 % WORD_SLOTS);
    }

    fn unlink(&mut self, session: u32) {
        let WheelLink { before, after, linked_ms, .. } = self.links[session as usize];
        let slot = (linked_ms.expect("it is linked") % ROUND_MS) as usize;
        match before {
            NONE => self.slots[slot] = after,
            _ => self.links[before as usize].after = after,
        }
        if after != NONE {
            self.links[after as usize].before = before;
        }
        self.links[session as usize].linked_ms = None;
        if self.slots[slot] == NONE {
            self.map[slot / WORD_SLOTS as usize] &= !(1 << (slot as u64 % WORD_SLOTS));
        }
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
            let (mut timers, mut random) = (Timers::new(), Random::new(seed));
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
