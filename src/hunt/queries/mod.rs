//! The hunt in `huntd serve`, beside cards, boards and streams.

pub(crate) mod belongings;

pub(crate) mod crowd;

pub(crate) mod hunt_log;

use crate::hunt::Shard;
use crate::hunt::actor::Compass;
use crate::hunt::change::Change;
use crate::hunt::page::PAGE;
use crate::hunt::refusal::Hint;
use crate::hunt::rules::{ENGINE_VERSION, Rules};
use crate::hunt::state::TreasureHunt;
use crate::kit::chunks::{CHUNK_ROWS, Chunks};
use crate::kit::engine::schema_of;
use crate::kit::kinds::Form;
use crate::view::card::{Card, Cards};
use crate::view::game::{
    CardField, FoldedUpdate, GameView, POLL_FIELDS, Query, ViewSchema, Viewed,
};
use crate::view::json::Json;
use belongings::Belongings;
use crowd::Crowd;
use hunt_log::{Finished, HuntLog, PastHunt, RunningHunt};
use std::any::Any;
use std::sync::Arc;

/// The fields of a card, by their numbers.
const X: usize = 0;
const Y: usize = 1;
const HEADING: usize = 2;
const HEALTH: usize = 3;

/// The queries, by their numbers.
const HUNTS: usize = 0;
const TILES: usize = 1;

/// The hunt's tables.
pub(crate) static VIEW_SCHEMA: ViewSchema = ViewSchema {
    version: ENGINE_VERSION,
    game: schema_of::<TreasureHunt>(),
    card: &[
        CardField { name: "x", form: Form::Signed },
        CardField { name: "y", form: Form::Signed },
        CardField { name: "heading", form: Form::Number },
        CardField { name: "health", form: Form::Number },
    ],
    position: Some(["x", "y"]),
    queries: &[
        Query { name: "hunts", is_incremental: false },
        Query { name: "tiles", is_incremental: true },
    ],
    openapi: include_str!("openapi.json"),
    page: PAGE,
};

/// The hunt's part of the view of a zone.
#[derive(Debug)]
pub(crate) struct HuntView {
    rules: Arc<Rules>,
    /// By row.
    players: Chunks<Belongings, CHUNK_ROWS>,
    hunts: HuntLog,
    crowd: Crowd,
}

fn place(card: &Card) -> (i32, i32) {
    (card.signed(X), card.signed(Y))
}

fn is_downed(card: &Card) -> bool {
    card.fields[HEALTH] == 0
}

impl HuntView {
    fn load(&mut self, shard: &Shard) {
        for (player, row) in shard.outline().iter().zip(0..) {
            self.players.reach(row);
            self.players[row] = Belongings::of(player);
            self.crowd.step(None, Some((player.x, player.y)), 0);
        }
        shard.hunt_outlines().iter().for_each(|hunt| self.hunts.load(hunt));
    }

    /// Returns what the player in a row has.
    pub(crate) fn belongings(&self, row: u32) -> &Belongings {
        &self.players[row]
    }

    /// Returns the hunts.
    pub(crate) fn hunts(&self) -> &HuntLog {
        &self.hunts
    }

    /// Returns the players by tile.
    pub(crate) fn crowd(&self) -> &Crowd {
        &self.crowd
    }

    fn write_map(&self, json: &mut Json) {
        json.number("tiles_per_side", self.rules.world.tiles_per_side.into());
        json.number("tile_cm", self.rules.world.tile_cm.into());
    }

    fn write_hunts(&self, now_ms: i64, json: &mut Json) {
        json.signed("now_ms", now_ms);
        json.objects("running", self.hunts.running().iter(), |json, hunt| {
            let RunningHunt { treasures, laid, opened, started_at_ms, ends_at_ms, .. } = *hunt;
            json.number("hunt", hunt.hunt.into()).number("treasures", treasures.into());
            json.number("laid", laid.into()).number("opened", opened.into());
            json.signed("started_at_ms", started_at_ms).signed("ends_at_ms", ends_at_ms);
        });
        json.objects("past", self.hunts.past(), |json, hunt| {
            let PastHunt { opened, finishers, elapsed_ms, .. } = *hunt;
            json.number("hunt", hunt.hunt.into()).text("cause", hunt.cause.name());
            json.number("opened", opened.into()).number("finishers", finishers.into());
            json.number("elapsed_ms", elapsed_ms.into());
            json.objects("first", hunt.first.iter(), |json, finished| {
                json.number("rank", finished.rank.into()).id("player_id", finished.player_id);
                json.number("found", finished.found.into());
                json.number("elapsed_ms", finished.elapsed_ms.into());
            });
        });
    }

