//! The hunt's state of one zone, and how it is stored.

use crate::hunt::actor::{Body, Pack};
use crate::hunt::actors::{ACTOR_WORDS, Actors};
use crate::hunt::hunts::{Finisher, HUNTS_MAX, Hunts, TREASURES_MAX, Treasure};
use crate::hunt::refusal::Effect;
use crate::hunt::rules::motion::Allowance;
use crate::hunt::rules::{HEALTH_MAX, Rules};
use crate::hunt::tables::{self, TABLES};
use crate::hunt::tiles::Tiles;
use crate::kit::PLAYERS_MAX;
use crate::kit::checkpoint::{Checkpoint, Part, state_fits};
use crate::kit::players::Players;
use crate::kit::row::Row;
use crate::kit::state::GameState;
use crate::kit::stored_names::StoredTable;
use crate::kit::words::Words;

/// First word of an encoded state: its name and the format's version.
pub(crate) const FORMAT: u64 = u64::from_le_bytes(*b"HNTSTAT\x05");

/// The number of actors ahead for which a restoring zone prefetches places.
const ACTORS_AHEAD: usize = 8;

/// Parts of an encoded state: the actors, then each slot's treasures, then each slot's finishers.
const ACTORS: u8 = 0;
const HUNTS: u8 = ACTORS + 1;

/// Words of the actors, and of each hunt: its treasures, its finishers, and what two searches seek.
const ROW_WORDS_MAX: usize = PLAYERS_MAX * ACTOR_WORDS
    + HUNTS_MAX * TREASURES_MAX * (Treasure::WORDS + Finisher::WORDS)
    + HUNTS_MAX * 2 * TREASURES_MAX / 64;
const _: () = assert!(state_fits(ROW_WORDS_MAX as u64));

/// The treasure hunt's state of one zone.
#[derive(Clone, Debug)]
pub struct TreasureHunt {
    pub(crate) paces: [Allowance; 2],
    pub(crate) actors: Actors,
    pub(crate) tiles: Tiles,
    pub(crate) hunts: Hunts,
}

impl GameState for TreasureHunt {
    const FORMAT: u64 = FORMAT;
    const TABLES: &'static [StoredTable] = TABLES;
    /// The searches for paths have most of them.
    const NOTED_WORDS_MAX: usize = HUNTS_MAX * (8 + 2 * TREASURES_MAX / 64);
    const PARTS: u8 = HUNTS + 2 * HUNTS_MAX as u8;

    type Rules = Rules;
    type Player = Body;

    fn players_max(rules: &Rules) -> u32 {
        rules.actors.count_max
    }

    fn numbered_rows(_: &Rules) -> Vec<u32> {
        Vec::new()
    }

    fn row_words_max(_: &Rules) -> u64 {
        ROW_WORDS_MAX as u64
    }

    fn new(rules: &Rules) -> TreasureHunt {
        let actors_max = rules.actors.count_max as usize;
        TreasureHunt {
            paces: Allowance::both(rules),
            actors: Actors::new(actors_max),
            tiles: Tiles::new(&rules.world, actors_max),
            hunts: Hunts::new(rules.world.tiles()),
        }
    }

    fn digests(&self) -> [u64; 2] {
        // Paces and tiles follow from the rules and from the rest.
        let TreasureHunt { paces: _, actors, tiles: _, hunts } = self;
        [actors.digest(), hunts.digest()]
    }

    #[inline(always)]
    fn players(&self) -> &Players<Body> {
        &self.actors.bodies
    }

    #[inline(always)]
    fn players_mut(&mut self) -> &mut Players<Body> {
        &mut self.actors.bodies
    }

    fn part(&self, number: u8) -> &dyn Part {
        match number.checked_sub(HUNTS) {
            None => &self.actors,
            Some(number) => self.hunts.part(number.into()),
        }
    }

    fn part_mut(&mut self, number: u8) -> &mut dyn Part {
        match number.checked_sub(HUNTS) {
            None => &mut self.actors,
            Some(number) => self.hunts.part_mut(number.into()),
        }
    }

    fn list_players(&self, checkpoint: &mut Checkpoint) {
        self.actors.list(tables::ACTORS, ACTORS, checkpoint);
    }

    fn list_rest(&self, checkpoint: &mut Checkpoint) {
        self.hunts.list(HUNTS, checkpoint);
    }

    fn load_players(&mut self, rules: &Rules, now_ms: u64, words: &mut Words) -> Option<()> {
        for _ in 0..words.word()? {
            // Later actors are prefetched, because each is noted in places far apart.
            if let Some(ahead) = words.ahead(ACTORS_AHEAD * ACTOR_WORDS).and_then(Body::from_words)
            {
                self.actors.bodies.begin_lookup(ahead.player_id);
                self.tiles.prefetch(ahead.x(), ahead.y());
            }
            let body = Body::from_words(words.take()?)?;
            let pack = Pack::from_words(words.take()?)?;
            let fits = is_actor(&body, &pack, now_ms)
                && self.actors.count() < rules.actors.count_max
                && self.actors.find(body.player_id).is_none();
            if !fits {
                return None;
            }
            let tile = self.tiles.at(body.x(), body.y())?;
            let row = self.actors.load(body, pack);
            self.tiles.enter(tile, row);
        }
        self.actors.order();
        Some(())
    }

    fn load_rest(&mut self, now_ms: u64, words: &mut Words) -> Option<()> {
        self.hunts = Hunts::decode(&mut self.tiles, now_ms, words)?;
        Some(())
    }
}

/// Returns whether two rows are those of one actor, at this time of the zone's clock.
fn is_actor(body: &Body, pack: &Pack, now_ms: u64) -> bool {
    let mut effects = Effect::ALL
        .iter()
        .map(|effect| body.has(*effect) == (pack.effects_until_ms[*effect as usize] != 0));
    body.player_id != 0
        && body.player_id == pack.player_id
        && body.health() <= HEALTH_MAX
        && body.downed() == (pack.respawn_at_ms != 0)
        && body.allowance_at_ms <= now_ms
        && effects.all(|agrees| agrees)
}
