//! All zones together, and the world's board.
//!
//! A player who is in two zones at once, as after an arrival that was overtaken by a join, counts
//! once, at its best place. Between leaving a zone and arriving in another it is on no board.

use crate::kit::PLAYERS_MAX;
use crate::kit::index::Lookup;
use crate::kit::rank_tree::RankTree;
use crate::kit::update::Update;
use crate::view::board::{Place, ranks_around};
use crate::view::card::{Card, Listing};
use crate::view::game::ViewedGame;
use crate::view::zone::{FoldError, Moved, ZoneView};
use std::sync::Arc;

/// Updates from one prefetch step to the next, and from there to the fold. Players lie anywhere in
/// memory, so several waits for them overlap.
const UPDATES_AHEAD: usize = 8;

/// Zones of a view: their number and a player's row make one word of the world's board.
const ZONES_MAX: usize = 4096;
const _: () = assert!(ZONES_MAX * PLAYERS_MAX <= 1 << 32 && PLAYERS_MAX.is_power_of_two());

/// The view of the world.
#[derive(Debug)]
pub struct View {
    /// By partition. `None`: the zone is not known, or not any more.
    zones: Vec<Option<Box<ZoneView>>>,
    board: RankTree,
}

fn entry(partition: u16, row: u32) -> u32 {
    u32::from(partition) * PLAYERS_MAX as u32 + row
}

/// The look-ups ahead of time of the next updates, by number.
#[derive(Default)]
struct LookupsAhead {
    lookups: [Lookup; 2 * UPDATES_AHEAD],
}

impl LookupsAhead {
    /// Before the update `at` of these is folded.
    fn advance(&mut self, zone: &ZoneView, updates: &[Update], at: usize) {
        let places = self.lookups.len();
        if at == 0 {
            self.lookups
                .iter_mut()
                .zip(updates)
                .for_each(|(of, next)| *of = zone.begin_lookup(next));
            self.lookups[..UPDATES_AHEAD].iter().for_each(|of| zone.prefetch(*of));
        }
        zone.prefetch(self.lookups[(at + UPDATES_AHEAD) % places]);
        if let Some(next) = updates.get(at + places) {
            self.lookups[at % places] = zone.begin_lookup(next);
        }
    }
}

impl View {
    /// Creates a view without zones, with room for this many zones and this many players in all.
    pub(crate) fn new(zones: usize, players_max: usize) -> View {
        assert!(zones <= ZONES_MAX);
        View { zones: (0..zones).map(|_| None).collect(), board: RankTree::new(players_max) }
    }

    /// Returns a zone; `None` if it is not known.
    pub(crate) fn zone(&self, partition: u16) -> Option<&ZoneView> {
        self.zones.get(usize::from(partition))?.as_deref()
    }

    /// Returns the zones that are known.
    pub(crate) fn zones(&self) -> impl Iterator<Item = &ZoneView> {
        self.zones.iter().flatten().map(|zone| &**zone)
    }

    /// Returns the number of players on the world's board.
    pub(crate) fn players(&self) -> u32 {
        self.board.count()
    }

    /// Returns the zone in which a player is, the one of its best place if there are two.
    pub(crate) fn zone_of(&self, player_id: u64) -> Option<&ZoneView> {
        self.zones().find(|zone| {
            let card = zone.card(player_id).map(|(_, card)| card);
            card.is_some_and(|card| card.listing != Listing::Elsewhere)
        })
    }

    /// Returns a player's place in the world.
    pub(crate) fn place(&self, player_id: u64) -> Option<Place> {
        let zone = self.zone_of(player_id)?;
        let row = zone.find(player_id)?;
        Some(zone.place_of(row, self.board.rank(zone.world_key(row)) + 1))
    }

    /// Returns the places from `rank` on, at most `count`.
    pub(crate) fn places(&self, rank: u32, count: u32) -> impl Iterator<Item = Place> + '_ {
        let first = rank.max(1);
        (first..first.saturating_add(count)).map_while(|rank| {
            let entry = self.board.at(rank - 1)?;
            let zone = self.zone((entry / PLAYERS_MAX as u32) as u16)?;
            Some(zone.place_of(entry % PLAYERS_MAX as u32, rank))
        })
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

    /// Adopts more rules of the same game.
    pub(crate) fn know(&mut self, rules: &Arc<dyn ViewedGame>) {
        self.zones.iter_mut().flatten().for_each(|zone| zone.know(rules));
    }

