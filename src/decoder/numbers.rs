//! The numbers of a record of a known shape, by field.

use super::RecordPosition;
use super::shape::{HIGH_LANE, LANES, Shape};
use crate::hunt::event::{Action, ActionKind, Event, EventField, Handoff};
use crate::hunt::events::Events;
use crate::hunt::field::FieldSource;

/// The weight of the player's digits before the last 16.
const HIGH_DIGIT: u64 = 10_000_000_000_000_000;

/// The numbers of a record with this shape.
pub(super) struct Numbers<'s> {
    /// The lanes' numbers, then 0 for absent fields.
    pub lanes: [u64; LANES + 1],
    pub shape: &'s Shape,
}

impl Numbers<'_> {
    /// Adds the event. It is built in its final place: a copy would wait for all of its parts.
    #[inline(always)]
    pub(super) fn push_event(&self, origin: RecordPosition, events: &mut Events) {
        debug_assert!(self.shape.kind != ActionKind::Arrive);
        let event = Event {
            offset: origin.offset,
            time_ms: origin.time_ms,
            player_id: self.number(EventField::PlayerId),
            seq: self.number(EventField::Seq),
            ts_us: self.number(EventField::TsUs) as i64,
            action: Action::Tick,
        };
        Action::unpack_to(events.push_tick(event), self.shape.kind, self);
    }
}

impl FieldSource for Numbers<'_> {
    #[inline(always)]
    fn number(&self, field: EventField) -> u64 {
        let number = self.lanes[self.shape.lanes[field as usize] as usize];
        match field {
            EventField::PlayerId => number + self.lanes[HIGH_LANE] * HIGH_DIGIT,
            _ => number,
        }
    }

    #[inline]
    fn has(&self, field: EventField) -> bool {
        self.shape.present.contains(field)
    }

    #[inline]
    fn handoff(&self) -> Option<Handoff> {
        None
    }
}