    fn write_tiles(&self, since: u64, json: &mut Json) {
        self.write_map(json);
        // A client that begins knows no tile. A client that goes on has to learn which tiles are
        // empty now.
        let tiles = self.crowd.changed_since(since).filter(|(_, on)| since > 0 || *on > 0);
        json.rows("players", tiles.map(|(tile, players)| [tile.into(), players.into()]));
        let lying = self.hunts.running().iter().flat_map(|hunt| {
            hunt.lying()
                .map(|(number, x, y)| [hunt.hunt.into(), number.into(), i64::from(x), i64::from(y)])
        });
        json.rows("treasures", lying);
        if since == 0 {
            json.list("walls", self.rules.world.walls.iter(), |out, word| {
                out.extend_from_slice(format!("\"{word:016x}\"").as_bytes());
            });
        }
    }
}

impl GameView for HuntView {
    fn begin_at(&mut self, next_update: u64) {
        self.crowd.begin_at(next_update);
    }

    fn prefetch(&self, row: u32) {
        self.players.prefetch(row);
    }

    fn fold(&mut self, folded: &FoldedUpdate, row: u32, before: Option<&Card>, card: &mut Card) {
        let FoldedUpdate { update, number, now_ms } = *folded;
        let from_now = |ms: u32| now_ms.saturating_add(ms.into());
        let from = before.map(place);
        self.players.reach(row);
        let player = &mut self.players[row];
        match update.change() {
            change @ (Change::Joined { .. } | Change::Arrived { .. }) => {
                if let Change::Arrived { .. } = change {
                    card.fields[HEALTH] = self.rules.actors.health.into();
                }
                *player = Belongings::default();
                self.crowd.step(None, Some(place(card)), number);
            }
            Change::Left { .. } => self.crowd.step(from, None, number),
            Change::Moved { .. } => self.crowd.step(from, Some(place(card)), number),
            Change::Respawned { .. } => {
                self.crowd.step(from, Some(place(card)), number);
                player.respawn_at_ms = 0;
            }
            Change::Downed { respawn_ms, .. } => {
                card.fields[HEALTH] = 0;
                player.respawn_at_ms = from_now(respawn_ms);
            }
            Change::Looted { treasure, hunt, .. } => {
                self.hunts.open(hunt, treasure);
                player.find(hunt, |hunt| self.hunts.is_running(hunt));
            }
            Change::ItemGained { item, held, .. } | Change::ItemUsed { item, held } => {
                player.hold(item, held);
            }
            Change::EffectStarted { effect, lasts_ms } => {
                player.start_effect(effect, from_now(lasts_ms));
            }
            Change::EffectEnded { effect } => player.end_effect(effect),
            Change::PathHint { hint, hunt, distance_tiles } => {
                let distance = u16::try_from(distance_tiles).unwrap_or(u16::MAX);
                player.set_compass(Compass { hunt, hint: hint as u8, distance });
            }
            // The card has all that they say, or nothing is kept.
            Change::Rotated { .. }
            | Change::Shot { .. }
            | Change::Damaged { .. }
            | Change::Healed { .. }
            | Change::Scored { .. }
            | Change::ItemLost { .. } => {}
            change => unreachable!("{change:?} is about no player in the zone"),
        }
    }

    fn fold_zone(&mut self, folded: &FoldedUpdate) {
        let FoldedUpdate { update, now_ms, .. } = *folded;
        match update.change() {
            Change::HuntStarted { treasures, hunt, duration_ms } => {
                let ends_at_ms = now_ms.saturating_add(duration_ms.into());
                self.hunts.start(hunt, treasures, now_ms, ends_at_ms);
            }
            Change::TreasureLaid { treasure, hunt, x, y } => self.hunts.lay(hunt, treasure, (x, y)),
            Change::HuntEnded { cause, opened, hunt, finishers, elapsed_ms } => {
                let first = Vec::new();
                self.hunts.end(PastHunt { hunt, cause, opened, finishers, elapsed_ms, first });
            }
            Change::Finished { found, hunt, rank, elapsed_ms } => {
                let player_id = update.player_id();
                self.hunts.finish(hunt, Finished { rank, player_id, found, elapsed_ms });
            }
            change => unreachable!("{change:?} is not about the zone"),
        }
    }

