//! Hunts and their treasures: what a zone knows of them.

use crate::engine::index::Index;
use crate::engine::path::Path;
use crate::engine::state::Words;
use crate::engine::table::{Column, Identity, Row, Table};
use crate::engine::tiles::{Tiles, TreasureKey};
use crate::limits::{HUNTS_MAX, TREASURES_MAX};

/// Where a hunt is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The slot holds no hunt.
    #[default]
    Free = 0,
    /// Treasures are being laid, some an event. Those that lie can be opened.
    Laying = 1,
    /// All treasures that found a tile have been laid.
    Open = 2,
    /// It is over: finishers are told and what is left is taken away, some an event.
    Closing = 3,
}

/// One hunt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hunt {
    /// Its number.
    pub hunt: u32,
    /// Where it is in its life.
    pub phase: Phase,
    /// Treasures of the event that started it.
    pub treasures: u16,
    /// How many of them have been tried to lay.
    pub tried: u16,
    /// How many of those found a tile.
    pub laid: u16,
    /// How many were opened.
    pub opened: u16,
    /// While laid: how many the path cache knows. While closing: how many were taken away.
    pub swept: u16,
    /// Decides where treasures lie and what they hold.
    pub seed: u64,
    /// When it began.
    pub started_ms: u64,
    /// When its window is over.
    pub ends_ms: u64,
    /// Players that opened enough treasures.
    pub finishers: u16,
    /// How many of them have been told.
    pub told: u16,
}

impl Hunt {
    /// Whether treasures can be opened.
    pub fn running(&self) -> bool {
        matches!(self.phase, Phase::Laying | Phase::Open)
    }

    /// Whether all treasures were laid and opened.
    pub fn all_found(&self) -> bool {
        self.phase == Phase::Open && self.opened == self.laid
    }
}

impl Row<6> for Hunt {
    const IDENTITY: Identity = Identity::Number;

    fn to_words(&self) -> [u64; 6] {
        let counts = [self.treasures, self.tried, self.laid, self.opened];
        let counts = counts.iter().rev().fold(0, |word, count| word << 16 | u64::from(*count));
        let told =
            u64::from(self.swept) | u64::from(self.finishers) << 16 | u64::from(self.told) << 32;
        let first = u64::from(self.hunt) | (self.phase as u64) << 32;
        [first, counts, told, self.seed, self.started_ms, self.ends_ms]
    }

    fn from_words(words: [u64; 6]) -> Option<Hunt> {
        let [first, counts, told, seed, started_ms, ends_ms] = words;
        let hunt = Hunt {
            hunt: first as u32,
            phase: match first >> 32 {
                0 => Phase::Free,
                1 => Phase::Laying,
                2 => Phase::Open,
                3 => Phase::Closing,
                _ => return None,
            },
            treasures: counts as u16,
            tried: (counts >> 16) as u16,
            laid: (counts >> 32) as u16,
            opened: (counts >> 48) as u16,
            swept: told as u16,
            seed,
            started_ms,
            ends_ms,
            finishers: (told >> 16) as u16,
            told: (told >> 32) as u16,
        };
        let counts = [hunt.tried, hunt.laid, hunt.opened, hunt.swept, hunt.finishers, hunt.told];
        let valid = usize::from(hunt.treasures) <= TREASURES_MAX
            && counts.iter().all(|count| *count <= hunt.treasures)
            && hunt.told <= hunt.finishers
            && (hunt.phase != Phase::Free || words == [0; 6])
            && hunt.to_words() == words;
        valid.then_some(hunt)
    }
}

/// One treasure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Treasure {
    /// Not laid, or taken away.
    #[default]
    Nowhere,
    /// Lies on this tile.
    Lies(u32),
    /// Was opened.
    Opened,
}

impl Row<1> for Treasure {
    const IDENTITY: Identity = Identity::Number;

    fn to_words(&self) -> [u64; 1] {
        match self {
            Treasure::Nowhere => [0],
            Treasure::Opened => [1],
            Treasure::Lies(tile) => [u64::from(*tile) + 2],
        }
    }

    fn from_words([word]: [u64; 1]) -> Option<Treasure> {
        Some(match word {
            0 => Treasure::Nowhere,
            1 => Treasure::Opened,
            _ => Treasure::Lies(u32::try_from(word - 2).ok()?),
        })
    }
}

/// A player that opened enough treasures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finisher {
    /// The player.
    pub player_id: u64,
    /// From the hunt's start to the treasure that made it a finisher.
    pub elapsed_ms: u32,
    /// Treasures that it opened.
    pub found: u16,
}

