//! One zone of a view.

use crate::kit::index::{Index, Lookup};
use crate::kit::kinds::UpdateRole;
use crate::kit::rank_tree::{Key, RankTree};
use crate::kit::update::{Payload, Update};
use crate::view::board::{Place, ranks_around, world_key, zone_key};
use crate::view::card::{Card, Cards, KindFold};
use crate::view::game::{FoldedUpdate, GameView, ViewedGame, ZoneImage};
use crate::view::nearby::{Nearby, Spot};
use crate::view::recent::Recent;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A place in a zone's history, which an answer names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZonePosition {
    /// Number of the first update that the answer does not know.
    pub update: u64,
    /// The input offset up to which (exclusive) the zone has come.
    pub next_offset: i64,
}

/// The reason why a zone's next updates cannot be folded.
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

/// The effect of an update on the world's board.
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

/// The view of one zone.
#[derive(Debug)]
pub struct ZoneView {
    partition: u16,
    players_max: u32,
    ruleset: u32,
    next_offset: i64,
    /// Updates of an unfinished frame were folded: the zone is between two states.
    is_within_frame: bool,
    /// The zone's clock, as it was published last.
    now_ms: i64,
    pub(super) cards: Cards,
    index: Index,
    free: Vec<u32>,
    used: u32,
    /// The numbers of all players.
    numbers: BTreeSet<u64>,
    board: RankTree,
    /// With the fields of the card that say where a player is; `None`: the game has no positions.
    nearby: Option<(Nearby, [usize; 2])>,
    recent: Recent,
    genesis: u64,
    /// By kind of update.
    folds: Vec<KindFold>,
    rules: Arc<dyn ViewedGame>,
    game: Box<dyn GameView>,
}

impl ZoneView {
    /// Creates the view of an empty zone at this position: where its log begins, or at a genesis.
    pub(crate) fn new(
        partition: u16,
        rules: Arc<dyn ViewedGame>,
        position: ZonePosition,
    ) -> ZoneView {
        let (ruleset, game) = (rules.first_ruleset(), rules.view());
        let zone = ZoneView::with(partition, ruleset, (rules, game), position);
        ZoneView { genesis: position.update, ..zone }
    }

    fn with(
        partition: u16,
        ruleset: u32,
        (rules, mut game): (Arc<dyn ViewedGame>, Box<dyn GameView>),
        position: ZonePosition,
    ) -> ZoneView {
        game.begin_at(position.update);
        let players_max = rules.players_max();
        let rows_max = players_max as usize;
        ZoneView {
            partition,
            players_max,
            ruleset,
            next_offset: position.next_offset,
            is_within_frame: false,
            now_ms: 0,
            cards: Cards::new(rows_max),
            index: Index::new(rows_max),
            free: Vec::new(),
            used: 0,
            numbers: BTreeSet::new(),
            board: RankTree::new(rows_max),
            nearby: rules.view_schema().position_fields().map(|of| (Nearby::new(rows_max), of)),
            recent: Recent::new(position.update, position.next_offset),
            genesis: 0,
            folds: KindFold::all(rules.view_schema()),
            rules,
            game,
        }
    }

    /// Adopts more rules of the same game.
    pub(super) fn know(&mut self, rules: &Arc<dyn ViewedGame>) {
        self.rules.clone_from(rules);
    }

    /// Creates the view of a zone that an engine has at this position.
    pub fn of_engine(
        image: ZoneImage,
        rules: Arc<dyn ViewedGame>,
        position: ZonePosition,
    ) -> ZoneView {
        let ZoneImage { partition, ruleset, published_unix_ms, cards, game, .. } = image;
        let mut zone = ZoneView::with(partition, ruleset, (rules, game), position);
        zone.now_ms = published_unix_ms;
        // Each player made at least the update by which it entered, so these numbers lie before it.
        let first = position.update.saturating_sub(cards.len() as u64);
        let mut order = Vec::with_capacity(cards.len());
        for (mut card, scored_update) in cards.into_iter().zip(first..) {
            (card.scored_update, card.changed) = (scored_update, position.update);
            order.push((zone_key(&card), zone.add_row(card)));
        }
        order.sort_unstable();
        zone.board.fill(&order);
        zone
    }

    /// Returns the input partition.
    pub(crate) fn partition(&self) -> u16 {
        self.partition
    }

    /// Returns whether the zone could change to these rules.
    pub(crate) fn knows(&self, ruleset: u32) -> bool {
        self.rules.knows(ruleset)
    }

    /// Returns the hash of its rules.
    pub(crate) fn ruleset(&self) -> u32 {
        self.ruleset
    }

    /// Returns the position after its last whole frame.
    pub(crate) fn position(&self) -> ZonePosition {
        ZonePosition { update: self.recent.sealed(), next_offset: self.next_offset }
    }

    /// Returns whether it is between two states, so that no answer may be made of it.
    pub(crate) fn is_within_frame(&self) -> bool {
        self.is_within_frame
    }

