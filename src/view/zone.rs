//! One zone of a view.

use crate::hunt::Shard;
use crate::hunt::actor::Compass;
use crate::hunt::change::Change;
use crate::hunt::rules::Rules;
use crate::hunt::rules::rulebook::Rulebook;
use crate::kit::PLAYERS_MAX;
use crate::kit::chunks::{CHUNK_ROWS, Chunks};
use crate::kit::index::{Index, Lookup};
use crate::kit::rank_tree::{Key, RankTree};
use crate::kit::rulebook::Edition;
use crate::kit::update::Update;
use crate::view::board::{Place, ranks_around, world_key, zone_key};
use crate::view::card::{Card, Details, end_effect, from_outline, start_effect};
use crate::view::crowd::Crowd;
use crate::view::hunts::{Finished, HuntLog, PastHunt};
use crate::view::recent::Recent;
use std::sync::Arc;

/// A place in a zone's history, which an answer names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZonePosition {
    /// Number of the first update that the answer does not know.
    pub update: u64,
    /// The input offset up to which (exclusive) the zone has come.
    pub next_offset: i64,
}

/// Why a zone's next updates cannot be folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FoldError {
    /// The zone changes to rules that this process does not have.
    #[error("it changes to ruleset {ruleset}: name its file in rules.files, and restart")]
    RulesMissing {
        /// Their hash.
        ruleset: u32,
    },
    /// An update is about a player who is not there, or enters twice: its log is no huntd's.
    #[error("update {update} is no engine's: restore the output topic, or start the shard over")]
    Inconsistent {
        /// Number of the update.
        update: u64,
    },
}

/// What an update means to the boards beyond the zone's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// Nothing.
    Nobody,
    /// A player entered, in this row.
    Entered(u32),
    /// A player's score changed; it had this key.
    Scored(u32, Key),
    /// A player left, who had this card and this key.
    Left(Card, Key),
    /// The clock started: the times of all players move.
    Clock,
}

/// What is known of one zone.
#[derive(Clone, Debug)]
pub struct ZoneView {
    partition: u16,
    rulebook: Rulebook,
    rules: Arc<Rules>,
    ruleset: u32,
    next_offset: i64,
    /// Updates of an unfinished frame were folded: the zone is between two states.
    is_within_frame: bool,
    /// The zone's clock, as it was published last.
    now_ms: i64,
    pub(super) cards: Chunks<Card, CHUNK_ROWS>,
    pub(super) details: Chunks<Details, CHUNK_ROWS>,
    index: Index,
    free: Vec<u32>,
    used: u32,
    board: RankTree,
    hunts: HuntLog,
    crowd: Crowd,
    recent: Recent,
}

impl ZoneView {
    /// A zone before its first event, by the first rules of the book.
    pub(crate) fn new(partition: u16, rulebook: &Rulebook) -> ZoneView {
        let Edition { ruleset, rules } = rulebook.first().clone();
        let players_max = rules.actors.count_max as usize;
        ZoneView {
            partition,
            rulebook: rulebook.clone(),
            ruleset,
            next_offset: 0,
            is_within_frame: false,
            now_ms: 0,
            cards: Chunks::new(players_max),
            details: Chunks::new(players_max),
            index: Index::new(players_max),
            free: Vec::new(),
            used: 0,
            board: RankTree::new(players_max),
            hunts: HuntLog::default(),
            crowd: Crowd::new(&rules.world),
            recent: Recent::new(0, 0),
            rules,
        }
    }

    /// The zone can change to these rules from now on. Its present rules are among them.
    pub(super) fn know(&mut self, rulebook: &Rulebook) {
        self.rulebook.clone_from(rulebook);
    }

