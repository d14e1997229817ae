//! Prefetches the actors of the next events.

use crate::hunt::actors::Actors;
use crate::hunt::events::ListedEvent;
use crate::kit::index::Lookup;

/// Prefetch distance in events, from the index to the row and from the row to its turn: not many
/// more reads than a core has in flight.
pub(super) const EVENTS_AHEAD: usize = 16;

/// What is prefetched for the events ahead: first the place in the index, then the row that it
/// names, each some events before it is read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    lookups: [Lookup; EVENTS_AHEAD],
    rows: [u32; EVENTS_AHEAD],
}

impl Ahead {
    /// Begins to look up the actor of this event, if there is one.
    #[inline(always)]
    pub(super) fn begin_lookup(&mut self, actors: &Actors, events: &[ListedEvent], at: usize) {
        if let Some(event) = events.get(at) {
            self.lookups[at % EVENTS_AHEAD] = actors.begin_lookup(event.player_id);
        }
    }

    /// Finds where that actor most likely is.
    #[inline(always)]
    pub(super) fn find(&mut self, actors: &Actors, at: usize) {
        self.rows[at % EVENTS_AHEAD] = actors.likely_row(self.lookups[at % EVENTS_AHEAD]);
    }

    /// Where the actor of an event most likely is.
    #[inline(always)]
    pub(super) fn row(&self, at: usize) -> u32 {
        self.rows[at % EVENTS_AHEAD]
    }
}
