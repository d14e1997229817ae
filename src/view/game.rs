//! The tables of a game that a view reads, and the interface by which a game adds to the cards,
//! boards and streams that every game has.

use crate::kit::checkpoint::StateError;
use crate::kit::engine::{GameRulebook, GameSchema};
use crate::kit::game::Game;
use crate::kit::kinds::{Form, UpdateRole};
use crate::kit::rulebook::{GameRules, Rulebook};
use crate::kit::state::GameState;
use crate::kit::update::Update;
use crate::kit::zone::Zone;
use crate::view::card::{Card, Cards};
use crate::view::json::Json;
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// Numbers that a game adds to a poll.
pub(crate) const POLL_FIELDS: usize = 4;

/// The tables of a game.
#[derive(Debug)]
pub struct ViewSchema {
    /// The version of the game's rules.
    pub version: u64,
    /// The events and updates.
    pub game: &'static GameSchema,
    /// The fields of a card beside the score, as many as a
    /// [`Card`] has room for.
    pub card: &'static [CardField],
    /// The fields of a card that say where a player is, which are signed; `None`: players are
    /// nowhere.
    pub position: Option<[&'static str; 2]>,
    /// The game's own queries.
    pub queries: &'static [Query],
    /// The game's part of the OpenAPI document, as JSON.
    pub openapi: &'static str,
    /// The files of the page at `/`.
    pub page: &'static [Asset],
}

/// A static file that is served.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// The path.
    pub path: &'static str,
    /// The media type.
    pub content_type: &'static str,
    /// The content.
    pub bytes: &'static [u8],
}

/// A field of a card. Updates that have a field of this name set it.
#[derive(Clone, Copy, Debug)]
pub struct CardField {
    /// The name.
    pub name: &'static str,
    /// The format: [`Form::Signed`] or [`Form::Number`].
    pub form: Form,
}

/// A query that a game answers about a zone, at `/v1/zones/{zone}/{name}`.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// The name.
    pub name: &'static str,
    /// Whether a client may ask only for what changed at or after an update, with `since`.
    pub is_incremental: bool,
}

/// A game that can be viewed.
pub trait Viewed: Game + 'static {
    /// The tables.
    const SCHEMA: &'static ViewSchema;

    /// Returns the cards of a zone's players, ordered by rank. They lack what depends on updates.
    fn cards(zone: &Zone<Self>) -> Vec<Card>;

    /// Returns the game's part of the view of a zone, or of an empty one. The players have rows in
    /// the order of the cards.
    fn view(rules: &Arc<Self::Rules>, zone: Option<&Zone<Self>>) -> Box<dyn GameView>;

    /// Changes the rules in the game's part of a view.
    fn change_rules(_view: &mut dyn GameView, _rules: &Arc<Self::Rules>) {}
}

/// A game that the holder does not know, with the rules that its zones may use.
pub trait ViewedGame: GameRulebook + Debug {
    /// Returns the tables that a view reads.
    fn view_schema(&self) -> &'static ViewSchema;

    /// Returns the hash of the rules of new zones.
    fn first_ruleset(&self) -> u32;

    /// Returns whether zones can use these rules.
    fn knows(&self, ruleset: u32) -> bool;

    /// Returns the game with these rules for new zones; `None` if it does not have them.
    fn with_first(&self, ruleset: u32) -> Option<Arc<dyn ViewedGame>>;

    /// Returns the limit of players in a zone.
    fn players_max(&self) -> u32;

    /// Returns the game's part of the view of an empty zone.
    fn view(&self) -> Box<dyn GameView>;

    /// Changes the rules in the game's part of a view. Returns whether it knows them.
    fn change_rules(&self, view: &mut dyn GameView, ruleset: u32) -> bool;

    /// Restores a zone from a stored state.
    fn restore(&self, state: &[u8]) -> Result<ZoneImage, StateError>;
}

impl<R: GameRules<Game: Viewed>> ViewedGame for Rulebook<R> {
    fn view_schema(&self) -> &'static ViewSchema {
        R::Game::SCHEMA
    }

    fn first_ruleset(&self) -> u32 {
        self.first().ruleset
    }

    fn knows(&self, ruleset: u32) -> bool {
        self.find(ruleset).is_some()
    }

    fn with_first(&self, ruleset: u32) -> Option<Arc<dyn ViewedGame>> {
        Some(Arc::new(self.beginning_by(ruleset)?))
    }

    fn players_max(&self) -> u32 {
        R::Game::players_max(&self.first().rules)
    }

    fn view(&self) -> Box<dyn GameView> {
        R::Game::view(&self.first().rules, None)
    }

    fn change_rules(&self, view: &mut dyn GameView, ruleset: u32) -> bool {
        let Some(found) = self.find(ruleset) else { return false };
        R::Game::change_rules(view, &found.rules);
        true
    }

    fn restore(&self, state: &[u8]) -> Result<ZoneImage, StateError> {
        Ok(ZoneImage::of(&Zone::<R::Game>::decode_state(state, self)?))
    }
}