    /// A zone as a shard has it at this position.
    pub fn of_shard(shard: &Shard, rulebook: &Rulebook, position: ZonePosition) -> ZoneView {
        let mut zone = ZoneView::new(shard.partition(), rulebook);
        (zone.ruleset, zone.rules) = (shard.ruleset(), Arc::new(shard.rules().clone()));
        zone.now_ms = shard.published_unix_ms();
        zone.next_offset = position.next_offset;
        zone.recent = Recent::new(position.update, position.next_offset);
        zone.crowd.begin_at(position.update);
        let players = shard.outline();
        // Each player made at least the update by which it entered, so these numbers lie before it.
        let first = position.update.saturating_sub(players.len() as u64);
        let mut order = Vec::with_capacity(players.len());
        for (player, scored_update) in players.iter().zip(first..) {
            let (mut card, mut details) = from_outline(player);
            card.scored_update = scored_update;
            details.changed = position.update;
            zone.crowd.step(None, Some((card.x, card.y)), position.update);
            order.push((zone_key(&card), zone.add_row(card, details)));
        }
        order.sort_unstable();
        zone.board.fill(&order);
        shard.hunt_outlines().iter().for_each(|hunt| zone.hunts.load(hunt));
        zone
    }

    /// The input partition.
    pub(crate) fn partition(&self) -> u16 {
        self.partition
    }

    /// The rules that it plays by.
    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Whether the zone could change to these rules.
    pub(crate) fn knows(&self, ruleset: u32) -> bool {
        self.rulebook.find(ruleset).is_some()
    }

    /// Their hash.
    pub(crate) fn ruleset(&self) -> u32 {
        self.ruleset
    }

    /// Where it stands with its last whole frame.
    pub(crate) fn position(&self) -> ZonePosition {
        ZonePosition { update: self.recent.sealed(), next_offset: self.next_offset }
    }

    /// Whether it is between two states, and no answer may be made of it.
    pub(crate) fn is_within_frame(&self) -> bool {
        self.is_within_frame
    }

    /// The zone's clock as it was published last: milliseconds since the Unix epoch; 0 before.
    pub(crate) fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// Players in the zone.
    pub fn players(&self) -> u32 {
        self.index.count()
    }

    /// What is known of a player; `None`: it is not here.
    pub(crate) fn card(&self, player_id: u64) -> Option<(&Card, &Details)> {
        let row = self.find(player_id)?;
        Some((&self.cards[row], &self.details[row]))
    }

    /// All players, in no order that means anything.
    pub(crate) fn cards(&self) -> impl Iterator<Item = (&Card, &Details)> {
        let rows = (0..self.used).map(|row| (&self.cards[row], &self.details[row]));
        rows.filter(|(card, _)| card.player_id != 0)
    }

    /// A player's place on the zone's board.
    pub(crate) fn place(&self, player_id: u64) -> Option<Place> {
        let row = self.find(player_id)?;
        Some(self.place_of(row, self.board.rank(zone_key(&self.cards[row])) + 1))
    }

