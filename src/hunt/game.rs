//! The hunt as the kit's game: what each happening does, and how the state is stored.

use crate::hunt::actor::{BODY_WORDS, Body, PACK_WORDS, Pack};
use crate::hunt::actors::Actors;
use crate::hunt::change::Change;
use crate::hunt::event::{Action, Handoff};
use crate::hunt::events::{HandoffNumber, ListedEvent};
use crate::hunt::hunts::{FINISHER_WORDS, HUNTS_MAX, Hunt, Hunts, TREASURE_WORDS, TREASURES_MAX};
use crate::hunt::refusal::{Effect, Refusal};
use crate::hunt::rules::motion::{Allowance, on_rotate};
use crate::hunt::rules::{HEALTH_MAX, Rules};
use crate::hunt::tiles::Tiles;
use crate::hunt::{EventOutput, Outcome, Shard};
use crate::kit::checkpoint::{Checkpoint, STORED_ROW_WORDS_MAX, StoredRow};
use crate::kit::game::{Game, KitRefusal};
use crate::kit::index::Lookup;
use crate::kit::table::Row;
use crate::kit::words::Words;

/// First word of an encoded state: its name and the format's version.
pub(crate) const FORMAT: u64 = u64::from_le_bytes(*b"HNTSTAT\x05");

/// Words of an actor: those of its two rows.
pub(crate) const ACTOR_WORDS: usize = BODY_WORDS + PACK_WORDS;
const _: () = assert!(ACTOR_WORDS <= STORED_ROW_WORDS_MAX);

/// How many actors ahead a restoring zone prefetches their places.
const ACTORS_AHEAD: usize = 8;

/// Parts of an encoded state: the actors, then each slot's treasures, then each slot's finishers.
const ACTORS: u8 = 0;
const TREASURES: u8 = 1;
const FINISHERS: u8 = TREASURES + HUNTS_MAX as u8;

/// The treasure hunt's state of one zone.
#[derive(Clone, Debug)]
pub struct TreasureHunt {
    pub(crate) paces: [Allowance; 2],
    pub(crate) actors: Actors,
    pub(crate) tiles: Tiles,
    pub(crate) hunts: Hunts,
}

impl From<KitRefusal> for Refusal {
    fn from(refusal: KitRefusal) -> Refusal {
        match refusal {
            KitRefusal::NoPlayer => Refusal::NoPlayer,
            KitRefusal::NotJoined => Refusal::NotJoined,
            KitRefusal::AlreadyJoined => Refusal::AlreadyJoined,
        }
    }
}

impl Game for TreasureHunt {
    const FORMAT: u64 = FORMAT;
    /// The searches for paths have most of them.
    const NOTED_WORDS_MAX: usize = HUNTS_MAX * (8 + 2 * TREASURES_MAX / 64);

    type Rules = Rules;
    type Action = Action<HandoffNumber>;
    type Carried = Handoff;
    type Update = Change;
    type Refusal = Refusal;
    type Player = Body;

    fn new(rules: &Rules) -> TreasureHunt {
        let actors_max = rules.actors.count_max as usize;
        TreasureHunt {
            paces: Allowance::both(rules),
            actors: Actors::new(actors_max),
            tiles: Tiles::new(&rules.world, actors_max),
            hunts: Hunts::new(rules.world.tiles()),
        }
    }

    fn play_by(&mut self, rules: &Rules) {
        self.paces = Allowance::both(rules);
    }

    fn digests(&self) -> [u64; 2] {
        // Paces and tiles follow from the rules and from the rest.
        let TreasureHunt { paces: _, actors, tiles: _, hunts } = self;
        [actors.digest(), hunts.digest()]
    }

    fn clock(unix_ms: u64) -> Change {
        Change::Clock { unix_ms }
    }

    fn rules_changed(ruleset: u32) -> Change {
        Change::RulesChanged { ruleset }
    }

    fn refused(refusal: Refusal, event: &ListedEvent) -> Change {
        Change::Refused { refusal, action: event.action.kind(), seq: event.seq }
    }

    #[inline(always)]
    fn begin_lookup(&self, player_id: u64) -> Lookup {
        self.actors.bodies.begin_lookup(player_id)
    }

    #[inline(always)]
    fn likely_row(&self, lookup: Lookup) -> u32 {
        self.actors.bodies.likely_row(lookup)
    }

    #[inline(always)]
    fn find_from(&self, hint: u32, player_id: u64) -> Option<(u32, &Body)> {
        self.actors.bodies.find_from(hint, player_id)
    }

    #[inline(always)]
    fn write_player(&mut self, row: u32, body: Body) {
        self.actors.write_body(row, body);
    }

