//! Dead letters and handoffs that a follower would have sent beside its output. Their owner may be
//! gone before they are acknowledged, although the output covers their input, so a follower that is
//! promoted sends them first.

use crate::publisher::Outgoing;
use std::collections::VecDeque;

/// Dead letters and handoffs that a follower keeps. Once there are more, it keeps none: it has to
/// begin at a snapshot, after which it makes them again.
const KEPT_MAX: usize = 4_096;

/// Bytes of these.
const KEPT_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// The items that a follower has kept, in the order in which they were made.
#[derive(Default)]
pub(super) struct KeptBeside {
    items: VecDeque<Outgoing>,
    bytes: u64,
    /// It has dropped some.
    has_dropped: bool,
    /// Items of the input before this offset are settled.
    settled_offset: i64,
}

impl KeptBeside {
    /// Nothing is kept yet. What is made of the input before this offset is settled.
    pub(super) fn from(settled_offset: i64) -> KeptBeside {
        KeptBeside { settled_offset, ..KeptBeside::default() }
    }

    /// Keeps one more. Returns false when it begins to drop them.
    pub(super) fn keep(&mut self, outgoing: Outgoing) -> bool {
        if self.has_dropped || offset(&outgoing) < self.settled_offset {
            return true;
        }
        self.bytes += outgoing.bytes_max();
        self.items.push_back(outgoing);
        if self.items.len() > KEPT_MAX || self.bytes > KEPT_BYTES_MAX {
            (self.items, self.has_dropped) = (VecDeque::new(), true);
        }
        !self.has_dropped
    }

    /// The group says that everything of the input before this offset is settled.
    pub(super) fn settle(&mut self, settled_offset: i64) {
        if settled_offset <= self.settled_offset {
            return;
        }
        self.settled_offset = settled_offset;
        self.items.retain(|item| offset(item) >= settled_offset);
        self.bytes = self.items.iter().map(Outgoing::bytes_max).sum();
    }

    /// Returns whether some were dropped.
    pub(super) fn has_dropped(&self) -> bool {
        self.has_dropped
    }

    /// Returns whether nothing is left to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The next one to be sent.
    pub(super) fn pop(&mut self) -> Option<Outgoing> {
        self.items.pop_front()
    }
}

/// The input offset of the record that it was made of.
fn offset(outgoing: &Outgoing) -> i64 {
    match outgoing {
        Outgoing::DeadLetter(letter) => letter.offset,
        Outgoing::Handoff(handoff) => handoff.offset,
        Outgoing::Frame(_) => unreachable!("a follower has no frames to send"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::engine::Departure;
    use crate::kit::field::{ActionWords, CARRIED_WORDS_MAX};
    use crate::output::handoff::HandoffRecord;

    fn handoff(offset: i64) -> Outgoing {
        let (action, carried) = (ActionWords::default(), [0; CARRIED_WORDS_MAX]);
        let departure = Departure { to_zone: 1, player_id: 7, seq: 1, ts_us: 0, action, carried };
        Outgoing::Handoff(HandoffRecord { partition: 0, ownership_id: 1, offset, departure })
    }

    fn offsets(mut kept: KeptBeside) -> Vec<i64> {
        std::iter::from_fn(|| kept.pop()).map(|item| offset(&item)).collect()
    }

    #[test]
    fn what_is_settled_before_or_after_it_was_kept_is_not_sent() {
        let mut kept = KeptBeside::from(3);
        assert!((0..9).all(|at| kept.keep(handoff(at))));
        kept.settle(6);
        assert!(kept.keep(handoff(5)) && kept.keep(handoff(9)));
        kept.settle(4);
        assert_eq!(offsets(kept), [6, 7, 8, 9]);
    }

    #[test]
    fn what_is_settled_makes_room_for_more() {
        let mut kept = KeptBeside::from(0);
        for at in 0..3 * KEPT_MAX as i64 {
            assert!(kept.keep(handoff(at)));
            kept.settle(at - 9);
        }
        assert!(!kept.has_dropped());
        assert_eq!((offsets(kept).len(), KEPT_MAX > 10), (10, true));
    }

    #[test]
    fn beyond_its_bound_it_keeps_nothing_and_says_so_once() {
        let mut kept = KeptBeside::from(0);
        let refused = (0..2 * KEPT_MAX as i64).filter(|at| !kept.keep(handoff(*at))).count();
        assert_eq!((refused, kept.has_dropped()), (1, true));
        assert!(kept.is_empty());
    }
}