impl Row<2> for Finisher {
    const IDENTITY: Identity = Identity::Number;

    fn to_words(&self) -> [u64; 2] {
        [self.player_id, u64::from(self.elapsed_ms) | u64::from(self.found) << 32]
    }

    fn from_words([player_id, word]: [u64; 2]) -> Option<Finisher> {
        let found = u16::try_from(word >> 32).ok()?;
        Some(Finisher { player_id, elapsed_ms: word as u32, found })
    }
}

/// Which treasures of one hunt lie, a bit each: the search for paths asks for each tile it meets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lying([u64; TREASURES_MAX / 64]);

impl Lying {
    /// Whether a treasure lies.
    #[inline]
    pub(crate) fn has(&self, number: u16) -> bool {
        self.0[usize::from(number) / 64 % self.0.len()] >> (number % 64) & 1 == 1
    }

    fn set(&mut self, number: u16, lies: bool) {
        let word = &mut self.0[usize::from(number) / 64];
        *word = *word & !(1 << (number % 64)) | u64::from(lies) << (number % 64);
    }
}

/// All hunts of a zone, by slot.
#[derive(Clone, Debug)]
pub struct Hunts {
    hunts: Table<Hunt, 6>,
    /// By slot, then by number.
    pub(crate) treasures: [Column<Treasure>; HUNTS_MAX],
    /// By slot, then by rank.
    pub(crate) finishers: [Table<Finisher, 2>; HUNTS_MAX],
    finisher_index: [Index; HUNTS_MAX],
    /// By slot, a bit for each treasure that lies: what follows from the treasures.
    lying: [Lying; HUNTS_MAX],
    pub(crate) paths: [Path; HUNTS_MAX],
    /// The highest number of a hunt so far.
    pub(crate) last_hunt: u32,
    /// When the first window of a running hunt is over; the largest number if none runs.
    due_ms: u64,
    /// A bit for each slot that may have work left to do. What changes a slot sets it.
    busy: u8,
}

impl Hunts {
    /// None yet, on a map of so many tiles.
    pub fn new(tiles: u32) -> Hunts {
        let mut hunts = Table::new(HUNTS_MAX, 4);
        hunts.reach(HUNTS_MAX as u32 - 1);
        Hunts {
            hunts,
            treasures: std::array::from_fn(|slot| Column::new(TREASURES_MAX, 30 + slot as u64)),
            finishers: std::array::from_fn(|slot| Table::new(TREASURES_MAX, 40 + slot as u64)),
            finisher_index: std::array::from_fn(|_| Index::new(TREASURES_MAX)),
            lying: [Lying([0; TREASURES_MAX / 64]); HUNTS_MAX],
            paths: std::array::from_fn(|slot| Path::new(tiles, slot as u64)),
            last_hunt: 0,
            due_ms: u64::MAX,
            busy: 0,
        }
    }

    /// When the first window of a running hunt is over; the largest number if none runs.
    pub fn due_ms(&self) -> u64 {
        self.due_ms
    }

    /// Whether any slot may have work left to do.
    #[inline]
    pub fn any_busy(&self) -> bool {
        self.busy != 0
    }

    /// The slots that may have work left to do, each once, from `first` on and then from 0.
    #[inline]
    pub fn busy_from(&self, first: usize) -> impl Iterator<Item = usize> + use<> {
        let twice = u32::from(self.busy) | u32::from(self.busy) << HUNTS_MAX;
        let mut left = twice >> first & ((1 << HUNTS_MAX) - 1);
        std::iter::from_fn(move || {
            let turn = left.trailing_zeros() as usize;
            let found = left != 0;
            left &= left.wrapping_sub(1);
            found.then_some((first + turn) % HUNTS_MAX)
        })
    }

    /// Notes that a slot has no work left until something in it changes.
    pub fn rest(&mut self, slot: usize) {
        self.busy &= !(1 << slot);
    }

    /// The hunt in a slot.
    pub fn hunt(&self, slot: usize) -> &Hunt {
        self.hunts.row(slot as u32)
    }

    /// Changes the hunt in a slot.
    pub fn write(&mut self, slot: usize, hunt: Hunt) {
        let before = *self.hunt(slot);
        self.busy |= 1 << slot;
        self.hunts.write(slot as u32, hunt);
        if (before.running(), before.ends_ms) == (hunt.running(), hunt.ends_ms) {
            return;
        }
        let running = (0..HUNTS_MAX).map(|slot| self.hunt(slot)).filter(|hunt| hunt.running());
        self.due_ms = running.map(|hunt| hunt.ends_ms).min().unwrap_or(u64::MAX);
    }

