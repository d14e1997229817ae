//! The last updates of a zone, as they were published, with their places in the input.

use crate::engine::update::Update;
use std::collections::VecDeque;

/// Updates of a zone that are kept: 2 MiB, some seconds of a busy zone.
const RECENT_UPDATES_MAX: usize = 65_536;

/// The last updates of a zone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent {
    updates: VecDeque<Update>,
    /// Number of the update that comes next.
    next: u64,
    /// Of each frame that still has updates here: the number after its last update, and the input
    /// offset up to which it has come.
    frames: VecDeque<(u64, i64)>,
}

impl Recent {
    /// None yet; the first will have this number.
    pub(crate) fn new(next: u64) -> Recent {
        Recent { updates: VecDeque::new(), next, frames: VecDeque::new() }
    }

    /// Number of the update that comes next.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Number of the oldest update that is kept.
    pub(crate) fn first(&self) -> u64 {
        self.next - self.updates.len() as u64
    }

    /// An update; `None`: it is not kept any more, or has not come.
    pub(crate) fn get(&self, number: u64) -> Option<&Update> {
        let at = number.checked_sub(self.first())?;
        self.updates.get(usize::try_from(at).ok()?)
    }

    /// The updates of the first frame that has come beyond an input offset, as far as they are
    /// kept: those of the event at that offset are among them.
    pub(crate) fn frame_at(&self, offset: i64) -> impl Iterator<Item = &Update> {
        let at = self.frames.partition_point(|(_, next_offset)| *next_offset <= offset);
        let end = self.frames.get(at).map_or(self.next, |(end, _)| *end);
        let before = at.checked_sub(1).and_then(|before| self.frames.get(before));
        let from = before.map_or(self.first(), |(end, _)| *end).max(self.first());
        (from..end).filter_map(|number| self.get(number))
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
        while self.frames.front().is_some_and(|(end, _)| *end <= first) {
            self.frames.pop_front();
        }
        if self.frames.back().map_or(first, |(end, _)| *end) < self.next {
            self.frames.push_back((self.next, next_offset));
        }
    }
}