    /// The places from `rank` on, `count` of them or what there is.
    pub(crate) fn places(&self, rank: u32, count: u32) -> impl Iterator<Item = Place> + '_ {
        let first = rank.max(1);
        (first..first.saturating_add(count))
            .map_while(|rank| Some(self.place_of(self.board.at(rank - 1)?, rank)))
    }

    /// The places around a player's.
    pub(crate) fn places_around(
        &self,
        player_id: u64,
        each_side: u32,
    ) -> Option<impl Iterator<Item = Place> + '_> {
        let (first, count) = ranks_around(self.place(player_id)?.rank, each_side);
        Some(self.places(first, count))
    }

    pub(super) fn place_of(&self, row: u32, rank: u32) -> Place {
        let Card { player_id, score, .. } = self.cards[row];
        let scored_at_ms = self.details[row].scored_at_ms;
        Place { rank, player_id, score, scored_at_ms, zone: self.partition }
    }

    /// Its hunts.
    pub(crate) fn hunts(&self) -> &HuntLog {
        &self.hunts
    }

    /// Its tiles.
    pub(crate) fn crowd(&self) -> &Crowd {
        &self.crowd
    }

    /// Its last updates.
    pub(crate) fn recent(&self) -> &Recent {
        &self.recent
    }

    pub(super) fn find(&self, player_id: u64) -> Option<u32> {
        self.index.find(player_id, |row| self.cards[row].player_id)
    }

    pub(super) fn world_key(&self, row: u32) -> Key {
        world_key(self.partition, &self.cards[row], &self.details[row])
    }

    /// The rows of all players.
    pub(super) fn rows(&self) -> impl Iterator<Item = u32> + use<> {
        let rows: Vec<u32> = (0..self.used).filter(|row| self.cards[*row].player_id != 0).collect();
        rows.into_iter()
    }

    /// The times of a player move with the clock that has started.
    pub(super) fn start_clock(&mut self, row: u32) {
        self.details[row].shift(&self.cards[row], self.now_ms);
    }

    fn add(&mut self, card: Card, details: Details) -> u32 {
        let row = self.add_row(card, details);
        self.board.insert(zone_key(&card), row);
        row
    }

    /// Adds a player who is on no board yet.
    fn add_row(&mut self, card: Card, details: Details) -> u32 {
        let row = self.free.pop().unwrap_or(self.used);
        self.used = self.used.max(row + 1);
        self.cards.reach(row);
        self.details.reach(row);
        (self.cards[row], self.details[row]) = (card, details);
        self.index.insert(card.player_id, row, |row| self.cards[row].player_id);
        row
    }

    fn remove(&mut self, row: u32) -> Moved {
        let (card, key) = (self.cards[row], self.world_key(row));
        self.index.remove(card.player_id, row);
        self.board.remove(zone_key(&card));
        (self.cards[row], self.details[row]) = (Card::default(), Details::default());
        self.free.push(row);
        Moved::Left(card, key)
    }

    /// The frame whose updates were folded ends here.
    pub(super) fn seal(&mut self, next_offset: i64) {
        self.next_offset = next_offset;
        self.recent.seal(next_offset);
        self.is_within_frame = false;
    }

    /// The first step of a look-up ahead of time: prefetches where the index has the player of an
    /// update.
    pub(super) fn begin_lookup(&self, update: &Update) -> Lookup {
        self.index.begin_lookup(update.player_id())
    }

    /// The second step: prefetches what the update most likely changes.
    pub(super) fn prefetch(&self, lookup: Lookup) {
        let row = self.index.likely(lookup);
        self.cards.prefetch(row);
        self.details.prefetch(row);
    }

    /// Folds the next update.
    pub(super) fn fold(&mut self, update: &Update) -> Result<Moved, FoldError> {
        let number = self.recent.next();
        self.is_within_frame = true;
        self.recent.push(*update);
        match update.change() {
            // A refusal changes nobody, and a handoff's parts follow the `left` that removed the
            // player.
            Change::Refused { .. }
            | Change::Handoff { .. }
            | Change::HandoffPlace { .. }
            | Change::HandoffScore { .. }
            | Change::HandoffItems { .. }
            | Change::HandoffEffect { .. } => Ok(Moved::Nobody),
            Change::Clock { unix_ms } => Ok(self.on_clock(unix_ms)),
            Change::RulesChanged { ruleset } => self.on_rules_changed(ruleset),
            Change::HuntStarted { .. }
            | Change::TreasureLaid { .. }
            | Change::HuntEnded { .. }
            | Change::Finished { .. } => Ok(self.on_hunt_change(update)),
            Change::Joined { health, x, y } => self.on_entered(number, update, health, (x, y)),
            Change::Arrived { x, y, .. } => {
                self.on_entered(number, update, self.rules.actors.health, (x, y))
            }
            change => {
                let row = self.find(update.player_id());
                let row = row.ok_or(FoldError::Inconsistent { update: number })?;
                Ok(self.on_player_change(number, row, change))
            }
        }
    }

    fn on_rules_changed(&mut self, ruleset: u32) -> Result<Moved, FoldError> {
        let edition = self.rulebook.find(ruleset).cloned();
        let Edition { ruleset, rules } = edition.ok_or(FoldError::RulesMissing { ruleset })?;
        (self.ruleset, self.rules) = (ruleset, rules);
        Ok(Moved::Nobody)
    }

    /// When the clock starts, what came before counts from there on, too: a few events.
    fn on_clock(&mut self, unix_ms: u64) -> Moved {
        let now_ms = i64::try_from(unix_ms).unwrap_or(i64::MAX);
        let before_ms = std::mem::replace(&mut self.now_ms, now_ms);
        if before_ms != 0 || now_ms == 0 {
            return Moved::Nobody;
        }
        self.hunts.shift(now_ms);
        Moved::Clock
    }

    fn on_hunt_change(&mut self, update: &Update) -> Moved {
        match update.change() {
            Change::HuntStarted { treasures, hunt, duration_ms } => {
                let ends_at_ms = self.now_ms.saturating_add(duration_ms.into());
                self.hunts.start(hunt, treasures, self.now_ms, ends_at_ms);
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
            _ => unreachable!("a change of another kind"),
        }
        Moved::Nobody
    }

    fn on_entered(
        &mut self,
        number: u64,
        update: &Update,
        health: u16,
        (x, y): (i32, i32),
    ) -> Result<Moved, FoldError> {
        let player_id = update.player_id();
        let is_full = self.index.count() == self.rules.actors.count_max.min(PLAYERS_MAX as u32);
        if player_id == 0 || is_full || self.find(player_id).is_some() {
            return Err(FoldError::Inconsistent { update: number });
        }
        let card = Card { player_id, x, y, health, scored_update: number, ..Card::default() };
        let (changed, scored_at_ms) = (number + 1, self.now_ms);
        self.crowd.step(None, Some((x, y)), number);
        Ok(Moved::Entered(self.add(card, Details { changed, scored_at_ms, ..Details::default() })))
    }

    fn on_player_change(&mut self, number: u64, row: u32, change: Change) -> Moved {
        let from_now = |ms: u32| self.now_ms.saturating_add(ms.into());
        let health_of = |health: u32| u16::try_from(health).unwrap_or(u16::MAX);
        let mut card = self.cards[row];
        let details = &mut self.details[row];
        details.changed = number + 1;
        match change {
            Change::Left { .. } => {
                self.crowd.step(Some((card.x, card.y)), None, number);
                return self.remove(row);
            }
            Change::Scored { score, .. } => return self.on_scored(number, row, score),
            Change::Moved { x, y, .. } => {
                self.crowd.step(Some((card.x, card.y)), Some((x, y)), number);
                (card.x, card.y) = (x, y);
            }
            Change::Respawned { health, x, y, .. } => {
                self.crowd.step(Some((card.x, card.y)), Some((x, y)), number);
                (card.x, card.y, card.health) = (x, y, health);
                details.respawn_at_ms = 0;
            }
            Change::Rotated { heading } | Change::Shot { heading, .. } => card.heading = heading,
            Change::Damaged { health, .. } | Change::Healed { health, .. } => {
                card.health = health_of(health);
            }
            Change::Downed { respawn_ms, .. } => {
                card.health = 0;
                details.respawn_at_ms = from_now(respawn_ms);
            }
            Change::Looted { treasure, hunt, .. } => {
                self.hunts.open(hunt, treasure);
                details.find(hunt, |hunt| self.hunts.is_running(hunt));
            }
            Change::ItemGained { item, held, .. } | Change::ItemUsed { item, held } => {
                card.hold(item, held);
            }
            Change::EffectStarted { effect, lasts_ms } => {
                start_effect(&mut card, details, effect, from_now(lasts_ms));
            }
            Change::EffectEnded { effect } => end_effect(&mut card, details, effect),
            Change::PathHint { hint, hunt, distance_tiles } => {
                let distance = u16::try_from(distance_tiles).unwrap_or(u16::MAX);
                details.set_compass(Compass { hunt, hint: hint as u8, distance });
            }
            Change::ItemLost { .. } => {}
            Change::Refused { .. }
            | Change::Joined { .. }
            | Change::Arrived { .. }
            | Change::HuntStarted { .. }
            | Change::TreasureLaid { .. }
            | Change::Finished { .. }
            | Change::HuntEnded { .. }
            | Change::Handoff { .. }
            | Change::HandoffPlace { .. }
            | Change::HandoffScore { .. }
            | Change::HandoffItems { .. }
            | Change::HandoffEffect { .. }
            | Change::RulesChanged { .. }
            | Change::Clock { .. } => unreachable!("folded before"),
        }
        self.cards[row] = card;
        Moved::Nobody
    }

    fn on_scored(&mut self, number: u64, row: u32, score: u64) -> Moved {
        let before = self.world_key(row);
        self.board.remove(zone_key(&self.cards[row]));
        (self.cards[row].score, self.cards[row].scored_update) = (score, number);
        self.details[row].scored_at_ms = self.now_ms;
        self.board.insert(zone_key(&self.cards[row]), row);
        Moved::Scored(row, before)
    }
}
