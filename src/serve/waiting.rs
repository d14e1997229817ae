//! Sessions that wait for a zone to reach an input offset.
//!
//! A frame wakes only those whose offset it has reached: with many commands under way, asking every
//! session again after each frame would be most of a server's work.

use crate::runtime::sockets::SocketNumber;
use std::collections::BTreeSet;

/// The offset that a session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AwaitedOffset {
    /// The zone.
    pub zone: u16,
    /// The input offset after the events of the frame, or a later one.
    pub next_offset: i64,
}

/// All sessions that wait for an offset.
#[derive(Default)]
pub(crate) struct OffsetWaiters {
    sessions: BTreeSet<(AwaitedOffset, SocketNumber)>,
}

impl OffsetWaiters {
    /// A session begins to wait.
    pub(crate) fn add(&mut self, awaited: AwaitedOffset, session: SocketNumber) {
        self.sessions.insert((awaited, session));
    }

    /// A session does not wait any more.
    pub(crate) fn remove(&mut self, awaited: AwaitedOffset, session: SocketNumber) {
        self.sessions.remove(&(awaited, session));
    }

    /// Gives the sessions whose offset is reached. `next_offset` tells how far a zone has come;
    /// `None`: nothing is answered of it now.
    pub(crate) fn wake(
        &mut self,
        next_offset: impl Fn(u16) -> Option<i64>,
        wake: &mut impl FnMut(SocketNumber),
    ) {
        let mut zone = Some(0);
        while let Some(from) = zone {
            let first = AwaitedOffset { zone: from, next_offset: i64::MIN };
            let next = self.sessions.range((first, 0)..).next().copied();
            let Some((awaited, session)) = next else { return };
            if next_offset(awaited.zone).is_some_and(|reached| awaited.next_offset <= reached) {
                self.sessions.remove(&(awaited, session));
                wake(session);
                zone = Some(awaited.zone);
            } else {
                zone = awaited.zone.checked_add(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random::Random;

    #[test]
    fn those_go_on_whose_zone_has_come_to_their_offset_and_no_others() {
        let mut random = Random::new(7);
        let (mut waiting, mut all, mut reached) = (OffsetWaiters::default(), Vec::new(), [0; 4]);
        for session in 0..2_000 {
            let zone = random.below(4) as u16;
            let awaited = AwaitedOffset {
                zone: if zone == 3 { u16::MAX } else { zone },
                next_offset: reached[usize::from(zone)] + random.below(20) as i64,
            };
            waiting.add(awaited, session);
            all.push((awaited, session));
            if random.below(10) == 0 {
                let (awaited, session) = all.swap_remove(random.below(all.len() as u64) as usize);
                waiting.remove(awaited, session);
            }
            reached[random.below(4) as usize] += random.below(6) as i64;
            // The second zone is within a frame now and then.
            let is_silent = random.below(2) == 0;
            let next_offset = |zone: u16| match zone {
                1 if is_silent => None,
                zone => Some(reached[usize::from(zone.min(3))]),
            };
            let mut woken = Vec::new();
            waiting.wake(next_offset, &mut |session| woken.push(session));
            let may_go = |awaited: &AwaitedOffset| {
                next_offset(awaited.zone).is_some_and(|reached| awaited.next_offset <= reached)
            };
            let mut expected: Vec<_> =
                all.extract_if(.., |(awaited, _)| may_go(awaited)).map(|(_, of)| of).collect();
            expected.sort_unstable();
            woken.sort_unstable();
            assert_eq!(woken, expected);
        }
        assert!(!all.is_empty() && waiting.sessions.len() == all.len());
    }
}
