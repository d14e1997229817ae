//! The last updates of a zone, as they were published, with their places in the input.

use crate::kit::update::Update;
use std::collections::VecDeque;

/// Updates of a zone that are kept: 2 MiB, some seconds of a busy zone.
const RECENT_UPDATES_MAX: usize = 65_536;

/// The last updates of a zone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent {
    updates: VecDeque<Update>,
    /// Number of the update that comes next.
    next: u64,
    /// The number after the last update of a whole frame.
    sealed: u64,
    /// The frames that have updates here.
    frames: VecDeque<SealedFrame>,
    /// Input offset before which no frame is known: the updates of those are gone.
    known_from: i64,
}

/// The place of a frame's updates.
#[derive(Clone, Copy, Debug)]
struct SealedFrame {
    /// Number of its first update.
    first: u64,
    /// The number after its last one.
    end: u64,
    /// The input offset up to which (exclusive) it has come.
    next_offset: i64,
}

impl Recent {
    /// Creates an empty list. The first update will have this number, and come from an event at
    /// this input offset or a later one.
    pub(crate) fn new(next: u64, next_offset: i64) -> Recent {
        let (updates, frames) = (VecDeque::new(), VecDeque::new());
        Recent { updates, next, sealed: next, frames, known_from: next_offset }
    }

    /// Returns the number of the next update.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Returns the number after the last update of a whole frame.
    pub(crate) fn sealed(&self) -> u64 {
        self.sealed
    }

    /// Returns the number of the oldest update that is kept.
    pub(crate) fn first(&self) -> u64 {
        self.next - self.updates.len() as u64
    }

    /// Returns an update; `None` if it is not kept any more, or has not come.
    pub(crate) fn get(&self, number: u64) -> Option<&Update> {
        let at = number.checked_sub(self.first())?;
        self.updates.get(usize::try_from(at).ok()?)
    }

    /// Returns the updates of the first frame beyond an input offset: those of the event at that
    /// offset are among them. `None` if some of them are not kept any more.
    pub(crate) fn frame_at(&self, offset: i64) -> Option<impl Iterator<Item = &Update>> {
        let at = self.frames.partition_point(|frame| frame.next_offset <= offset);
        let numbers = self.frames.get(at).map_or(self.next..self.next, |of| of.first..of.end);
        let is_kept = offset >= self.known_from && numbers.start >= self.first();
        is_kept.then(|| numbers.filter_map(|number| self.get(number)))
    }

    pub(super) fn push(&mut self, update: Update) {
        if self.updates.len() == RECENT_UPDATES_MAX {
            self.updates.pop_front();
        }
        self.updates.push_back(update);
        self.next += 1;
    }

    pub(super) fn seal(&mut self, next_offset: i64) {
        let first = self.first();
        if self.sealed < self.next {
            self.frames.push_back(SealedFrame { first: self.sealed, end: self.next, next_offset });
            self.sealed = self.next;
        }
        while let Some(frame) = self.frames.pop_front_if(|frame| frame.end <= first) {
            self.known_from = frame.next_offset;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::frame_maker::FrameMaker;

    #[test]
    fn updates_that_are_no_longer_kept_are_known_to_be_gone() {
        let mut recent = Recent::new(100, 7);
        let update = FrameMaker::new(0).frame(1).updates.as_slice()[0];
        let mut push = |count: usize, next_offset| {
            (0..count).for_each(|_| recent.push(update));
            recent.seal(next_offset);
            [6, 7, 8, 9, 11, 12].map(|offset| recent.frame_at(offset).map(Iterator::count))
        };
        assert_eq!(push(0, 8), [None, Some(0), Some(0), Some(0), Some(0), Some(0)]);
        let first = push(3, 9);
        assert_eq!(first, [None, Some(3), Some(3), Some(0), Some(0), Some(0)]);
        let full = push(RECENT_UPDATES_MAX - 3, 12);
        let rest = Some(RECENT_UPDATES_MAX - 3);
        assert_eq!(full, [None, Some(3), Some(3), rest, rest, Some(0)]);
        // One of the first frame's three updates goes, then the others.
        assert_eq!(push(1, 13), [None, None, None, rest, rest, Some(1)]);
        assert_eq!(push(2, 14), [None, None, None, rest, rest, Some(1)]);
        // A frame that is larger than what is kept.
        assert_eq!(push(RECENT_UPDATES_MAX + 1, 15), [None; 6]);
        assert_eq!(recent.first(), recent.next() - RECENT_UPDATES_MAX as u64);
        assert_eq!(recent.frame_at(15).map(Iterator::count), Some(0));
    }
}