    /// Puts a zone into the view, in place of what was known of it.
    pub fn put(&mut self, zone: ZoneView) {
        let partition = zone.partition();
        self.take(partition);
        self.zones[usize::from(partition)] = Some(Box::new(zone));
        let zone = self.zones[usize::from(partition)].as_deref().expect("it was just put there");
        let players: Vec<u64> = zone.cards().map(|card| card.player_id).collect();
        for player_id in players {
            let zone = self.zones[usize::from(partition)].as_deref_mut().expect("as before");
            let row = zone.find(player_id).expect("a player of the zone");
            zone.cards[row].listing = Listing::Elsewhere;
            self.settle(player_id);
        }
    }

    /// Removes a zone from the view.
    pub(crate) fn take(&mut self, partition: u16) {
        let Some(zone) = self.zones[usize::from(partition)].take() else { return };
        for card in zone.cards() {
            let row = zone.find(card.player_id).expect("a player of the zone");
            if card.listing != Listing::Elsewhere {
                self.board.remove(zone.world_key(row));
            }
            if card.listing != Listing::Only {
                self.settle(card.player_id);
            }
        }
    }

    /// Folds the next updates of a zone. No answer may be made of the zone until the frame is
    /// sealed.
    pub(crate) fn fold(&mut self, partition: u16, updates: &[Update]) -> Result<(), FoldError> {
        let mut ahead = LookupsAhead::default();
        for (at, update) in updates.iter().enumerate() {
            let zone = self.zones[usize::from(partition)].as_deref_mut();
            let zone = zone.expect("updates are folded into a zone that is known");
            ahead.advance(zone, updates, at);
            match zone.fold(update)? {
                Moved::Nobody => {}
                Moved::Entered(row) => {
                    zone.cards[row].listing = Listing::Elsewhere;
                    self.settle(update.player_id());
                }
                Moved::Scored(row, before) => match zone.cards[row].listing {
                    Listing::Only => {
                        self.board.remove(before);
                        self.board.insert(zone.world_key(row), entry(partition, row));
                    }
                    Listing::Best => {
                        zone.cards[row].listing = Listing::Elsewhere;
                        self.board.remove(before);
                        self.settle(update.player_id());
                    }
                    Listing::Elsewhere => self.settle(update.player_id()),
                },
                Moved::Clock => self.start_clock(partition),
                Moved::Left(card, key) => {
                    if card.listing != Listing::Elsewhere {
                        self.board.remove(key);
                    }
                    if card.listing != Listing::Only {
                        self.settle(card.player_id);
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends the frame whose updates were folded last: the zone has come up to this input offset.
    pub(crate) fn seal(&mut self, partition: u16, next_offset: i64) {
        if let Some(zone) = self.zones[usize::from(partition)].as_deref_mut() {
            zone.seal(next_offset);
        }
    }

    /// Starts the clock of a zone: its players' places move with their times.
    fn start_clock(&mut self, partition: u16) {
        let Some(mut zone) = self.zones[usize::from(partition)].take() else { return };
        let mut moved = Vec::new();
        for row in zone.rows() {
            let Card { player_id, listing, .. } = zone.cards[row];
            if listing != Listing::Elsewhere {
                self.board.remove(zone.world_key(row));
            }
            zone.cards[row].listing = Listing::Elsewhere;
            zone.start_clock(row);
            moved.push(player_id);
        }
        self.zones[usize::from(partition)] = Some(zone);
        moved.into_iter().for_each(|player_id| self.settle(player_id));
    }

    /// Puts a player on the world's board at the best of its places.
    fn settle(&mut self, player_id: u64) {
        let mut rows = Vec::new();
        for zone in self.zones.iter_mut().flatten() {
            let Some(row) = zone.find(player_id) else { continue };
            let key = zone.world_key(row);
            if zone.cards[row].listing != Listing::Elsewhere {
                self.board.remove(key);
            }
            zone.cards[row].listing = Listing::Elsewhere;
            rows.push((key, zone.partition(), row));
        }
        let is_alone = rows.len() == 1;
        let Some((key, partition, row)) = rows.into_iter().min() else { return };
        self.board.insert(key, entry(partition, row));
        let zone = self.zones[usize::from(partition)].as_deref_mut().expect("its row was found");
        zone.cards[row].listing = if is_alone { Listing::Only } else { Listing::Best };
    }
}
