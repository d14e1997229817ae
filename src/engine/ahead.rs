//! The look ahead: where the actors of the next events are, asked for before it is needed.

use crate::engine::actors::Actors;
use crate::engine::events::ListedEvent;
use crate::engine::index::Glance;

/// Events from the first look at one to the second, and from there to its turn: not many more reads
/// than a core has in flight.
pub(super) const EVENTS_AHEAD: usize = 16;

/// What is known of the events ahead. What the first look asks for is read by the second, and what
/// that asks for by the event, each some events later: nothing waits for memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    glances: [Glance; EVENTS_AHEAD],
    rows: [u32; EVENTS_AHEAD],
}

impl Ahead {
    /// Begins to look up the actor of this event, if there is one.
    #[inline(always)]
    pub(super) fn glance(&mut self, actors: &Actors, events: &[ListedEvent], at: usize) {
        if let Some(event) = events.get(at) {
            self.glances[at % EVENTS_AHEAD] = actors.glance(event.player_id);
        }
    }

    /// Finds where that actor most likely is.
    #[inline(always)]
    pub(super) fn look(&mut self, actors: &Actors, at: usize) {
        self.rows[at % EVENTS_AHEAD] = actors.likely_row(self.glances[at % EVENTS_AHEAD]);
    }

    /// Where the actor of an event most likely is, once both looks at it are over.
    #[inline(always)]
    pub(super) fn row(&self, at: usize) -> u32 {
        self.rows[at % EVENTS_AHEAD]
    }
}