    fn start_clock(&mut self, now_ms: i64, cards: &Cards) {
        self.hunts.shift(now_ms);
        for row in 0..self.players.count() as u32 {
            let is_downed = cards.get(row).is_some_and(is_downed);
            self.players[row].shift(is_downed, now_ms);
        }
    }

    fn write_zone(&self, json: &mut Json) {
        self.write_map(json);
    }

    fn write_card(&self, _: &ViewSchema, row: u32, card: &Card, json: &mut Json) {
        let player = self.belongings(row);
        let (x, y) = place(card);
        json.signed("x", x.into()).signed("y", y.into());
        if let Some(tile) = self.crowd.tile(x, y) {
            json.number("tile", tile.into());
        }
        json.number("heading", card.fields[HEADING].into());
        json.number("health", card.fields[HEALTH].into());
        if is_downed(card) {
            json.signed("respawn_at_ms", player.respawn_at_ms);
        }
        json.objects("effects", player.effects(), |json, (effect, until_ms)| {
            json.text("effect", effect.name()).signed("until_ms", until_ms);
        });
        json.rows("items", player.items().map(|(item, count)| [item.into(), count.into()]));
        let hunts = self.hunts.running().iter().map(|hunt| hunt.hunt);
        let found = hunts.map(|hunt| (hunt, player.found(hunt))).filter(|(_, found)| *found > 0);
        json.objects("hunts", found, |json, (hunt, found)| {
            json.number("hunt", hunt.into()).number("found", found.into());
        });
        let Compass { hunt, hint, distance } = player.compass();
        if let Some(hint) = Hint::from_code(hint).filter(|_| hunt != 0) {
            json.object_at("hint", |json| {
                json.number("hunt", hunt.into()).text("hint", hint.name());
                json.number("distance_tiles", distance.into());
            });
        }
    }

    fn poll(&self, _: &ViewSchema, row: u32, card: &Card) -> [i64; POLL_FIELDS] {
        let (x, y) = place(card);
        [x.into(), y.into(), card.fields[HEALTH].into(), self.belongings(row).effects.into()]
    }

    fn answer(&self, query: usize, since: u64, now_ms: i64, json: &mut Json) {
        match query {
            HUNTS => self.write_hunts(now_ms, json),
            TILES => self.write_tiles(since, json),
            _ => unreachable!("the schema has no such query"),
        }
    }
}

impl Viewed for TreasureHunt {
    const SCHEMA: &'static ViewSchema = &VIEW_SCHEMA;

    fn cards(shard: &Shard) -> Vec<Card> {
        let outlines = shard.outline();
        let cards = outlines.iter().map(|player| {
            let mut card = Card { player_id: player.player_id, ..Card::default() };
            (card.score, card.scored_at_ms) = (player.score, player.scored_at_ms);
            (card.fields[X], card.fields[Y]) = (player.x.cast_unsigned(), player.y.cast_unsigned());
            card.fields[HEADING] = player.heading.into();
            card.fields[HEALTH] = player.health.into();
            card
        });
        cards.collect()
    }

    fn view(rules: &Arc<Rules>, shard: Option<&Shard>) -> Box<dyn GameView> {
        let mut view = HuntView {
            players: Chunks::new(rules.actors.count_max as usize),
            hunts: HuntLog::default(),
            crowd: Crowd::new(&rules.world),
            rules: rules.clone(),
        };
        if let Some(shard) = shard {
            view.load(shard);
        }
        Box::new(view)
    }

    fn change_rules(view: &mut dyn GameView, rules: &Arc<Rules>) {
        let view = (view as &mut dyn Any).downcast_mut::<HuntView>();
        view.expect("the view is of this game").rules.clone_from(rules);
    }
}
