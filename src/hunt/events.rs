//! A list of events, each in one cache line. The data of an arrival is larger, so it is kept in a
//! separate list.

use crate::hunt::event::{Action, ActionKind, Event, EventField, Handoff};
use crate::hunt::field::FieldValues;

/// Index of an arrival's handoff in the separate list.
pub(crate) type HandoffNumber = u32;

/// An event in a list.
pub type ListedEvent = Event<HandoffNumber>;

const _: () = assert!(size_of::<ListedEvent>() == 64, "an event is a cache line");

/// Consecutive events of one shard's input.
#[derive(Debug, Default)]
pub struct Events {
    list: Vec<ListedEvent>,
    handoffs: Vec<Handoff>,
}

impl Events {
    /// Creates an empty list with room for this many events, including this many arrivals.
    pub fn with_capacity(events: usize, arrivals: usize) -> Events {
        Events { list: Vec::with_capacity(events), handoffs: Vec::with_capacity(arrivals) }
    }

    /// Like [`Events::with_capacity`], but with memory that is already mapped, so that none is
    /// mapped later, however long the list becomes.
    pub(crate) fn with_touched_capacity(events: usize, arrivals: usize) -> Events {
        let tick =
            Event { offset: 0, time_ms: 0, player_id: 0, seq: 0, ts_us: 0, action: Action::Tick };
        let (mut list, mut handoffs) = (vec![tick; events], vec![Handoff::default(); arrivals]);
        list.clear();
        handoffs.clear();
        Events { list, handoffs }
    }

    /// Adds an event.
    pub fn push(&mut self, event: Event) {
        let (event, handoff) = event.apart(self.handoffs.len() as HandoffNumber);
        self.handoffs.extend(handoff);
        self.list.push(event);
    }

    /// Adds the event with the fields of a record.
    #[inline]
    pub(crate) fn push_fields(
        &mut self,
        offset: i64,
        time_ms: i64,
        kind: ActionKind,
        values: &mut FieldValues,
    ) {
        // Kinds without a handoff ignore it.
        values.set(EventField::Handoff, self.handoffs.len() as u64);
        self.list.push(Event::unpack(offset, time_ms, kind, values));
        if kind == ActionKind::Arrive {
            self.handoffs.extend(values.handoff);
        }
    }

    /// Adds an event that is not an arrival.
    #[inline]
    pub(crate) fn push_listed(&mut self, event: ListedEvent) {
        debug_assert!(event.action.kind() != ActionKind::Arrive);
        self.list.push(event);
    }

    /// Adds an event as a tick, whose action the caller then overwrites.
    #[inline(always)]
    pub(crate) fn push_tick(&mut self, event: ListedEvent) -> &mut Action<HandoffNumber> {
        self.push_listed(event);
        &mut self.list.last_mut().expect("an event was added").action
    }

    /// Removes and returns the last event.
    pub fn pop(&mut self) -> Option<Event> {
        let event = self.list.pop()?.whole(&self.handoffs);
        if event.action.kind() == ActionKind::Arrive {
            self.handoffs.pop();
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

    /// Number of arrivals among the events.
    #[inline]
    pub(crate) fn arrivals(&self) -> usize {
        self.handoffs.len()
    }

    /// The events.
    #[inline]
    pub fn listed(&self) -> &[ListedEvent] {
        &self.list
    }

    /// The handoffs of the arrivals.
    #[inline]
    pub(crate) fn handoffs(&self) -> &[Handoff] {
        &self.handoffs
    }

    /// Removes all events and keeps the memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.handoffs.clear();
    }
}

impl Event {
    /// Splits the event into one for a list and its handoff, if it is an arrival; `number` is the
    /// handoff's index.
    pub(crate) fn apart(&self, number: HandoffNumber) -> (ListedEvent, Option<Handoff>) {
        let mut values = self.action.pack();
        values.set(EventField::Handoff, number.into());
        (self.with(Action::unpack(self.action.kind(), &values)), values.handoff)
    }
}

impl ListedEvent {
    /// Returns the event with its handoff.
    pub(crate) fn whole(&self, handoffs: &[Handoff]) -> Event {
        let mut values = self.action.pack();
        if let Action::Arrive { handoff, .. } = self.action {
            values.handoff = Some(handoffs[handoff as usize]);
        }
        self.with(Action::unpack(self.action.kind(), &values))
    }
}

impl Extend<Event> for Events {
    fn extend<I: IntoIterator<Item = Event>>(&mut self, events: I) {
        events.into_iter().for_each(|event| self.push(event));
    }
}

impl FromIterator<Event> for Events {
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> Events {
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
        assert!(is_resident(&events.list) && is_resident(&events.handoffs));
    }

    #[test]
    fn an_arrival_keeps_what_it_carries_wherever_it_stands() {
        let arrival = |score| {
            let handoff = Handoff { score, last_seq: 9, ..Handoff::default() };
            Action::Arrive { x: -1, y: 2, handoff }
        };
        let event =
            |offset, action| Event { offset, time_ms: 1, player_id: 7, seq: 3, ts_us: -5, action };
        let all = [
            event(0, Action::Shoot { weapon: 1, heading: None }),
            event(1, arrival(10)),
            event(2, Action::Leave { to_zone: Some(0) }),
            event(3, arrival(20)),
        ];
        let mut events: Events = all.into_iter().collect();
        assert_eq!((events.len(), events.arrivals()), (4, 2));
        let whole: Vec<_> =
            events.listed().iter().map(|event| event.whole(events.handoffs())).collect();
        assert_eq!(whole, all);
        for event in all.into_iter().rev() {
            assert_eq!(events.pop(), Some(event));
        }
        assert_eq!((events.pop(), events.arrivals()), (None, 0));
    }
}
