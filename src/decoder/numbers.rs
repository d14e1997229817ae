//! The numbers of a record of a known shape, and the event that they make.

use super::RecordPosition;
use super::shape::{HIGH_LANE, LANES, RunLane, Shape};
use crate::kit::event::PlainEvent;
use crate::kit::event_list::Events;
use crate::kit::field::{ActionWords, HALVES};

/// The weight of the player's digits before the last 16.
const HIGH_DIGIT: u64 = 10_000_000_000_000_000;

/// Where the words of an event come from: a lane for each number, and the constant parts.
#[derive(Clone, Copy)]
pub(super) struct EventLanes {
    pub player_id: RunLane,
    pub seq: RunLane,
    pub ts_us: RunLane,
    /// The lane of each half of the action's words. A wide field has its first half's.
    pub halves: [RunLane; HALVES as usize],
    /// The bits of each lane in the first halves of the second and the third word.
    pub masks: [u64; 2],
    /// Number of the action, and which fields are present.
    pub base: u64,
}

/// The numbers of a record with this shape.
pub(super) struct Numbers<'s> {
    /// The lanes' numbers, then 0 for absent fields.
    pub lanes: [u64; LANES + 1],
    pub shape: &'s Shape,
}

impl Numbers<'_> {
    /// Adds the event. Every event is made in the same steps, whatever its action: there is no
    /// branch to predict.
    #[inline(always)]
    pub(super) fn push_event(&self, origin: RecordPosition, events: &mut Events) {
        let EventLanes { player_id, seq, ts_us, halves, masks, base } = &self.shape.event;
        let [word_high, long_low, long_high, last_low, last_high] = *halves;
        events.push_plain(PlainEvent {
            offset: origin.offset,
            time_ms: origin.time_ms,
            player_id: self.of(*player_id) + self.lanes[HIGH_LANE] * HIGH_DIGIT,
            seq: self.of(*seq),
            ts_us: self.of(*ts_us) as i64,
            action: ActionWords([
                base | self.of(word_high) << 32,
                self.of(long_low) & masks[0] | self.of(long_high) << 32,
                self.of(last_low) & masks[1] | self.of(last_high) << 32,
            ]),
        });
    }

    #[inline(always)]
    fn of(&self, lane: RunLane) -> u64 {
        self.lanes[lane as usize]
    }
}