/// A zone as an engine has it, with which a view can begin.
#[derive(Debug)]
pub struct ZoneImage {
    pub(super) partition: u16,
    pub(super) ruleset: u32,
    pub(super) digest: u64,
    pub(super) published_unix_ms: i64,
    pub(super) cards: Vec<Card>,
    pub(super) game: Box<dyn GameView>,
}

impl ZoneImage {
    /// Creates the image of a zone.
    pub fn of<G: Viewed>(zone: &Zone<G>) -> ZoneImage {
        ZoneImage {
            partition: zone.partition(),
            ruleset: zone.ruleset(),
            digest: zone.digest(),
            published_unix_ms: zone.published_unix_ms(),
            cards: G::cards(zone),
            game: G::view(&zone.rules, Some(zone)),
        }
    }

    /// Returns the input partition.
    pub(crate) fn partition(&self) -> u16 {
        self.partition
    }

    /// Returns the hash of the zone's state.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }
}

/// An update that is folded, with the place and time at which it was published.
#[derive(Clone, Copy, Debug)]
pub struct FoldedUpdate<'a> {
    /// The update.
    pub update: &'a Update,
    /// Its number.
    pub number: u64,
    /// The zone's clock, in milliseconds since the Unix epoch.
    pub now_ms: i64,
}

/// A game's part of the view of one zone. Players are known by their rows.
pub trait GameView: Any + Debug + Send {
    /// Takes all that it has as changed by the update before this one: nothing earlier is known.
    fn begin_at(&mut self, _next_update: u64) {}

    /// Prefetches what it has of the player in a row, if anybody is there.
    fn prefetch(&self, _row: u32) {}

    /// Folds an update of a player, who had the card `before` unless it enters. The fields of the
    /// card are set.
    fn fold(&mut self, folded: &FoldedUpdate, row: u32, before: Option<&Card>, card: &mut Card);

    /// Folds an update of the zone.
    fn fold_zone(&mut self, _folded: &FoldedUpdate) {}

    /// Moves all times, which counted from 0, on to the clock that has started.
    fn start_clock(&mut self, _now_ms: i64, _cards: &Cards) {}

    /// Writes the game's part of a zone in the list of all zones.
    fn write_zone(&self, _json: &mut Json) {}

    /// Writes the rest of a player's card.
    fn write_card(&self, schema: &ViewSchema, _row: u32, card: &Card, json: &mut Json) {
        schema.write_fields(card, json);
    }

    /// Returns the game's part of a poll: by default, the first fields of the card.
    fn poll(&self, schema: &ViewSchema, _row: u32, card: &Card) -> [i64; POLL_FIELDS] {
        std::array::from_fn(|at| schema.card.get(at).map_or(0, |field| field.value(card, at)))
    }

    /// Writes the answer to the query with this number in [`ViewSchema::queries`]. `since` is 0 if
    /// the client asks for everything.
    fn answer(&self, _query: usize, _since: u64, _now_ms: i64, _json: &mut Json) {
        unreachable!("the game has no queries");
    }
}

impl ViewSchema {
    /// Returns the role of an update.
    pub(crate) fn role(&self, update: &Update) -> UpdateRole {
        self.game.updates.kinds[usize::from(update.payload().kind) - 1].role
    }

    /// Returns the numbers of the fields that say where a player is.
    pub(super) fn position_fields(&self) -> Option<[usize; 2]> {
        let number = |name| {
            let number = self.card.iter().position(|field| field.name == name);
            let number = number.expect("a position is made of fields of the card");
            assert_eq!(self.card[number].form, Form::Signed, "{name}");
            number
        };
        self.position.map(|names| names.map(number))
    }

    /// Returns the file of the page at a path.
    pub(crate) fn asset(&self, path: &str) -> Option<&'static Asset> {
        self.page.iter().find(|asset| asset.path == path)
    }

    /// Writes the fields of a card.
    pub(crate) fn write_fields(&self, card: &Card, json: &mut Json) {
        for (at, field) in self.card.iter().enumerate() {
            json.signed(field.name, field.value(card, at));
        }
    }
}

impl CardField {
    /// Returns the field, which has this number.
    fn value(&self, card: &Card, at: usize) -> i64 {
        match self.form {
            Form::Signed => card.signed(at).into(),
            _ => card.fields[at].into(),
        }
    }
}
