//! The seam between the kit and a game. It is static: the kit's loop is compiled for each game.

use crate::kit::checkpoint::{Checkpoint, StoredRow};
use crate::kit::event::{Event, GameAction};
use crate::kit::index::Lookup;
use crate::kit::kinds::Kinds;
use crate::kit::players::Player;
use crate::kit::rulebook::GameRules;
use crate::kit::words::Words;
use crate::kit::zone::{EventOutput, Outcome, Zone};
use std::fmt::Debug;

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

/// What became of an event of the game `G`.
pub type OutcomeOf<G> = Outcome<<G as Game>::Refusal>;

/// An event of the game `G`.
pub type EventOf<G> = Event<<G as Game>::Action>;

/// A game: its state in one zone, and what its events do to it.
///
/// The state is in tables and columns, whose hashes are the digest and which a checkpoint reads.
/// What follows from them (indexes, trees, lists) is computed again after a restart.
pub trait Game: Clone + Debug {
    /// First word of an encoded state: its name and the format's version.
    const FORMAT: u64;

    /// Words that a checkpoint notes at once, at most: everything that is in no table.
    const NOTED_WORDS_MAX: usize;

    /// The numbers that a designer may change.
    type Rules: GameRules;

    /// What an event asks for.
    type Action: GameAction;

    /// What an arrival carries beside its event.
    type Carried;

    /// What is published.
    type Update: Kinds;

    /// Why an event is turned down.
    type Refusal: Copy + From<KitRefusal>;

    /// The part of a player that almost every event needs.
    type Player: Player;

    /// Returns the state before the first event.
    fn new(rules: &Self::Rules) -> Self;

    /// Takes what it keeps of the rules from other rules.
    fn play_by(&mut self, rules: &Self::Rules);

    /// Returns the hash of the players, and that of everything else.
    fn digests(&self) -> [u64; 2];

    /// Returns the update that publishes the zone's clock.
    fn clock(unix_ms: u64) -> Self::Update;

    /// Returns the update that names new rules.
    fn rules_changed(ruleset: u32) -> Self::Update;

    /// Returns the update that says that an event was refused.
    fn refused(refusal: Self::Refusal, event: &EventOf<Self>) -> Self::Update;

    /// The first step of a look-up ahead of time: see [`Game::likely_row`].
    fn begin_lookup(&self, player_id: u64) -> Lookup;

    /// The second step: prefetches the row that a player most likely has and returns its number.
    fn likely_row(&self, lookup: Lookup) -> u32;

    /// Returns a player and its row, which may be `hint`. The player is not 0.
    fn find_from(&self, hint: u32, player_id: u64) -> Option<(u32, &Self::Player)>;

    /// Changes the row of a player.
    fn write_player(&mut self, row: u32, player: Self::Player);

    /// Does what is due before an event.
    fn on_time(zone: &mut Zone<Self>, out: &mut EventOutput<Self>);

    /// Does what is due for one player before its event, and returns the player as it is then.
    fn settle(
        zone: &mut Zone<Self>,
        row: u32,
        player: Self::Player,
        out: &mut EventOutput<Self>,
    ) -> Self::Player;

    /// An event of a player in the zone. The kit writes the player's row after it.
    fn on_player(
        zone: &mut Zone<Self>,
        row: u32,
        player: &mut Self::Player,
        event: &EventOf<Self>,
        out: &mut EventOutput<Self>,
    ) -> Result<(), Self::Refusal>;

    /// A player enters who is not in the zone, with a `seq` that is new.
    fn on_enter(
        zone: &mut Zone<Self>,
        event: &EventOf<Self>,
        out: &mut EventOutput<Self>,
    ) -> Result<(), Self::Refusal>;

    /// A player leaves. After a refusal it stays.
    fn on_leave(
        zone: &mut Zone<Self>,
        row: u32,
        player: Self::Player,
        event: &EventOf<Self>,
        out: &mut EventOutput<Self>,
    ) -> Result<(), Self::Refusal>;

    /// A player comes from another zone, with what it carries.
    fn on_arrive(
        zone: &mut Zone<Self>,
        event: &EventOf<Self>,
        carried: &[Self::Carried],
        out: &mut EventOutput<Self>,
    ) -> OutcomeOf<Self>;

    /// An event of the world.
    fn on_world(
        zone: &mut Zone<Self>,
        event: &EventOf<Self>,
        out: &mut EventOutput<Self>,
    ) -> OutcomeOf<Self>;

    /// Does a bounded piece of the work that is spread over events, after one.
    fn on_end(zone: &mut Zone<Self>, is_tick: bool, out: &mut EventOutput<Self>);

    /// Begins a checkpoint of all tables.
    fn begin_checkpoint(&mut self);

    /// Ends the checkpoint of all tables.
    fn end_checkpoint(&mut self);

    /// Lists the players' part of an encoded state: noted words and rows, in their order.
    fn list_players(&self, checkpoint: &mut Checkpoint);

    /// Lists the rest of an encoded state.
    fn list_rest(&self, checkpoint: &mut Checkpoint);

    /// Reads a row of a part as it was when the checkpoint began. Empty rows may be left out.
    fn read_row(&self, part: u8, number: u32, row: &mut StoredRow);

    /// Rows of a part below this one were read.
    fn pass(&mut self, part: u8, number: u32);

    /// Reads the players of an encoded state. `None`: it is not one.
    fn load_players(zone: &mut Zone<Self>, words: &mut Words) -> Option<()>;

    /// Reads the rest of an encoded state. `None`: it is not one.
    fn load_rest(zone: &mut Zone<Self>, words: &mut Words) -> Option<()>;
}
