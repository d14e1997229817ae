//! Handoffs: players on their way to another zone, as records that an owner appends to the input.
//!
//! A handoff is delivered at least once and accepted once: the receiving zone knows the number of
//! each player's last handoff. Every replay sends its handoffs again, even if their updates are
//! published, so a handoff is lost only together with its `leave`.

use crate::kit::engine::Departure;
use crate::kit::event::EventTable;
use crate::kit::game::Game;
use crate::kit::update::Update;
use crate::output::dead_letter::DeadLetter;
use crate::output::event_json;

/// A player who has left one zone for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoffRecord {
    /// Input partition of the zone that the player left.
    pub partition: i32,
    /// The ownership within this process that applied the event.
    pub ownership_id: u32,
    /// Input offset of that event.
    pub offset: i64,
    /// The destination and what the player carries.
    pub departure: Departure,
}

impl HandoffRecord {
    /// Returns the handoffs in the updates of an event.
    pub fn all<G: Game>(
        partition: i32,
        offset: i64,
        updates: &[Update],
    ) -> impl Iterator<Item = HandoffRecord> {
        let zone = u16::try_from(partition).expect("partitions are at most SHARDS_MAX");
        let of_zone =
            move |departure| HandoffRecord { partition, ownership_id: 0, offset, departure };
        G::departures(zone, updates).map(of_zone)
    }

    /// Input partition of the destination zone.
    pub fn to_partition(&self) -> i32 {
        self.departure.to_zone.into()
    }

    /// Appends the record: an entry that carries a handoff.
    pub fn write(&self, events: &EventTable, out: &mut Vec<u8>) {
        let Departure { to_zone: _, player_id, seq, ts_us, action, carried } = &self.departure;
        event_json::write_words(out, events, (*player_id, *seq, *ts_us), (action, carried));
    }

    /// Returns the dead letter of a handoff to a zone that does not exist.
    pub(crate) fn dead_letter(&self, events: &EventTable) -> DeadLetter {
        let mut value = Vec::new();
        self.write(events, &mut value);
        DeadLetter {
            partition: self.partition,
            ownership_id: self.ownership_id,
            offset: self.offset,
            time_ms: self.departure.ts_us / 1000,
            reason: "no_such_zone",
            sentence: Some(format!("there is no zone {} to go to", self.departure.to_zone)),
            key: None,
            value: Some(value),
            cut: None,
            run: None,
        }
    }
}