    /// Returns the last published time of the zone's clock, in milliseconds since the Unix epoch; 0
    /// before it starts.
    pub(crate) fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// Returns the number of players in the zone.
    pub fn players(&self) -> u32 {
        self.index.count()
    }

    /// Returns the row and the card of a player; `None` if it is not here.
    pub(crate) fn card(&self, player_id: u64) -> Option<(u32, &Card)> {
        let row = self.find(player_id)?;
        Some((row, &self.cards[row]))
    }

    /// Returns the cards of all players, in no particular order.
    pub(crate) fn cards(&self) -> impl Iterator<Item = &Card> {
        let rows = (0..self.used).map(|row| &self.cards[row]);
        rows.filter(|card| card.player_id != 0)
    }

    /// Returns the numbers of the players from this one on, in order.
    pub(crate) fn players_from(&self, player_id: u64) -> impl Iterator<Item = u64> + '_ {
        self.numbers.range(player_id..).copied()
    }

    /// Returns a player's place on the zone's board.
    pub(crate) fn place(&self, player_id: u64) -> Option<Place> {
        let row = self.find(player_id)?;
        Some(self.place_of(row, self.rank(row) + 1))
    }

    /// Returns the number of players who are before the one in a row on the zone's board.
    pub(crate) fn rank(&self, row: u32) -> u32 {
        self.board.rank(zone_key(&self.cards[row]))
    }

    /// Returns the places from `rank` on, at most `count`.
    pub(crate) fn places(&self, rank: u32, count: u32) -> impl Iterator<Item = Place> + '_ {
        let first = rank.max(1);
        (first..first.saturating_add(count))
            .map_while(|rank| Some(self.place_of(self.board.at(rank - 1)?, rank)))
    }

    /// Returns the places around a player's.
    pub(crate) fn places_around(
        &self,
        player_id: u64,
        each_side: u32,
    ) -> Option<impl Iterator<Item = Place> + '_> {
        let (first, count) = ranks_around(self.place(player_id)?.rank, each_side);
        Some(self.places(first, count))
    }

    pub(super) fn place_of(&self, row: u32, rank: u32) -> Place {
        let Card { player_id, score, scored_at_ms, .. } = self.cards[row];
        Place { rank, player_id, score, scored_at_ms, zone: self.partition }
    }

    /// Visits the players around one who is here, itself included: those at most `radius` away, in
    /// no particular order, with the square of the distance. Returns how many players it has looked
    /// at.
    pub(crate) fn around<'a>(
        &'a self,
        player_id: u64,
        radius: u32,
        mut visit: impl FnMut(u64, &'a Card),
    ) -> u32 {
        let (Some((nearby, fields)), Some(row)) = (&self.nearby, self.find(player_id)) else {
            return 0;
        };
        let mut seen = 0;
        let spot_of = |row: u32| spot(&self.cards[row], fields);
        let centre = spot_of(row);
        nearby.visit(centre, radius, spot_of, |row| {
            seen += 1;
            let (x, y) = spot_of(row);
            let square = |at: i32, from: i32| u64::from(at.abs_diff(from)).pow(2);
            let distance = square(x, centre.0).saturating_add(square(y, centre.1));
            if distance <= u64::from(radius).pow(2) {
                visit(distance, &self.cards[row]);
            }
        });
        seen
    }

    /// Returns the game's part.
    pub(crate) fn game(&self) -> &dyn GameView {
        &*self.game
    }

    /// Returns its last updates.
    pub(crate) fn recent(&self) -> &Recent {
        &self.recent
    }

    /// Returns the number of the first update after the last genesis that is known; 0 if none is.
    /// The zone was empty there, so it is another one than before that update.
    pub(crate) fn genesis(&self) -> u64 {
        self.genesis
    }

    pub(super) fn find(&self, player_id: u64) -> Option<u32> {
        self.index.find(player_id, |row| self.cards[row].player_id)
    }

    pub(super) fn world_key(&self, row: u32) -> Key {
        world_key(self.partition, &self.cards[row])
    }

    /// Returns the rows of all players.
    pub(super) fn rows(&self) -> impl Iterator<Item = u32> + use<> {
        let rows: Vec<u32> = (0..self.used).filter(|row| self.cards[*row].player_id != 0).collect();
        rows.into_iter()
    }

    /// Moves a player's time on to the clock that has started.
    pub(super) fn start_clock(&mut self, row: u32) {
        let scored_at_ms = &mut self.cards[row].scored_at_ms;
        *scored_at_ms = scored_at_ms.saturating_add(self.now_ms);
    }

    fn add(&mut self, card: Card) -> u32 {
        let row = self.add_row(card);
        self.board.insert(zone_key(&card), row);
        row
    }

    /// Adds a player who is on no board yet.
    fn add_row(&mut self, card: Card) -> u32 {
        let row = self.free.pop().unwrap_or(self.used);
        self.used = self.used.max(row + 1);
        self.cards.reach(row);
        self.cards[row] = card;
        self.index.insert(card.player_id, row, |row| self.cards[row].player_id);
        self.numbers.insert(card.player_id);
        self.step(row, None, Some(&card));
        row
    }

    /// A player moves; `None` is outside of the zone.
    fn step(&mut self, row: u32, before: Option<&Card>, after: Option<&Card>) {
        if let Some((nearby, fields)) = &mut self.nearby {
            let spot = |card: Option<&Card>| card.map(|card| spot(card, fields));
            nearby.step(row, spot(before), spot(after));
        }
    }

    fn remove(&mut self, row: u32) -> Moved {
        let (card, key) = (self.cards[row], self.world_key(row));
        self.index.remove(card.player_id, row);
        self.numbers.remove(&card.player_id);
        self.board.remove(zone_key(&card));
        self.step(row, Some(&card), None);
        self.cards[row] = Card::default();
        self.free.push(row);
        Moved::Left(card, key)
    }

    /// Ends the frame whose updates were folded.
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
        self.game.prefetch(row);
    }

    /// Folds the next update.
    pub(super) fn fold(&mut self, update: &Update) -> Result<Moved, FoldError> {
        let number = self.recent.next();
        self.is_within_frame = true;
        self.recent.push(*update);
        let payload = update.payload();
        let kind = self.folds[usize::from(payload.kind) - 1];
        let folded = FoldedUpdate { update, number, now_ms: self.now_ms };
        match kind.role {
            // A refusal changes nobody, and a handoff's parts follow the update that removed the
            // player.
            UpdateRole::Refusal | UpdateRole::Handoff => Ok(Moved::Nobody),
            UpdateRole::Clock => Ok(self.on_clock(kind.first(&payload))),
            UpdateRole::Rules => self.on_rules_changed(kind.first(&payload) as u32),
            UpdateRole::World => {
                self.game.fold_zone(&folded);
                Ok(Moved::Nobody)
            }
            UpdateRole::Enter => self.on_entered(&folded, &kind, &payload),
            UpdateRole::Player | UpdateRole::Leave => {
                let row = self.find(update.player_id());
                let row = row.ok_or(FoldError::Inconsistent { update: number })?;
                Ok(self.on_player_update(&folded, row, &kind, &payload))
            }
        }
    }

    fn on_rules_changed(&mut self, ruleset: u32) -> Result<Moved, FoldError> {
        if !self.rules.change_rules(&mut *self.game, ruleset) {
            return Err(FoldError::RulesMissing { ruleset });
        }
        self.ruleset = ruleset;
        Ok(Moved::Nobody)
    }

    /// Takes over the zone's clock. The first events are before it starts: their times, which
    /// counted from 0, move on to it.
    fn on_clock(&mut self, unix_ms: u64) -> Moved {
        let now_ms = i64::try_from(unix_ms).unwrap_or(i64::MAX);
        let before_ms = std::mem::replace(&mut self.now_ms, now_ms);
        if before_ms != 0 || now_ms == 0 {
            return Moved::Nobody;
        }
        self.game.start_clock(now_ms, &self.cards);
        Moved::Clock
    }

    fn on_entered(
        &mut self,
        folded: &FoldedUpdate,
        kind: &KindFold,
        payload: &Payload,
    ) -> Result<Moved, FoldError> {
        let FoldedUpdate { update, number, now_ms } = *folded;
        let player_id = update.player_id();
        let is_full = self.index.count() == self.players_max;
        if player_id == 0 || is_full || self.find(player_id).is_some() {
            return Err(FoldError::Inconsistent { update: number });
        }
        let (changed, scored_at_ms) = (number + 1, now_ms);
        let mut card =
            Card { player_id, scored_update: number, changed, scored_at_ms, ..Card::default() };
        kind.set_fields(payload, &mut card);
        let row = self.add(card);
        self.game.fold(folded, row, None, &mut self.cards[row]);
        let entered = self.cards[row];
        self.step(row, Some(&card), Some(&entered));
        Ok(Moved::Entered(row))
    }

    fn on_player_update(
        &mut self,
        folded: &FoldedUpdate,
        row: u32,
        kind: &KindFold,
        payload: &Payload,
    ) -> Moved {
        let card = &mut self.cards[row];
        let before = *card;
        card.changed = folded.number + 1;
        kind.set_fields(payload, card);
        self.game.fold(folded, row, Some(&before), card);
        let after = *card;
        self.step(row, Some(&before), Some(&after));
        match kind.score(payload) {
            _ if kind.role == UpdateRole::Leave => self.remove(row),
            Some(score) => self.on_scored(folded.number, row, score),
            None => Moved::Nobody,
        }
    }

    fn on_scored(&mut self, number: u64, row: u32, score: u64) -> Moved {
        let before = self.world_key(row);
        self.board.remove(zone_key(&self.cards[row]));
        let card = &mut self.cards[row];
        (card.score, card.scored_update, card.scored_at_ms) = (score, number, self.now_ms);
        self.board.insert(zone_key(&self.cards[row]), row);
        Moved::Scored(row, before)
    }
}

/// Returns where a player is.
fn spot(card: &Card, [x, y]: &[usize; 2]) -> Spot {
    (card.signed(*x), card.signed(*y))
}
