//! The interface between the kit and a game. It is static: the kit's loop is compiled for each
//! game.

use crate::kit::engine::{COUNTS_MAX, Departure, ZoneCount};
use crate::kit::event::{GameAction, PlainEvent};
use crate::kit::kinds::Kinds;
use crate::kit::packed::Packed;
use crate::kit::rulebook::GameRules;
use crate::kit::state::GameState;
use crate::kit::stored_names::Migration;
use crate::kit::update::Update;
use crate::kit::zone::{EventOutput, Outcome, Zone};

/// Why the kit itself refuses an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KitRefusal {
    /// The player id is 0, which names the world.
    NoPlayer,
    /// The player is not in this zone.
    NotJoined,
    /// The player is in this zone already.
    AlreadyJoined,
}

/// The outcome of an event of the game `G`.
pub type OutcomeOf<G> = Outcome<<G as Game>::Refusal>;

/// A game: a state in one zone, and what events do to it.
pub trait Game: GameState<Rules: GameRules> + Send + 'static {
    /// Incremented whenever the game makes different updates, or another state, from the same
    /// events and rules.
    const VERSION: u32;

    /// How fields get their values from a state of another version that has no such field, or one
    /// with another type. A field whose meaning changes needs another name or another type.
    const MIGRATIONS: &'static [Migration] = &[];

    /// What is counted in a zone: names, and help texts for operators.
    const COUNTS: &'static [ZoneCount];

    /// The events.
    type Action: GameAction;

    /// The published updates.
    type Update: Kinds;

    /// Why an event is refused.
    type Refusal: Copy + From<KitRefusal> + Packed;

    /// Returns what is counted, in the order of [`Game::COUNTS`].
    fn counts(zone: &Zone<Self>) -> [u64; COUNTS_MAX];

    /// Returns whether players may be on their way to another zone after this event.
    #[inline(always)]
    fn may_send_players(_: &PlainEvent) -> bool {
        false
    }

    /// Returns the players who left this zone for another one in an event's updates.
    fn departures(_zone: u16, _: &[Update]) -> impl Iterator<Item = Departure> {
        std::iter::empty()
    }

    /// Takes what it keeps of the rules from other rules.
    fn play_by(&mut self, rules: &Self::Rules);

    /// Returns the update that publishes the zone's clock.
    fn clock(unix_ms: u64) -> Self::Update;

    /// Returns the update that names new rules.
    fn rules_changed(ruleset: u32) -> Self::Update;

    /// Returns the update that says that an event was refused.
    fn refused(refusal: Self::Refusal, event: &PlainEvent) -> Self::Update;

    /// Does what is due before an event. If that is too much for one event, what is due for the
    /// event's own player must not wait.
    fn on_time(zone: &mut Zone<Self>, event: &PlainEvent, out: &mut EventOutput<Self>);

    /// Processes an event of a player in the zone. The kit writes the player's row after it, unless
    /// the event has removed the player.
    fn on_player(
        zone: &mut Zone<Self>,
        row: u32,
        player: &mut Self::Player,
        event: &PlainEvent,
        out: &mut EventOutput<Self>,
    ) -> Result<(), Self::Refusal>;

    /// Processes the entry of a player who is not in the zone, with a new `seq`.
    fn on_enter(
        zone: &mut Zone<Self>,
        event: &PlainEvent,
        out: &mut EventOutput<Self>,
    ) -> Result<(), Self::Refusal>;

    /// Processes the departure of a player, who stays after a refusal.
    fn on_leave(
        zone: &mut Zone<Self>,
        row: u32,
        player: Self::Player,
        event: &PlainEvent,
        out: &mut EventOutput<Self>,
    ) -> Result<(), Self::Refusal>;

    /// Processes the arrival of a player from another zone; `carried` holds what it carries.
    fn on_arrive(
        zone: &mut Zone<Self>,
        event: &PlainEvent,
        carried: &[u64],
        out: &mut EventOutput<Self>,
    ) -> OutcomeOf<Self>;

    /// Processes an event of the world.
    fn on_world(
        zone: &mut Zone<Self>,
        event: &PlainEvent,
        out: &mut EventOutput<Self>,
    ) -> OutcomeOf<Self>;

    /// Does a bounded piece of the work that is spread over events, after an event.
    fn on_end(zone: &mut Zone<Self>, is_tick: bool, out: &mut EventOutput<Self>);
}
