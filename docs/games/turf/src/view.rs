//! Turf for those who watch: its cards, its own query, its page, and what a program needs of it.

use super::super::bots::Painters;
use super::super::events::TurfUpdate;
use super::edition::Runner;
use super::play::{Turf, TurfRules};
use huntd::edition::{Playable, RulesFileError, RulesFolder, from_toml};
use huntd::kit::bots::{BotOptions, Bots, SplitMix64};
use huntd::kit::engine::schema_of;
use huntd::kit::kinds::Form;
use huntd::kit::rulebook::Rulebook;
use huntd::kit::update::Update;
use huntd::kit::zone::Zone;
use huntd::view::card::Card;
use huntd::view::game::{Asset, CardField, FoldedUpdate, GameView, Query, ViewSchema, Viewed};
use huntd::view::json::Json;
use std::cmp::Reverse;
use std::sync::Arc;

static SCHEMA: ViewSchema = ViewSchema {
    version: Runner::VERSION as u64,
    game: schema_of::<Turf>(),
    card: &[
        CardField { name: "team", form: Form::Number },
        CardField { name: "field", form: Form::Number },
    ],
    position: None,
    queries: &[Query { name: "round", is_incremental: false }],
    openapi: r#"{"paths": {"/v1/zones/{zone}/round": {}}}"#,
    page: &[
        Asset {
            path: "/",
            content_type: "text/html; charset=utf-8",
            bytes: include_bytes!("page/index.html"),
        },
        Asset {
            path: "/page.js",
            content_type: "text/javascript; charset=utf-8",
            bytes: include_bytes!("page/page.js"),
        },
    ],
};

/// The fields of a card, by their numbers.
const TEAM: usize = 0;
const FIELD: usize = 1;

/// The round of a zone: whether it runs, and the team of each field, 0 for none.
#[derive(Debug)]
struct RoundView {
    is_running: bool,
    side: u32,
    teams: Vec<u8>,
}

impl GameView for RoundView {
    fn fold(&mut self, folded: &FoldedUpdate, _: u32, _: Option<&Card>, card: &mut Card) {
        if let TurfUpdate::Painted { field, .. } = folded.update.change() {
            self.teams[field as usize] = card.fields[TEAM] as u8;
        }
    }

    fn fold_zone(&mut self, folded: &FoldedUpdate) {
        self.is_running = matches!(folded.update.change(), TurfUpdate::Began { .. });
        if self.is_running {
            self.teams.fill(0);
        }
    }

    fn answer(&self, _: usize, _: u64, _: i64, json: &mut Json) {
        json.text("round", if self.is_running { "runs" } else { "is over" });
        json.number("side", self.side.into());
        json.list("teams", self.teams.iter(), |out, team| out.push(b'0' + team));
    }
}

impl Viewed for Turf {
    const SCHEMA: &'static ViewSchema = &SCHEMA;

    fn cards(zone: &Zone<Turf>) -> Vec<Card> {
        let players = &zone.game.players;
        let runners = (0..players.used()).map(|row| players.row(row));
        let cards = runners.filter(|runner| runner.player_id != 0).map(|runner| {
            let mut card = Card::new(runner.player_id, runner.score);
            (card.fields[TEAM], card.fields[FIELD]) = (runner.team.into(), runner.field);
            card
        });
        let mut cards: Vec<Card> = cards.collect();
        cards.sort_unstable_by_key(|card| (Reverse(card.score), card.player_id));
        cards
    }

    fn view(rules: &Arc<TurfRules>, zone: Option<&Zone<Turf>>) -> Box<dyn GameView> {
        let team = |field| zone.map_or(0, |zone| zone.game.fields.row(field).team);
        Box::new(RoundView {
            is_running: zone.is_some_and(|zone| zone.game.round.row(0).ends_ms > 0),
            side: rules.side,
            teams: (0..rules.fields()).map(team).collect(),
        })
    }
}

impl Playable for Turf {
    const NAME: &'static str = "turf";
    const BUILT_IN_RULES: &'static str = include_str!("../rules.toml");

    fn read_rules(text: &str, _: &RulesFolder) -> Result<TurfRules, RulesFileError> {
        from_toml(text)
    }

    fn bots(
        rulebook: &Rulebook<TurfRules>,
        _: &BotOptions,
        _: &mut SplitMix64,
    ) -> Option<Box<dyn Bots>> {
        Some(Box::new(Painters { fields: rulebook.rules().fields() }))
    }

    fn describe(update: &Update) -> Option<(u8, String)> {
        match update.change() {
            TurfUpdate::Ended { red, blue } => Some((1, format!("red {red}, blue {blue}"))),
            _ => None,
        }
    }
}