    /// The slot of a running hunt.
    pub fn find(&self, hunt: u32) -> Option<usize> {
        (0..HUNTS_MAX).find(|slot| self.hunt(*slot).running() && self.hunt(*slot).hunt == hunt)
    }

    /// A treasure.
    pub fn treasure(&self, slot: usize, number: u16) -> Treasure {
        self.treasures[slot].row(number.into())
    }

    /// Changes a treasure.
    pub fn write_treasure(&mut self, slot: usize, number: u16, treasure: Treasure) {
        self.treasures[slot].reach(number.into());
        self.treasures[slot].write(number.into(), treasure);
        self.lying[slot].set(number, matches!(treasure, Treasure::Lies(_)));
    }

    /// Which treasures lie.
    pub(crate) fn lying(&self, slot: usize) -> &Lying {
        &self.lying[slot]
    }

    /// Works on one tile of a slot's paths; `false`: there is nothing to do.
    #[inline]
    pub fn search(&mut self, slot: usize, tiles: &Tiles) -> bool {
        let lying = &self.lying[slot];
        self.paths[slot].step(tiles, |number| lying.has(number))
    }

    /// The finisher of this rank, counted from 0.
    pub fn finisher(&self, slot: usize, rank: u16) -> Finisher {
        *self.finishers[slot].row(rank.into())
    }

    /// The rank of a finisher, counted from 0.
    pub fn rank_of(&self, slot: usize, player_id: u64) -> Option<u16> {
        let id_of = |rank| self.finishers[slot].row(rank).player_id;
        self.finisher_index[slot].find(player_id, id_of).map(|rank| rank as u16)
    }

    /// Adds the finisher of the next rank.
    pub fn add_finisher(&mut self, slot: usize, rank: u16, finisher: Finisher) {
        self.finishers[slot].reach(rank.into());
        self.finishers[slot].write(rank.into(), finisher);
        let id_of = |rank| self.finishers[slot].row(rank).player_id;
        self.finisher_index[slot].insert(finisher.player_id, rank.into(), id_of);
    }

    /// Changes how much a finisher found.
    pub fn write_found(&mut self, slot: usize, rank: u16, found: u16) {
        let finisher = self.finisher(slot, rank);
        let found = found.max(finisher.found);
        self.finishers[slot].write(rank.into(), Finisher { found, ..finisher });
    }

    /// Forgets a finisher.
    pub fn remove_finisher(&mut self, slot: usize, rank: u16) {
        let player_id = self.finisher(slot, rank).player_id;
        self.finisher_index[slot].remove(player_id, rank.into());
        self.finishers[slot].write(rank.into(), Finisher::default());
    }

    /// The hunts that a capture told, whose treasures this lays on the tiles.
    pub fn decode(tiles: &mut Tiles, words: &mut Words) -> Option<Hunts> {
        let mut hunts = Hunts::new(tiles.count());
        hunts.last_hunt = u32::try_from(words.word()?).ok()?;
        for slot in 0..HUNTS_MAX {
            let hunt = Hunt::from_words(words.take()?)?;
            hunts.write(slot, hunt);
            for number in 0..hunt.tried {
                let treasure = Treasure::from_words(words.take()?)?;
                if let Treasure::Lies(tile) = treasure {
                    if tile >= tiles.count() || tiles.treasure(tile).is_some() {
                        return None;
                    }
                    tiles.lay(tile, Some(TreasureKey { slot: slot as u8, number }));
                }
                hunts.write_treasure(slot, number, treasure);
            }
            for rank in hunt.told..hunt.finishers {
                let finisher = Finisher::from_words(words.take()?)?;
                if hunts.rank_of(slot, finisher.player_id).is_some() {
                    return None;
                }
                hunts.add_finisher(slot, rank, finisher);
            }
            hunts.paths[slot].decode(tiles.count(), hunt.tried, words)?;
        }
        Some(hunts)
    }

    /// Hash of all hunts.
    pub fn digest(&self) -> u64 {
        let treasures = self.treasures.iter().map(Column::digest);
        let finishers = self.finishers.iter().map(Table::digest);
        let paths = self.paths.iter().map(Path::digest);
        let slots = treasures.chain(finishers).chain(paths);
        let sum = slots.fold(self.hunts.digest(), u64::wrapping_add);
        sum.wrapping_add(u64::from(self.last_hunt))
    }
}