    #[inline(always)]
    fn on_time(zone: &mut Shard, out: &mut EventOutput) {
        if zone.is_behind() {
            zone.settle_due(out);
        }
        if zone.game.hunts.due_ms() <= zone.clock.now_ms() {
            zone.end_due_hunts(out);
        }
    }

    /// More may be due than was settled before the event; after this, nothing is left of its own
    /// player.
    #[inline(always)]
    fn settle(zone: &mut Shard, row: u32, body: Body, out: &mut EventOutput) -> Body {
        if (body.has_effects() || body.downed()) && zone.is_behind() {
            zone.settle(row, out);
            return *zone.game.actors.body(row);
        }
        body
    }

    #[inline(always)]
    fn on_player(
        zone: &mut Shard,
        row: u32,
        body: &mut Body,
        event: &ListedEvent,
        out: &mut EventOutput,
    ) -> Result<(), Refusal> {
        match event.action {
            Action::Move { x, y } if !body.downed() => zone.on_move(row, body, x, y, out),
            Action::Rotate { heading } if !body.downed() => on_rotate(body, heading, out),
            _ => {
                let (after, decided) = zone.on_rarer_action(row, *body, event, out);
                *body = after;
                decided
            }
        }
    }

    fn on_enter(
        zone: &mut Shard,
        event: &ListedEvent,
        out: &mut EventOutput,
    ) -> Result<(), Refusal> {
        match event.action {
            Action::Join { x, y } => zone.on_join(event.player_id, event.seq, x, y, out),
            _ => unreachable!("the only way in"),
        }
    }

    fn on_leave(
        zone: &mut Shard,
        row: u32,
        body: Body,
        event: &ListedEvent,
        out: &mut EventOutput,
    ) -> Result<(), Refusal> {
        match event.action {
            Action::Leave { to_zone } => zone.on_leave(row, body, to_zone, out),
            _ => unreachable!("the only way out"),
        }
    }

    fn on_arrive(
        zone: &mut Shard,
        event: &ListedEvent,
        handoffs: &[Handoff],
        out: &mut EventOutput,
    ) -> Outcome {
        match event.action {
            Action::Arrive { x, y, handoff } => zone
                .on_arrive(event.player_id, (x, y), &handoffs[handoff as usize], out)
                .unwrap_or_else(Outcome::Refused),
            _ => unreachable!("the only arrival"),
        }
    }

    fn on_world(zone: &mut Shard, event: &ListedEvent, out: &mut EventOutput) -> Outcome {
        match event.action {
            Action::RulesChange { ruleset } => zone.on_rules_change(ruleset, out),
            Action::HuntStart { hunt, seed, treasures, duration_ms } => {
                let start = Hunt { hunt, seed, treasures, ..Hunt::default() };
                zone.on_hunt_start(start, duration_ms, out).unwrap_or_else(Outcome::Refused)
            }
            Action::HuntEnd { hunt } => {
                zone.on_hunt_end(hunt, out).unwrap_or_else(Outcome::Refused)
            }
            Action::Tick
            | Action::Join { .. }
            | Action::Leave { .. }
            | Action::Arrive { .. }
            | Action::Move { .. }
            | Action::Rotate { .. }
            | Action::Shoot { .. }
            | Action::Loot { .. }
            | Action::Use { .. } => unreachable!("handled before"),
        }
    }

    #[inline(always)]
    fn on_end(zone: &mut Shard, is_tick: bool, out: &mut EventOutput) {
        zone.work_on_hunts(is_tick, out);
    }

    fn begin_checkpoint(&mut self) {
        self.actors.bodies.rows.begin_checkpoint();
        self.actors.packs.begin_checkpoint();
        for slot in 0..HUNTS_MAX {
            self.hunts.treasures[slot].begin_checkpoint();
            self.hunts.finishers[slot].begin_checkpoint();
        }
    }

    fn end_checkpoint(&mut self) {
        self.actors.bodies.rows.end_checkpoint();
        self.actors.packs.end_checkpoint();
        for slot in 0..HUNTS_MAX {
            self.hunts.treasures[slot].end_checkpoint();
            self.hunts.finishers[slot].end_checkpoint();
        }
    }

    fn list_players(&self, checkpoint: &mut Checkpoint) {
        let count = u64::from(self.actors.count());
        checkpoint.note([count]);
        // Empty rows are left out.
        checkpoint.rows(ACTORS, 0..self.actors.rows(), ACTOR_WORDS as u64 * count);
    }

