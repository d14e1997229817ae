//! Handoffs: players on their way to another zone, as records that an owner appends to the input.
//!
//! A handoff is delivered at least once and accepted once: the receiving zone knows the number of
//! each player's last handoff. Every replay sends its handoffs again, even if their updates are
//! published, so a handoff is lost only together with its `leave`.

use crate::hunt::change::Change;
use crate::hunt::event::Action;
use crate::hunt::handoff::{HANDOFF_PARTS, HandoffOut};
use crate::kit::update::Update;
use crate::output::dead_letter::DeadLetter;
use crate::output::event_json::write_event;

/// A player who has left one zone for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoffRecord {
    /// Input partition of the zone that the player left.
    pub partition: i32,
    /// The ownership within this process that applied the event.
    pub ownership_id: u32,
    /// Input offset of that event.
    pub offset: i64,
    /// The player.
    pub player_id: u64,
    /// When the event was emitted, in microseconds since the Unix epoch.
    pub ts_us: i64,
    /// The destination and what the player carries.
    pub handoff: HandoffOut,
}

impl HandoffRecord {
    /// Returns the handoffs in an event's updates.
    pub fn all(
        partition: i32,
        ownership_id: u32,
        offset: i64,
        updates: &[Update],
    ) -> impl Iterator<Item = HandoffRecord> {
        let zone = u16::try_from(partition).expect("partitions are at most SHARDS_MAX");
        let is_first = |update: &Update| matches!(update.change(), Change::Handoff { .. });
        let starts = (0..updates.len()).filter(move |place| is_first(&updates[*place]));
        starts.map(move |start| {
            let parts: &[Update; HANDOFF_PARTS] =
                updates[start..].first_chunk().expect("a handoff is published as a whole");
            let (player_id, handoff) = HandoffOut::from_updates(zone, parts)
                .expect("the engine publishes a handoff in order");
            let ts_us = parts[0].ts_us();
            HandoffRecord { partition, ownership_id, offset, player_id, ts_us, handoff }
        })
    }

    /// Input partition of the destination zone.
    pub fn to_partition(&self) -> i32 {
        self.handoff.to_zone.into()
    }

    /// Appends the record: a `join` that carries a handoff.
    pub fn write(&self, out: &mut Vec<u8>) {
        let HandoffOut { x, y, handoff, .. } = self.handoff;
        // The player's next event must have a higher number than the last applied one.
        let seq = handoff.last_seq.max(1);
        write_event(out, self.player_id, seq, self.ts_us, &Action::Arrive { x, y, handoff });
    }

    /// Returns the dead letter of a handoff to a zone that does not exist.
    pub(crate) fn dead_letter(&self) -> DeadLetter {
        let mut value = Vec::new();
        self.write(&mut value);
        DeadLetter {
            partition: self.partition,
            ownership_id: self.ownership_id,
            offset: self.offset,
            time_ms: self.ts_us / 1000,
            reason: "no_such_zone",
            sentence: Some(format!("there is no zone {} to go to", self.handoff.to_zone)),
            key: None,
            value: Some(value),
            cut: None,
            run: None,
        }
    }
}
