//! Events: the input of a zone.

/// One event, of a player or of the world, with its place in the input log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<A> {
    /// Offset of the record in its input partition.
    pub offset: i64,
    /// Timestamp of the record as Kafka stored it, in milliseconds since the Unix epoch. The zone's
    /// clock follows these times.
    pub time_ms: i64,
    /// The player; 0 for events of the world.
    pub player_id: u64,
    /// The player's own counter, from 1; the id of a tick.
    pub seq: u64,
    /// When the producer emitted the event, in microseconds since the Unix epoch. It is copied to
    /// the updates and never used as a clock.
    pub ts_us: i64,
    /// The action.
    pub action: A,
}

list! {
    /// Who acts. It decides which of `player_id` and `seq` an event has, and what the kit does
    /// before it asks the game.
    Subject {
        /// A player in the zone. `seq` counts the player's events.
        Player = 0 "player",
        /// A player that enters the zone with nothing.
        Enter = 1 "enter",
        /// A player that leaves the zone.
        Leave = 2 "leave",
        /// A player that comes from another zone: its handoffs have an order of their own.
        Arrival = 3 "arrival",
        /// The world: the event has neither player nor `seq`.
        World = 4 "world",
        /// Time passes: `seq` counts such events.
        Tick = 5 "tick",
    }
}

impl Subject {
    /// Returns whether the event is a player's own, which the player's `seq` counts.
    pub(crate) fn is_player(self) -> bool {
        matches!(self, Subject::Player | Subject::Enter | Subject::Leave)
    }

    /// Returns whether the event is the world's.
    pub(crate) fn is_world(self) -> bool {
        matches!(self, Subject::World | Subject::Tick)
    }
}

/// The action of a game's event.
pub trait GameAction: Copy {
    /// Returns who acts.
    fn subject(&self) -> Subject;
}

impl<A> Event<A> {
    /// Returns the event with another action.
    pub(crate) fn with<T>(&self, action: T) -> Event<T> {
        let Event { offset, time_ms, player_id, seq, ts_us, .. } = *self;
        Event { offset, time_ms, player_id, seq, ts_us, action }
    }
}
