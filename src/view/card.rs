//! The cards of players, with which every game is shown.

use crate::kit::chunks::{CHUNK_ROWS, Chunks};
use crate::kit::kinds::{PayloadPart, UpdateKind, UpdateRole};
use crate::kit::update::Payload;
use crate::view::game::{CardField, ViewSchema};

/// Limit of the fields that a game has on a card: with them, a card fills a cache line.
const CARD_FIELDS_MAX: usize = 5;

/// The name of the update field that sets a player's score.
const SCORE: &str = "score";

/// One player, as every game shows it. Times are in milliseconds since the Unix epoch, by the
/// zone's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// The player; 0 in a row that is free.
    pub player_id: u64,
    /// The player's points.
    pub score: u64,
    /// Orders equal scores: the number of the update that set the score. After a snapshot, a
    /// smaller number in the snapshot's order.
    pub scored_update: u64,
    /// Number of the update after the one that last changed the player.
    pub changed: u64,
    /// When the score was set.
    pub scored_at_ms: i64,
    /// The fields of [`ViewSchema::card`].
    pub fields: [u32; CARD_FIELDS_MAX],
    pub(crate) listing: Listing,
}

const _: () = assert!(size_of::<Card>() == 64);

/// The cards of a zone, by row.
pub type Cards = Chunks<Card, CHUNK_ROWS>;

/// Which of a player's zones lists it on the world's board.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Listing {
    /// This one: it is in no other.
    #[default]
    Only,
    /// This one: its place in another zone is worse.
    Best,
    /// Another one, where its place is better.
    Elsewhere,
}

impl Card {
    /// Creates the card of a player with these points, whose other fields are 0.
    pub fn new(player_id: u64, score: u64) -> Card {
        Card { player_id, score, ..Card::default() }
    }

    /// Returns a signed field.
    pub fn signed(&self, at: usize) -> i32 {
        self.fields[at].cast_signed()
    }
}

/// The way in which updates of one kind are folded into cards.
#[derive(Clone, Copy, Debug)]
pub(super) struct KindFold {
    pub role: UpdateRole,
    /// The part of the payload that holds the first field.
    first: PayloadPart,
    score: Option<PayloadPart>,
    /// By field of the card.
    fields: [Option<PayloadPart>; CARD_FIELDS_MAX],
}

impl KindFold {
    /// Returns how all kinds of a game are folded, by number from 0.
    pub(super) fn all(schema: &ViewSchema) -> Vec<KindFold> {
        assert!(schema.card.len() <= CARD_FIELDS_MAX);
        schema.game.updates.kinds.iter().map(|kind| KindFold::new(kind, schema.card)).collect()
    }

    fn new(kind: &UpdateKind, card: &[CardField]) -> KindFold {
        let place = |name: &str| {
            let field = kind.fields.iter().find(|field| field.name == name);
            field.filter(|_| matches!(kind.role, UpdateRole::Player | UpdateRole::Enter))
        };
        let mut fields = [None; CARD_FIELDS_MAX];
        for (CardField { name, form }, field) in card.iter().zip(&mut fields) {
            *field = place(name).map(|found| {
                assert!(found.form == *form && found.place != PayloadPart::Long, "{name}");
                found.place
            });
        }
        KindFold {
            role: kind.role,
            first: kind.fields.first().map_or(PayloadPart::Code, |field| field.place),
            score: place(SCORE).map(|field| field.place),
            fields,
        }
    }

    /// Returns the value of the first field.
    pub(super) fn first(&self, payload: &Payload) -> u64 {
        payload.get(self.first)
    }

    /// Returns the score that an update sets.
    pub(super) fn score(&self, payload: &Payload) -> Option<u64> {
        self.score.map(|place| payload.get(place))
    }

    /// Sets the fields of a card.
    pub(super) fn set_fields(&self, payload: &Payload, card: &mut Card) {
        for (field, place) in card.fields.iter_mut().zip(self.fields) {
            if let Some(place) = place {
                *field = payload.get(place) as u32;
            }
        }
    }
}
