//! Limits how many output partitions are read at once. If all of them were, the first shard would
//! be acquired only when the last one is, and none could replay until then.

use crate::telemetry::long_wait::LongWait;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Output partitions that are read at once while each brings records.
pub(crate) const READ_SLOTS: usize = 4;

/// Milliseconds without progress after which a partition gives its slot to the next one, and is
/// still read beside it: a partition that waits for a broker or for the group delays no other.
const SLOT_MS_MAX: u64 = 100;

/// How urgently a partition is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadPriority {
    /// Players wait for it, and it is short. It needs no free slot.
    Urgent,
    /// To acquire a zone that the group has given us.
    Assigned,
    /// To keep a copy. Copies leave one slot free.
    Copy,
}

/// The partitions that have had a slot, and for how long each has waited for its next progress.
#[derive(Clone, Debug)]
pub struct ReadSlots {
    slots: usize,
    holders: BTreeMap<i32, LongWait>,
}

impl ReadSlots {
    /// No slot is taken.
    pub(crate) fn new(slots: usize) -> ReadSlots {
        assert!(slots > 0, "without a slot nothing is ever read");
        ReadSlots { slots, holders: BTreeMap::new() }
    }

    /// Returns whether a partition may go on. A partition without a slot takes a free one.
    pub(crate) fn take(&mut self, partition: i32, priority: ReadPriority, now: Instant) -> bool {
        if self.holders.contains_key(&partition) {
            return true;
        }
        let slots = match priority {
            ReadPriority::Urgent => usize::MAX,
            ReadPriority::Assigned => self.slots,
            ReadPriority::Copy => (self.slots - 1).max(1),
        };
        let patience = Duration::from_millis(SLOT_MS_MAX);
        let is_lively = |wait: &&LongWait| wait.elapsed(now) < patience;
        let is_free = self.holders.values().filter(is_lively).count() < slots;
        if is_free {
            self.hold(partition, now);
        }
        is_free
    }

    /// A partition has made progress.
    pub(crate) fn moved(&mut self, partition: i32, now: Instant) {
        if let Some(wait) = self.holders.get_mut(&partition) {
            *wait = LongWait::since(now);
        }
    }

    /// For how long a partition with a slot has made no progress.
    pub(crate) fn idle(&self, partition: i32, now: Instant) -> Option<Duration> {
        self.holders.get(&partition).map(|wait| wait.elapsed(now))
    }

    /// Returns whether it is time to say what a partition with a slot waits for.
    pub(crate) fn has_word(&mut self, partition: i32, now: Instant) -> bool {
        self.holders.get_mut(&partition).is_some_and(|wait| wait.word(now).is_some())
    }

    /// A partition is not read any more.
    pub(crate) fn free(&mut self, partition: i32) {
        self.holders.remove(&partition);
    }

    /// A partition holds a slot from this time on.
    pub fn hold(&mut self, partition: i32, at: Instant) {
        self.holders.insert(partition, LongWait::since(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_partition_is_read_when_one_ends_or_makes_no_progress() {
        let now = Instant::now();
        let patience = Duration::from_millis(SLOT_MS_MAX);
        let mut slots = ReadSlots::new(2);
        let take = |slots: &mut ReadSlots, it, at| slots.take(it, ReadPriority::Assigned, at);
        assert!(take(&mut slots, 0, now) && take(&mut slots, 1, now) && take(&mut slots, 0, now));
        assert!(!take(&mut slots, 2, now));
        slots.free(1);
        assert!(take(&mut slots, 2, now) && !take(&mut slots, 3, now));
        slots.moved(0, now + patience);
        assert!(take(&mut slots, 3, now + patience) && !take(&mut slots, 4, now + patience));
        assert_eq!(slots.idle(2, now + patience), Some(patience));
        assert_eq!(slots.idle(4, now), None);
    }

    #[test]
    fn copies_leave_a_slot_and_urgent_partitions_need_none() {
        let (now, mut slots) = (Instant::now(), ReadSlots::new(2));
        assert!(slots.take(0, ReadPriority::Copy, now) && !slots.take(1, ReadPriority::Copy, now));
        assert!(
            slots.take(2, ReadPriority::Assigned, now)
                && !slots.take(3, ReadPriority::Assigned, now)
        );
        assert!(slots.take(4, ReadPriority::Urgent, now));
        assert!(slots.take(4, ReadPriority::Urgent, now + Duration::from_millis(7)));
        assert_eq!(slots.idle(4, now), Some(Duration::ZERO));
    }
}
