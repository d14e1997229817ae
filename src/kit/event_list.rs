//! A list of events, each in one cache line. What arrivals carry is larger, so it is kept beside
//! the events.

use crate::kit::event::{Event, GameAction, PlainEvent};
use crate::kit::field::{ActionWords, FieldForm};

/// Consecutive events of one zone's input.
#[derive(Debug, Default)]
pub struct Events {
    list: Vec<PlainEvent>,
    carried: Vec<u64>,
}

impl Events {
    /// Creates an empty list with room for this many events, and for this many carried words.
    pub fn with_capacity(events: usize, carried_words: usize) -> Events {
        Events { list: Vec::with_capacity(events), carried: Vec::with_capacity(carried_words) }
    }

    /// Like [`Events::with_capacity`], but with memory that is already mapped, so that none is
    /// mapped later, however long the list becomes.
    pub(crate) fn with_touched_capacity(events: usize, carried_words: usize) -> Events {
        let (offset, time_ms, action) = (0, 0, ActionWords::default());
        let event = Event { offset, time_ms, player_id: 0, seq: 0, ts_us: 0, action };
        // Zeros would be mapped only when they are written.
        let (mut list, mut carried) = (vec![event; events], vec![1; carried_words]);
        list.clear();
        carried.clear();
        Events { list, carried }
    }

    /// Adds an event.
    pub fn push<A: GameAction>(&mut self, event: Event<A>) {
        let event = event.pack(&mut self.carried);
        self.list.push(event);
    }

    /// Adds an event whose carried words, if it has any, are in the list.
    #[inline]
    pub(crate) fn push_plain(&mut self, event: PlainEvent) {
        self.list.push(event);
    }

    /// Removes and returns the last event.
    pub fn pop<A: GameAction>(&mut self) -> Option<Event<A>> {
        let plain = self.list.pop()?;
        let event = plain.unpack(&self.carried);
        let fields = A::EVENTS.actions[usize::from(plain.action.kind())].fields;
        if let Some(field) = fields.iter().find(|field| field.spec.form == FieldForm::Handoff) {
            self.carried.truncate(plain.action.get(field.place) as usize);
        }
        Some(event)
    }

    /// Number of events.
    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The events.
    #[inline]
    pub fn plain(&self) -> &[PlainEvent] {
        &self.list
    }

    /// The words that the arrivals carry.
    #[inline]
    pub(crate) fn carried(&self) -> &[u64] {
        &self.carried
    }

    /// The words that the arrivals carry, for a reader that appends.
    #[inline]
    pub(crate) fn carried_mut(&mut self) -> &mut Vec<u64> {
        &mut self.carried
    }

    /// Removes all events and keeps the memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.carried.clear();
    }
}

impl<A: GameAction> Extend<Event<A>> for Events {
    fn extend<I: IntoIterator<Item = Event<A>>>(&mut self, events: I) {
        events.into_iter().for_each(|event| self.push(event));
    }
}

impl<A: GameAction> FromIterator<Event<A>> for Events {
    fn from_iter<I: IntoIterator<Item = Event<A>>>(events: I) -> Events {
        let mut list = Events::default();
        list.extend(events);
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::resident::is_resident;

    #[test]
    fn memory_that_is_touched_is_resident_before_the_first_event() {
        // Large enough to be new memory, whatever other tests have freed.
        let events = Events::with_touched_capacity(600_000, 300_000);
        assert!(is_resident(&events.list) && is_resident(&events.carried));
    }
}