    fn list_rest(&self, checkpoint: &mut Checkpoint) {
        let hunts = &self.hunts;
        checkpoint.note(hunts.noted());
        for slot in 0..HUNTS_MAX {
            let hunt = *hunts.hunt(slot);
            checkpoint.note(hunt.to_words());
            let words = TREASURE_WORDS as u64 * u64::from(hunt.tried);
            checkpoint.rows(TREASURES + slot as u8, 0..hunt.tried.into(), words);
            let words = FINISHER_WORDS as u64 * u64::from(hunt.finishers - hunt.announced);
            let finishers = hunt.announced.into()..hunt.finishers.into();
            checkpoint.rows(FINISHERS + slot as u8, finishers, words);
            hunts.paths[slot].note(checkpoint.notes());
        }
    }

    fn read_row(&self, part: u8, number: u32, row: &mut StoredRow) {
        if part == ACTORS {
            let body = self.actors.bodies.rows.checkpointed(number);
            if body.player_id != 0 {
                row.push(&body.to_words());
                row.push(&self.actors.packs.checkpointed(number).to_words());
            }
        } else if part < FINISHERS {
            let treasures = &self.hunts.treasures[usize::from(part - TREASURES)];
            row.push(&treasures.checkpointed(number).to_words());
        } else {
            let finishers = &self.hunts.finishers[usize::from(part - FINISHERS)];
            row.push(&finishers.checkpointed(number).to_words());
        }
    }

    fn pass(&mut self, part: u8, number: u32) {
        if part == ACTORS {
            self.actors.bodies.rows.pass_checkpointed(number);
            self.actors.packs.pass_checkpointed(number);
        } else if part < FINISHERS {
            self.hunts.treasures[usize::from(part - TREASURES)].pass_checkpointed(number);
        } else {
            self.hunts.finishers[usize::from(part - FINISHERS)].pass_checkpointed(number);
        }
    }

    fn load_players(zone: &mut Shard, words: &mut Words) -> Option<()> {
        for _ in 0..words.word()? {
            // Later actors are prefetched, because each is noted in places far apart.
            if let Some(ahead) = words.ahead(ACTORS_AHEAD * ACTOR_WORDS).and_then(Body::from_words)
            {
                zone.game.actors.bodies.begin_lookup(ahead.player_id);
                zone.game.tiles.prefetch(ahead.x(), ahead.y());
            }
            let body = Body::from_words(words.take()?)?;
            let pack = Pack::from_words(words.take()?)?;
            zone.check_actor(&body, &pack)?;
            let tile = zone.game.tiles.at(body.x(), body.y())?;
            let row = zone.game.actors.load(body, pack);
            zone.game.tiles.enter(tile, row);
        }
        zone.game.actors.order();
        Some(())
    }

    fn load_rest(zone: &mut Shard, words: &mut Words) -> Option<()> {
        zone.game.hunts = Hunts::decode(&mut zone.game.tiles, zone.clock.now_ms(), words)?;
        Some(())
    }
}

impl Shard {
    /// Actions other than a plain step or turn. They have a function and a copy of the body of
    /// their own, so that steps and turns keep theirs in registers. Returns the body after it.
    #[inline(never)]
    fn on_rarer_action(
        &mut self,
        row: u32,
        mut body: Body,
        event: &ListedEvent,
        out: &mut EventOutput,
    ) -> (Body, Result<(), Refusal>) {
        let decided = match event.action {
            _ if body.downed() => Err(Refusal::Downed),
            Action::Shoot { weapon, heading } => {
                self.on_shoot(row, &mut body, weapon, heading, out)
            }
            Action::Use { item } => self.on_use(row, &mut body, item, out),
            Action::Loot { hunt } => self.on_loot(row, &body, hunt, out),
            Action::Move { .. }
            | Action::Rotate { .. }
            | Action::Join { .. }
            | Action::Leave { .. }
            | Action::Arrive { .. }
            | Action::Tick
            | Action::RulesChange { .. }
            | Action::HuntStart { .. }
            | Action::HuntEnd { .. } => unreachable!("handled before"),
        };
        (body, decided)
    }

    fn check_actor(&self, body: &Body, pack: &Pack) -> Option<()> {
        let mut effects = Effect::ALL
            .iter()
            .map(|effect| body.has(*effect) == (pack.effects_until_ms[*effect as usize] != 0));
        let valid = body.player_id != 0
            && body.player_id == pack.player_id
            && self.game.actors.count() < self.rules.actors.count_max
            && self.game.actors.find(body.player_id).is_none()
            && body.health() <= HEALTH_MAX
            && body.downed() == (pack.respawn_at_ms != 0)
            && body.allowance_at_ms <= self.clock.now_ms()
            && effects.all(|agrees| agrees);
        valid.then_some(())
    }
}
