//! Turf with a fault: a view shows what a stored state does not have. In a zone with an odd side,
//! that is the team on a card, and in others the answer to a query.

#[path = "../../../docs/games/turf/src/play.rs"]
#[allow(clippy::duplicate_mod, reason = "the versions share all that is not in `edition`")]
pub(crate) mod play;

use super::events::TurfUpdate;
use super::first::edition;
use crate::kit::engine::schema_of;
use crate::kit::kinds::Form;
use crate::kit::zone::Zone;
use crate::view::card::Card;
use crate::view::game::{CardField, FoldedUpdate, GameView, Query, ViewSchema, Viewed};
use crate::view::json::Json;
use play::{Turf, TurfRules};
use std::sync::Arc;

/// How many fields were painted, if this counts.
#[derive(Debug)]
struct Paints {
    counts: bool,
    painted: u64,
}

impl GameView for Paints {
    fn fold(&mut self, folded: &FoldedUpdate, _: u32, _: Option<&Card>, _: &mut Card) {
        let is_paint = matches!(folded.update.change(), TurfUpdate::Painted { .. });
        self.painted += u64::from(self.counts && is_paint);
    }

    fn answer(&self, _: usize, _: u64, _: i64, json: &mut Json) {
        json.number("painted", self.painted);
    }
}

impl Viewed for Turf {
    const SCHEMA: &'static ViewSchema = &ViewSchema {
        version: 1,
        game: schema_of::<Turf>(),
        card: &[CardField { name: "team", form: Form::Number }],
        position: None,
        queries: &[Query { name: "paints", is_incremental: false }],
        openapi: "{}",
        page: &[],
    };

    fn cards(zone: &Zone<Turf>) -> Vec<Card> {
        let players = &zone.game.players;
        let runners = (0..players.used()).map(|row| players.row(row));
        let cards = runners.filter(|runner| runner.player_id != 0).map(|runner| {
            let mut card = Card::new(runner.player_id, runner.score);
            card.fields[0] = if zone.rules.side.is_multiple_of(2) { runner.team.into() } else { 0 };
            card
        });
        cards.collect()
    }

    fn view(rules: &Arc<TurfRules>, _: Option<&Zone<Turf>>) -> Box<dyn GameView> {
        Box::new(Paints { counts: rules.side.is_multiple_of(2), painted: 0 })
    }
}
